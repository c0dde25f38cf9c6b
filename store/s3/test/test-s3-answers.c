/* SPDX-License-Identifier: Apache-2.0 */
/* test-s3-answers.c - requests to S3 that are refused, time out, or are answered with nothing, with another document or
 * with a part of a document. Unless the server reports it, no request may conclude that an object is absent, deleted or
 * written, or that a list is complete. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "store/access-check.h"
#include "store/s3/s3-internal.h"
#include "store/s3/test/testing-libc.h"
#include "store/s3/test/testing-objects.h"

#include <string.h>

enum { IN_PARTS = 5500 };

static char body[IN_PARTS];

static int setup(void **state)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    bool promised;
    fake_reset();
    assert_int_equal(store_open("s3://bucket/p", &store, &err), 0);
    assert_int_equal(store_puts_if_absent(store, &promised, &err), 0); /* no fault is set yet */
    *state = store;
    return 0;
}

/* Does not check for leaks: the thread of a try frees its memory only after its answer has arrived. */
static int teardown(void **state)
{
    *state = store_free(*state);
    fake_reset();
    return 0;
}

static int put(Store *store, const char *key, size_t n_bytes, StorePutFlags flags, Error *err)
{
    const struct iovec part = {body, n_bytes};
    return store_put(store, key, &part, 1, flags, err);
}

/* Bodies of a reply 200 that are not an answer to the request. */
static const char *const no_answers[] = {
    "",
    " \n",
    "<html><body>Sign in to the network</body></html>",
    "<Error><Code>InternalError</Code><Message>m</Message></Error>",
    "<ListBucketResult><Contents><Key>p/a</Key>",
    "<ListMultipartUploadsResult><Upload>",
    "<InitiateMultipartUploadResult><UploadId>",
    "<CompleteMultipartUploadResult><ETag>",
    "<DeleteResult><Error>",
    "<InitiateMultipartUploadResult><UploadId></UploadId></InitiateMultipartUploadResult>",
    "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
};
/* Pages that are not valid lists: the token for the next page, or an object's name, is missing. */
static const char *const no_lists[] = {
    "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken/></ListBucketResult>",
    "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
    "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>",
    "<ListMultipartUploadsResult><Upload><Key>p/x</Key></Upload></ListMultipartUploadsResult>",
};

static const struct {
    FakeFault fault;
    int r;
} failures[] = {{FAKE_SILENT, -EHOSTUNREACH}, {FAKE_LOSE_ALL, -EHOSTUNREACH}, {FAKE_DENY, -EACCES}};

/* ---- lists ---- */

static void expect_no_list(Store *store, int expected)
{
    StoreList list = {.n_objects = 77};
    Error err = ERROR_INIT;
    assert_int_equal(store_list(store, "", 100, &list, &err), expected);
    assert_int_equal(list.n_objects, 77);
    assert_non_null(strstr(err.text, "s3://bucket/p"));
    fake_mend();
}

/* A bad answer to any page makes the whole list fail: a part of the list is not returned. */
static void what_is_no_list_ends_it(void **state)
{
    Store *store = *state;
    for (char name[] = "p/a"; name[2] < 'f'; name[2]++)
        fake_put(name, "x");
    fake.page = 2;
    for (size_t at = 1; at <= 3; at++) {
        for (size_t i = 0; i < ELEMENTSOF(no_answers) + ELEMENTSOF(no_lists); i++) {
            fake.text =
                i < ELEMENTSOF(no_answers) ? no_answers[i] : no_lists[i - ELEMENTSOF(no_answers)];
            fake_break(FAKE_LIST, at, FAKE_ERROR_200);
            expect_no_list(store, -EIO);
        }
        fake_break(FAKE_LIST, at, FAKE_CUT);
        expect_no_list(store, -EIO);
        for (size_t i = 0; i < ELEMENTSOF(failures); i++) {
            fake_break(FAKE_LIST, at, failures[i].fault);
            expect_no_list(store, failures[i].r);
        }
    }
}

static void a_sweep_without_a_list_is_no_sweep(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    size_t removed;
    fake_begin_upload("p/x", 0);
    for (size_t i = 0; i < ELEMENTSOF(no_answers) + ELEMENTSOF(no_lists); i++) {
        fake.text =
            i < ELEMENTSOF(no_answers) ? no_answers[i] : no_lists[i - ELEMENTSOF(no_answers)];
        fake_break(FAKE_UPLOADS, 1, FAKE_ERROR_200);
        assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), -EIO);
        assert_int_equal(fake_n_uploads(), 1);
        fake_mend();
    }
    for (size_t i = 0; i < ELEMENTSOF(failures); i++) {
        fake_break(FAKE_UPLOADS, 1, failures[i].fault);
        assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), failures[i].r);
        fake_mend();
        fake_break(FAKE_ABORT, 1,
                   failures[i].fault == FAKE_LOSE_ALL ? FAKE_SILENT : failures[i].fault);
        assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), failures[i].r);
        fake_mend();
    }
    assert_int_equal(fake_n_uploads(), 1);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
    assert_int_equal(removed, 1);
}

/* An upload's age is computed with the server's clock, whatever our clock shows. */
static void the_servers_clock_tells_what_is_old(void **state)
{
    Store *store = *state;
    static const struct {
        int64_t ahead_sec;
        size_t n_removed;
    } cases[] = {{0, 1}, {7200, 2}, {-7200, 0}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        size_t removed;
        fake.ahead_sec = cases[i].ahead_sec;
        fake_begin_upload("p/old", clock_realtime_usec() - 5400 * USEC_PER_SEC);
        fake_begin_upload("p/new", clock_realtime_usec());
        assert_int_equal(store_sweep(store, 3600 * USEC_PER_SEC, NULL, NULL, &removed, &err), 0);
        assert_int_equal(removed, cases[i].n_removed);
        assert_int_equal(store_sweep(store, 0, NULL, NULL, &removed, &err), 0);
        assert_int_equal(fake_n_uploads(), 0);
    }
}

/* ---- deletions ---- */

static void a_deletion_without_an_answer_is_none(void **state)
{
    Store *store = *state;
    for (size_t i = 0; i < ELEMENTSOF(failures); i++) {
        Error err = ERROR_INIT;
        fake_put("p/a", "x");
        fake_break(FAKE_DELETE, 1, failures[i].fault);
        assert_int_equal(store_delete(store, "a", &err), failures[i].r);
        assert_non_null(strstr(err.text, "cannot remove s3://bucket/p/a"));
        fake_mend();
        assert_int_equal(store_delete(store, "a", &err), 0);
        assert_int_equal(store_delete(store, "a", &err), 0); /* the object is deleted already */
    }
    Error err = ERROR_INIT;
    fake_put("p/a", "x");
    fake_break(FAKE_DELETE, 1, FAKE_LOSE); /* the request is sent again */
    assert_int_equal(store_delete(store, "a", &err), 0);
    assert_int_equal(fake_n_objects(), 0);
}

static const char *const three[] = {"a", "b", "c"};

static void put_three(void)
{
    fake_put("p/a", "x");
    fake_put("p/b", "x");
    fake_put("p/c", "x");
    fake.n[FAKE_DELETE] = 0;
}

/* If the answer does not confirm all deletions, each object is deleted separately, with its own result. */
static void what_does_not_say_that_all_are_deleted_says_nothing(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    static const char *const not_all[] = {
        "<DeleteResult><Error><Key>p/b</Key><Code>InternalError</Code></Error></DeleteResult>",
        ("<DeleteResult><Error><Key>p/b</Key><Code>NoSuchKey</Code></Error>"
         "<Error><Key>p/c</Key><Code>AccessDenied</Code></Error></DeleteResult>"),
        "<DeleteResult><Error><Code>SlowDown</Code></Error></DeleteResult>",
    };
    for (size_t i = 0; i < ELEMENTSOF(no_answers) + ELEMENTSOF(not_all); i++) {
        put_three();
        fake.text =
            i < ELEMENTSOF(no_answers) ? no_answers[i] : not_all[i - ELEMENTSOF(no_answers)];
        fake_break(FAKE_DELETE_MANY, 1, FAKE_ERROR_200);
        assert_int_equal(store_delete_many(store, three, 3, &err), 0);
        assert_int_equal(fake.n[FAKE_DELETE], 3);
        assert_int_equal(fake_n_objects(), 0);
        fake_mend();
        put_three(); /* one deletion fails: the error names its object, and the others are deleted */
        fake_break(FAKE_DELETE_MANY, 1, FAKE_ERROR_200);
        fake_break(FAKE_DELETE, 2, FAKE_DENY);
        assert_int_equal(store_delete_many(store, three, 3, &err), -EACCES);
        assert_non_null(strstr(err.text, "cannot remove s3://bucket/p/b"));
        assert_int_equal(fake_n_objects(), 1);
        assert_true(fake_has("p/b"));
        fake_mend();
    }
    put_three();
    fake_break(FAKE_DELETE_MANY, 1, FAKE_CUT);
    assert_int_equal(store_delete_many(store, three, 3, &err), 0);
    assert_int_equal(fake.n[FAKE_DELETE], 3);
}

/* If the server is unreachable, the keys are not tried one by one, and no object counts as deleted. */
static void many_without_an_answer_are_not_deleted(void **state)
{
    Store *store = *state;
    for (size_t i = 0; i < 2; i++) {
        Error err = ERROR_INIT;
        put_three();
        fake_break(FAKE_DELETE_MANY, 1, failures[i].fault);
        assert_int_equal(store_delete_many(store, three, 3, &err), -EHOSTUNREACH);
        assert_non_null(strstr(err.text, "cannot remove objects of s3://bucket/p"));
        assert_int_equal(fake.n[FAKE_DELETE], 0);
        fake_mend();
        put_three(); /* the server becomes unreachable: the first failure is reported */
        fake_break(FAKE_DELETE_MANY, 1, FAKE_DENY);
        fake_break(FAKE_DELETE, 1, FAKE_DENY);
        fake_break(FAKE_DELETE, 2, FAKE_SILENT);
        assert_int_equal(store_delete_many(store, three, 3, &err), -EACCES);
        assert_int_equal(fake.n[FAKE_DELETE], 2);
        fake_mend();
        assert_int_equal(store_delete_many(store, three, 3, &err), 0);
    }
}

/* ---- puts ---- */

static void an_upload_that_nobody_began_puts_nothing(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(no_answers); i++) {
        fake.text = no_answers[i];
        fake_break(FAKE_CREATE, 1, FAKE_ERROR_200);
        assert_int_equal(put(store, "k", IN_PARTS, 0, &err), -EIO);
        assert_non_null(strstr(err.text, "cannot write s3://bucket/p/k"));
        fake_mend();
    }
    assert_int_equal(fake.n[FAKE_PART], 0);
    assert_int_equal(fake_n_objects(), 0);
}

/* If the answer to a completion is unclear, a HEAD shows whether the upload was completed. If it was not completed,
 * the upload is aborted and the put starts again. */
static void an_upload_that_nobody_says_is_complete_is_looked_at(void **state)
{
    Store *store = *state;
    for (size_t i = 0; i <= ELEMENTSOF(no_answers); i++)
        for (int if_absent = 0; if_absent < 2; if_absent++) {
            const bool is_done = i == ELEMENTSOF(no_answers);
            const size_t n_creates = fake.n[FAKE_CREATE];
            Error err = ERROR_INIT;
            char key[16];
            (void)snprintf(key, sizeof(key), "k%zu%d", i, if_absent);
            fake.text = is_done ? NULL : no_answers[i];
            fake_break(FAKE_COMPLETE, 1, is_done ? FAKE_CUT : FAKE_ERROR_200);
            assert_int_equal(put(store, key, IN_PARTS, if_absent ? STORE_IF_ABSENT : 0, &err), 0);
            assert_int_equal(fake.n[FAKE_CREATE] - n_creates, is_done ? 1 : 2);
            assert_int_equal(fake_n_uploads(), 0);
            fake_mend();
        }
}

/* A HEAD that fails does not show whether another writer or an earlier try wrote the object. */
static void a_look_without_an_answer_tells_nothing(void **state)
{
    Store *store = *state;
    for (size_t i = 0; i < ELEMENTSOF(failures); i++)
        for (int is_first = 0; is_first < 2; is_first++) {
            const size_t n_objects = fake_n_objects();
            Error err = ERROR_INIT;
            if (!is_first)
                fake_break(FAKE_PUT, 1, FAKE_CONFLICT);
            fake_break(FAKE_HEAD, 1, failures[i].fault);
            assert_int_equal(put(store, "k", is_first ? IN_PARTS : 7, STORE_IF_ABSENT, &err),
                             failures[i].r);
            assert_non_null(strstr(err.text, "cannot look at s3://bucket/p/k"));
            assert_int_equal(fake_n_objects(), n_objects);
            fake_mend();
        }
    assert_int_equal(fake.n[FAKE_CREATE], 0);
}

/* Objects of the put's size, one without a mark and one with the mark of another put: neither counts as written by this
 * put. */
static void an_object_of_our_size_is_not_ours(void **state)
{
    Store *store = *state;
    Error err = ERROR_INIT;
    fake_put("p/k", "7 bytes");
    assert_int_equal(put(store, "k", 7, STORE_IF_ABSENT, &err), -EEXIST);
    assert_int_equal(put(store, "l", 7, STORE_IF_ABSENT, &err), 0);
    assert_int_equal(put(store, "l", 7, STORE_IF_ABSENT, &err), -EEXIST);
}

/* ---- reads ---- */

static void a_read_without_an_answer_finds_nothing_absent(void **state)
{
    Store *store = *state;
    char version[STORE_VERSION_MAX], got[8], *text = NULL;
    uint64_t n_bytes = 77;
    fake_put("p/a", "x");
    for (size_t i = 0; i < ELEMENTSOF(failures); i++) {
        Error err = ERROR_INIT;
        fake_break(FAKE_HEAD, 0, failures[i].fault);
        fake_break(FAKE_GET, 0, failures[i].fault);
        assert_int_equal(store_head(store, "a", &n_bytes, &err), failures[i].r);
        assert_int_equal(n_bytes, 77);
        assert_int_equal(store_version(store, "a", version, &err), failures[i].r);
        assert_int_equal(store_get(store, "a", 10, &text, NULL, &err), failures[i].r);
        assert_null(text);
        assert_int_equal(store_get_range(store, "a", 0, 1, got, &err), failures[i].r);
        assert_int_equal(store_get_range(store, "a", 1, 0, got, &err), failures[i].r);
        fake_mend();
    }
}

/* ---- whether a store can be used ---- */

static StoreTry try_one(StoreTryKind kind, const char *marker)
{
    StoreTry t = {.kind = kind, .uri = "s3://bucket/p"};
    (void)snprintf(t.marker, sizeof(t.marker), "%s", marker);
    store_try_all(&t, 1, 30 * USEC_PER_SEC);
    return t;
}

/* A marker counts as missing only if the server reports that it does not exist. */
static void a_marker_that_nobody_answers_for_is_not_lacking(_unused_ void **state)
{
    StoreTry t = try_one(STORE_TRY_WRITE, ".mark");
    assert_true(t.r == 0 && t.lacks_marker);
    fake_break(FAKE_HEAD, 1, FAKE_SILENT);
    const size_t n_puts = fake.n[FAKE_PUT];
    t = try_one(STORE_TRY_WRITE, ".mark");
    assert_int_equal(t.r, -EHOSTUNREACH);
    assert_false(t.lacks_marker);
    assert_int_equal(fake.n[FAKE_PUT], n_puts); /* no further request is sent to the server */
    fake_break(FAKE_HEAD, 1, FAKE_DENY);
    t = try_one(STORE_TRY_WRITE, ".mark");
    assert_true(t.r == 0 && !t.lacks_marker); /* a user without the right to look may still put */
    assert_int_equal(fake_n_objects(), 0);
}

/* A user without the right to write counts as a reader only if the server answers the read of the marker. It does not
 * matter whether the marker exists. */
static void who_is_refused_may_read_if_the_server_says_so(_unused_ void **state)
{
    static const FakeFault looks[] = {FAKE_SILENT, FAKE_DENY, FAKE_LOSE};
    for (size_t i = 0; i < ELEMENTSOF(looks); i++) {
        fake_break(FAKE_PUT, 1, FAKE_DENY);
        fake_break(FAKE_HEAD, 1, looks[i]);
        StoreTry t = try_one(STORE_TRY_MARK, ".mark");
        assert_int_equal(t.r, -EACCES);
        assert_int_equal(t.may_read, looks[i] == FAKE_LOSE);
        assert_true(strncmp(t.error.text, "cannot write s3://bucket/p", 26) == 0);
        fake_mend();
    }
    /* The server is unreachable, so the try does not test whether it can read. */
    fake_break(FAKE_PUT, 1, FAKE_SILENT);
    const size_t n_heads = fake.n[FAKE_HEAD];
    StoreTry t = try_one(STORE_TRY_MARK, ".mark");
    assert_true(t.r == -EHOSTUNREACH && !t.may_read);
    assert_int_equal(fake.n[FAKE_HEAD], n_heads);
    fake_mend();
    t = try_one(STORE_TRY_MARK, ".mark");
    assert_true(t.r == 0 && !t.may_read);
    assert_true(fake_has("p/.mark"));
}

/* If a step of a try gets no answer, the try fails. The steps are a put, a get, a delete, and the put of the marker. */
static void a_try_is_good_when_each_step_was(_unused_ void **state)
{
    static const struct {
        FakeKind kind;
        size_t at;
    } steps[] = {{FAKE_PUT, 1}, {FAKE_GET, 1}, {FAKE_DELETE, 1}, {FAKE_PUT, 2}};
    for (size_t i = 0; i < ELEMENTSOF(steps); i++)
        for (size_t k = 0; k < ELEMENTSOF(failures); k++) {
            fake_break(steps[i].kind, steps[i].at, failures[k].fault);
            StoreTry t = try_one(STORE_TRY_MARK, ".mark");
            assert_int_equal(t.r, failures[k].r);
            assert_true(*t.error.text);
            assert_true(t.took_usec < 20 * USEC_PER_SEC);
            fake_mend();
        }
    fake_break(FAKE_GET, 1, FAKE_CUT); /* half of the object is returned */
    StoreTry t = try_one(STORE_TRY_WRITE, "");
    assert_int_equal(t.r, -EIO);
    assert_string_equal(t.error.text, "what was written comes back otherwise");
}

/* If no thread can be started for one try, that try fails; the other try still runs. */
static void a_try_without_a_thread_says_so(_unused_ void **state)
{
    StoreTry tries[2] = {{.kind = STORE_TRY_WRITE, .uri = "s3://bucket/p"},
                         {.kind = STORE_TRY_WRITE, .uri = "s3://bucket/p"}};
    atomic_store(&threads_left, 1);
    store_try_all(tries, 2, 30 * USEC_PER_SEC);
    atomic_store(&threads_left, -1);
    assert_int_equal(tries[0].r, 0);
    assert_int_equal(tries[1].r, -EAGAIN);
    assert_non_null(strstr(tries[1].error.text, "cannot start a thread"));
}

/* A try first probes a server that is not known yet. If the server refuses the probe's object, the error names this
 * object, not the object of the try. */
static void a_refusal_names_the_object_that_was_refused(_unused_ void **state)
{
    static char endpoint[] = "http://nobody-has-asked-it";
    fake.options.endpoint = endpoint;
    fake_break(FAKE_PUT, 1, FAKE_DENY);
    StoreTry t = try_one(STORE_TRY_WRITE, "");
    assert_int_equal(t.r, -EACCES);
    assert_true(strncmp(t.error.text, "cannot write s3://bucket/p/", 27) == 0);
    assert_null(strstr(t.error.text, "sdtrain-try"));
}

/* A long text keeps its server's answer, which begins with three digits after a colon; similar texts are not mistaken
 * for it. */
static void what_a_server_answered_is_found_in_a_long_text(_unused_ void **state)
{
    static const char *const before[] = {"12 x",  "1 x",   "1234 x", "123x",
                                         "x23 x", "1x3 x", "12x x"};
    for (size_t i = 0; i < ELEMENTSOF(before); i++) {
        char words[64];
        StoreTry t = {.r = -EACCES};
        (void)snprintf(t.error.text, sizeof(t.error.text),
                       "cannot write: %s: 403 Denied: whoever you are and wherever", before[i]);
        assert_string_equal(store_try_words(&t, 16, words), "...403 Denied: w");
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)(i * 2654435761u >> 11);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_list_ends_it),
        TEST(a_sweep_without_a_list_is_no_sweep),
        TEST(the_servers_clock_tells_what_is_old),
        TEST(a_deletion_without_an_answer_is_none),
        TEST(what_does_not_say_that_all_are_deleted_says_nothing),
        TEST(many_without_an_answer_are_not_deleted),
        TEST(an_upload_that_nobody_began_puts_nothing),
        TEST(an_upload_that_nobody_says_is_complete_is_looked_at),
        TEST(a_look_without_an_answer_tells_nothing),
        TEST(an_object_of_our_size_is_not_ours),
        TEST(a_read_without_an_answer_finds_nothing_absent),
        TEST(a_marker_that_nobody_answers_for_is_not_lacking),
        TEST(who_is_refused_may_read_if_the_server_says_so),
        TEST(a_try_is_good_when_each_step_was),
        TEST(a_try_without_a_thread_says_so),
        TEST(a_refusal_names_the_object_that_was_refused),
        TEST(what_a_server_answered_is_found_in_a_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
