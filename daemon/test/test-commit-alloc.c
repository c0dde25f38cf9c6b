/* test-commit-alloc.c - each allocation fails in turn while a node commits a checkpoint. Either the
 * commit is in the record, once, or the next try brings it; what was committed before, and fields
 * that we do not know, are never lost. */
#include "base/test/testing-alloc.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "daemon/world/commit.h"
#include "daemon/world/workload.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>
#include <systemd/sd-event.h>

enum { ALLOCATIONS_MAX = 2000 };

static const char before[] = "{\"v\":2,\"commits\":[{\"step\":5,\"generation\":1,\"uri\":\"u5\","
                             "\"audit\":\"kept\"}],\"later\":\"kept\"}";

static void read_record(Etcd *etcd, const char *key, CheckpointsRecord *ret, bool *ret_kept)
{
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    *ret = (CheckpointsRecord){0};
    *ret_kept = true;
    assert(etcd_get_wait(etcd, key, false, &answer, &err) == 0);
    if (answer->n_kvs == 0)
        return;
    const EtcdKeyValue *kv = &answer->kvs[0];
    assert(checkpoints_record_decode(key, kv->value, kv->n_value, ret, &err) == 0);
    *ret_kept = strstr(kv->value, "\"audit\":\"kept\"") && strstr(kv->value, "\"later\":\"kept\"");
}

/* Step 5 as it was, and step 6 at most once. */
static bool is_good(Etcd *etcd, const char *key, bool *ret_there)
{
    CheckpointsRecord record;
    bool kept;
    read_record(etcd, key, &record, &kept);
    *ret_there = record.n_commits == 2 && record.commits[1].step == 6;
    return kept && record.n_commits <= 2 &&
           (record.n_commits == 0 || record.commits[0].step == 5) &&
           (record.n_commits < 2 || *ret_there);
}

static int64_t put(Etcd *etcd, const char *key, const char *value)
{
    Error err = ERROR_INIT;
    EtcdOp op = {.kind = ETCD_PUT, .key = key, .value = value};
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert(etcd_txn_wait(etcd, NULL, 0, &op, 1, &answer, &err) == 0);
    return answer->revision;
}

static void on_timer_failed(void *userdata, const Error *err)
{
    (void)sd_event_exit(userdata, err->code); /* fails only when it is exiting already */
}

static void on_commit_decided(_unused_ void *userdata, _unused_ const LocalWorld *local,
                              _unused_ CommitMark mark, _unused_ bool committed)
{
}

static AllocLife life(unsigned n, void *arg)
{
    static DaemonConfig config;
    sd_event *event = NULL;
    Etcd *etcd = NULL;
    Error err = ERROR_INIT;
    char world_key[KEY_MAX], key[KEY_MAX];
    bool there;
    (void)snprintf(config.cluster, sizeof(config.cluster), "lab");
    if (sd_event_new(&event) < 0 || etcd_new(event, arg, &etcd, &err) < 0)
        return ALLOC_WRONG;
    const Timers timers = {.event = event, .failed = on_timer_failed, .userdata = event};
    const WorkloadNeeds needs = {.config = &config, .timers = &timers, .etcd = etcd};
    const WorkloadEvents events = {.commit_decided = on_commit_decided};
    Workload workload;
    workload_init(&workload, &needs, &events);
    LocalJob job = {.workload = &workload, .name = "a"};
    LocalWorld local = {.job = &job, .generation = 1};
    (void)key_of("lab", KEY_CHECKPOINTS, "a", key);
    bool good = is_good(etcd, key, &there); /* what the life before left, which may have aborted */
    local.world_revision = put(etcd, key_of("lab", KEY_WORLDS, "a", world_key), "{}");
    job.world_revision = local.world_revision;
    (void)put(etcd, key, before);

    commit_init(&local.commit, &local);
    ChannelMessage saved = {.type = CHANNEL_SAVED, .step = 6, .hash = {1, 2}, .uri = "u6"};
    alloc_fail_at(n);
    int r = commit_begin(&local.commit, &saved);
    for (int i = 0; r == 0 && local.commit.busy && i < 1000; i++)
        r = MIN(sd_event_run(event, USEC_PER_SEC), 0);
    (void)alloc_struck();
    good = good && r == 0 && !local.commit.busy && is_good(etcd, key, &there) && there;
    commit_clear(&local.commit);
    etcd = etcd_free(etcd);
    event = sd_event_unref(event);
    return good ? ALLOC_WHOLE : ALLOC_WRONG;
}

static void a_commit_is_made_once_and_loses_nothing(_unused_ void **state)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    assert_true(alloc_sweep(life, &options, ALLOCATIONS_MAX) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_is_made_once_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
