/* SPDX-License-Identifier: Apache-2.0 */
/* test-store.c - the guarantees of every store, through the public interface: for file://, and for s3:// if
 * SDTRAIN_TEST_S3_URI names a bucket. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "store/store.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test-store-XXXXXX";
static const char *uri = folder;
static bool is_s3, is_swift;

/* Larger than two parts of the minimum size: s3:// sends it in three parts. */
enum { LARGE_BYTES = (11 << 20) + 7 };

static Store *open_store(void)
{
    Error err = ERROR_INIT;
    Store *store;
    assert_int_equal(store_open(uri, &store, &err), 0);
    return store;
}

static int put_text(Store *store, const char *key, const char *text, StorePutFlags flags,
                    Error *err)
{
    /* Two parts, so that the border between them is tested, too. */
    size_t n = strlen(text) / 3;
    struct iovec parts[] = {{(void *)(uintptr_t)text, n},
                            {(void *)(uintptr_t)(text + n), strlen(text) - n}};
    return store_put(store, key, parts, 2, flags, err);
}

static void assert_text(Store *store, const char *key, const char *expected)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t n;
    assert_int_equal(store_get(store, key, 1000, &text, &n, &err), 0);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(text, expected);
}

static char *large_new(void)
{
    char *large = malloc(LARGE_BYTES);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE_BYTES; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    return large;
}

static void assert_empty(Store *store, const char *prefix)
{
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(store_list(store, prefix, 1000, &list, &err), 0);
    assert_int_equal(list.n_objects, 0);
    store_list_clear(&list);
}

static void remove_all(Store *store, const char *prefix)
{
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(store_list(store, prefix, 2000, &list, &err), 0);
    const char *keys[2000];
    for (size_t i = 0; i < list.n_objects; i++)
        keys[i] = list.objects[i].key;
    assert_int_equal(store_delete_many(store, keys, list.n_objects, &err), 0);
    store_list_clear(&list);
    assert_empty(store, prefix);
}

static void test_uris(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    static const char *const bad[] = {
        "",
        "file://",
        "file://host/x",
        "/",
        "/./.",
        "file:///",
        "http://x/y",
        "s3://",
        "s3:///x",
        "s3://ab/x",
        "s3://Bucket/x",
        "s3://buc_ket/x",
        "s3://-bucket/x",
        "s3://bucket./x",
        "s3://buc..ket/x",
        "s3://192.168.0.1/x",
        "s3://bucket/x\ny",
        "s3://a123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Store *store = NULL;
        assert_int_equal(store_open(bad[i], &store, &err), -EINVAL);
        assert_null(store);
        assert_non_null(strstr(err.text, "store"));
    }

    static const char *const same[] = {"/a/b", "file:///a/b", "/a//b/", "/a/./b/.", "file:////a/b"};
    for (size_t i = 0; i < ELEMENTSOF(same); i++) {
        _cleanup_(store_freep) Store *store = NULL;
        assert_int_equal(store_open(same[i], &store, &err), 0);
        assert_string_equal(store_uri(store), "file:///a/b");
    }

    static const struct {
        const char *uri, *normal;
    } buckets[] = {{"s3://abc", "s3://abc"},
                   {"s3://abc/", "s3://abc"},
                   {"s3://my-bucket.x1//", "s3://my-bucket.x1"},
                   {"s3://abc/a//b+/c d/", "s3://abc/a//b+/c d"},
                   {"s3://abc//x/../%20", "s3://abc//x/../%20"}};
    for (size_t i = 0; i < ELEMENTSOF(buckets); i++) {
        _cleanup_(store_freep) Store *store = NULL;
        assert_int_equal(store_open(buckets[i].uri, &store, &err), 0);
        assert_string_equal(store_uri(store), buckets[i].normal);
    }

    _cleanup_(store_freep) Store *relative = NULL;
    assert_int_equal(store_open("some/folder", &relative, &err), 0);
    _cleanup_free_ char *cwd = getcwd(NULL, 0);
    char expected[5000];
    (void)snprintf(expected, sizeof(expected), "file://%s/some/folder", cwd);
    assert_string_equal(store_uri(relative), expected);
}

static void test_keys(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    static const char *const bad[] = {"",    "/a",   "a/",     "a//b", ".",        "..",
                                      "a/.", "../a", "a/../b", "a\nb", ".put-abc", "a/.put-x"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        uint64_t n;
        assert_int_equal(put_text(store, bad[i], "x", 0, &err), -EINVAL);
        assert_int_equal(store_head(store, bad[i], &n, &err), -EINVAL);
        assert_int_equal(store_delete(store, bad[i], &err), -EINVAL);
    }
    char key[2000];
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    Error err = ERROR_INIT;
    assert_int_equal(put_text(store, key, "x", 0, &err), -EINVAL);
    key[300] = '\0'; /* one part is longer than NAME_MAX */
    assert_int_equal(put_text(store, key, "x", 0, &err), -EINVAL);
}

static void test_put_get_delete(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    uint64_t n;
    char buffer[8] = "";

    assert_int_equal(put_text(store, "a/b/c", "0123456789", 0, &err), 0);
    assert_text(store, "a/b/c", "0123456789");
    assert_int_equal(store_head(store, "a/b/c", &n, &err), 0);
    assert_int_equal(n, 10);
    assert_int_equal(store_get_range(store, "a/b/c", 3, 4, buffer, &err), 0);
    assert_string_equal(buffer, "3456");
    assert_int_equal(store_get_range(store, "a/b/c", 7, 4, buffer, &err), -EIO);
    assert_int_equal(store_get_range(store, "a/b/c", UINT64_MAX, 4, buffer, &err), -EIO);

    char object[600];
    _cleanup_free_ char *whole = NULL;
    size_t n_text;
    (void)snprintf(object, sizeof(object), "%s/a/b/c", store_uri(store));
    assert_int_equal(store_get_uri(object, 10, &whole, &n_text, &err), 0);
    assert_string_equal(whole, "0123456789");
    assert_int_equal(store_get_uri(object, 9, &whole, &n_text, &err), -EFBIG);

    assert_int_equal(put_text(store, "empty", "", 0, &err), 0);
    assert_text(store, "empty", "");

    char *text = NULL;
    assert_int_equal(store_get(store, "a/b/c", 9, &text, NULL, &err), -EFBIG);
    assert_int_equal(store_get(store, "a/b", 9, &text, NULL, &err), -ENOENT);
    assert_int_equal(store_get(store, "a/b/c/d", 9, &text, NULL, &err), -ENOENT);
    assert_int_equal(store_head(store, "nothing", &n, &err), -ENOENT);
    assert_non_null(strstr(err.text, "nothing: no such object"));
    assert_null(text);

    assert_int_equal(put_text(store, "a/b/c", "new", STORE_IF_ABSENT, &err), -EEXIST);
    assert_text(store, "a/b/c", "0123456789");
    assert_int_equal(put_text(store, "a/b/new", "new", STORE_IF_ABSENT, &err), 0);
    assert_text(store, "a/b/new", "new");

    char path[200];
    assert_int_equal(store_local_path(store, "a/b/c", path, sizeof(path), &err),
                     is_s3 ? -EOPNOTSUPP : 0);
    assert_true(is_s3 || access(path, R_OK) == 0);

    assert_int_equal(store_delete(store, "a/b/new", &err), 0);
    assert_int_equal(store_delete(store, "a/b/c", &err), 0);
    assert_int_equal(store_delete(store, "a/b/c", &err), 0);
    assert_int_equal(store_delete(store, "empty", &err), 0);
    assert_empty(store, "");
    /* Deleting the last object also removes its folders, but not the store's folder. */
    (void)snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(folder, F_OK), 0);
}

static void test_large(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    _cleanup_free_ char *large = large_new();
    char *got = NULL;
    size_t n;
    uint64_t n_bytes;
    /* pieces that do not end where the parts end, and one empty piece */
    const struct iovec parts[] = {{large, 100},
                                  {NULL, 0},
                                  {large + 100, 7 << 20},
                                  {large + 100 + (7 << 20), LARGE_BYTES - 100 - (7 << 20)}};
    static const StorePutFlags flags[] = {0, STORE_IF_ABSENT, STORE_DEFER,
                                          STORE_DEFER | STORE_IF_ABSENT};
    for (size_t i = 0; i < ELEMENTSOF(flags); i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "large/%zu", i);
        assert_int_equal(store_put(store, key, parts, ELEMENTSOF(parts), flags[i], &err), 0);
    }
    assert_int_equal(store_flush(store, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(flags); i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "large/%zu", i);
        assert_int_equal(store_head(store, key, &n_bytes, &err), 0);
        assert_int_equal(n_bytes, LARGE_BYTES);
        assert_int_equal(store_get(store, key, LARGE_BYTES, &got, &n, &err), 0);
        assert_int_equal(n, LARGE_BYTES);
        assert_int_equal(memcmp(got, large, LARGE_BYTES), 0);
        free(got);
    }
    got = NULL;
    assert_int_equal(store_get(store, "large/0", LARGE_BYTES - 1, &got, &n, &err), -EFBIG);
    assert_null(got);
    assert_int_equal(store_put(store, "large/0", parts, 1, STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(store_put(store, "large/1", parts, 4, STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(store_head(store, "large/0", &n_bytes, &err), 0);
    assert_int_equal(n_bytes, LARGE_BYTES);

    _cleanup_free_ char *range = malloc(LARGE_BYTES);
    assert_non_null(range);
    assert_int_equal(store_get_range(store, "large/0", 5, LARGE_BYTES - 5, range, &err), 0);
    assert_int_equal(memcmp(range, large + 5, LARGE_BYTES - 5), 0);
    assert_int_equal(store_get_range(store, "large/0", 6, LARGE_BYTES - 5, range, &err), -EIO);

    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(store_fetch(store, "large/0", LARGE_BYTES, fileno(file), &err), 0);
    assert_int_equal(fd_read_all(fileno(file), range, LARGE_BYTES, 0), 0);
    assert_int_equal(memcmp(range, large, LARGE_BYTES), 0);
    assert_int_equal(store_fetch(store, "large/0", LARGE_BYTES + 1, fileno(file), &err), -EIO);
    assert_int_equal(store_fetch(store, "large/none", LARGE_BYTES, fileno(file), &err), -ENOENT);
    assert_int_equal(fclose(file), 0);
    FILE *full = fopen("/dev/full", "r+");
    assert_non_null(full);
    assert_int_equal(store_fetch(store, "large/0", LARGE_BYTES, fileno(full), &err), -ENOSPC);
    assert_int_equal(fclose(full), 0);
    remove_all(store, "large/");
}

/* Waits only with the event count: if a read arrives without a signal, this fails at the deadline. */
static int poll_to_end(Store *store, EventCount *events, StoreRead *read, Error *err)
{
    uint64_t deadline_usec = clock_monotonic_usec() + 20 * USEC_PER_SEC;
    for (;;) {
        uint64_t seen = event_count_read(events);
        int r = store_read_poll(store, read, err);
        if (r != 0)
            return r;
        assert_true(clock_monotonic_usec() < deadline_usec);
        event_count_wait(events, seen, deadline_usec);
    }
}

static void test_poll(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    _cleanup_(event_count_freep) EventCount *events = NULL;
    Error err = ERROR_INIT;
    char buffer[8] = "";
    assert_int_equal(event_count_new(&events), 0);
    assert_int_equal(put_text(store, "poll/x", "0123456789", 0, &err), 0);

    StoreRead read = {0};
    store_read_cancel(store, &read); /* a read that was not begun */
    read =
        (StoreRead){.key = "poll/x", .offset = 3, .n_bytes = 5, .buffer = buffer, .events = events};
    for (int i = 0; i < 3; i++) { /* a read that was polled to its end may be begun again */
        memset(buffer, 0, sizeof(buffer));
        assert_int_equal(store_read_begin(store, &read, &err), 0);
        assert_int_equal(poll_to_end(store, events, &read, &err), 1);
        assert_string_equal(buffer, "34567");
        assert_int_equal(event_count_read(events), i + 1);
    }
    read.offset = 7;
    assert_int_equal(store_read_begin(store, &read, &err), 0);
    assert_int_equal(poll_to_end(store, events, &read, &err), -EIO);
    read.key = "poll/none";
    assert_int_equal(store_read_begin(store, &read, &err), 0);
    assert_int_equal(poll_to_end(store, events, &read, &err), -ENOENT);
    assert_int_equal(event_count_read(events), 5);
    read.key = "../x";
    assert_int_equal(store_read_begin(store, &read, &err), -EINVAL);
    store_read_cancel(store, &read); /* the read was not begun */
    assert_int_equal(event_count_read(events), 5);
    remove_all(store, "poll/");
}

static void test_many(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    enum { READS = 20 };
    char text[3 << 10], buffers[READS][100], before[STORE_VERSION_MAX], after[STORE_VERSION_MAX];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 23);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(put_text(store, "many/x", text, 0, &err), 0);

    StoreRead reads[READS];
    for (size_t i = 0; i < READS; i++) {
        reads[i] = (StoreRead){.key = "many/x",
                               .offset = i * 149,
                               .n_bytes = sizeof(buffers[i]),
                               .buffer = buffers[i]};
        assert_int_equal(store_read_begin(store, &reads[i], &err), 0);
    }
    store_read_cancel(store, &reads[3]);
    for (size_t i = READS; i-- > 0;) {
        if (i == 3)
            continue;
        assert_int_equal(store_read_wait(store, &reads[i], &err), 0);
        assert_memory_equal(buffers[i], text + i * 149, sizeof(buffers[i]));
    }
    StoreRead beyond = {.key = "many/x",
                        .offset = sizeof(text) - 50,
                        .n_bytes = 100,
                        .buffer = buffers[0]};
    assert_int_equal(store_read_begin(store, &beyond, &err), 0);
    assert_int_equal(store_read_wait(store, &beyond, &err), -EIO);
    StoreRead nothing = {.key = "many/none", .n_bytes = 1, .buffer = buffers[0]};
    assert_int_equal(store_read_begin(store, &nothing, &err), 0);
    assert_int_equal(store_read_wait(store, &nothing, &err), -ENOENT);
    nothing.key = "../x";
    assert_int_equal(store_read_begin(store, &nothing, &err), -EINVAL);

    FILE *file = tmpfile();
    assert_non_null(file);
    char copy[sizeof(text)];
    assert_int_equal(store_fetch(store, "many/x", sizeof(text) - 1, fileno(file), &err), 0);
    assert_int_equal(fd_read_all(fileno(file), copy, sizeof(text) - 1, 0), 0);
    assert_memory_equal(copy, text, sizeof(text) - 1);
    assert_int_equal(store_fetch(store, "many/x", sizeof(text), fileno(file), &err), -EIO);
    assert_int_equal(fclose(file), 0);

    assert_int_equal(store_version(store, "many/x", before, &err), 0);
    assert_int_equal(store_version(store, "many/x", after, &err), 0);
    assert_string_equal(before, after);
    assert_int_equal(put_text(store, "many/x", "other", 0, &err), 0);
    assert_int_equal(store_version(store, "many/x", after, &err), 0);
    assert_string_not_equal(before, after);
    assert_int_equal(store_version(store, "many/none", after, &err), -ENOENT);

    bool promised;
    assert_int_equal(store_puts_if_absent(store, &promised, &err), 0);
    assert_int_equal(promised, !is_swift); /* Swift refuses If-None-Match: * */

    assert_int_equal(put_text(store, "many/y", text, 0, &err), 0);
    static const char *const keys[] = {"many/x", "many/none", "many/y"};
    assert_int_equal(store_delete_many(store, keys, ELEMENTSOF(keys), &err), 0);
    assert_empty(store, "many");
}

static void test_defer(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    /* More objects than the store keeps open, queues, lists or deletes at once; only 30 for Swift (80 ms each). */
    static char keys[1100][16];
    const size_t n = is_swift ? 30 : is_s3 ? 1100 : 300;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "d%zu/k%zu", i % 3, i);
        assert_int_equal(put_text(store, keys[i], keys[i], STORE_DEFER | STORE_IF_ABSENT, &err), 0);
    }
    assert_int_equal(store_flush(store, &err), 0);
    assert_int_equal(store_flush(store, &err), 0);
    assert_text(store, keys[0], keys[0]);
    assert_text(store, keys[n - 1], keys[n - 1]);

    /* A failure is returned only once, by the put or by the flush. */
    int r = put_text(store, "d0/k0", "x", STORE_DEFER | STORE_IF_ABSENT, &err);
    int flushed = store_flush(store, &err);
    assert_true((r == -EEXIST && flushed == 0) || (r == 0 && flushed == -EEXIST));
    assert_int_equal(store_flush(store, &err), 0);
    assert_text(store, "d0/k0", "d0/k0");

    StoreList list = {0};
    assert_int_equal(store_list(store, "d", n - 1, &list, &err), -E2BIG);
    assert_int_equal(store_list(store, "d", n, &list, &err), 0);
    assert_int_equal(list.n_objects, n);
    store_list_clear(&list);
    remove_all(store, "d");

    /* If a put was not waited for, its object may exist or not; the store does not use the caller's memory any more. */
    Store *hasty = open_store();
    char text[] = "hasty";
    assert_int_equal(put_text(hasty, "hasty/x", text, STORE_DEFER, &err), 0);
    assert_null(store_free(hasty));
    memset(text, 'z', strlen(text));
    uint64_t n_bytes;
    r = store_head(store, "hasty/x", &n_bytes, &err);
    assert_true(r == -ENOENT || (r == 0 && n_bytes == strlen(text)));
    if (r == 0)
        assert_text(store, "hasty/x", "hasty");
    remove_all(store, "hasty");
}

enum { RIVALS = 8 };

typedef struct Rival {
    Store *store;
    pthread_t thread;
    pthread_barrier_t *barrier;
    char text[16];
    int r;
} Rival;

static void *compete(void *argument)
{
    Rival *rival = argument;
    Error err = ERROR_INIT;
    (void)pthread_barrier_wait(rival->barrier); /* the result only says who was last */
    rival->r = put_text(rival->store, "race/x", rival->text, STORE_IF_ABSENT, &err);
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    for (int round = 0; round < 3; round++) {
        pthread_barrier_t barrier;
        Rival rivals[RIVALS];
        assert_int_equal(pthread_barrier_init(&barrier, NULL, RIVALS), 0);
        for (int i = 0; i < RIVALS; i++) {
            rivals[i] = (Rival){.store = store, .barrier = &barrier};
            (void)snprintf(rivals[i].text, sizeof(rivals[i].text), "rival %d", i);
            assert_int_equal(pthread_create(&rivals[i].thread, NULL, compete, &rivals[i]), 0);
        }
        int n_won = 0;
        _cleanup_free_ char *text = NULL;
        for (int i = 0; i < RIVALS; i++)
            assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
        assert_int_equal(store_get(store, "race/x", 100, &text, NULL, &err), 0);
        for (int i = 0; i < RIVALS; i++) {
            assert_true(rivals[i].r == 0 || rivals[i].r == -EEXIST);
            assert_true(rivals[i].r == 0 || strcmp(rivals[i].text, text) != 0);
            n_won += rivals[i].r == 0;
        }
        assert_true(n_won == 1 || (is_swift && n_won > 0)); /* Swift guarantees no more */
        assert_int_equal(store_delete(store, "race/x", &err), 0);
        assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    }
}

static void test_list(void **state)
{
    (void)state;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    static const char *const keys[] = {"a-b/x", "a.b", "a/x", "a/y/z", "ab", "b/x"};
    for (size_t i = ELEMENTSOF(keys); i-- > 0;)
        assert_int_equal(put_text(store, keys[i], keys[i], 0, &err), 0);

    /* Key order is byte order of whole keys: "a-b/x" before "a.b" before "a/x". */
    StoreList list;
    assert_int_equal(store_list(store, "", 100, &list, &err), 0);
    assert_int_equal(list.n_objects, ELEMENTSOF(keys));
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        assert_string_equal(list.objects[i].key, keys[i]);
        assert_int_equal(list.objects[i].n_bytes, strlen(keys[i]));
        assert_true(list.objects[i].modified_usec > 0);
    }
    store_list_clear(&list);

    static const struct {
        const char *prefix;
        size_t n;
    } cases[] = {{"a", 5},      {"a/", 2}, {"a/y", 1},      {"a/y/z", 1},
                 {"a/y/zz", 0}, {"c", 0},  {"nothing/x", 0}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(store_list(store, cases[i].prefix, 100, &list, &err), 0);
        assert_int_equal(list.n_objects, cases[i].n);
        store_list_clear(&list);
    }
    assert_int_equal(store_list(store, "../", 100, &list, &err), -EINVAL);
    remove_all(store, "");

    _cleanup_(store_freep) Store *absent = NULL;
    assert_int_equal(store_open("/nonexistent/folder", &absent, &err), 0);
    assert_int_equal(store_list(absent, "", 100, &list, &err), 0);
    assert_int_equal(list.n_objects, 0);
}

/* Runs one put in a process of its own with SDTRAIN_FAULT; returns its wait status. */
static int put_under(const char *setting, const char *key, size_t n_bytes)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char size[32];
        (void)snprintf(size, sizeof(size), "%zu", n_bytes);
        (void)setenv("SDTRAIN_FAULT", setting, 1); /* cannot fail for a valid name */
        execl("/proc/self/exe", "test-store", "put", uri, key, size, NULL);
        _exit(97);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Does the put in the process started by put_under(). Returns its exit status: the errno. */
static int put_and_tell(char **arguments)
{
    Error err = ERROR_INIT;
    Store *store;
    char *large = large_new();
    if (fault_open(&err) < 0)
        return 99;
    if (store_open(arguments[2], &store, &err) < 0)
        return 98;
    struct iovec part = {large, (size_t)atol(arguments[4])};
    const StorePutFlags flags = strstr(arguments[3], "/y") ? 0 : STORE_IF_ABSENT;
    int r = store_put(store, arguments[3], &part, 1, flags, &err);
    if (r < 0)
        (void)fprintf(stderr, "(asked for) %s\n", err.text);
    (void)store_free(store);
    free(large);
    return -r;
}

static int n_asked;

/* Called with the key of the unfinished object, and with the folders that its removal would leave empty. */
static bool answer_of(void *context, const char *key)
{
    if (key[strlen(key) - 1] != '/')
        assert_string_equal(key, "killed/deep/x");
    n_asked++;
    return *(bool *)context;
}

/* Keeps empty folders, which may belong to another writer. */
static bool spares_folders(void *unused, const char *key)
{
    (void)unused;
    return key[strlen(key) - 1] != '/';
}

static void test_sweep_spares_folders(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char path[PATH_MAX];
    size_t removed;
    if (is_s3)
        return;
    _cleanup_(store_freep) Store *store = open_store();
    (void)snprintf(path, sizeof(path), "%s/else/empty", folder);
    assert_int_equal(folder_make(path, &err), 0);
    assert_int_equal(store_sweep(store, 0, spares_folders, NULL, &removed, &err), 0);
    assert_int_equal(removed, 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 2);
}

static void test_faults(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = open_store();
    uint64_t n;
    size_t removed;

    static const char *const points[] = {"store.put.before", "store.put.half", "store.put.after"};
    static const size_t sizes[] = {0, 10, LARGE_BYTES};
    for (size_t i = 0; i < ELEMENTSOF(points) * ELEMENTSOF(sizes); i++) {
        const char *point = points[i % ELEMENTSOF(points)];
        const size_t n_bytes = sizes[i / ELEMENTSOF(points)];
        char setting[64];
        (void)snprintf(setting, sizeof(setting), "%s=enospc", point);
        assert_int_equal(put_under(setting, "faulty/x", n_bytes), W_EXITCODE(ENOSPC, 0));
        int r = store_head(store, "faulty/x", &n, &err); /* no object, or the whole object */
        assert_true(r == -ENOENT || (r == 0 && n == n_bytes && strstr(point, "after")));
        assert_int_equal(store_delete(store, "faulty/x", &err), 0);
    }
    /* An object that has replaced an old object is kept despite a later failure, since the old object is lost. */
    assert_int_equal(put_text(store, "faulty/y", "old", 0, &err), 0);
    assert_int_equal(put_under("store.put.after=eio", "faulty/y", 10), W_EXITCODE(EIO, 0));
    assert_true(store_head(store, "faulty/y", &n, &err) == 0 && n == 10);
    assert_int_equal(store_delete(store, "faulty/y", &err), 0);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_true(removed == 0 || !is_s3); /* a failed put leaves nothing, except perhaps a folder */

    /* A put is killed while it writes: no object is visible, and a sweep removes the leftovers. */
    assert_true(WIFSIGNALED(put_under("store.put.half=kill", "killed/deep/x", LARGE_BYTES)));
    assert_empty(store, "");
    assert_int_equal(store_sweep(store, 3600 * USEC_PER_SEC, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 0);
    bool answer = false;
    assert_int_equal(store_sweep(store, 0, answer_of, &answer, &removed, &err), 0);
    assert_empty(store, "");
    assert_int_equal(n_asked, 1);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_true(is_s3 ? removed == 1 : removed >= 3); /* one upload; or a file and two folders */
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 0);
    assert_true(is_s3 || rmdir(folder) == 0);

    assert_true(WIFSIGNALED(put_under("store.put.after=kill", "after/x", 10)));
    assert_true(store_head(store, "after/x", &n, &err) == 0 && n == 10);
}

static void test_unwritable(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    assert_int_equal(store_open("/dev/full/x", &store, &err), 0);
    assert_int_equal(put_text(store, "k", "x", 0, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "file:///dev/full/x/k"));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return folder_remove(folder, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "put") == 0)
        return put_and_tell(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uris),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_put_get_delete),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_defer),
        cmocka_unit_test(test_poll),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_sweep_spares_folders),
        cmocka_unit_test(test_unwritable),
    };
    /* The store uses a prefix of a shared bucket, with characters that need escaping in a URL. */
    char below[200];
    const char *bucket = getenv("SDTRAIN_TEST_S3_URI");
    if (bucket) {
        const char *server = getenv("SDTRAIN_TEST_S3");
        is_s3 = true;
        is_swift = server && strstr(server, "swift");
        (void)snprintf(below, sizeof(below), "%s/a+b  c//\xc3\xa4%%20&<d>", bucket);
        uri = below;
        (void)setenv("SDTRAIN_S3_PART_BYTES", "5M", 1); /* cannot fail for a valid name */
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
