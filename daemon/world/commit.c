/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c - see commit.h. */
#include "daemon/world/commit.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/message-id.h"
#include "cluster/keys.h"
#include "daemon/world/job.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

#include <math.h>
#include <string.h>

enum { RETRY_MSEC = 200 };

static void commit_read(Commit *commit);

void commit_init(Commit *commit, LocalWorld *local) { *commit = (Commit){.local = local}; }

void commit_clear(Commit *commit)
{
    commit->call = etcd_call_free(commit->call);
    timer_stop(&commit->retry);
    commit->busy = false;
}

static CommitMark mark_of(const CheckpointCommit *line)
{
    return (CommitMark){.generation = line->generation, .step = line->step};
}

static const CheckpointCommit *commit_newest(const Commit *commit)
{
    assert(commit->n_lines > 0 && commit->n_lines <= RECORD_COMMITS_MAX);
    return &commit->lines[commit->n_lines - 1];
}

static void commit_answer(Commit *commit, bool committed, const ChannelHeld *held)
{
    LocalWorld *local = commit->local;
    const WorkloadEvents *events = &local->job->workload->events;
    CommitMark mark = mark_of(commit_newest(commit));
    assert(commit->busy && !commit->call && !timer_runs(&commit->retry));
    commit->busy = false;
    if (committed)
        local->progress.record.committed = mark;
    record_writer_release(&local->progress.writer);
    events->commit_decided(events->userdata, local, mark, committed);
    log_event(LOG_LEVEL_INFO, MESSAGE_CHECKPOINT,
              "checkpoint of step %lld %s JOB=%s GENERATION=%lld STEP=%lld",
              (long long)commit_newest(commit)->step,
              committed ? "committed" : "refused: the world has moved", local->job->name,
              (long long)local->generation, (long long)commit_newest(commit)->step);

    Rank *rank = slots_rank_of(local, local_world_rank0(local));
    ChannelMessage answer = {.type = committed ? CHANNEL_COMMITTED : CHANNEL_REFUSED,
                             .generation = local->generation,
                             .step = commit_newest(commit)->step,
                             .held = *held};
    if (rank)
        rank_send(rank, &answer);
    if (!committed)
        local_world_refused(local, "checkpoints");
}

static void on_commit_retry(void *userdata)
{
    Commit *commit = userdata;
    assert(commit->busy);
    commit_read(commit);
}

static void commit_retry_later(Commit *commit, int r, const char *text)
{
    if (commit->attempts == 0)
        log_warning("commit of step %lld: %s; reading again JOB=%s",
                    (long long)commit_newest(commit)->step, *text ? text : strerror(-r),
                    commit->local->job->name);
    assert(!commit->call && !timer_runs(&commit->retry));
    commit->attempts++;
    timer_start(commit->local->job->workload->needs.timers, &commit->retry,
                RETRY_MSEC * USEC_PER_MSEC, on_commit_retry, commit);
}

/* Rank 0 may remove older checkpoints once it knows of its commit. No evaluation of those begins after the commit, and
 * those that have begun are in etcd: the leader guards the beginning by the mod revision of checkpoints/<job>. */
static void on_held_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Commit *commit = userdata;
    ChannelHeld held = {0};
    commit->call = NULL; /* the call frees itself */
    if (r < 0) {
        commit_retry_later(commit, r, err->text);
        return;
    }
    for (size_t i = 0; i < range->n_kvs; i++) {
        const EtcdKeyValue *kv = &range->kvs[i];
        PhaseRecord phase = {0};
        Error e = ERROR_INIT; /* the watch of phases logs it */
        if (phase_record_decode(kv->key, kv->value, kv->n_value, &phase, &e) == 0)
            evaluation_add_held(&phase, commit->local->submission, &held);
        phase_record_clear(&phase);
    }
    commit_answer(commit, true, &held);
}

/* The commit is in etcd. */
static void commit_finish(Commit *commit)
{
    LocalWorld *local = commit->local;
    char prefix[KEY_MAX];
    (void)key_prefix(local->job->workload->needs.config->cluster, KEY_PHASES, prefix);
    int r = etcd_get(local->job->workload->needs.etcd, prefix, true, on_held_read, commit,
                     &commit->call);
    if (r < 0)
        commit_retry_later(commit, r, "");
}

static void on_commit_written(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Commit *commit = userdata;
    commit->call = NULL; /* the call frees itself */
    const char *why = r < 0 ? err->text : "";
    if (r == 0)
        r = fault("commit-answer-lost"); /* as if etcd's answer were lost */
    if (r < 0)
        commit_retry_later(commit, r, why);
    else if (result->succeeded)
        commit_finish(commit);
    else
        commit_read(commit);
}

/* Encodes the progress record: rank 0's last progress, with the mark of this commit. */
static char *encode_mark(const LocalWorld *local, CommitMark mark)
{
    ProgressRecord record = local->progress.record;
    if (record.generation == 0) /* before the first step of this world */
        record = (ProgressRecord){.generation = local->generation,
                                  .step = local->resume.step,
                                  .loss = NAN,
                                  .at_usec = clock_realtime_usec()};
    assert(record.generation == local->generation);
    record.committed = mark;
    return progress_record_encode(&record, NULL);
}

static void commit_write(Commit *commit, const CheckpointsRecord *old, const char *old_text,
                         int64_t record_revision)
{
    LocalWorld *local = commit->local;
    const char *cluster = local->job->workload->needs.config->cluster;
    /* Waits for the end of a write of progress: etcd might execute that write after the commit, with the old mark. */
    if (local->progress.writer.call) {
        timer_start(local->job->workload->needs.timers, &commit->retry, RETRY_MSEC * USEC_PER_MSEC,
                    on_commit_retry, commit);
        return;
    }
    record_writer_hold(&local->progress.writer); /* until etcd has answered our write */
    record_writer_doubt(&local->progress.writer);
    char world_key[KEY_MAX], record_key[KEY_MAX], progress_key[KEY_MAX];
    const EtcdCompare guards[] = {
        {key_of(cluster, KEY_WORLDS, local->job->name, world_key), ETCD_MOD_REVISION,
         local->world_revision},
        {key_of(cluster, KEY_CHECKPOINTS, local->job->name, record_key), ETCD_MOD_REVISION,
         record_revision},
    };

    CheckpointsRecord record = *old;
    (void)snprintf(record.submission, sizeof(record.submission), "%s", local->submission);
    for (size_t i = 0; i < commit->n_lines; i++)
        if (commit->n_lines == 1 ||
            commit_mark_is_before(checkpoints_mark(&record), mark_of(&commit->lines[i])))
            checkpoints_append(&record, &commit->lines[i]);
    assert(record.n_commits <= RECORD_COMMITS_MAX);
    _cleanup_free_ char *text = checkpoints_record_encode(&record, old_text);
    _cleanup_free_ char *progress = encode_mark(local, checkpoints_mark(&record));
    int r = fault("commit-write");
    EtcdOp puts[] = {
        {.kind = ETCD_PUT, .key = record_key, .value = text},
        {.kind = ETCD_PUT,
         .key = key_of(cluster, KEY_PROGRESS, local->job->name, progress_key),
         .value = progress},
    };
    if (r == 0)
        r = etcd_txn(local->job->workload->needs.etcd, guards, ELEMENTSOF(guards), puts,
                     ELEMENTSOF(puts), on_commit_written, commit, &commit->call);
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

/* Returns whether the world has already committed this step or a later step: if the record of a world is put once more,
 * by hand, the world starts again at its old step. */
static bool is_behind(const Commit *commit, const CheckpointsRecord *record)
{
    const CommitMark newest = mark_of(&commit->lines[commit->n_lines - 1]),
                     known = checkpoints_mark(record);
    return newest.generation == commit->local->generation &&
           newest.generation == known.generation && newest.step <= known.step;
}

static void on_commit_read(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Commit *commit = userdata;
    LocalWorld *local = commit->local;
    const char *cluster = local->job->workload->needs.config->cluster;
    commit->call = NULL; /* the call frees itself */
    if (r < 0) {
        commit_retry_later(commit, r, err->text);
        return;
    }

    char world_key[KEY_MAX], record_key[KEY_MAX];
    (void)key_of(cluster, KEY_WORLDS, local->job->name, world_key);
    (void)key_of(cluster, KEY_CHECKPOINTS, local->job->name, record_key);
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
            r = checkpoints_record_decode(kv->key, kv->value, kv->n_value, &record, &e);
            if (r < 0 && r != -EINVAL) {
                record_writer_release(&local->progress.writer);
                commit_retry_later(commit, r, e.text); /* never overwrites unreadable records */
                return;
            }
            if (r == 0 && *record.submission && strcmp(record.submission, local->submission) != 0)
                r = error_set(&e, -EINVAL, "%s: of another job of that name", kv->key);
            if (r < 0) {
                log_warning("%s; it is written anew JOB=%s", e.text, local->job->name);
                record = (CheckpointsRecord){0};
                old_text = NULL;
            }
        }
    }

    if (is_ours(&record, commit_newest(commit)))
        commit_finish(commit);
    else if (world_revision != local->world_revision || is_behind(commit, &record))
        commit_answer(commit, false, &(ChannelHeld){0});
    else
        commit_write(commit, &record, old_text, record_revision);
    checkpoints_record_clear(&record);
}

static void commit_read(Commit *commit)
{
    LocalWorld *local = commit->local;
    const char *cluster = local->job->workload->needs.config->cluster;
    char world_key[KEY_MAX], record_key[KEY_MAX];
    const EtcdOp gets[] = {
        {.kind = ETCD_GET, .key = key_of(cluster, KEY_WORLDS, local->job->name, world_key)},
        {.kind = ETCD_GET, .key = key_of(cluster, KEY_CHECKPOINTS, local->job->name, record_key)},
    };
    int r = etcd_txn(local->job->workload->needs.etcd, NULL, 0, gets, ELEMENTSOF(gets),
                     on_commit_read, commit, &commit->call);
    if (r < 0)
        commit_retry_later(commit, r, "");
}

static void add_line(Commit *commit, const ChannelMessage *m, int64_t generation)
{
    assert(!commit->busy && commit->n_lines < RECORD_COMMITS_MAX);
    CheckpointCommit *line = &commit->lines[commit->n_lines++];
    *line = (CheckpointCommit){.step = m->step,
                               .generation = generation,
                               .hash = m->hash,
                               .digest = m->digest,
                               .at_usec = clock_realtime_usec()};
    (void)snprintf(line->uri, sizeof(line->uri), "%s", m->uri);
    (void)snprintf(line->plans, sizeof(line->plans), "%s", m->plans);
}

static void begin(Commit *commit)
{
    assert(!commit->busy && !commit->call && commit->n_lines > 0);
    assert(&commit->local->commit == commit && !commit->local->over);
    commit->busy = true;
    commit->attempts = 0;
    commit_read(commit);
}

int commit_begin(Commit *commit, const ChannelMessage *saved)
{
    if (commit->busy)
        return -EBUSY;
    commit->n_lines = 0;
    add_line(commit, saved, commit->local->generation);
    begin(commit);
    return 0;
}

int commit_found(Commit *commit, const ChannelMessage *found)
{
    if (commit->busy)
        return -EBUSY;
    if (commit->n_lines == RECORD_COMMITS_MAX) /* drop the oldest line */
        memmove(&commit->lines[0], &commit->lines[1],
                sizeof(commit->lines[0]) * (size_t)--commit->n_lines);
    add_line(commit, found, found->made_by);
    if (found->more)
        return 0;
    CheckpointCommit *newest = &commit->lines[commit->n_lines - 1];
    /* A newer checkpoint, which the mark names, does not exist any more or does not verify. The found checkpoint gets
     * the present generation, so that no mark requests the missing checkpoint again. */
    if (commit_mark_is_before(mark_of(newest), commit->local->progress.record.committed))
        newest->generation = commit->local->generation;
    begin(commit);
    return 0;
}
