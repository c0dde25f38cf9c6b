/* SPDX-License-Identifier: Apache-2.0 */
/* bench-store.c - transfers whole objects as the trainer does; ops/bench --store measures this program from outside.
 *
 *     bench-store put URI FILE...            deferred puts of all files under their names, one flush
 *     bench-store fill URI KEY BYTES         a deferred put that repeats one buffer
 *     bench-store get URI FOLDER KEY...      store_fetch() into files, four at a time
 *     bench-store read URI KEY...            ranges into memory, eight at a time, not used
 *
 * Prints one line of JSON: CPU seconds after its own buffers were ready, and the peak of resident
 * memory, which includes those buffers (8 MiB for fill, 64 MiB for read). */
#include "store/store.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { FETCHES = 4, READS = 8, BUFFER_BYTES = 8 << 20, FILES_MAX = 64 };

static _noreturn_ void refuse(const char *what, const char *text)
{
    (void)fprintf(stderr, "bench-store: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static void must(int r, const Error *err)
{
    if (r < 0)
        refuse("failed", err->text);
}

/* ---- costs ---- */

static double cpu_begin_sec;

static double cpu_sec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Returns the peak of this program only: getrusage() would include the memory of the program that started it. */
static long peak_kib(void)
{
    _cleanup_file_ FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long kib = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
            break;
    return kib;
}

/* ---- put ---- */

static struct iovec map_file(const char *path)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
        refuse(path, "cannot be read, or is empty");
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        refuse(path, strerror(errno));
    return (struct iovec){data, (size_t)st.st_size};
}

static void put_files(Store *store, char *paths[], int n)
{
    Error err = ERROR_INIT;
    struct iovec files[FILES_MAX]; /* must stay mapped until the flush */
    if (n > FILES_MAX)
        refuse("put", "too many files");
    for (int i = 0; i < n; i++) {
        const char *slash = strrchr(paths[i], '/');
        files[i] = map_file(paths[i]);
        must(store_put(store, slash ? slash + 1 : paths[i], &files[i], 1, STORE_DEFER, &err), &err);
    }
    must(store_flush(store, &err), &err);
}

static void put_filled(Store *store, const char *key, const char *bytes)
{
    Error err = ERROR_INIT;
    char *end;
    const uint64_t n_bytes = strtoull(bytes, &end, 10);
    const size_t n = DIV_ROUND_UP(n_bytes, (uint64_t)BUFFER_BYTES);
    if (*end || n == 0 || n > 1 << 20)
        refuse(bytes, "is not a size of an object");
    _cleanup_free_ char *buffer = malloc(BUFFER_BYTES);
    _cleanup_free_ struct iovec *parts = calloc(n, sizeof(*parts));
    if (!buffer || !parts)
        refuse("fill", "out of memory");
    for (size_t i = 0; i < BUFFER_BYTES; i++)
        buffer[i] = (char)(i * 2654435761U >> 24);
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct iovec){buffer, BUFFER_BYTES};
    parts[n - 1].iov_len = n_bytes - (n - 1) * BUFFER_BYTES;
    cpu_begin_sec = cpu_sec();
    must(store_put(store, key, parts, n, STORE_DEFER, &err), &err);
    must(store_flush(store, &err), &err);
}

/* ---- get ---- */

typedef struct Gets {
    Store *store;
    const char *folder;
    char **keys;
    int n;
    atomic_int next;
} Gets;

static void *fetch_files(void *context)
{
    Gets *gets = context;
    for (int i; (i = atomic_fetch_add(&gets->next, 1)) < gets->n;) {
        Error err = ERROR_INIT;
        uint64_t n_bytes;
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", gets->folder, gets->keys[i]);
        must(store_head(gets->store, gets->keys[i], &n_bytes, &err), &err);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
            refuse(path, strerror(errno));
        must(store_fetch(gets->store, gets->keys[i], n_bytes, fd, &err), &err);
    }
    return NULL;
}

static void get_files(Store *store, const char *folder, char *keys[], int n)
{
    Gets gets = {.store = store, .folder = folder, .keys = keys, .n = n};
    pthread_t threads[FETCHES];
    for (int i = 0; i < FETCHES; i++)
        if (pthread_create(&threads[i], NULL, fetch_files, &gets) != 0)
            refuse("get", "cannot start a thread");
    for (int i = 0; i < FETCHES; i++)
        pthread_join(threads[i], NULL);
}

/* ---- read ---- */

static uint64_t object_bytes(Store *store, const char *key)
{
    Error err = ERROR_INIT;
    uint64_t n_bytes;
    must(store_head(store, key, &n_bytes, &err), &err);
    return n_bytes;
}

/* Reads the objects one after another, as a continuous sequence of ranges. */
static void read_objects(Store *store, char *keys[], int n)
{
    Error err = ERROR_INIT;
    StoreRead reads[READS];
    char(*buffers)[BUFFER_BYTES] = malloc(READS * sizeof(*buffers));
    if (!buffers)
        refuse("read", "out of memory");
    memset(buffers, 1, READS * sizeof(*buffers));
    cpu_begin_sec = cpu_sec();

    size_t begun = 0, ended = 0;
    for (int i = 0; i < n; i++) {
        const uint64_t n_bytes = object_bytes(store, keys[i]);
        for (uint64_t at = 0; at < n_bytes; begun++) {
            StoreRead *read = &reads[begun % READS];
            if (begun == ended + READS)
                must(store_read_wait(store, &reads[ended++ % READS], &err), &err);
            *read = (StoreRead){.key = keys[i],
                                .offset = at,
                                .n_bytes = (size_t)MIN(n_bytes - at, (uint64_t)BUFFER_BYTES),
                                .buffer = buffers[begun % READS]};
            must(store_read_begin(store, read, &err), &err);
            at += read->n_bytes;
        }
    }
    while (ended < begun)
        must(store_read_wait(store, &reads[ended++ % READS], &err), &err);
    free(buffers);
}

int main(int argc, char *argv[])
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    if (argc < 4)
        refuse("usage", "bench-store put|fill|get|read URI ...; see the head of bench-store.c");
    must(store_open(argv[2], &store, &err), &err);
    if (strcmp(argv[1], "put") == 0)
        put_files(store, argv + 3, argc - 3);
    else if (strcmp(argv[1], "fill") == 0 && argc == 5)
        put_filled(store, argv[3], argv[4]);
    else if (strcmp(argv[1], "get") == 0 && argc > 4)
        get_files(store, argv[3], argv + 4, argc - 4);
    else if (strcmp(argv[1], "read") == 0)
        read_objects(store, argv + 3, argc - 3);
    else
        refuse("usage", "see the head of bench-store.c");
    printf("{\"cpu_s\": %.4f, \"peak_mib\": %.1f}\n", cpu_sec() - cpu_begin_sec,
           (double)peak_kib() / 1024);
    return EXIT_SUCCESS;
}
