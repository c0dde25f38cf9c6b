/* SPDX-License-Identifier: Apache-2.0 */
/* test-s3-requests.c - s3:// under unusual conditions: pauses between tries, threads that cannot start, failing
 * allocations, bytes that do not match their ETag, and pages, refusals and marks of unusual servers. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/test/testing.h"
#include "store/s3/s3-internal.h"
#include "store/s3/test/testing-libc.h"
#include "store/s3/test/testing-objects.h"
#include "store/s3/test/testing-shelf.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static Store *store;

static int n_before;

static int setup(_unused_ void **state)
{
    Error err = ERROR_INIT;
    bool promised;
    fake_reset();
    n_before = atomic_load(&n_allocated);
    assert_int_equal(store_open("s3://bucket/p", &store, &err), 0);
    assert_int_equal(store_puts_if_absent(store, &promised, &err), 0);
    return 0;
}

static int teardown(_unused_ void **state)
{
    atomic_store(&calloc_fails, 0);
    atomic_store(&malloc_fails, 0);
    atomic_store(&stream_fails, 0);
    store = store_free(store);
    fake_reset();
    atomic_store(&threads_left, -1);
    const int n_left = atomic_load(&n_allocated) - n_before;
    return n_left != 0 && n_left != 2; /* two texts stay: names of the probed server */
}

static int put(const char *key, StorePutFlags flags, Error *err)
{
    static char body[] = "x";
    const struct iovec part = {body, 1};
    return store_put(store, key, &part, 1, flags, err);
}

/* ---- pauses ---- */

/* With tries = 16 a pause has a random length up to 20 s; so the average of 400 pauses is 10 s, within 2 s. */
static void a_pause_is_drawn_and_slept(_unused_ void **state)
{
    enum { N = 400 };
    const uint64_t before_usec = atomic_load(&paused_usec);
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < N; i++) {
        const uint64_t began_usec = atomic_load(&paused_usec);
        assert_int_equal(s3_pause(16, UINT64_MAX), 0);
        least = MIN(least, atomic_load(&paused_usec) - began_usec);
        most = MAX(most, atomic_load(&paused_usec) - began_usec);
    }
    assert_in_range((atomic_load(&paused_usec) - before_usec) / N, 8 * USEC_PER_SEC,
                    12 * USEC_PER_SEC);
    assert_true(least < USEC_PER_SEC);
    assert_in_range(most, 19 * USEC_PER_SEC, 20 * USEC_PER_SEC);
}

/* A pause that would end after the deadline is not begun. */
static void a_pause_ends_before_its_deadline(_unused_ void **state)
{
    const uint64_t before_usec = atomic_load(&paused_usec);
    assert_int_equal(s3_pause(1, 0), -EHOSTUNREACH);
    assert_int_equal(s3_pause(1, clock_boottime_usec()), -EHOSTUNREACH);
    assert_int_equal(atomic_load(&paused_usec), before_usec);
    for (int i = 0; i < 400; i++) {
        const uint64_t deadline_usec = clock_boottime_usec() + 5 * USEC_PER_SEC;
        const uint64_t began_usec = atomic_load(&paused_usec);
        const int r = s3_pause(16, deadline_usec);
        assert_true(r == 0 || r == -EHOSTUNREACH);
        assert_true(atomic_load(&paused_usec) - began_usec <= (r == 0 ? 5 * USEC_PER_SEC : 0));
    }
}

/* ---- threads ---- */

/* Without threads, the caller of a deferred put does the put itself. */
static void without_a_thread_a_put_is_done_at_once(_unused_ void **state)
{
    Error err = ERROR_INIT;
    atomic_store(&threads_left, 0);
    assert_int_equal(put("a", STORE_DEFER, &err), 0);
    assert_true(fake_has("p/a"));
    assert_int_equal(put("a", STORE_DEFER | STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(store_flush(store, &err), 0);
    atomic_store(&threads_left, 1); /* one thread does all deferred puts */
    for (char key[] = "b"; key[0] <= 'z'; key[0]++)
        assert_int_equal(put(key, STORE_DEFER, &err), 0);
    assert_int_equal(store_flush(store, &err), 0);
    assert_int_equal(fake_n_objects(), 26);
    assert_int_equal(atomic_load(&threads_left), 0);
}

/* A new thread is started only if all threads are busy, and there are at most sixteen threads. */
static void a_thread_is_begun_when_all_are_busy(_unused_ void **state)
{
    Error err = ERROR_INIT;
    atomic_store(&threads_left, 30);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put("a", STORE_DEFER, &err), 0);
        assert_int_equal(store_flush(store, &err), 0);
    }
    assert_int_equal(atomic_load(&threads_left), 29);
    fake_break(FAKE_PUT, 0, FAKE_STALL);
    for (char key[] = "b"; key[0] <= 'z'; key[0]++)
        assert_int_equal(put(key, STORE_DEFER, &err), 0);
    assert_int_equal(atomic_load(&threads_left), 30 - 16);
}

/* ---- memory ---- */

static char body[20000];

static int put_large(const char *key, Error *err)
{
    const struct iovec parts[] = {{body, 700}, {body + 700, 4800}};
    return store_put(store, key, parts, 2, 0, err);
}

/* Each allocation of an upload fails once: two tables, a slice for each of six parts, and the text of the completion.
 * Only the third allocation, which the XML parser makes, does not fail here: its failure would end the program. After a
 * failure, nothing remains on the server. */
static void a_put_without_memory_is_none(_unused_ void **state)
{
    for (int n = 1; n <= 10; n++) {
        Error err = ERROR_INIT;
        if (n == 3)
            continue;
        atomic_store(n < 10 ? &calloc_fails : &stream_fails, n < 10 ? n : 1);
        assert_int_equal(put_large("k", &err), -ENOMEM);
        assert_string_equal(err.text, "out of memory writing s3://bucket/p/k");
        assert_int_equal(fake_n_uploads() + fake_n_objects(), 0);
    }
    assert_int_equal(put_large("k", &(Error){0}), 0);
}

static void reads_and_deletions_without_memory_say_so(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char *text = NULL;
    static const char *const two[] = {"k", "l"};
    assert_int_equal(put_large("k", &err), 0);
    atomic_store(&calloc_fails, 1);
    assert_int_equal(store_get_range(store, "k", 0, 10, body, &err), -ENOMEM);
    assert_string_equal(err.text, "out of memory reading s3://bucket/p/k");
    atomic_store(&malloc_fails, 1);
    assert_int_equal(store_get(store, "k", 6000, &text, NULL, &err), -ENOMEM);
    assert_string_equal(err.text, "out of memory reading s3://bucket/p/k");
    atomic_store(&stream_fails, 1);
    assert_int_equal(store_delete_many(store, two, 2, &err), -ENOMEM);
    assert_string_equal(err.text, "out of memory removing objects of s3://bucket/p");
    assert_null(text);
    assert_true(fake_has("p/k"));
}

/* ---- bytes and their ETag ---- */

static const char *turned; /* first byte of each answer, one letter per answer; NULL: unchanged */

static void turn(FakeKind kind, _unused_ const S3Request *request)
{
    if (kind == FAKE_GET && turned && turned[0])
        shelf_find("p/k")->data[0] = *turned++;
}

/* The object is one letter; its ETag is the MD5 of "A". */
static void bytes_are_held_against_their_etag(_unused_ void **state)
{
    static const struct {
        const char *read, *etag;
        bool opaque;
        int r;
        size_t n_gets;
        char got;
    } cases[] = {
        {"A", "7fc56270e7a70fa81a5935b72eacbe29", false, 0, 1, 'A'},
        {"A", "7FC56270E7A70FA81A5935B72EACBE29", false, 0, 1, 'A'},
        {"BA", "7fc56270e7a70fa81a5935b72eacbe29", false, 0, 2, 'A'},
        {"BCDEA", "7fc56270e7a70fa81a5935b72eacbe29", false, 0, 5, 'A'},
        {"BBB", "7fc56270e7a70fa81a5935b72eacbe29", false, 0, 3, 'B'}, /* the ETag is not an MD5 */
        {"CCBBB", "7fc56270e7a70fa81a5935b72eacbe29", false, 0, 5, 'B'},
        {"BCBCB", "7fc56270e7a70fa81a5935b72eacbe29", false, -EIO, 5, 0},
        {"BBCCB", "7fc56270e7a70fa81a5935b72eacbe29", false, -EIO, 5, 0},
        {"B", "7fc56270e7a70fa81a5935b72eacbe29", true, 0, 1, 'B'},
        {"B", "7fc56270e7a70fa81a5935b72eacbe29-1", false, 0, 1, 'B'},
        {"B", "7fc56270e7a70fa81a5935b72eacbe2", false, 0, 1, 'B'},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        char *text = NULL;
        size_t n = 77;
        fake_put("p/k", "A");
        fake.etag = cases[i].etag;
        fake.etag_opaque = cases[i].opaque;
        fake.on_request = turn;
        fake.n[FAKE_GET] = 0;
        turned = cases[i].read;
        assert_int_equal(store_get(store, "k", 10, &text, &n, &err), cases[i].r);
        assert_int_equal(fake.n[FAKE_GET], cases[i].n_gets);
        if (cases[i].r == 0)
            assert_true(n == 1 && text[0] == cases[i].got);
        else
            assert_non_null(strstr(err.text, "read 5 times, always with other bytes: MD5 9d5e"));
        free(text);
    }
}

/* ---- strange servers ---- */

/* An object with our mark but without a known size does not count as written by this put. */
static void half_a_put_is_not_ours(_unused_ void **state)
{
    Error err = ERROR_INIT;
    uint64_t n_bytes;
    char version[STORE_VERSION_MAX];
    fake.says_no_length = true;
    fake_break(FAKE_PUT, 1, FAKE_LOSE);
    assert_int_equal(put("k", STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(store_head(store, "k", &n_bytes, &err), -EIO);
    assert_string_equal(err.text, "s3://bucket/p/k: the server does not say its size");
    fake.etag = "";
    assert_int_equal(store_version(store, "k", version, &err), -EIO);
    assert_string_equal(err.text, "s3://bucket/p/k: the server gives no ETag");
}

static void cut(FakeKind kind, const S3Request *request)
{
    if (kind == FAKE_HEAD && shelf_find(request->key))
        shelf_find(request->key)->n_bytes = 0;
}

static void a_put_that_was_cut_is_not_ours(_unused_ void **state)
{
    Error err = ERROR_INIT;
    fake.on_request = cut;
    fake_break(FAKE_PUT, 1, FAKE_LOSE);
    assert_int_equal(put("k", STORE_IF_ABSENT, &err), -EEXIST);
}

static size_t n_markers, n_ids;

static void see_markers(FakeKind kind, const S3Request *request)
{
    for (size_t i = 0; kind == FAKE_UPLOADS && i < request->n_query; i++) {
        n_markers += strcmp(request->query[i].name, "key-marker") == 0 &&
                     strcmp(request->query[i].value, "p/a") == 0;
        n_ids += strcmp(request->query[i].name, "upload-id-marker") == 0;
    }
}

/* Uploads of one name are on three pages. Then a server marks the next page with only a key, without an upload's id. */
static void uploads_of_one_name_are_on_many_pages(_unused_ void **state)
{
    Error err = ERROR_INIT;
    size_t removed;
    for (int i = 0; i < 3; i++)
        fake_begin_upload("p/a", 0);
    fake.page = 1;
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 3);
    fake.on_request = see_markers;
    fake.text = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>p/a"
                "</NextKeyMarker></ListMultipartUploadsResult>";
    fake_break(FAKE_UPLOADS, 1, FAKE_ERROR_200);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(n_markers, 1);
    assert_int_equal(n_ids, 0);
}

/* If a reply has no date, our clock is used. A listed key with another prefix is an error. */
static void a_list_without_a_date_is_as_old_as_our_clock_says(_unused_ void **state)
{
    Error err = ERROR_INIT;
    StoreList list;
    size_t removed;
    /* The fake server dates every object 2026-01-02. */
    fake_put("p/" STORE_TEMPORARY "probe-0123456789abcdef", "x");
    assert_int_equal(store_sweep(store, 3600 * USEC_PER_SEC, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 1);
    fake_begin_upload("p/a", (clock_realtime_usec() / USEC_PER_SEC - 3600) * USEC_PER_SEC);
    assert_int_equal(store_sweep(store, 3600 * USEC_PER_SEC, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 1); /* the upload is exactly as old as the limit */
    fake.text = "<ListBucketResult><Contents><Key>q/a</Key><Size>1</Size><ETag>v</ETag>"
                "<LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>"
                "<IsTruncated>false</IsTruncated></ListBucketResult>";
    fake_break(FAKE_LIST, 1, FAKE_ERROR_200);
    assert_int_equal(store_list(store, "", 10, &list, &err), -EIO);
    assert_string_equal(err.text, "cannot list s3://bucket/p/: the server tells of q/a");
}

/* Some refusals of a probe mean that the server lacks a function; others are errors. */
static void a_probe_is_refused_in_many_words(_unused_ void **state)
{
    static const struct {
        int r;
        long status;
        const char *code;
        int expected;
        bool knows_crc32c;
    } cases[] = {
        {-EOPNOTSUPP, 501, "NotImplemented", 0, true},
        {-EIO, 400, "InvalidArgument", 0, true},
        {-EIO, 200, "", -EIO, false},
        {-EACCES, 400, "ExpiredToken", -EACCES, false},
        {-EHOSTUNREACH, 400, "BadDigest", 0, true},
        {-EHOSTUNREACH, 400, "XAmzContentChecksumMismatch", 0, true},
        {-EAGAIN, 409, "ConditionalRequestConflict", 0, false}, /* answers the probe's second PUT */
        {-EEXIST, 412, "PreconditionFailed", 0, false},         /* answers the probe's second PUT */
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        bool promised = false;
        fake_reset();
        fake.refusal.r = cases[i].r;
        fake.refusal.status = cases[i].status;
        fake.refusal.code = cases[i].code;
        fake_break(FAKE_PUT, i < 6 ? 1 : 2, FAKE_REFUSE);
        assert_int_equal(store_puts_if_absent(store, &promised, &err), cases[i].expected);
        assert_int_equal(fake.sends_crc32c, cases[i].knows_crc32c);
        assert_int_equal(promised, cases[i].expected == 0);
        assert_int_equal(fake_n_objects(), 0);
        n_before += promised ? 2 : 0; /* two texts of the stored result of the probe */
    }
}

/* ---- names ---- */

static char probed[S3_NAME_MAX + 1]; /* name of the last object that a probe has put */

static void note_probe(FakeKind kind, const S3Request *request)
{
    if (kind == FAKE_PUT && strstr(request->key, STORE_TEMPORARY "probe-"))
        (void)snprintf(probed, sizeof(probed), "%s", request->key);
}

/* Two concurrent probes of one server use different object names. */
static void each_look_at_a_server_has_a_name_of_its_own(_unused_ void **state)
{
    char before[sizeof(probed)] = "";
    for (int i = 0; i < 3; i++) {
        char uri[32];
        Error err = ERROR_INIT;
        bool promised;
        (void)snprintf(uri, sizeof(uri), "s3://looked-at-%d/p", i);
        _cleanup_(store_freep) Store *other = NULL;
        fake.on_request = note_probe;
        assert_int_equal(store_open(uri, &other, &err), 0);
        assert_int_equal(store_puts_if_absent(other, &promised, &err), 0);
        assert_string_not_equal(probed, before);
        memcpy(before, probed, sizeof(before));
    }
}

/* The text ends with a NUL even if it is read in several ranges. */
static void a_text_ends_with_a_nul(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char *text;
    size_t n_bytes;
    assert_int_equal(put_large("large", &err), 0);
    (void)mallopt(M_PERTURB, 0x5a); /* no effect with a sanitizer, which has its own allocator */
    assert_int_equal(store_get(store, "large", sizeof(body), &text, &n_bytes, &err), 0);
    (void)mallopt(M_PERTURB, 0);
    assert_true(n_bytes > fake.options.part_bytes);
    assert_int_equal(text[n_bytes], '\0');
    free(text);
}

/* ---- time ---- */

static void take_a_second(_unused_ FakeKind kind, _unused_ const S3Request *request)
{
    atomic_fetch_add(&paused_usec, USEC_PER_SEC);
}

/* Each call is counted, and its duration added: a put, a flush, and each way to read. */
static void what_a_store_is_used_is_counted(_unused_ void **state)
{
    Error err = ERROR_INIT;
    StoreUse use;
    StoreRead read = {.key = "k", .n_bytes = 1, .buffer = body};
    char *text = NULL;
    fake.on_request = take_a_second;
    assert_int_equal(put("k", 0, &err), 0);
    store_use(store, &use);
    assert_true(use.puts == 1 && use.gets == 0 && use.get_usec == 0);
    assert_in_range(use.put_usec, USEC_PER_SEC, 6 * USEC_PER_SEC); /* this may include the probe */
    assert_int_equal(store_get(store, "k", 10, &text, NULL, &err), 0);
    assert_int_equal(store_get_range(store, "k", 0, 1, body, &err), 0);
    store_use(store, &use);
    assert_true(use.puts == 1 && use.gets == 2);
    assert_in_range(use.get_usec, 2 * USEC_PER_SEC, 3 * USEC_PER_SEC);
    assert_int_equal(store_read_begin(store, &read, &err), 0);
    assert_int_equal(store_read_wait(store, &read, &err), 0);
    assert_int_equal(store_get_range(store, "/", 0, 1, body, &err), -EINVAL); /* sends no request */
    store_use(store, &use);
    assert_int_equal(use.gets, 3);
    free(text);
}

/* ---- fault points ---- */

static const char *struck;

static int strike(const char *point) { return strcmp(point, struck) == 0 ? -EUCLEAN : 0; }

/* A fault before, during and after a put is an error that names the object, and no upload remains. */
static void a_fault_of_a_put_is_told(_unused_ void **state)
{
    static const char *const points[] = {"store.put.before", "store.put.half", "store.put.parts",
                                         "store.put.after"};
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        for (int is_large = 0; is_large < 2; is_large++) {
            Error err = ERROR_INIT;
            const bool is_hit = is_large || i != 2;
            const char *key = is_large ? "large" : "small";
            struck = points[i];
            fault_lend(strike);
            const int r = is_large ? put_large(key, &err) : put(key, 0, &err);
            fault_lend(NULL);
            assert_int_equal(r, is_hit ? -EUCLEAN : 0);
            if (is_hit)
                assert_non_null(strstr(err.text, key));
            assert_int_equal(fake_n_uploads(), 0);
            assert_int_equal(fake_has(is_large ? "p/large" : "p/small"), !is_hit || i == 3);
            assert_int_equal(store_delete(store, key, &err), 0);
        }
}

int main(void)
{
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)(i * 2654435761u >> 11);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        /* This test must be the first, as the results of only sixteen servers are stored. */
        TEST(a_probe_is_refused_in_many_words),
        TEST(a_pause_is_drawn_and_slept),
        TEST(a_pause_ends_before_its_deadline),
        TEST(without_a_thread_a_put_is_done_at_once),
        TEST(a_thread_is_begun_when_all_are_busy),
        TEST(a_put_without_memory_is_none),
        TEST(reads_and_deletions_without_memory_say_so),
        TEST(bytes_are_held_against_their_etag),
        TEST(half_a_put_is_not_ours),
        TEST(a_put_that_was_cut_is_not_ours),
        TEST(uploads_of_one_name_are_on_many_pages),
        TEST(a_list_without_a_date_is_as_old_as_our_clock_says),
        TEST(each_look_at_a_server_has_a_name_of_its_own),
        TEST(a_text_ends_with_a_nul),
        TEST(what_a_store_is_used_is_counted),
        TEST(a_fault_of_a_put_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
