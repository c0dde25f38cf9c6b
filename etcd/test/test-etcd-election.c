/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-election.c - two candidates, and a deposed leader that still tries to write. */
#include "base/test/testing.h"

#include "base/log.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <inttypes.h>
#include <string.h>

typedef struct Candidate {
    sd_event *event; /* shared by the candidates */
    Etcd *etcd;
    EtcdLease *lease;
    EtcdElection *election;
    bool leading;
    unsigned n_won, n_lost;
    char key[64];
    int64_t term;
    bool free_in_handler;
} Candidate;

static void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Candidate *candidate = userdata;

    assert_true(leading != candidate->leading);
    if (!leading)
        assert_true(term == candidate->term);
    else
        assert_true(term > candidate->term);
    candidate->leading = leading;
    candidate->n_won += leading;
    candidate->n_lost += !leading;
    candidate->term = term;
    (void)snprintf(candidate->key, sizeof(candidate->key), "%s", key);
    if (candidate->free_in_handler)
        candidate->election = etcd_election_free(candidate->election);
}

static void on_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    etcd_election_lease_changed(((Candidate *)userdata)->election, state, lease);
}

static Candidate *candidate_free(Candidate *candidate)
{
    (void)etcd_election_free(candidate->election);
    (void)etcd_lease_free(candidate->lease);
    (void)etcd_free(candidate->etcd);
    sd_event_unref(candidate->event);
    free(candidate);
    return NULL;
}
DEFINE_CLEANUP(Candidate, candidate_free)

static Candidate *candidate_new(sd_event *event, const EtcdOptions *options, const char *name)
{
    Candidate *candidate = calloc(1, sizeof(*candidate));
    Error err = ERROR_INIT;

    assert_non_null(candidate);
    candidate->event = sd_event_ref(event);
    if (etcd_new(event, options, &candidate->etcd, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(etcd_lease_new(candidate->etcd, 2, "/witness", on_lease, candidate,
                                    &candidate->lease),
                     0);
    assert_int_equal(etcd_election_new(candidate->etcd, "/leader/", name, candidate->lease,
                                       on_election, candidate, &candidate->election),
                     0);
    return candidate;
}

/* Writes as a leader does: the write is guarded by the candidate's key and term. Returns whether the guard held. */
static bool guarded_write(Candidate *candidate, const char *key, int64_t term)
{
    Error err = ERROR_INIT;
    EtcdAnswer *answer = NULL;
    EtcdCompare guard = {.key = key, .target = ETCD_CREATE_REVISION, .equals = term};
    EtcdOp op = {.kind = ETCD_PUT, .key = "/decision", .value = key};

    if (etcd_txn_wait(candidate->etcd, &guard, 1, &op, 1, &answer, &err) < 0)
        fail_msg("%s", err.text);
    bool succeeded = answer->succeeded;
    (void)etcd_answer_free(answer);
    return succeeded;
}

static size_t n_candidates(Candidate *candidate)
{
    EtcdAnswer *answer = NULL;

    assert_int_equal(etcd_get_wait(candidate->etcd, "/leader/", true, &answer, NULL), 0);
    size_t n = answer->n_kvs;
    (void)etcd_answer_free(answer);
    return n;
}

static void test_loser_takes_over(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    sd_event *event = NULL;
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(candidate_freep) Candidate *first = candidate_new(event, &options, "first");
    TESTING_RUN_UNTIL(event, first->leading);
    _cleanup_(candidate_freep) Candidate *second = candidate_new(event, &options, "second");
    sd_event_unref(event);
    TESTING_RUN_UNTIL(event, n_candidates(first) == 2);

    char expected[64];
    (void)snprintf(expected, sizeof(expected), "/leader/%" PRIx64,
                   (uint64_t)etcd_lease_id(first->lease));
    assert_string_equal(first->key, expected);
    assert_true(guarded_write(first, first->key, first->term));
    assert_false(second->leading);

    /* The winner resigns. */
    int64_t old_term = first->term;
    char old_key[64];
    (void)snprintf(old_key, sizeof(old_key), "%s", first->key);
    assert_int_equal(etcd_lease_revoke(first->lease, NULL, NULL, NULL), 0);
    TESTING_RUN_UNTIL(event, second->leading && first->n_lost == 1);
    assert_true(second->term > old_term);
    assert_true(guarded_write(second, second->key, second->term));

    /* Writes of the deposed leader are refused, also after it campaigns again. */
    assert_false(guarded_write(first, old_key, old_term));
    assert_false(guarded_write(first, old_key, second->term));
    assert_int_equal(second->n_lost, 0);
}

static void test_lease_lost_then_campaigns_again(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    sd_event *event = NULL;
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(candidate_freep) Candidate *first = candidate_new(event, &options, "first");
    TESTING_RUN_UNTIL(event, first->leading);
    _cleanup_(candidate_freep) Candidate *second = candidate_new(event, &options, "second");
    sd_event_unref(event);
    TESTING_RUN_UNTIL(event, n_candidates(first) == 2);

    /* The server drops the winner's lease: the second candidate leads, and the first one campaigns again. When the
     * second one's lease is dropped, too, the first one leads, with a later term. */
    char id[32];
    int64_t term = first->term;
    (void)snprintf(id, sizeof(id), "%" PRIx64, (uint64_t)etcd_lease_id(first->lease));
    testing_etcd_ctl(server, "lease", "revoke", id, NULL);
    TESTING_RUN_UNTIL(event, second->leading && n_candidates(second) == 2);
    assert_false(first->leading);
    (void)snprintf(id, sizeof(id), "%" PRIx64, (uint64_t)etcd_lease_id(second->lease));
    testing_etcd_ctl(server, "lease", "revoke", id, NULL);
    TESTING_RUN_UNTIL(event, first->leading && !second->leading);
    assert_true(first->term > term);
    assert_int_equal(first->n_won, 2);
    TESTING_RUN_UNTIL(event, n_candidates(first) == 2);
}

static bool stands_as(Candidate *candidate, const char *key, const char *value)
{
    EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_wait(candidate->etcd, key, false, &answer, NULL), 0);
    bool same =
        answer->n_kvs == 1 && strcmp(answer->kvs[0].value, value) == 0 && answer->kvs[0].lease != 0;
    (void)etcd_answer_free(answer);
    return same;
}

/* Candidates change their values: the leader and the waiting candidate keep their key, lease and term. */
static void test_value_changed(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    sd_event *event = NULL;
    char waits[64];
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(candidate_freep) Candidate *first = candidate_new(event, &options, "first");
    etcd_election_change(first->election, "before it stands");
    TESTING_RUN_UNTIL(event, first->leading && stands_as(first, first->key, "before it stands"));
    _cleanup_(candidate_freep) Candidate *second = candidate_new(event, &options, "second");
    sd_event_unref(event);
    TESTING_RUN_UNTIL(event, n_candidates(first) == 2);
    (void)snprintf(waits, sizeof(waits), "/leader/%" PRIx64,
                   (uint64_t)etcd_lease_id(second->lease));

    int64_t term = first->term;
    etcd_election_change(first->election, "one");
    etcd_election_change(first->election, "another");
    etcd_election_change(second->election, "likewise");
    TESTING_RUN_UNTIL(event, stands_as(first, first->key, "another"));
    TESTING_RUN_UNTIL(event, stands_as(second, waits, "likewise"));
    for (int i = 0; i < 20; i++) { /* the value changes again while the previous put is in flight */
        char value[16];
        (void)snprintf(value, sizeof(value), "a%d", i);
        etcd_election_change(first->election, "on its way");
        for (int turns = 0; turns <= i % 4; turns++)
            assert_true(sd_event_run(event, 0) >= 0);
        etcd_election_change(first->election, value);
        TESTING_RUN_UNTIL(event, stands_as(first, first->key, value));
    }
    assert_true(first->leading && first->term == term && first->n_lost == 0);
    assert_true(guarded_write(first, first->key, first->term));

    /* A deleted key is put again with the latest value. */
    testing_etcd_ctl(server, "del", waits, NULL);
    TESTING_RUN_UNTIL(event, stands_as(second, waits, "likewise"));
}

/* Another client deletes the leader's key: the leader is notified that it lost, and then that it won a new term. */
static void test_key_deleted(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    sd_event *event = NULL;
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(candidate_freep) Candidate *only = candidate_new(event, &options, "only");
    sd_event_unref(event);

    for (unsigned i = 1; i <= 5; i++) {
        TESTING_RUN_UNTIL(event, only->n_won == i && only->leading);
        testing_etcd_ctl(server, "del", only->key, NULL);
        TESTING_RUN_UNTIL(event, only->n_lost == i);
    }
    TESTING_RUN_UNTIL(event, only->leading);
    assert_true(guarded_write(only, only->key, only->term));

    only->free_in_handler = true;
    testing_etcd_ctl(server, "del", only->key, NULL);
    TESTING_RUN_UNTIL(event, only->election == NULL);
}

/* The leader of the election is not the leader of etcd: the election's leader stays when etcd's leader is killed. */
static void test_etcd_leader_dies(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    sd_event *event = NULL;
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(candidate_freep) Candidate *first = candidate_new(event, &options, "first");
    TESTING_RUN_UNTIL(event, first->leading);
    _cleanup_(candidate_freep) Candidate *second = candidate_new(event, &options, "second");
    sd_event_unref(event);
    TESTING_RUN_UNTIL(event, n_candidates(first) == 2);

    testing_etcd_kill(server, testing_etcd_leader(server));
    (void)testing_etcd_leader(server);
    assert_true(guarded_write(first, first->key, first->term));
    assert_int_equal(first->n_lost, 0);
    assert_int_equal(second->n_won, 0);

    /* The winner no longer renews its lease, as if its process had ended: the second candidate takes over within the
     * TTL. */
    first->election = etcd_election_free(first->election);
    first->lease = etcd_lease_free(first->lease);
    TESTING_RUN_UNTIL(event, second->leading);
    assert_false(guarded_write(first, first->key, first->term));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loser_takes_over),
        cmocka_unit_test(test_lease_lost_then_campaigns_again),
        cmocka_unit_test(test_key_deleted),
        cmocka_unit_test(test_value_changed),
        cmocka_unit_test(test_etcd_leader_dies),
    };
    log_open("test-etcd-election");
    return cmocka_run_group_tests_name("etcd-election", tests, NULL, NULL);
}
