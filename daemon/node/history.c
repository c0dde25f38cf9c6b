/* SPDX-License-Identifier: Apache-2.0 */
/* history.c - see history.h. */
#include "daemon/node/history.h"

#include "base/log.h"
#include "base/message-id.h"

#include <limits.h>
#include <string.h>

static void state_path(const History *h, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/history.json", h->needs.config->state_dir);
}

void history_save(History *h)
{
    HistoryRecord *record = &h->record;
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    EtcdHistory now = etcd_history(h->needs.etcd);
    if (!*h->needs.config->state_dir)
        return;
    if (now.cluster)
        (void)snprintf(record->cluster, sizeof(record->cluster), "%llx",
                       (unsigned long long)now.cluster);
    record->revision = now.revision;
    state_path(h, path);
    _cleanup_free_ char *text = history_record_encode(record, NULL);
    if (h->needs.write(h->needs.userdata, path, text, &err) < 0)
        log_warning("how far this node is with its jobs is not kept: %s", err.text);
}

static void load(History *h)
{
    char path[PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    Error err = ERROR_INIT;
    state_path(h, path);
    int r = h->needs.read(h->needs.userdata, path, &text, &n, &err);
    if (r == 0)
        r = history_record_decode(path, text, n, &h->record, &err);
    if (r < 0 && r != -ENOENT)
        log_warning("how far this node was with its jobs is not known: %s", err.text);
}

static void on_node_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    History *h = userdata;
    HistoryRecord *record = &h->record;
    log_event(LOG_LEVEL_ERROR, MESSAGE_HISTORY,
              "etcd has another history: revision %lld after %lld, cluster %llx after %llx; it was "
              "restored from a snapshot, or is another one. Ranks are killed, and this node begins "
              "anew NODE=%s",
              (long long)now->revision, (long long)was->revision, (unsigned long long)now->cluster,
              (unsigned long long)was->cluster, h->needs.config->node);
    for (size_t i = 0; i < record->n_runs; i++)
        record->runs[i].told = true;
    history_save(h);
    h->needs.changed(h->needs.userdata);
}

void history_open(History *h, const HistoryNeeds *needs)
{
    *h = (History){.needs = *needs};
    load(h);
    EtcdHistory known = {.cluster = strtoull(h->record.cluster, NULL, 16),
                         .revision = h->record.revision};
    etcd_set_history(h->needs.etcd, known, on_node_history, h);
}

/* Returns the index of the oldest job that does not run here, or n_runs if all jobs run. */
static size_t free_place(const History *h)
{
    size_t at = 0;
    while (at < h->record.n_runs && h->needs.runs(h->needs.userdata, h->record.runs[at].job))
        at++;
    return at;
}

/* Returns the job's entry, or a new entry if the job has none. NULL: no place is free. */
static JobRun *run_of(History *h, const char *job, const char *submission)
{
    HistoryRecord *record = &h->record;
    for (size_t i = 0; i < record->n_runs; i++)
        if (strcmp(record->runs[i].job, job) == 0 &&
            strcmp(record->runs[i].submission, submission) == 0)
            return &record->runs[i];
    size_t at = 0;
    while (at < record->n_runs && strcmp(record->runs[at].job, job) != 0)
        at++; /* an entry of an earlier job of that name is replaced */
    if (at == record->n_runs && at == RECORD_RUNS_MAX) {
        at = free_place(h);
        if (at == record->n_runs) {
            log_warning(
                "if etcd is restored from a snapshot the leader is not told how far job %s is: "
                "this node remembers %d jobs, and as many others run JOB=%s",
                job, RECORD_RUNS_MAX, job);
            return NULL;
        }
    }
    if (at < record->n_runs) {
        memmove(&record->runs[at], &record->runs[at + 1],
                sizeof(record->runs[0]) * (record->n_runs - at - 1));
        record->n_runs--;
    }
    assert(record->n_runs < RECORD_RUNS_MAX);
    JobRun *run = &record->runs[record->n_runs++];
    *run = (JobRun){0};
    (void)snprintf(run->job, sizeof(run->job), "%s", job);
    (void)snprintf(run->submission, sizeof(run->submission), "%s", submission);
    return run;
}

void history_note_lease(History *h, int64_t lease)
{
    if (lease == h->record.lease)
        return;
    h->record.lease = lease;
    history_save(h);
}

void history_note_world(History *h, const char *job, const char *submission, int64_t generation)
{
    JobRun *run = run_of(h, job, submission);
    if (!run || generation <= run->generation)
        return;
    run->generation = generation;
    run->told = false; /* the leader has started a newer generation than the reported generation */
    history_save(h);
}

void history_note_commit(History *h, const char *job, const char *submission, CommitMark mark)
{
    JobRun *run = run_of(h, job, submission);
    if (!run || !commit_mark_is_before(run->committed, mark))
        return;
    run->committed = mark;
    history_save(h);
}

void history_write(const History *h, NodeRecord *record)
{
    assert(record->n_runs == 0 && h->record.n_runs <= RECORD_RUNS_MAX);
    for (size_t i = 0; i < h->record.n_runs; i++)
        if (h->record.runs[i].told)
            record->runs[record->n_runs++] = h->record.runs[i];
}
