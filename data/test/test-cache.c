/* SPDX-License-Identifier: Apache-2.0 */
/* test-cache.c - one cache of shards and indices, used by many processes: one process fetches a file, and the other
 * processes wait for the file or for the end of that process; the bound holds; files of dead processes are cleared. The
 * parent process opens no dataset, so that it can fork at any time. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "data/index-open.h"
#include "data/stream/cache.h"
#include "data/test/testing-loader.h"
#include "store/test/testing-far.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const struct timespec pause_msec = {0, 1000000};

typedef struct Lab {
    Fixture f;
    char uri[PATH_MAX + 8];
    uint64_t shard_bytes; /* bytes of all shards together */
    uint64_t index_bytes;
} Lab;

/* Makes the index. Runs in a child process, as does everything that opens a dataset. */
static int make_index(void *context)
{
    Lab *lab = context;
    Error err = ERROR_INIT;
    Store *store = NULL;
    Index *index = NULL;
    int r = store_open(lab->uri, &store, &err);
    if (r == 0)
        r = index_make(store, false, NULL, NULL, &index, &err);
    if (r < 0)
        log_error("%s", err.text);
    (void)index_free(index);
    (void)store_free(store);
    return r < 0;
}

typedef int Life(void *context);

static pid_t begin(Life *life, void *context, const char *faults)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    Error err = ERROR_INIT;
    /* A child does not outlive the test's process. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setenv("SDTRAIN_FAULT", faults, 1) < 0 ||
        fault_open(&err) < 0)
        _exit(3);
    _exit(life(context));
}

/* Waits for the end of the process, and returns its exit status, or -N if signal N ended it. */
static int end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void lab_begin(Lab *lab, const char *compression)
{
    ScratchData data = plain;
    data.compression = compression;
    far_begin();
    fixture_make(&lab->f, &data);
    (void)snprintf(lab->uri, sizeof(lab->uri), "far://%s", lab->f.folders[0]);
    assert_int_equal(end(begin(make_index, lab, "data.none=eio")), 0);
    lab->f.job.data.streams[0].uri = lab->uri;
    lab->f.job.data.read_ahead = 16;
    lab->f.job.data.cache_dir = lab->f.cache;
    lab->f.job.data.cache_bytes = 1 << 30;
    lab->shard_bytes = 0;
    DIR *dir = opendir(lab->f.folders[0]);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, "shard.", 6) == 0 && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
            lab->shard_bytes += (uint64_t)st.st_size;
    }
    assert_int_equal(closedir(dir), 0);
    struct stat st;
    char path[PATH_MAX];
    assert_int_equal(stat(scratch_path(&lab->f.scratch, "first/" INDEX_NAME, path), &st), 0);
    lab->index_bytes = (uint64_t)st.st_size;
    far_begin();
}

/* Returns how many bytes the cache's folder has now, and counts its whole files and its parts (.part). */
static uint64_t look(const Lab *lab, int *ret_files, int *ret_parts)
{
    uint64_t total = 0;
    DIR *dir = opendir(lab->f.cache);
    *ret_files = *ret_parts = 0;
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, 0) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        total += (uint64_t)st.st_size;
        *(strstr(e->d_name, ".part") ? ret_parts : ret_files) += 1;
    }
    assert_int_equal(closedir(dir), 0);
    return total;
}

/* Runs a rank that reads two passes and compares every number. A failed assertion of cmocka gives a status only in the
 * test's process, so this function returns a status of its own. */
static int rank_life(void *context)
{
    Lab *lab = context;
    Dataset *dataset = NULL;
    Error err = ERROR_INIT;
    if (dataset_open(&lab->f.job, &dataset, &err) < 0) {
        log_error("%s", err.text);
        return 1;
    }
    Loader *loader = NULL;
    int r = loader_new(dataset, &lab->f.job, 0, 0, 6, 1 << 16, &loader, &err);
    for (int64_t step = 0; r == 0 && step < 45; step++) {
        for (int64_t g = 0; r == 0 && g < 6; g++) {
            LoaderGrain grain;
            r = loader_get(loader, step, g, 100 * USEC_PER_SEC, &grain, &err);
            for (int i = 0; r == 0 && i < 4; i++)
                for (int k = 0; k < 4 * 6 * 3; k++)
                    if (grain.latents[i * 72 + k % 18 * 4 + k / 18] !=
                        scratch_latent(&lab->f.data[0], (int)grain.samples[i].sample, k))
                        r = error_set(&err, -EBADMSG, "step %d holds another sample", (int)step);
        }
        if (r == 0)
            loader_release(loader, step);
    }
    if (r < 0)
        log_error("%s", err.text);
    (void)loader_free(loader);
    (void)dataset_free(dataset);
    return r < 0;
}

static void one_fetches_for_all(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        pid_t ranks[4];
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        /* Reads are slow, so that the other ranks have time to start. */
        atomic_store(&far->delay_usec, 2000);
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            ranks[i] = begin(rank_life, &lab, "data.none=eio");
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            assert_int_equal(end(ranks[i]), 0);
        /* Every shard was fetched once, and the index once. */
        assert_int_equal(atomic_load(&far->fetches), 1);
        assert_int_equal(atomic_load(&far->bytes), lab.shard_bytes + lab.index_bytes);
        int files, parts;
        (void)look(&lab, &files, &parts);
        assert_true(files > 5);
        assert_int_equal(parts, 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* Observes the cache until all processes have ended with status 0; the cache must never hold more than the bound. */
static void watch(const Lab *lab, uint64_t bound, pid_t *pids, int n)
{
    int looks = 0, files, parts;
    for (int left = n; left > 0;) {
        /* While files are created and removed, a listing may count both a removed file and its successor. Under the
         * folder's lock no file is created. */
        char path[PATH_MAX];
        int lock =
            cache_lock(scratch_path(&lab->f.scratch, "cache/.lock", path), 60 * USEC_PER_SEC);
        uint64_t bytes = lock >= 0 ? look(lab, &files, &parts) : 0;
        (void)fd_close(lock);
        looks++;
        if (bytes > bound)
            fail_msg("%llu bytes", (unsigned long long)bytes);
        for (int i = 0; i < n; i++) {
            int status;
            if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                pids[i] = 0;
                left--;
            }
        }
        (void)nanosleep(&pause_msec, NULL);
    }
    print_message("%d looks\n", looks);
}

static void the_bound_holds_for_all_together(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        pid_t ranks[3];
        int files, parts;
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        /* The cache has room for the index, three shards and a compressed shard. */
        lab.f.job.data.cache_bytes = (int64_t)lab.index_bytes + 40000;
        for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
            ranks[i] = begin(rank_life, &lab, "data.none=eio");
        watch(&lab, lab.index_bytes + 40000, ranks, ELEMENTSOF(ranks));
        (void)look(&lab, &files, &parts);
        assert_int_equal(parts, 0);
        assert_true(files > 1);
        scratch_remove(&lab.f.scratch);
    }
}

/* A process is killed while it fetches a shard into a part (.part); a later process removes the part. */
static void a_killed_fetcher_leaves_nothing(void **state)
{
    (void)state;
    const char *faults[] = {"cache.commit=kill@3", "cache.write=kill@3", "cache.reserve=kill@3"};
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        Lab lab;
        int files, parts;
        lab_begin(&lab, i == 1 ? "zstd:1" : NULL);
        assert_int_equal(end(begin(rank_life, &lab, faults[i])), -SIGKILL);
        (void)look(&lab, &files, &parts);
        assert_true(parts > 0);
        lab.f.job.data.shuffle_window = 1; /* this gives the samples another order */
        assert_int_equal(end(begin(rank_life, &lab, "data.none=eio")), 0);
        (void)look(&lab, &files, &parts);
        assert_int_equal(parts, 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* One process fetches a shard while the store is unreachable, and a second process waits for the shard. When the first
 * process is killed, the second process fetches the shard itself. */
static void who_waits_for_a_dead_one_goes_on(void **state)
{
    (void)state;
    Lab lab;
    int files, parts = 0;
    lab_begin(&lab, NULL);
    atomic_store(&far->away, true);
    pid_t first = begin(rank_life, &lab, "data.none=eio");
    while (atomic_load(&far->under_way) == 0)
        (void)nanosleep(&pause_msec, NULL);
    pid_t second = begin(rank_life, &lab, "data.none=eio");
    while (atomic_load(&far->versions) < 2) /* until the second process opens the dataset */
        (void)nanosleep(&pause_msec, NULL);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(end(first), -SIGKILL);
    atomic_store(&far->away, false);
    assert_int_equal(end(second), 0);
    (void)look(&lab, &files, &parts);
    assert_int_equal(parts, 0);
    assert_true(files > 5);
    scratch_remove(&lab.f.scratch);
}

/* Runs a rank on a real file system that is smaller than the bound, in a mount namespace of its own. */
static int small_disk_life(void *context)
{
    Lab *lab = context;
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        folder_make(lab->f.cache, NULL) < 0 ||
        mount("none", lab->f.cache, "tmpfs", 0, "size=100k") < 0)
        return 77;
    int r = rank_life(lab), files, parts;
    if (r != 0)
        return r;
    uint64_t bytes = look(lab, &files, &parts);
    /* Old files were removed to make room for new ones, and no part is left. */
    return bytes <= 100 << 10 && files >= 2 && parts == 0 ? 0 : 2;
}

static void a_disk_that_is_full_is_made_room_on(void **state)
{
    (void)state;
    for (int zip = 0; zip < 2; zip++) {
        Lab lab;
        lab_begin(&lab, zip ? "zstd:1" : NULL);
        int status = end(begin(small_disk_life, &lab, "data.none=eio"));
        scratch_remove(&lab.f.scratch);
        if (status == 77)
            skip(); /* only root can mount */
        assert_int_equal(status, 0);
    }
}

/* ---- copies of indices ---- */

enum { DATASETS = 6 };

static int open_index(const Lab *lab, int dataset, Index **ret)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(cache_freep) Cache *cache = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    char uri[PATH_MAX + 16];
    (void)snprintf(uri, sizeof(uri), "%s%d", lab->uri, dataset);
    int r = store_open(uri, &store, &err);
    if (r == 0)
        r = cache_new(lab->f.cache, (uint64_t)lab->f.job.data.cache_bytes, &cache, &err);
    if (r == 0)
        r = index_open(store, cache, &index, &err);
    if (r == 0)
        r = index_check(index, &err);
    if (r == 0 && index_n_samples(index) != 500)
        r = error_set(&err, -EBADMSG, "another index");
    if (r < 0)
        log_error("%s", err.text);
    else
        *ret = TAKE_PTR(index);
    return r;
}

/* Opens the indices of all datasets in turn, five times. */
static int indices_life(void *context)
{
    for (int i = 0; i < 5 * DATASETS; i++) {
        _cleanup_(index_freep) Index *index = NULL;
        if (open_index(context, i % DATASETS, &index) < 0)
            return 1;
    }
    return 0;
}

/* Gives the dataset six names, so that it has six indices, and the cache room for `room` of these indices. */
static void indices_begin(Lab *lab, int room)
{
    lab_begin(lab, NULL);
    for (int i = 0; i < DATASETS; i++) {
        char name[16], path[PATH_MAX];
        (void)snprintf(name, sizeof(name), "first%d", i);
        assert_int_equal(symlink("first", scratch_path(&lab->f.scratch, name, path)), 0);
    }
    lab->f.job.data.cache_bytes = (int64_t)lab->index_bytes * room + 1;
}

static int held[2], let_go[2]; /* pipes */

/* Holds an index of the cache open until the parent writes to let_go; then the cache must still have the index. */
static int holder_life(void *context)
{
    _cleanup_(index_freep) Index *index = NULL, *again = NULL;
    char byte = 0;
    int r = open_index(context, 0, &index);
    index = index_free(index);
    if (r == 0)
        r = open_index(context, 0, &index); /* opens the index from the cache */
    if (r < 0 || write(held[1], &byte, 1) != 1 || read(let_go[0], &byte, 1) != 1)
        return 1;
    int before = atomic_load(&far->fetches);
    return open_index(context, 0, &again) < 0 || atomic_load(&far->fetches) != before ? 2 : 0;
}

static void copies_of_indices_are_within_the_bound(void **state)
{
    (void)state;
    Lab lab;
    pid_t others[3];
    char byte = 0;
    int files, parts;
    indices_begin(&lab, 4); /* one index is held open, and each of the three processes fills one */
    assert_int_equal(pipe(held), 0);
    assert_int_equal(pipe(let_go), 0);
    pid_t holder = begin(holder_life, &lab, "data.none=eio");
    assert_int_equal(read(held[0], &byte, 1), 1);
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        others[i] = begin(indices_life, &lab, "data.none=eio");
    watch(&lab, 4 * lab.index_bytes + 1, others, ELEMENTSOF(others));
    assert_int_equal(write(let_go[1], &byte, 1), 1);
    assert_int_equal(end(holder), 0);
    assert_true(atomic_load(&far->fetches) > DATASETS); /* indices were removed and fetched again */
    (void)look(&lab, &files, &parts);
    assert_int_equal(files, 4);
    assert_int_equal(parts, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(held[i]), 0);
        assert_int_equal(close(let_go[i]), 0);
    }
    scratch_remove(&lab.f.scratch);
}

static void an_index_without_room_has_no_name(void **state)
{
    (void)state;
    Lab lab;
    int files, parts;
    indices_begin(&lab, 0);
    assert_int_equal(end(begin(indices_life, &lab, "data.none=eio")), 0);
    assert_int_equal(look(&lab, &files, &parts), 0);
    assert_int_equal(files + parts, 0);
    scratch_remove(&lab.f.scratch);
}

/* A process is killed while it fetches the index into a part (.part); a later process removes the part. */
static void a_killed_fetcher_of_an_index_leaves_nothing(void **state)
{
    (void)state;
    const char *faults[] = {"cache.reserve=kill@2", "cache.commit=kill@2"};
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        Lab lab;
        int files, parts;
        indices_begin(&lab, 2);
        assert_int_equal(end(begin(indices_life, &lab, faults[i])), -SIGKILL);
        (void)look(&lab, &files, &parts);
        assert_int_equal(files, 1);
        assert_int_equal(parts, 1);
        assert_int_equal(end(begin(indices_life, &lab, "data.none=eio")), 0);
        assert_true(look(&lab, &files, &parts) <= 2 * lab.index_bytes + 1);
        assert_int_equal(files, 2);
        assert_int_equal(parts, 0);
        scratch_remove(&lab.f.scratch);
    }
}

/* One process stops before it renames its index, and a second process waits for the index. When the first process is
 * killed, the second process fetches the index itself. */
static void who_waits_for_an_index_goes_on(void **state)
{
    (void)state;
    Lab lab;
    int files, parts, status;
    indices_begin(&lab, 3);
    pid_t first = begin(indices_life, &lab, "cache.commit=stop");
    assert_int_equal(waitpid(first, &status, WUNTRACED), first);
    assert_true(WIFSTOPPED(status));
    pid_t second = begin(indices_life, &lab, "data.none=eio");
    while (atomic_load(&far->versions) < 2)
        (void)nanosleep(&pause_msec, NULL);
    assert_int_equal(atomic_load(&far->fetches), 1);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(end(first), -SIGKILL);
    assert_int_equal(end(second), 0);
    (void)look(&lab, &files, &parts);
    assert_int_equal(files, 3);
    assert_int_equal(parts, 0);
    scratch_remove(&lab.f.scratch);
}

/* ---- a cache without a loader ---- */

static void put_file(Cache *cache, const char *name, size_t n_bytes)
{
    int fd = cache_reserve(cache, name, n_bytes);
    assert_true(fd >= 0);
    assert_int_equal(cache_commit(cache, name, fd, false), 0);
    (void)fd_close(fd);
}

static bool has_file(Cache *cache, const char *name, size_t n_bytes)
{
    int fd = cache_open(cache, name, n_bytes);
    (void)fd_close(fd);
    return fd >= 0;
}

#define EIGHT(c) c c c c c c c c
#define HASH(c) EIGHT(c) EIGHT(c) EIGHT(c) EIGHT(c)
#define OWN(c) HASH(c) "-7.mds"

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    Scratch scratch = scratch_make();
    char folder[PATH_MAX];
    Error err = ERROR_INIT;
    Cache *cache;
    (void)scratch_path(&scratch, "deep/cache", folder);
    assert_good(cache_new(folder, 35000, &cache, &err), err);
    const char *names[] = {OWN("a"), OWN("b"), OWN("c")};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        put_file(cache, names[i], 10000);
        (void)nanosleep(&(struct timespec){0, 20000000}, NULL); /* so that file times differ */
    }
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    char path[PATH_MAX];
    assert_int_equal(utimensat(AT_FDCWD, scratch_path(&scratch, "deep/cache/" OWN("a"), path), old,
                               0),
                     0);
    assert_true(has_file(cache, OWN("a"), 10000)); /* a is used now, so b is the oldest file */
    put_file(cache, OWN("d"), 10000);
    assert_false(has_file(cache, OWN("b"), 10000));
    assert_true(has_file(cache, OWN("a"), 10000));

    /* A file that is open for reading is not removed, however old it is. */
    int reader = cache_open(cache, OWN("c"), 10000);
    assert_true(reader >= 0);
    put_file(cache, OWN("f"), 20000);
    assert_true(has_file(cache, OWN("c"), 10000));
    assert_int_equal(cache_reserve(cache, OWN("1"), 30000), -ENOBUFS);
    (void)fd_close(reader);

    /* A file that is being filled counts towards the bound and is not removed. */
    int fd = cache_reserve(cache, OWN("e"), 20000);
    assert_true(fd >= 0);
    assert_int_equal(cache_reserve(cache, OWN("e"), 20000), -EAGAIN);
    assert_int_equal(cache_reserve(cache, OWN("f"), 20000), -ENOBUFS);
    assert_int_equal(cache_reserve(cache, OWN("f"), 40000), -ENOBUFS);
    assert_int_equal(cache_commit(cache, OWN("e"), fd, true), 0);
    assert_int_equal(cache_reserve(cache, OWN("e"), 20000), -EEXIST);
    (void)fd_close(fd);
    assert_false(has_file(cache, OWN("e"), 10000)); /* its size is wrong: it is removed */
    assert_false(has_file(cache, OWN("e"), 20000));
    fd = cache_reserve(cache, OWN("0"), 100);
    assert_true(fd >= 0);
    fd = cache_abandon(cache, OWN("0"), fd);
    fd = cache_reserve(cache, OWN("0"), 100);
    assert_true(fd >= 0);
    fd = cache_abandon(cache, OWN("0"), fd);

    /* The size of a file may be set after the file was reserved, and may change. */
    fd = cache_reserve(cache, HASH("2") ".index", CACHE_ANY);
    assert_true(fd >= 0);
    assert_int_equal(cache_reserve(cache, HASH("2") ".index", CACHE_ANY), -EAGAIN);
    assert_int_equal(cache_resize(cache, HASH("2") ".index", fd, 40000), -ENOBUFS);
    assert_int_equal(cache_resize(cache, HASH("2") ".index", fd, 0), 0);
    assert_int_equal(cache_resize(cache, HASH("2") ".index", fd, 100), 0);
    assert_int_equal(cache_commit(cache, HASH("2") ".index", fd, true), 0);
    (void)fd_close(fd);
    assert_true(has_file(cache, HASH("2") ".index", CACHE_ANY));
    assert_true(has_file(cache, HASH("2") ".index", 100));
    cache_free(cache);
    scratch_remove(&scratch);
}

static void write_strangers(const char *folder, const char *const *names, size_t n)
{
    Error err = ERROR_INIT;
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_good(file_write(path, "somebody's", 10, 0, &err), err);
    }
}

/* A user who may open a file may also lock it, so other users must not be able to open the files. */
static void nobody_else_can_lock(void **state)
{
    (void)state;
    Scratch scratch = scratch_make();
    char folder[PATH_MAX], path[PATH_MAX];
    Error err = ERROR_INIT;
    Cache *cache;
    struct stat st;
    (void)scratch_path(&scratch, "cache", folder);
    assert_good(cache_new(folder, 15000, &cache, &err), err);
    put_file(cache, OWN("a"), 10000);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    (void)snprintf(path, sizeof(path), "%s/.lock", folder);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, OWN("a"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0007, 0);
    cache_free(cache);
    scratch_remove(&scratch);
}

static void only_own_files_are_removed(void **state)
{
    (void)state;
    /* Each name is nearly, but not exactly, the name of a cache's file. */
    static const char *const names[] = {"shard.00000.mds",
                                        "shard.00000.mds.zstd",
                                        "x.index",
                                        "notes.index.part",
                                        HASH("a") ".mds",
                                        HASH("a") "-.mds",
                                        HASH("a") "-7.mds.gz",
                                        HASH("A") "-7.mds",
                                        HASH("a") "a-7.mds",
                                        HASH("a") "-7.mds.part.part",
                                        HASH("a") ".index.zip",
                                        HASH("a") "-7",
                                        "my" OWN("a")};
    Scratch scratch = scratch_make();
    char folder[PATH_MAX], path[PATH_MAX];
    Error err = ERROR_INIT;
    Cache *cache;
    (void)scratch_path(&scratch, "cache", folder);
    assert_good(folder_make(folder, &err), err);

    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        write_strangers(folder, &names[i], 1);
        assert_int_equal(cache_new(folder, 1000, &cache, &err), -EINVAL);
        assert_names(err, names[i]);
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }

    /* Once the cache has claimed the folder, files with these names are kept and do not count towards the bound. */
    assert_good(cache_new(folder, 15000, &cache, &err), err);
    put_file(cache, OWN("a"), 10000);
    write_strangers(folder, names, ELEMENTSOF(names));
    put_file(cache, OWN("b"), 10000);
    assert_false(has_file(cache, OWN("a"), 10000));
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(access(path, F_OK), 0);
    }
    cache_free(cache);
    /* The folder's marker shows that the folder is a cache. */
    assert_good(cache_new(folder, 15000, &cache, &err), err);

    /* The folder may change its purpose while it is in use: it becomes a dataset, or another folder is mounted
     * there. */
    write_strangers(folder, (const char *const[]){"index.json"}, 1);
    assert_int_equal(cache_reserve(cache, OWN("c"), 10000), -ENOTEMPTY);
    assert_true(has_file(cache, OWN("b"), 10000));
    cache_free(cache);
    assert_int_equal(cache_new(folder, 15000, &cache, &err), -EINVAL);
    assert_names(err, "holds an index.json");
    scratch_remove(&scratch);
}

int main(void)
{
    log_open("test-cache");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(only_own_files_are_removed),
        cmocka_unit_test(nobody_else_can_lock),
        cmocka_unit_test(one_fetches_for_all),
        cmocka_unit_test(the_bound_holds_for_all_together),
        cmocka_unit_test(a_killed_fetcher_leaves_nothing),
        cmocka_unit_test(who_waits_for_a_dead_one_goes_on),
        cmocka_unit_test(a_disk_that_is_full_is_made_room_on),
        cmocka_unit_test(copies_of_indices_are_within_the_bound),
        cmocka_unit_test(an_index_without_room_has_no_name),
        cmocka_unit_test(a_killed_fetcher_of_an_index_leaves_nothing),
        cmocka_unit_test(who_waits_for_an_index_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
