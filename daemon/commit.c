/* commit.c - see commit.h. */
#include "daemon/commit.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/message_id.h"
#include "cluster/keys.h"
#include "daemon/job.h"
#include "daemon/manager.h"
#include "daemon/rank.h"

#include <string.h>

enum { RETRY_MSEC = 200 };

static void commit_read(Commit *commit);

void commit_init(Commit *commit, Team *team) { *commit = (Commit){.team = team}; }

void commit_clear(Commit *commit)
{
    commit->call = etcd_call_free(commit->call);
    commit->retry = sd_event_source_disable_unref(commit->retry);
    commit->busy = false;
}

static void commit_answer(Commit *commit, bool committed)
{
    Team *team = commit->team;
    commit->busy = false;
    log_event(LOG_LEVEL_INFO, MESSAGE_CHECKPOINT,
              "checkpoint of step %lld %s JOB=%s GENERATION=%lld STEP=%lld",
              (long long)commit->line.step,
              committed ? "committed" : "refused: the world has moved", team->job->name,
              (long long)team->generation, (long long)commit->line.step);

    daemon_metrics_note_commit(team->job->manager, team->job->name, committed);
    Rank *rank = manager_rank_of(team, team_rank0(team));
    ChannelMessage answer = {.type = committed ? CHANNEL_COMMITTED : CHANNEL_REFUSED,
                             .generation = team->generation,
                             .step = commit->line.step};
    if (rank)
        rank_send(rank, &answer);
    if (!committed)
        team_refused(team, "checkpoints");
}

static int on_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Commit *commit = userdata;
    commit->retry = sd_event_source_disable_unref(commit->retry);
    commit_read(commit);
    return 0;
}

static void commit_retry_later(Commit *commit, int r, const char *text)
{
    if (commit->attempts == 0)
        log_warning("commit of step %lld: %s; reading again JOB=%s", (long long)commit->line.step,
                    *text ? text : strerror(-r), commit->team->job->name);
    commit->attempts++;
    manager_add_timer(commit->team->job->manager, RETRY_MSEC * USEC_PER_MSEC, on_retry, commit,
                      &commit->retry);
}

static void on_written(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Commit *commit = userdata;
    commit->call = NULL; /* it frees itself */
    const char *why = r < 0 ? err->text : "";
    if (r == 0)
        r = fault("commit-answer-lost"); /* done, but we don't know */
    if (r < 0)
        commit_retry_later(commit, r, why);
    else if (result->succeeded)
        commit_answer(commit, true);
    else
        commit_read(commit);
}

static void commit_write(Commit *commit, const CheckpointsRecord *old, const char *old_text,
                         int64_t record_revision)
{
    Team *team = commit->team;
    const char *cluster = team->job->manager->config.cluster;
    char world_key[KEY_MAX], record_key[KEY_MAX];
    const EtcdCompare guards[] = {
        {key_of(cluster, KEY_WORLDS, team->job->name, world_key), ETCD_MOD_REVISION,
         team->world_revision},
        {key_of(cluster, KEY_CHECKPOINTS, team->job->name, record_key), ETCD_MOD_REVISION,
         record_revision},
    };

    CheckpointsRecord record = *old;
    checkpoints_append(&record, &commit->line);
    _cleanup_free_ char *text = NULL;
    int r = fault("commit-write");
    if (r == 0)
        r = checkpoints_record_encode(&record, old_text, &text);
    EtcdOp put = {.kind = ETCD_PUT, .key = record_key, .value = text};
    if (r == 0)
        r = etcd_txn(team->job->manager->etcd, guards, ELEMENTSOF(guards), &put, 1, on_written,
                     commit, &commit->call);
    if (r < 0)
        commit_retry_later(commit, r, "");
}

static bool is_ours(const CheckpointsRecord *record, const CheckpointCommit *line)
{
    for (size_t i = 0; i < record->n_commits; i++) {
        const CheckpointCommit *c = &record->commits[i];
        if (c->step == line->step && c->generation == line->generation &&
            hash_equal(c->hash, line->hash) && strcmp(c->uri, line->uri) == 0)
            return true;
    }
    return false;
}

static void on_read(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Commit *commit = userdata;
    Team *team = commit->team;
    const char *cluster = team->job->manager->config.cluster;
    commit->call = NULL; /* it frees itself */
    if (r < 0) {
        commit_retry_later(commit, r, err->text);
        return;
    }

    char world_key[KEY_MAX], record_key[KEY_MAX];
    (void)key_of(cluster, KEY_WORLDS, team->job->name, world_key);
    (void)key_of(cluster, KEY_CHECKPOINTS, team->job->name, record_key);
    int64_t world_revision = 0, record_revision = 0;
    CheckpointsRecord record = {0};
    const char *old_text = NULL;
    for (size_t i = 0; i < result->n_kvs; i++) {
        const EtcdKeyValue *kv = &result->kvs[i];
        if (strcmp(kv->key, world_key) == 0) {
            world_revision = kv->mod_revision;
        } else if (strcmp(kv->key, record_key) == 0) {
            Error e = ERROR_INIT;
            record_revision = kv->mod_revision;
            old_text = kv->value;
            if (checkpoints_record_decode(kv->key, kv->value, kv->n_value, &record, &e) < 0) {
                commit_retry_later(commit, e.code, e.text); /* never overwrite what we can't read */
                return;
            }
        }
    }

    if (is_ours(&record, &commit->line))
        commit_answer(commit, true);
    else if (world_revision != team->world_revision)
        commit_answer(commit, false);
    else
        commit_write(commit, &record, old_text, record_revision);
    checkpoints_record_clear(&record);
}

static void commit_read(Commit *commit)
{
    Team *team = commit->team;
    const char *cluster = team->job->manager->config.cluster;
    char world_key[KEY_MAX], record_key[KEY_MAX];
    const EtcdOp gets[] = {
        {.kind = ETCD_GET, .key = key_of(cluster, KEY_WORLDS, team->job->name, world_key)},
        {.kind = ETCD_GET, .key = key_of(cluster, KEY_CHECKPOINTS, team->job->name, record_key)},
    };
    int r = etcd_txn(team->job->manager->etcd, NULL, 0, gets, ELEMENTSOF(gets), on_read, commit,
                     &commit->call);
    if (r < 0)
        commit_retry_later(commit, r, "");
}

int commit_begin(Commit *commit, const ChannelMessage *saved)
{
    if (commit->busy)
        return -EBUSY;

    commit->busy = true;
    commit->attempts = 0;
    commit->line = (CheckpointCommit){.step = saved->step,
                                      .generation = commit->team->generation,
                                      .hash = saved->hash,
                                      .digest = saved->digest,
                                      .at_usec = clock_realtime_usec()};
    (void)snprintf(commit->line.uri, sizeof(commit->line.uri), "%s", saved->uri);
    commit_read(commit);
    return 0;
}
