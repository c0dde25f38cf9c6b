/* SPDX-License-Identifier: Apache-2.0 */
/* history.c - see history.h: contains the table of keys, decodes transactions, and applies the rules to each
 * change.
 *
 * A transaction is first decoded completely, while the old values are kept; then each changed record is checked with
 * its old and its new value; then the new values replace the old values. */
#include "tests/history/history-internal.h"

#include "base/memory.h"
#include "base/number/hash.h"
#include "cluster/eval-record.h"

#include <stdio.h>
#include <string.h>

/* ---- codecs ---- */

typedef struct Codec {
    size_t size;
    int (*decode)(const char *source, const char *text, size_t n, void *ret, Error *err);
    void (*clear)(void *record);
} Codec;

#define CODEC(Type, prefix)                                                                        \
    static int decode_##prefix(const char *source, const char *text, size_t n, void *ret,          \
                               Error *err)                                                         \
    {                                                                                              \
        return prefix##_decode(source, text, n, ret, err);                                         \
    }                                                                                              \
    static void clear_##prefix(void *record) { prefix##_clear(record); }

CODEC(LeaderRecord, leader_record)
CODEC(NodeRecord, node_record)
CODEC(HealthRecord, health_record)
CODEC(CordonRecord, cordon_record)
CODEC(SpecRecord, spec_record)
CODEC(DesiredRecord, desired_record)
CODEC(WorldRecord, world_record)
CODEC(PhaseRecord, phase_record)
CODEC(RanksRecord, ranks_record)
CODEC(RendezvousRecord, rendezvous_record)
CODEC(CheckpointsRecord, checkpoints_record)
CODEC(ProgressRecord, progress_record)
CODEC(EvalRecord, eval_record)
CODEC(IncidentRecord, incident_record)
CODEC(AlertRecord, alert_record)
CODEC(RequestRecord, request_record)
CODEC(ProgramRecord, program_record)

#define USE(Type, prefix)                                                                          \
    {                                                                                              \
        sizeof(Type), decode_##prefix, clear_##prefix                                              \
    }

static const Codec codecs[KEY_KINDS] = {
    [KEY_LEADER] = USE(LeaderRecord, leader_record),
    [KEY_NODES] = USE(NodeRecord, node_record),
    [KEY_HEALTH] = USE(HealthRecord, health_record),
    [KEY_CORDONS] = USE(CordonRecord, cordon_record),
    [KEY_SPECS] = USE(SpecRecord, spec_record),
    [KEY_DESIRED] = USE(DesiredRecord, desired_record),
    [KEY_WORLDS] = USE(WorldRecord, world_record),
    [KEY_PHASES] = USE(PhaseRecord, phase_record),
    [KEY_RANKS] = USE(RanksRecord, ranks_record),
    [KEY_RENDEZVOUS] = USE(RendezvousRecord, rendezvous_record),
    [KEY_CHECKPOINTS] = USE(CheckpointsRecord, checkpoints_record),
    [KEY_PROGRESS] = USE(ProgressRecord, progress_record),
    [KEY_INCIDENTS] = USE(IncidentRecord, incident_record),
    [KEY_ALERTS] = USE(AlertRecord, alert_record),
    [KEY_REQUESTS] = USE(RequestRecord, request_record),
    [KEY_PROGRAMS] = USE(ProgramRecord, program_record),
    [KEY_EVALS] = USE(EvalRecord, eval_record),
};

static void value_clear(const Entry *e, KeptValue *value)
{
    if (value->record)
        codecs[e->kind].clear(value->record);
    free(value->record);
    *value = (KeptValue){0};
}

/* ---- keys ---- */

static Entry **bucket_of(HistoryChecker *h, const char *key)
{
    Hash hash = hash_bytes(key, strlen(key));
    return &h->buckets[hash.low & (h->n_buckets - 1)];
}

static Entry *look_up(HistoryChecker *h, const char *key)
{
    Entry *e = *bucket_of(h, key);
    while (e && strcmp(e->key, key) != 0)
        e = e->in_bucket;
    return e;
}

static void grow_buckets(HistoryChecker *h)
{
    size_t n_old = h->n_buckets;
    Entry **old = h->buckets;
    h->n_buckets = n_old * 2;
    h->buckets = memory_zeroed(h->n_buckets, sizeof(*h->buckets));
    for (size_t i = 0; i < n_old; i++)
        for (Entry *e = old[i], *next; e; e = next) {
            next = e->in_bucket;
            Entry **bucket = bucket_of(h, e->key);
            e->in_bucket = *bucket;
            *bucket = e;
        }
    free(old);
}

static Entry *add_entry(HistoryChecker *h, const char *key, KeyKind kind)
{
    if (h->n_entries++ == h->n_buckets)
        grow_buckets(h);
    Entry *e = memory_new(Entry), **bucket = bucket_of(h, key);
    e->key = memory_text(key);
    e->kind = kind;
    e->name = e->key + strlen(h->prefix) + strlen(key_kind_name(kind)) + 1;
    e->in_bucket = *bucket;
    *bucket = e;
    return e;
}

static Entry *entry_of(HistoryChecker *h, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    (void)snprintf(key, sizeof(key), "%s%s/%s", h->prefix, key_kind_name(kind), name);
    Entry *e = look_up(h, key);
    return e ? e : add_entry(h, key, kind);
}

Entry *history_find(HistoryChecker *h, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    (void)snprintf(key, sizeof(key), "%s%s/%s", h->prefix, key_kind_name(kind), name);
    return look_up(h, key);
}

static HistoryJob *books_of(HistoryChecker *h, const char *name)
{
    Entry *spec = entry_of(h, KEY_SPECS, name);
    if (spec->job)
        return spec->job;
    HistoryJob *job = memory_new(HistoryJob);
    job->spec = spec;
    job->desired = entry_of(h, KEY_DESIRED, name);
    job->world = entry_of(h, KEY_WORLDS, name);
    job->phase = entry_of(h, KEY_PHASES, name);
    job->checkpoints = entry_of(h, KEY_CHECKPOINTS, name);
    job->progress = entry_of(h, KEY_PROGRESS, name);
    job->spec->job = job->desired->job = job->world->job = job->phase->job = job;
    job->checkpoints->job = job->progress->job = job;
    job->next = h->jobs;
    h->jobs = job;
    return job;
}

static int attach_job(HistoryChecker *h, Entry *e)
{
    char job[RECORD_JOB_MAX + 1], node[NODE_NAME_MAX + 1];
    int r = 0;
    switch (e->kind) {
    case KEY_SPECS:
    case KEY_DESIRED:
    case KEY_WORLDS:
    case KEY_PHASES:
    case KEY_CHECKPOINTS:
    case KEY_PROGRESS:
        if (!name_is_valid(e->name))
            return -EINVAL;
        (void)books_of(h, e->name); /* also adds e to the job's books */
        return 0;
    case KEY_RANKS:
        r = key_parse_ranks(e->name, job, sizeof(job), &e->generation, node, sizeof(node));
        e->node = strrchr(e->name, '/') + 1;
        break;
    case KEY_RENDEZVOUS:
        r = key_parse_rendezvous(e->name, job, sizeof(job), &e->generation);
        break;
    case KEY_EVALS:
        r = key_parse_eval(e->name, job, sizeof(job), &e->generation);
        break;
    default:
        return 0;
    }
    if (r == 0)
        e->job = books_of(h, job);
    return r;
}

/* Returns the entry of a key of the cluster. If no record has such a key, reports that to the
 * handler and returns NULL. */
static Entry *entry_for(HistoryChecker *h, const char *key)
{
    Entry *e = look_up(h, key);
    const char *rest = key + strlen(h->prefix);
    if (e)
        return e->kind < KEY_KINDS ? e : NULL;
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        size_t n = strlen(key_kind_name((KeyKind)kind));
        if (strncmp(rest, key_kind_name((KeyKind)kind), n) == 0 && rest[n] == '/' &&
            codecs[kind].decode && strlen(key) < KEY_MAX) {
            e = add_entry(h, key, (KeyKind)kind);
            if (attach_job(h, e) == 0)
                return e;
            e->kind = KEY_KINDS;
            break;
        }
    }
    Entry stranger = {.key = (char *)key};
    HISTORY_BROKEN(h, e ? e : &stranger, "key", "no record has such a key");
    return NULL;
}

/* ---- a transaction ---- */

void history_broken(HistoryChecker *h, const Entry *entry, const Breach *breach)
{
    h->counts.n_breaches++;
    h->handler(h->revision, entry->key, breach, h->userdata);
}

static int read_change(HistoryChecker *h, const HistoryChange *change, Error *err)
{
    if (strncmp(change->key, h->prefix, strlen(h->prefix)) != 0)
        return 0; /* a key outside this cluster's prefix */
    Entry *e = entry_for(h, change->key);
    h->counts.n_changes++;
    if (!e)
        return 0;
    if (e->changes)
        return error_set(err, -EINVAL, "%s changes twice in revision %lld", e->key,
                         (long long)h->revision);
    e->changes = true;
    h->changed = memory_grow(h->changed, h->n_changed, &h->changed_room, sizeof(Entry *));
    h->changed[h->n_changed++] = e;
    e->after = (KeptValue){.there = change->value != NULL,
                           .revision = h->revision,
                           .by_hand = change->by_hand};
    int64_t expected = e->before.there ? e->before.version + 1 : 1;
    if (change->value ? change->version != expected : !e->before.there)
        HISTORY_BROKEN(h, e, "hole", "the history lacks changes before this one: %s %lld, not %lld",
                       change->value ? "it is version" : "a removal of version",
                       (long long)change->version, (long long)expected);
    if (!change->value)
        return 0;
    Error why = ERROR_INIT;
    e->after.lease = change->lease;
    e->after.version = change->version;
    e->after.record = memory_zeroed(1, codecs[e->kind].size);
    int r = codecs[e->kind].decode(e->key, change->value, change->n_value, e->after.record, &why);
    if (r < 0) {
        e->after.foreign = r == -EPROTONOSUPPORT;
        free(e->after.record);
        e->after.record = NULL;
        if (!change->by_hand)
            HISTORY_BROKEN(h, e, "record", "%s", why.text);
    }
    return 0;
}

/* Checks that the records of nodes, ranks and the leader are attached to a lease, and that no other
 * records are. */
static void judge_lease(HistoryChecker *h, const Entry *e)
{
    bool leased = e->kind == KEY_NODES || e->kind == KEY_RANKS || e->kind == KEY_LEADER;
    if (e->after.there && leased != (e->after.lease != 0))
        HISTORY_BROKEN(h, e, "lease", leased ? "hangs on no lease" : "hangs on a lease");
}

static void judge(HistoryChecker *h, const Entry *e)
{
    judge_lease(h, e);
    switch (e->kind) {
    case KEY_SPECS:
    case KEY_DESIRED:
    case KEY_WORLDS:
    case KEY_PHASES:
        history_judge_job(h, e);
        break;
    case KEY_CHECKPOINTS:
        history_judge_commits(h, e);
        break;
    case KEY_PROGRESS:
        history_judge_progress(h, e);
        break;
    case KEY_RANKS:
        history_judge_ranks(h, e);
        break;
    case KEY_RENDEZVOUS:
        history_judge_rendezvous(h, e);
        break;
    case KEY_EVALS:
        history_judge_results(h, e);
        break;
    case KEY_INCIDENTS:
        history_judge_incident(h, e);
        break;
    case KEY_ALERTS:
        history_judge_alert(h, e);
        break;
    case KEY_CORDONS:
        history_judge_cordon(h, e);
        break;
    default:
        break;
    }
}

static void link_report(Entry *e)
{
    HistoryJob *job = e->job;
    if (e->after.there && !e->before.there) {
        e->older_report = job->reports;
        if (job->reports)
            job->reports->newer_report = e;
        job->reports = e;
    } else if (!e->after.there && e->before.there) {
        if (e->older_report)
            e->older_report->newer_report = e->newer_report;
        *(e->newer_report ? &e->newer_report->older_report : &job->reports) = e->older_report;
        e->older_report = e->newer_report = NULL;
    }
}

int history_checker_apply(HistoryChecker *h, int64_t revision, const HistoryChange *changes,
                          size_t n_changes, Error *err)
{
    if (revision <= h->revision)
        return error_set(err, -EINVAL, "revision %lld comes after revision %lld",
                         (long long)revision, (long long)h->revision);
    h->revision = h->counts.revision = revision;
    h->counts.n_revisions++;
    int r = 0;
    for (size_t i = 0; r == 0 && i < n_changes; i++)
        r = read_change(h, &changes[i], err);
    for (size_t i = 0; r == 0 && i < h->n_changed; i++)
        if (!h->changed[i]->after.by_hand)
            judge(h, h->changed[i]);
    if (r == 0 && h->witness)
        h->witness(h);
    for (size_t i = 0; i < h->n_changed; i++)
        if (h->changed[i]->after.by_hand)
            history_book_hand(h->changed[i]);
        else
            history_book_job(h, h->changed[i]);
    for (size_t i = 0; i < h->n_changed; i++) {
        Entry *e = h->changed[i];
        if (e->kind == KEY_RANKS)
            link_report(e);
        value_clear(e, &e->before);
        e->before = e->after;
        e->changes = false;
    }
    h->n_changed = 0;
    return r;
}

void history_checker_end(HistoryChecker *h) { history_judge_end(h); }

HistoryCounts history_checker_counts(const HistoryChecker *h) { return h->counts; }

/* ---- create and free ---- */

HistoryChecker *history_checker_new(const char *cluster, HistoryHandler handler, void *userdata)
{
    HistoryChecker *h = memory_new(HistoryChecker);
    *h = (HistoryChecker){.handler = handler, .userdata = userdata, .n_buckets = 64};
    (void)key_prefix(cluster, -1, h->prefix); /* always returns its buffer */
    h->buckets = memory_zeroed(h->n_buckets, sizeof(*h->buckets));
    return h;
}

HistoryChecker *history_checker_free(HistoryChecker *h)
{
    if (!h)
        return NULL;
    for (size_t i = 0; i < h->n_buckets; i++)
        for (Entry *e = h->buckets[i], *next; e; e = next) {
            next = e->in_bucket;
            value_clear(e, &e->before);
            free(e->key);
            free(e);
        }
    for (HistoryJob *job = h->jobs, *next; job; job = next) {
        next = job->next;
        for (size_t i = 0; i < ELEMENTSOF(job->worlds); i++)
            free(job->worlds[i].runs);
        free(job);
    }
    free(h->changed);
    free(h->buckets);
    free(h);
    return NULL;
}
