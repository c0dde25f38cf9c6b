/* SPDX-License-Identifier: Apache-2.0 */
/* test-s3-objects.c - s3:// against a server in memory, which lacks one or the other function in some tests, and fails
 * at each kind of request in other tests. */
#include "base/clock.h"
#include "base/file.h"
#include "base/number/hash.h"
#include "base/test/testing.h"
#include "store/s3/s3-internal.h"
#include "store/s3/test/testing-libc.h"
#include "store/s3/test/testing-objects.h"

#include <string.h>

#define PREFIX "p q/a//b+"
enum { WRITERS_SIZE = 5500 }; /* size of an object of six parts */

static char body[20000];

static Store *open_store(void)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    assert_int_equal(store_open("s3://bucket/" PREFIX, &store, &err), 0);
    return store;
}

static int put(Store *store, const char *key, size_t n_bytes, StorePutFlags flags, Error *err)
{
    /* The iovecs do not end where the parts end. */
    const size_t a = n_bytes / 3, b = n_bytes / 7;
    const struct iovec parts[] = {{body, a},
                                  {NULL, 0},
                                  {body + a, b},
                                  {body + a + b, n_bytes - a - b}};
    return store_put(store, key, parts, ELEMENTSOF(parts), flags, err);
}

static void assert_there(Store *store, const char *key, size_t n_bytes)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *got = NULL;
    size_t n;
    assert_int_equal(store_get(store, key, sizeof(body), &got, &n, &err), 0);
    assert_int_equal(n, n_bytes);
    assert_memory_equal(got, body, n_bytes);
}

/* Checks that there are n objects and no unfinished upload. */
static void assert_tidy(size_t n)
{
    assert_int_equal(fake_n_objects(), n);
    assert_int_equal(fake_n_uploads(), 0);
}

static int n_before;

static int setup(void **state)
{
    fake_reset();
    n_before = atomic_load(&n_allocated);
    *state = open_store();
    return 0;
}

/* Fails if memory leaks. Two texts may stay allocated: the names of endpoint and bucket, with which probe.c stores what
 * a server supports. */
static int teardown(void **state)
{
    *state = store_free(*state);
    fake_reset();
    const int n_left = atomic_load(&n_allocated) - n_before;
    if (n_left != 0 && n_left != 2)
        print_error("%d allocations are left\n", n_left);
    return n_left != 0 && n_left != 2;
}

/* ---- sizes ---- */

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t n_bytes, part_bytes;
    } cases[] = {
        {UINT64_C(1) << 20, 8 << 20},
        {UINT64_C(8) << 20, 8 << 20},
        {UINT64_C(71) << 20, 8 << 20},
        {UINT64_C(72) << 20, 9 << 20}, /* eight parts */
        {UINT64_C(256) << 20, 32 << 20},
        {UINT64_C(513) << 20, 64 << 20},
        {UINT64_C(640000) << 20, 64 << 20},         /* 10,000 parts */
        {(UINT64_C(640000) << 20) + 1, 65 << 20},   /* one byte more than 10,000 parts */
        {UINT64_C(5) << 40, UINT64_C(525) << 20},   /* 5 TiB */
        {UINT64_C(50000) << 30, UINT64_C(5) << 30}, /* the maximum of S3 for an object in parts */
    };
    S3Options options = {.part_bytes = 8 << 20};
    Error err = ERROR_INIT;
    uint64_t part;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        assert_int_equal(s3_part_bytes(&options, cases[i].n_bytes, &part, &err), 0);
        assert_int_equal(part, cases[i].part_bytes);
        assert_true(DIV_ROUND_UP(cases[i].n_bytes, part) <= S3_PARTS_MAX);
    }
    assert_int_equal(s3_part_bytes(&options, (UINT64_C(50000) << 30) + 1, &part, &err), -EFBIG);

    assert_false(s3_is_multipart(&options, 0));
    assert_false(s3_is_multipart(&options, 16 << 20));
    assert_true(s3_is_multipart(&options, (16 << 20) + 1));
    options.part_bytes = UINT64_C(5) << 30; /* 5 GiB is the maximum of one PUT */
    assert_false(s3_is_multipart(&options, UINT64_C(5) << 30));
    assert_true(s3_is_multipart(&options, (UINT64_C(5) << 30) + 1));
}

static void test_parts(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    static const size_t sizes[] = {0, 1, 1999, 2000, 2001, 3000, 10999, 20000};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "%zu", sizes[i]);
        assert_int_equal(put(store, key, sizes[i], 0, &err), 0);
        assert_there(store, key, sizes[i]);
        assert_true(sizes[i] <= 2000 || fake.part_bytes_most == 1000);
    }
    assert_int_equal(fake.part_bytes_least, 1); /* the last part of an object of 2,001 bytes */
    assert_int_equal(fake.n[FAKE_CREATE], 4);
    assert_int_equal(fake.n[FAKE_PART], 3 + 3 + 11 + 20);
    assert_int_equal(fake.n[FAKE_ABORT], 0); /* each upload was completed */
    assert_tidy(ELEMENTSOF(sizes));
    assert_true(fake_has(PREFIX "/3000"));

    char key[1020];
    memset(key, 'k', sizeof(key));
    for (size_t i = 200; i < sizeof(key); i += 200)
        key[i] = '/';
    key[S3_NAME_MAX - strlen(PREFIX "/")] = '\0';
    assert_int_equal(put(store, key, 1, 0, &err), 0);
    memcpy(key + S3_NAME_MAX - strlen(PREFIX "/"), "k", 2);
    assert_int_equal(put(store, key, 1, 0, &err), -EINVAL);
}

/* ---- the server's abilities ---- */

static void test_probe(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        fake_reset();
        _cleanup_(store_freep) Store *store = open_store(), *other = open_store();
        Error err = ERROR_INIT;
        bool promised;
        fake.if_absent = (FakeAbsent)(i % 3);
        fake.checks_crc32c = i >= 3;
        fake.says_bad_digest = i >= 6;

        /* Readers do not probe the server. */
        assert_int_equal(store_head(store, "x", &(uint64_t){0}, &err), -ENOENT);
        assert_int_equal(fake.n[FAKE_PUT], 0);
        assert_int_equal(store_puts_if_absent(store, &promised, &err), 0);
        assert_int_equal(promised, fake.if_absent == ABSENT_OBEYED);
        assert_int_equal(fake.sends_crc32c, fake.checks_crc32c);
        assert_tidy(0);

        /* The server is probed once for all stores of that bucket. */
        const size_t asked = fake.n[FAKE_PUT];
        assert_true(asked <= 3);
        fake.sends_crc32c = false;
        assert_int_equal(put(other, "x", 7, STORE_IF_ABSENT, &err), 0);
        assert_int_equal(fake.n[FAKE_PUT], asked + 1);
        assert_int_equal(fake.sends_crc32c, fake.checks_crc32c);

        assert_int_equal(put(store, "x", 9, STORE_IF_ABSENT, &err), -EEXIST);
        assert_int_equal(put(store, "x", WRITERS_SIZE, STORE_IF_ABSENT, &err), -EEXIST);
        assert_there(store, "x", 7);
        assert_int_equal(put(store, "large", WRITERS_SIZE, STORE_IF_ABSENT, &err), 0);
        assert_there(store, "large", WRITERS_SIZE);
        assert_tidy(2);

        /* The request that completes an upload has the parts' checksums. */
        assert_int_equal(strstr(fake.complete_body, "<ChecksumCRC32C>") != NULL,
                         fake.checks_crc32c);
    }
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283); /* base64: "4waSgw==" */
}

static void test_checksum_is_told(void **state)
{
    (void)state;
    static const S3Switch settings[] = {S3_ON, S3_OFF};
    for (size_t i = 0; i < ELEMENTSOF(settings); i++) {
        fake_reset();
        fake.options.checksum = settings[i];
        fake.checks_crc32c = settings[i] == S3_OFF;
        _cleanup_(store_freep) Store *store = open_store();
        Error err = ERROR_INIT;
        assert_int_equal(put(store, "x", 7, 0, &err), 0);
        assert_int_equal(fake.sends_crc32c, settings[i] == S3_ON);
        assert_int_equal(fake.n[FAKE_PUT], 3); /* two PUTs are the probe's, one is the object's */
    }
}

static void test_probe_fails(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    fake_break(FAKE_PUT, 1, FAKE_DENY);
    assert_int_equal(put(store, "x", 7, 0, &err), -EACCES);
    assert_non_null(strstr(err.text, "s3://bucket/" PREFIX));
    /* The first PUT of the probe has a short deadline, the second PUT has the usual deadline. */
    fake_break(FAKE_PUT, 1, FAKE_SILENT);
    fake_break(FAKE_PUT, 2, FAKE_SILENT);
    assert_int_equal(put(store, "x", 7, 0, &err), -EHOSTUNREACH);
    fake_break(FAKE_DELETE, 1, FAKE_DENY); /* a user without the right to delete may still put */
    assert_int_equal(put(store, "x", 7, 0, &err), 0);
    assert_int_equal(fake_n_objects(), 2);
    StoreList list;
    assert_int_equal(store_list(store, "", 10, &list, &err), 0); /* the probe's object is hidden */
    assert_int_equal(list.n_objects, 1);
    store_list_clear(&list);
    size_t removed;
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 1);
    assert_tidy(1);
}

/* ---- failing puts ---- */

/* Probes the server now, so that faults do not hit the probe. */
static void know(Store *store)
{
    Error err = ERROR_INIT;
    bool promised;
    assert_int_equal(store_puts_if_absent(store, &promised, &err), 0);
}

static void test_lost_puts(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    know(store);
    /* The put is done, its answer is lost, and it is sent again: the answer is 412, but the object is from this put. */
    fake_break(FAKE_PUT, 1, FAKE_LOSE);
    assert_int_equal(put(store, "a", 7, STORE_IF_ABSENT, &err), 0);
    assert_int_equal(fake.n[FAKE_HEAD], 1);
    fake_break(FAKE_PUT, 1, FAKE_LOSE);
    assert_int_equal(put(store, "b", 7, 0, &err), 0);
    assert_int_equal(fake.n[FAKE_HEAD], 1);
    /* Another writer was first. */
    fake_break(FAKE_PUT, 1, FAKE_RIVAL);
    assert_int_equal(put(store, "c", 7, STORE_IF_ABSENT, &err), -EEXIST);
    assert_string_equal(err.text, "s3://bucket/" PREFIX "/c exists already");
    /* A conflict does not decide anything: the put is tried again. */
    fake_break(FAKE_PUT, 1, FAKE_CONFLICT);
    fake_break(FAKE_PUT, 2, FAKE_CONFLICT);
    assert_int_equal(put(store, "d", 7, STORE_IF_ABSENT, &err), 0);
    assert_there(store, "d", 7);
    /* No answer arrives until the deadline: then the object may exist or not. */
    fake_break(FAKE_PUT, 1, FAKE_LOSE_ALL);
    assert_int_equal(put(store, "e", 7, STORE_IF_ABSENT, &err), -EHOSTUNREACH);
    fake_break(FAKE_PUT, 1, FAKE_SILENT);
    assert_int_equal(put(store, "f", 7, STORE_IF_ABSENT, &err), -EHOSTUNREACH);
    assert_there(store, "e", 7);
    assert_tidy(5);
}

/* If conflicts never end, the put fails at its deadline. */
static void test_conflicts(void **state)
{
    (void)state;
    fake_reset();
    fake.options.deadline_usec = USEC_PER_SEC / 2;
    _cleanup_(store_freep) Store *store = open_store();
    Error err = ERROR_INIT;
    know(store);
    fake_break(FAKE_PUT, 0, FAKE_CONFLICT);
    assert_int_equal(put(store, "x", 7, STORE_IF_ABSENT, &err), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "ConditionalRequestConflict"));
    assert_tidy(0);
}

static void test_lost_uploads(void **state)
{
    Store *store = *state;
    static const struct {
        FakeKind kind;
        size_t at;
        FakeFault fault;
        int if_absent, overwrite; /* result of the put with STORE_IF_ABSENT, and without it */
        size_t n_creates;
    } cases[] = {
        {FAKE_COMPLETE, 1, FAKE_LOSE, 0, 0, 1},
        {FAKE_COMPLETE, 1, FAKE_ERROR_200, 0, 0, 2},
        {FAKE_COMPLETE, 1, FAKE_NO_UPLOAD, 0, 0, 2},
        {FAKE_COMPLETE, 1, FAKE_CONFLICT, 0, 0, 2},
        {FAKE_COMPLETE, 1, FAKE_RIVAL, -EEXIST, 0, 1},
        {FAKE_COMPLETE, 1, FAKE_DENY, -EACCES, -EACCES, 1},
        {FAKE_COMPLETE, 1, FAKE_SILENT, -EHOSTUNREACH, -EHOSTUNREACH, 1},
        {FAKE_COMPLETE, 1, FAKE_LOSE_ALL, -EHOSTUNREACH, -EHOSTUNREACH, 1},
        {FAKE_PART, 2, FAKE_NO_UPLOAD, 0, 0, 2},
        {FAKE_PART, 2, FAKE_LOSE, 0, 0, 1},
        {FAKE_PART, 1, FAKE_DENY, -EACCES, -EACCES, 1},
        {FAKE_PART, 6, FAKE_SILENT, -EHOSTUNREACH, -EHOSTUNREACH, 1},
        {FAKE_CREATE, 1, FAKE_LOSE, 0, 0, 1},
        {FAKE_CREATE, 1, FAKE_LOSE_ALL, -EHOSTUNREACH, -EHOSTUNREACH, 1},
        {FAKE_CREATE, 1, FAKE_DENY, -EACCES, -EACCES, 1},
        {FAKE_HEAD, 1, FAKE_DENY, -EACCES, 0, 1},
    };
    know(store);
    for (size_t i = 0; i < 2 * ELEMENTSOF(cases); i++) {
        const bool if_absent = i % 2;
        const int expected = if_absent ? cases[i / 2].if_absent : cases[i / 2].overwrite;
        Error err = ERROR_INIT;
        char key[32];
        uint64_t n_bytes;
        (void)snprintf(key, sizeof(key), "k%zu", i);
        const size_t created = fake.n[FAKE_CREATE];
        fake_break(cases[i / 2].kind, cases[i / 2].at, cases[i / 2].fault);
        assert_int_equal(put(store, key, WRITERS_SIZE, if_absent ? STORE_IF_ABSENT : 0, &err),
                         expected);
        fake_mend();
        assert_int_equal(fake.n[FAKE_CREATE] - created,
                         expected == -EACCES && cases[i / 2].kind == FAKE_HEAD
                             ? 0
                             : cases[i / 2].n_creates);
        assert_int_equal(fake_n_uploads(), 0);
        int r = store_head(store, key, &n_bytes, &err);
        if (expected == 0)
            assert_there(store, key, WRITERS_SIZE);
        else if (expected != -EEXIST) /* there is no object, or a whole object */
            assert_true(r == -ENOENT || (r == 0 && n_bytes == WRITERS_SIZE));
    }
}

/* If the answer to a creation was lost, the put aborts only uploads of its own name that are younger than the put. */
static void test_orphans(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    know(store);
    fake_begin_upload(PREFIX "/x", clock_realtime_usec() - 60 * USEC_PER_SEC);
    fake_begin_upload(PREFIX "/x2", clock_realtime_usec());
    fake_break(FAKE_CREATE, 1, FAKE_LOSE);
    assert_int_equal(put(store, "x", WRITERS_SIZE, 0, &err), 0);
    assert_int_equal(fake_n_uploads(), 2);
    assert_there(store, "x", WRITERS_SIZE);
}

/* ---- deferred puts ---- */

static void test_defer(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    enum { N = 600 };
    fake_put(PREFIX "/k500", "somebody else's");
    for (size_t i = 0; i < N; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%zu", i);
        assert_int_equal(put(store, key, i, STORE_DEFER | STORE_IF_ABSENT, &err), 0);
    }
    assert_int_equal(store_flush(store, &err), -EEXIST);
    assert_non_null(strstr(err.text, "/k500 exists already"));
    assert_int_equal(store_flush(store, &err), 0);
    assert_there(store, "k599", 599);
    assert_tidy(N);
    StoreUse use;
    store_use(store, &use);
    assert_int_equal(use.puts, N);
}

/* Freeing a store without a flush does not wait for a silent server; uploads in progress are aborted. */
static void test_free_ends(void **state)
{
    (void)state;
    static const FakeKind kinds[] = {FAKE_PUT, FAKE_CREATE, FAKE_PART, FAKE_COMPLETE};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        fake_reset();
        Store *store = open_store();
        Error err = ERROR_INIT;
        know(store);
        fake_break(kinds[i], 1, FAKE_STALL);
        for (int k = 0; k < 40; k++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "%d", k);
            assert_int_equal(put(store, key, kinds[i] == FAKE_PUT ? 7 : WRITERS_SIZE, STORE_DEFER,
                                 &err),
                             0);
        }
        fake_wait_stalled();
        assert_null(store_free(store));
        assert_int_equal(fake_n_uploads(), 0);
    }
}

/* ---- reads ---- */

static void test_reads(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    char got[sizeof(body)];
    assert_int_equal(put(store, "x", sizeof(body), 0, &err), 0);
    fake.n[FAKE_GET] = 0;
    assert_int_equal(store_get_range(store, "x", 10, 5000, got, &err), 0);
    assert_memory_equal(got, body + 10, 5000);
    assert_int_equal(fake.n[FAKE_GET], 5);
    assert_int_equal(store_get_range(store, "x", 100, sizeof(body) - 99, got, &err), -EIO);
    assert_int_equal(store_get_range(store, "x", sizeof(body), 1, got, &err), -EIO);
    assert_non_null(strstr(err.text, "/x is shorter than 20001 bytes"));
    assert_int_equal(store_get_range(store, "x", UINT64_MAX, 4, got, &err), -EIO);
    assert_int_equal(store_get_range(store, "x", sizeof(body), 0, got, &err), 0);
    assert_int_equal(store_get_range(store, "x", sizeof(body) + 1, 0, got, &err), -EIO);
    assert_int_equal(store_get_range(store, "none", 0, 0, got, &err), -ENOENT);
    assert_int_equal(store_get_range(store, "none", 0, 3000, got, &err), -ENOENT);

    /* An object that changes is read again, but not without end. */
    fake_break(FAKE_GET, 3, FAKE_CHANGE);
    assert_int_equal(store_get_range(store, "x", 0, 5000, got, &err), 0);
    assert_memory_equal(got, body, 5000);
    fake_break(FAKE_GET, 0, FAKE_CHANGE);
    assert_int_equal(store_get_range(store, "x", 0, 5000, got, &err), -EIO);
    assert_non_null(strstr(err.text, "changed while it was read"));
    /* A single range always has bytes of one version. */
    assert_int_equal(store_get_range(store, "x", 0, 1000, got, &err), 0);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(store_fetch(store, "x", sizeof(body), fileno(file), &err), -EIO);
    fake_mend();
    fake_break(FAKE_GET, 3, FAKE_CHANGE);
    assert_int_equal(store_fetch(store, "x", sizeof(body), fileno(file), &err), 0);
    assert_int_equal(fd_read_all(fileno(file), got, sizeof(body), 0), 0);
    assert_memory_equal(got, body, sizeof(body));
    /* The object changes right after the fetch began: all ranges are read again in the new version. */
    fake.n[FAKE_GET] = 0;
    fake_break(FAKE_GET, 1, FAKE_CHANGE);
    assert_int_equal(store_fetch(store, "x", sizeof(body), fileno(file), &err), 0);
    assert_int_equal(fake.n[FAKE_GET], 2 * sizeof(body) / fake.options.part_bytes);
    assert_int_equal(fclose(file), 0);

    /* The first failure cancels the other requests. */
    fake_break(FAKE_GET, 1, FAKE_STALL);
    fake_break(FAKE_GET, 2, FAKE_DENY);
    _cleanup_(event_count_freep) EventCount *events = NULL;
    assert_int_equal(event_count_new(&events), 0);
    StoreRead read = {.key = "x", .n_bytes = 5000, .buffer = got, .events = events};
    assert_int_equal(store_read_begin(store, &read, &err), 0);
    assert_int_equal(store_read_wait(store, &read, &err), -EACCES);
    assert_int_equal(event_count_read(events), 1);
    fake_break(FAKE_GET, 1, FAKE_STALL);
    assert_int_equal(store_read_begin(store, &read, &err), 0);
    assert_int_equal(store_read_poll(store, &read, &err), 0); /* the read stalls */
    store_read_cancel(store, &read);
    store_read_cancel(store, &read);
    assert_true(event_count_read(events) <= 2);
}

static void test_missing_bucket(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    uint64_t n_bytes;
    StoreList list;
    char *got;
    fake.lacks_bucket = true;
    assert_int_equal(store_get(store, "x", 10, &got, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, "there is no bucket bucket"));
    assert_int_equal(store_head(store, "x", &n_bytes, &err), -ENOENT);
    assert_int_equal(store_list(store, "", 10, &list, &err), -ENOENT);
    assert_non_null(strstr(err.text, "there is no bucket bucket"));
    assert_int_equal(store_delete(store, "x", &err), -ENOENT);
    assert_int_equal(put(store, "x", 7, 0, &err), -ENOENT);
    assert_non_null(strstr(err.text, "there is no bucket bucket"));
}

/* ---- lists, sweeps, deletions ---- */

static void test_list(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    StoreList list;
    static const char *const keys[] = {
        "+", "a b", "a%20b", "a&<b>\"'", "a/\xc3\xa4/\xe2\x82\xac", "a\\b", "x/y?z=1&q#f"};
    for (int encoded = 1; encoded >= 0; encoded--) {
        fake.lacks_encoding = !encoded;
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
            assert_int_equal(put(store, keys[i], i, 0, &err), 0);
        assert_int_equal(store_list(store, "", 100, &list, &err), 0);
        assert_int_equal(list.n_objects, ELEMENTSOF(keys));
        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
            assert_string_equal(list.objects[i].key, keys[i]);
            assert_int_equal(list.objects[i].n_bytes, i);
            assert_int_equal(list.objects[i].modified_usec, UINT64_C(1767323045) * USEC_PER_SEC);
        }
        store_list_clear(&list);
    }
    assert_int_equal(store_list(store, "a/", 100, &list, &err), 0);
    assert_int_equal(list.n_objects, 1);
    store_list_clear(&list);

    /* A name that is not a key of a store is skipped; a page of only such names is not the end of the list. */
    fake_put(PREFIX "/", "");
    fake_put(PREFIX "/b/", "");
    fake_put(PREFIX "/b//c", "");
    fake_put(PREFIX "/../c", "");
    fake_put(PREFIX "beside", "");
    for (fake.page = 1; fake.page < 13; fake.page++) {
        assert_int_equal(store_list(store, "", ELEMENTSOF(keys), &list, &err), 0);
        assert_int_equal(list.n_objects, ELEMENTSOF(keys));
        store_list_clear(&list);
        assert_int_equal(store_list(store, "", ELEMENTSOF(keys) - 1, &list, &err), -E2BIG);
    }

    fake.page = 1000;
    for (int i = 0; i < 2500; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), PREFIX "/many/%04d", i);
        fake_put(name, "x");
    }
    fake.n[FAKE_LIST] = 0;
    assert_int_equal(store_list(store, "many/", 2500, &list, &err), 0);
    assert_int_equal(fake.n[FAKE_LIST], 3);
    assert_int_equal(list.n_objects, 2500);
    assert_string_equal(list.objects[2499].key, "many/2499");
    store_list_clear(&list);
    fake_break(FAKE_LIST, 2, FAKE_ERROR_200);
    assert_int_equal(store_list(store, "many/", 2500, &list, &err), -EIO);
    assert_non_null(strstr(err.text, "cannot list s3://bucket/" PREFIX "/many/"));

    /* If a server's pages never end, the list fails. */
    fake_mend();
    fake.stands_still = true;
    assert_int_equal(store_list(store, "many/", 5000, &list, &err), -EIO);
    assert_non_null(strstr(err.text, "the same page again"));
    fake.stands_still = false;
    fake.page = fake.n[FAKE_LIST] = 0;
    assert_int_equal(store_list(store, "many/", 5000, &list, &err), -EIO);
    assert_non_null(strstr(err.text, "1000 pages without an object"));
    assert_int_equal(fake.n[FAKE_LIST], 1001);
}

static bool not_kept(void *context, const char *key)
{
    (*(int *)context)++;
    return strcmp(key, "kept") != 0;
}

static void test_sweep(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    size_t removed;
    int asked = 0;
    for (int i = 0; i < 7; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), PREFIX "/%d", i);
        fake_begin_upload(name, clock_realtime_usec() - (unsigned)i * 3600 * USEC_PER_SEC);
    }
    fake_begin_upload(PREFIX "/kept", 0);
    fake_begin_upload(PREFIX "beside", 0);
    fake.ignores_prefix = true;
    fake.page = 2;
    assert_int_equal(store_sweep(store, 5400 * USEC_PER_SEC, not_kept, &asked, &removed, &err), 0);
    assert_int_equal(asked, 6); /* the caller is consulted only for old uploads */
    assert_int_equal(removed, 5);
    assert_int_equal(fake_n_uploads(), 4);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 3);
    assert_int_equal(fake_n_uploads(), 1); /* the other store's upload */
    fake_begin_upload(PREFIX "/x", 0);
    fake_break(FAKE_ABORT, 1, FAKE_DENY);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, NULL, &err), -EACCES);
}

static void test_delete_many(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    enum { N = 2001 };
    static char keys[N][20];
    const char *pointers[N];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N; i++) {
            char name[64];
            (void)snprintf(keys[i], sizeof(keys[i]), "k%d", i);
            pointers[i] = keys[i];
            (void)snprintf(name, sizeof(name), PREFIX "/k%d", i);
            if (i % 3)
                fake_put(name, "x");
        }
        fake.n[FAKE_DELETE] = fake.n[FAKE_DELETE_MANY] = 0;
        fake.lacks_delete_many = round == 1;
        if (round == 2)
            fake_break(FAKE_DELETE_MANY, 2, FAKE_ERROR_200);
        if (round == 3)
            fake_break(FAKE_DELETE_MANY, 1, FAKE_SILENT);
        assert_int_equal(store_delete_many(store, pointers, N, &err),
                         round == 3 ? -EHOSTUNREACH : 0);
        fake_mend();
        /* Expected single deletions in each round: one (after two requests of a thousand keys, one key is left); all; a
         * thousand and one; none. */
        static const size_t n_single[] = {1, N, 1001, 0};
        assert_int_equal(fake.n[FAKE_DELETE], n_single[round]);
        assert_true(round == 3 || fake_n_objects() == 0);
    }
    fake_break(FAKE_DELETE, 1, FAKE_DENY);
    fake.lacks_delete_many = true;
    assert_int_equal(store_delete_many(store, pointers, N, &err), -EACCES);
    assert_non_null(strstr(err.text, "cannot remove s3://bucket/" PREFIX "/k0"));
    assert_tidy(0);
}

/* ---- pages ---- */

/* Lists and deletions of zero keys, one key, one page, and one key less or more than a page. */
static void test_pages(void **state)
{
    Store *store = *state;
    static const size_t counts[] = {0, 1, 2, 999, 1000, 1001, 1002, 2000, 2001};
    static char keys[2001][20];
    static const char *pointers[ELEMENTSOF(keys)];
    for (size_t c = 0; c < ELEMENTSOF(counts); c++) {
        const size_t n = counts[c], pages = MAX(DIV_ROUND_UP(n, (size_t)1000), (size_t)1);
        Error err = ERROR_INIT;
        StoreList list = {0};
        for (size_t i = 0; i < n; i++) {
            char name[64];
            (void)snprintf(keys[i], sizeof(keys[i]), "k/%04zu", i);
            (void)snprintf(name, sizeof(name), PREFIX "/%s", keys[i]);
            pointers[i] = keys[i];
            fake_put(name, "x");
        }
        fake_put(PREFIX "/l", "stays");
        fake.n[FAKE_LIST] = fake.n[FAKE_DELETE] = fake.n[FAKE_DELETE_MANY] = 0;
        assert_int_equal(store_list(store, "k/", n, &list, &err), 0);
        assert_int_equal(fake.n[FAKE_LIST], pages);
        assert_int_equal(list.n_objects, n);
        for (size_t i = 0; i < n; i++)
            assert_string_equal(list.objects[i].key, keys[i]);
        store_list_clear(&list);
        if (n > 0)
            assert_int_equal(store_list(store, "k/", n - 1, &list, &err), -E2BIG);
        assert_int_equal(store_delete_many(store, pointers, n, &err), 0);
        assert_int_equal(fake.n[FAKE_DELETE_MANY], n / 1000 + (n % 1000 > 1));
        assert_int_equal(fake.n[FAKE_DELETE], n % 1000 == 1);
        assert_true(fake_n_objects() == 1 && fake_has(PREFIX "/l"));
    }
}

/* Unfinished uploads are listed in pages of a thousand, too. */
static void test_pages_of_uploads(void **state)
{
    Store *store = *state;
    static const size_t counts[] = {0, 999, 1000, 1001};
    for (size_t c = 0; c < ELEMENTSOF(counts); c++) {
        Error err = ERROR_INIT;
        size_t removed = 1;
        for (size_t i = 0; i < counts[c]; i++) {
            char name[64];
            (void)snprintf(name, sizeof(name), PREFIX "/u/%04zu", i);
            fake_begin_upload(name, 0);
        }
        fake.n[FAKE_UPLOADS] = 0;
        assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
        assert_int_equal(removed, counts[c]);
        assert_int_equal(fake.n[FAKE_UPLOADS], counts[c] == 1001 ? 2 : 1);
        assert_int_equal(fake_n_uploads(), 0);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)(i * 2654435761u >> 11);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        TEST(test_parts),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_checksum_is_told),
        TEST(test_probe_fails),
        TEST(test_lost_puts),
        cmocka_unit_test(test_conflicts),
        TEST(test_lost_uploads),
        TEST(test_orphans),
        TEST(test_defer),
        cmocka_unit_test(test_free_ends),
        TEST(test_reads),
        TEST(test_missing_bucket),
        TEST(test_list),
        TEST(test_sweep),
        TEST(test_delete_many),
        TEST(test_pages),
        TEST(test_pages_of_uploads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
