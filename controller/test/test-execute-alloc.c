/* test-execute-alloc.c - each allocation fails in turn while the leader reads a record and while it writes a
 * decision. A record is read whole or the leader is told that it was not; a decision is in etcd whole or not at
 * all. libetcd and jansson end the process when they lack memory: then, too.
 */
#include "base/test/testing-alloc.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/execute.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <errno.h>
#include <string.h>

enum { ALLOCATIONS_MAX = 2000 };

static const char job_text[] =
    "{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
    "\"model\":{\"config\":\"file:///m/config.json\",\"init\":{\"checkpoint\":\"file:///k/\"}},"
    "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/empty.npy\"},"
    "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
    "\"checkpoint\":{\"uri\":\"file:///c/\"}}";

/* A job file must not be called bad because it could not be read: the leader fails bad jobs. */
static AllocLife life_of_spec(unsigned n, _unused_ void *arg)
{
    Error err = ERROR_INIT;
    Event event;
    _cleanup_(feed_freep) Feed *feed = NULL;
    _cleanup_free_ char *value = NULL;
    char key[KEY_MAX], text[sizeof(job_text)];
    memcpy(text, job_text, sizeof(text));
    SpecRecord spec = {.spec = text, .submitted_usec = 1};
    if (feed_new("lab", &feed) < 0 || spec_record_encode(&spec, NULL, &value) < 0)
        return ALLOC_WRONG;
    alloc_fail_at(n);
    int r = feed_event(feed, key_of("lab", KEY_SPECS, "a", key), value, strlen(value), 5, 5, &event,
                       &err);
    (void)alloc_struck();
    if (r < 0)
        return r == -ENOMEM ? ALLOC_FAILED : ALLOC_WRONG;
    return r == 1 && !event.spec->refused[0] && event.spec->n_grains == 8 ? ALLOC_WHOLE
                                                                          : ALLOC_WRONG;
}

static void a_job_file_is_not_bad_for_want_of_memory(_unused_ void **state)
{
    assert_true(alloc_sweep(life_of_spec, NULL, ALLOCATIONS_MAX) > 10);
}

/* ---- a decision ---- */

static void on_done(int r, _unused_ const Error *err, const EtcdTxnResult *result, void *userdata)
{
    *(int *)userdata = r < 0 ? r : result->succeeded;
}

static size_t count_keys(Etcd *etcd, KeyKind kind)
{
    Error err = ERROR_INIT;
    char prefix[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert(etcd_get_wait(etcd, key_prefix("lab", kind, prefix), true, &answer, &err) == 0);
    return answer->n_kvs;
}

/* All four records are there, or none of them. */
static bool is_whole(Etcd *etcd, bool *ret_there)
{
    size_t n = count_keys(etcd, KEY_WORLDS);
    *ret_there = n > 0;
    return count_keys(etcd, KEY_PHASES) == n && count_keys(etcd, KEY_INCIDENTS) == n &&
           count_keys(etcd, KEY_CORDONS) == n && n <= 1;
}

static Decision a_decision(int64_t term)
{
    static WorldRun runs[] = {{.node = "node1", .incarnation = 7, .slots = 3}};
    Decision d = {.id = 1,
                  .term = term,
                  .job = "a",
                  .world_revision = 0,
                  .phase_revision = 0,
                  .checkpoints_revision = REVISION_ANY,
                  .desired_revision = REVISION_ANY,
                  .put_world = true,
                  .put_phase = true,
                  .put_incident = true,
                  .world = {.generation = 1, .size = 2, .runs = runs, .n_runs = 1},
                  .phase = {.phase = PHASE_RECOVERING, .generation = 1, .reason = "node lost"},
                  .incident = {.id = "a-1", .job = "a", .cause = "node-lost", .rank = -1},
                  .n_cordons = 1,
                  .cordons = {{.node = "node2",
                               .n_causes = 1,
                               .causes = {{.owner = CORDON_MACHINE,
                                           .mode = CORDON_QUARANTINE,
                                           .reason = "strikes"}}}}};
    return d;
}

/* The election key and nothing else; its create revision is the term. */
static int64_t begin_term(Etcd *etcd, const char *leader_key)
{
    Error err = ERROR_INIT;
    char prefix[KEY_MAX];
    (void)key_prefix("lab", -1, prefix);
    EtcdOp clear = {.kind = ETCD_DELETE_PREFIX, .key = prefix};
    EtcdOp lead = {.kind = ETCD_PUT, .key = leader_key, .value = "me"};
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert(etcd_txn_wait(etcd, NULL, 0, &clear, 1, NULL, &err) == 0);
    assert(etcd_txn_wait(etcd, NULL, 0, &lead, 1, &answer, &err) == 0);
    return answer->revision;
}

static AllocLife life_of_decision(unsigned n, void *arg)
{
    const EtcdOptions *options = arg;
    Error err = ERROR_INIT;
    char leader_key[KEY_MAX];
    sd_event *event = NULL;
    Etcd *etcd = NULL;
    _cleanup_(feed_freep) Feed *feed = NULL;
    bool there;
    if (sd_event_new(&event) < 0 || etcd_new(event, options, &etcd, &err) < 0 ||
        feed_new("lab", &feed) < 0)
        return ALLOC_WRONG;
    bool good = is_whole(etcd, &there); /* what the life before left, which may have aborted */
    Target target = {.etcd = etcd,
                     .feed = feed,
                     .cluster = "lab",
                     .leader_key = key_of("lab", KEY_LEADER, "1", leader_key)};
    Decision decision = a_decision(begin_term(etcd, leader_key));

    int done = 2;
    alloc_fail_at(n);
    int r = execute(&target, &decision, on_done, &done, &err);
    for (int i = 0; r == 0 && done == 2 && i < 1000; i++)
        r = MIN(sd_event_run(event, USEC_PER_SEC), 0);
    (void)alloc_struck();
    /* done < 0 is an unknown outcome: either may be */
    good = good && is_whole(etcd, &there) && (done < 0 || there == (r == 0 && done == 1));
    if (!good)
        printf("allocation %u: %d, handler %d, %s there\n", n, r, done, there ? "is" : "is not");
    etcd = etcd_free(etcd);
    event = sd_event_unref(event);
    return !good ? ALLOC_WRONG : there ? ALLOC_WHOLE : ALLOC_FAILED;
}

static void a_decision_is_written_whole_or_not_at_all(_unused_ void **state)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    assert_true(alloc_sweep(life_of_decision, &options, ALLOCATIONS_MAX) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_file_is_not_bad_for_want_of_memory),
        cmocka_unit_test(a_decision_is_written_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
