/* SPDX-License-Identifier: Apache-2.0 */
/* test-comm-open.c - how a rank opens its comms, with a store and connections in memory
 * (testing-mesh.h): which ranks it looks up, calls and adopts, in worlds of up to 16,384 ranks, and
 * which rank it blames when opening fails. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/bulk.h"
#include "trainer/comm/rendezvous-wire.h"
#include "trainer/comm/test/testing-mesh.h"

#include <signal.h>
#include <string.h>

#define CONNECT_USEC (3 * USEC_PER_SEC)

static int unmet;

static CommOptions options_of(int rank, int size)
{
    unmet = 0;
    return (CommOptions){.rank = rank,
                         .size = size,
                         .rendezvous = "store:1",
                         .prefix = "g7/test",
                         .bind_address = "10.0.0.1",
                         .key = {.generation = 7},
                         .connect_usec = CONNECT_USEC,
                         .timeout_usec = USEC_PER_SEC,
                         .unmet = &unmet};
}

static void publish_ranks(int below)
{
    for (int rank = 0; rank < below; rank++) {
        char name[MESH_NAME], address[MESH_NAME];
        (void)snprintf(name, sizeof(name), "g7/test/%d", rank); /* the text fits */
        mesh_address(rank, address);
        mesh_publish(name, address);
    }
}

/* Opens a comm, and checks that every wait had the deadline of the whole opening, and that a
 * failure leaves no connection open. */
static int open_within(const CommOptions *options, Comm **ret, Error *err)
{
    const uint64_t begun = clock_boottime_usec();
    int r = comm_open_gloo(options, ret, err);
    assert_true(mesh.least_deadline >= begun + CONNECT_USEC);
    assert_true(mesh.most_deadline <= clock_boottime_usec() + CONNECT_USEC);
    assert_int_equal(mesh.n_meetings, 0);
    assert_int_equal(mesh.n_meshes, r == 0);
    return r;
}

static void a_rank_calls_those_below_it_and_takes_all(void **state)
{
    (void)state;
    static const int worlds[][2] = {{0, 1},     {0, 2},    {1, 2},       {2, 5},       {128, 257},
                                    {256, 257}, {0, 1025}, {1024, 1025}, {4000, 16384}};
    for (size_t i = 0; i < ELEMENTSOF(worlds); i++) {
        const int rank = worlds[i][0], size = worlds[i][1];
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        char name[MESH_NAME], address[MESH_NAME];
        mesh_reset();
        publish_ranks(rank);
        const CommOptions options = options_of(rank, size);
        if (open_within(&options, &comm, &err) < 0)
            fail_msg("%s", err.text);
        (void)snprintf(name, sizeof(name), "g7/test/%d", rank); /* the text fits */
        mesh_address(rank, address);
        assert_string_equal(mesh_published(name), address);
        assert_int_equal(mesh_store.n, rank + 1); /* the rank published nothing else */
        assert_int_equal(mesh.n_called, rank);
        assert_int_equal(mesh.n_adopted, size - 1);
        assert_int_equal(unmet, 0);
        assert_true(comm_rank(comm) == rank && comm_size(comm) == size);
        comm = comm_free(comm);
        assert_int_equal(mesh.n_meshes, 0);
    }
}

/* ---- which rank is blamed ---- */

typedef struct Blame {
    int rank;
    const char *bad; /* the key for which the store answers with the error `answer` */
    int answer;
    /* hold: the error of connector_hold(), for rank 4; call: the error of connector_call() to rank
     * 3 */
    int hold, call;
    int unmet;
} Blame;

static void whom_a_rank_blames(void **state)
{
    (void)state;
    static const Blame cases[] = {
        /* The store is not reached: rank 0, which serves it, is blamed. Rank 0 itself blames no rank. */
        {2, "g7/test/2", -ECONNREFUSED, 0, 0, 1},
        {2, "g7/test/2", -ETIMEDOUT, 0, 0, 1},
        {0, "g7/test/0", -ECONNREFUSED, 0, 0, 0},
        {5, "g7/test/3", -ECONNREFUSED, 0, 0, 1},
        {5, "g7/test/3", -EHOSTUNREACH, 0, 0, 1},
        {5, "g7/test/3", -ECONNRESET, 0, 0, 1},
        /* The store answers that the rank exists already, or that the store is full: no rank is
         * blamed. */
        {2, "g7/test/2", -EEXIST, 0, 0, 0},
        {2, "g7/test/2", -ENOSPC, 0, 0, 0},
        /* A rank has not published its address, published a malformed address, or does not call:
         * that rank is blamed. */
        {5, "g7/test/3", -ETIMEDOUT, 0, 0, 1 + 3},
        {5, "", 0, 0, -EPROTO, 1 + 3},
        {5, "", 0, -ETIMEDOUT, 0, 1 + 4},
        {0, "", 0, -ETIMEDOUT, 0, 1 + 4},
        {5, "", 0, -ECONNREFUSED, 0, 1 + 4},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Blame *c = &cases[i];
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        char text[64];
        mesh_reset();
        publish_ranks(c->rank);
        (void)snprintf(mesh_store.bad, sizeof(mesh_store.bad), "%s", c->bad); /* the text fits */
        mesh_store.answer = c->answer;
        mesh.hold_fails = c->hold;
        mesh.hold_peer = 4;
        mesh.call_fails = c->call;
        const CommOptions options = options_of(c->rank, 8);
        const int wanted = c->answer ?: c->hold ?: c->call;
        const int r = open_within(&options, &comm, &err);
        if (r != wanted || unmet != c->unmet || comm)
            fail_msg("case %zu: %d, %d: %s", i, r, unmet, err.text);
        (void)snprintf(text, sizeof(text), "opening comm g7/test as rank %d of 8", c->rank);
        assert_non_null(strstr(err.text, text));
        if (c->rank == 5 && !c->hold) /* after a failure no further rank is called */
            assert_int_equal(mesh.n_called, c->call ? 4 : 3);
    }
}

static void nobody_needs_to_be_told(void **state)
{
    (void)state;
    CommOptions options = options_of(2, 3);
    Error err = ERROR_INIT;
    Comm *comm = NULL;
    options.unmet = NULL;
    mesh_reset(); /* no other rank has published its address */
    assert_int_equal(open_within(&options, &comm, &err), -ETIMEDOUT);
    assert_null(comm);
}

static void each_call_of_the_mesh_may_fail(void **state)
{
    (void)state;
    const CommOptions options = options_of(1, 3);
    /* opening makes three calls of gloo-shim.h: one makes the mesh, and two adopt ranks */
    for (size_t k = 1; k <= 4; k++) {
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        mesh_reset();
        publish_ranks(1);
        mesh.fail_at = k;
        const int r = comm_open_gloo(&options, &comm, &err);
        assert_int_equal(r, k <= 3 ? -ECONNRESET : 0);
        assert_int_equal(mesh.n_calls, MIN(k, (size_t)3));
        assert_int_equal(mesh.n_meetings, 0);
        comm = comm_free(comm);
        assert_int_equal(mesh.n_meshes, 0);
    }
}

static void a_prefix_has_a_bound(void **state)
{
    (void)state;
    char prefix[RENDEZVOUS_KEY_MAX + 1];
    memset(prefix, 'x', sizeof(prefix));
    for (int n = RENDEZVOUS_KEY_MAX - 3; n <= RENDEZVOUS_KEY_MAX; n++) {
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        CommOptions options = options_of(0, 2);
        prefix[n] = '\0';
        options.prefix = prefix;
        mesh_reset();
        const int r = comm_open_gloo(&options, &comm, &err);
        /* the key is the prefix and "/0" */
        assert_int_equal(r, n + 2 <= RENDEZVOUS_KEY_MAX ? 0 : -EINVAL);
        comm = comm_free(comm);
        prefix[n] = 'x';
    }
}

/* ---- the bulk comm ---- */

static void each_rank_says_that_it_knows_of_the_bulk_comm(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    mesh_reset();
    const CommOptions options = options_of(1024, 1025);
    const uint64_t begun = clock_boottime_usec();
    assert_int_equal(bulk_offer(&options, &err), 0);
    assert_string_equal(mesh_published("g7/knows-bulk/1024"), "yes");
    assert_true(mesh.least_deadline >= begun + CONNECT_USEC);
    assert_true(mesh.most_deadline <= clock_boottime_usec() + CONNECT_USEC);
    mesh_reset();
    (void)snprintf(mesh_store.bad, sizeof(mesh_store.bad), "g7/knows-bulk/1024");
    mesh_store.answer = -ECONNREFUSED;
    assert_int_equal(bulk_offer(&options, &err), -ECONNREFUSED);
    assert_int_equal(unmet, 1);
    /* an earlier process of this rank has set the key; rank 0 answers, so rank 0 is not blamed */
    mesh_store.answer = -EEXIST;
    const CommOptions again = options_of(1024, 1025);
    assert_int_equal(bulk_offer(&again, &err), -EEXIST);
    assert_int_equal(unmet, 0);
    mesh_reset();
    const CommOptions zero = options_of(0, 3);
    (void)snprintf(mesh_store.bad, sizeof(mesh_store.bad), "g7/knows-bulk/0");
    mesh_store.answer = -ECONNREFUSED;
    assert_int_equal(bulk_offer(&zero, &err), -ECONNREFUSED);
    assert_int_equal(unmet, 0);
}

typedef struct BulkCase {
    int rank, size;
    int missing; /* the rank that does not know of the bulk comm; -1: none */
    /* the answer that rank 0 published; NULL: rank 0 is the tested rank, or published no answer */
    const char *verdict;
    const char *bad;
    int answer;
    int r; /* what bulk_open() returns */
    bool opens;
    int unmet;
} BulkCase;

static void the_bulk_comm_is_opened_when_all_know_of_it(void **state)
{
    (void)state;
    static const char uses[] = "g7/uses-bulk";
    static const BulkCase cases[] = {
        {0, 1025, -1, NULL, "", 0, 0, true, 0},
        {0, 1025, 1024, NULL, "", 0, 0, false, 0},
        {0, 1025, 1, NULL, "", 0, 0, false, 0},
        {0, 3, -1, NULL, "g7/knows-bulk/2", -ECONNRESET, -ECONNRESET, false, 0},
        {0, 3, -1, NULL, uses, -ENOSPC, -ENOSPC, false, 0},
        {0, 3, 1, NULL, uses, -ENOSPC, -ENOSPC, false, 0},
        {2, 3, -1, "yes", "", 0, 0, true, 0},
        {2, 3, -1, "no", "", 0, 0, false, 0},
        {2, 3, -1, "yet", "", 0, 0, false, 0},
        {2, 3, 0, "yes", "", 0, 0, false, 0}, /* a rank 0 of an older version publishes nothing */
        {2, 3, -1, NULL, "", 0, -ETIMEDOUT, false, 1},
        {2, 3, -1, "yes", "g7/knows-bulk/0", -ECONNREFUSED, -ECONNREFUSED, false, 1},
        {2, 3, -1, "yes", uses, -EHOSTUNREACH, -EHOSTUNREACH, false, 1},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const BulkCase *c = &cases[i];
        Error err = ERROR_INIT;
        Comm *comm = NULL;
        mesh_reset();
        publish_ranks(c->rank);
        for (int rank = 0; rank < c->size; rank++) {
            char name[MESH_NAME];
            (void)snprintf(name, sizeof(name), "g7/knows-bulk/%d", rank); /* the text fits */
            if (rank != c->missing)
                mesh_publish(name, "yes");
        }
        if (c->verdict)
            mesh_publish(uses, c->verdict);
        (void)snprintf(mesh_store.bad, sizeof(mesh_store.bad), "%s", c->bad); /* the text fits */
        mesh_store.answer = c->answer;
        const CommOptions options = options_of(c->rank, c->size);
        const uint64_t begun = clock_boottime_usec();
        const int r = bulk_open(&options, &comm, &err);
        if (r != c->r || (comm != NULL) != c->opens || unmet != c->unmet)
            fail_msg("case %zu: %d, %d, %s: %s", i, r, unmet, comm ? "open" : "not", err.text);
        assert_true(mesh.least_deadline >= begun + CONNECT_USEC);
        assert_true(mesh.most_deadline <= clock_boottime_usec() + CONNECT_USEC);
        if (c->rank == 0 && r == 0)
            assert_string_equal(mesh_published(uses), c->opens ? "yes" : "no");
        comm = comm_free(comm);
    }
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_calls_those_below_it_and_takes_all),
        cmocka_unit_test(whom_a_rank_blames),
        cmocka_unit_test(nobody_needs_to_be_told),
        cmocka_unit_test(each_call_of_the_mesh_may_fail),
        cmocka_unit_test(a_prefix_has_a_bound),
        cmocka_unit_test(each_rank_says_that_it_knows_of_the_bulk_comm),
        cmocka_unit_test(the_bulk_comm_is_opened_when_all_know_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
