/* SPDX-License-Identifier: Apache-2.0 */
/* save.c - saves one snapshot, in the writer's thread.
 *
 * All ranks make the same collective calls, whatever fails locally: rank 0 broadcasts the plan, or an error of the
 * store; the EMA is gathered from the chunks' owners if ranks hold only shards; all ranks gather the reports; rank 0
 * broadcasts the outcome. A rank that fails keeps its error, skips its remaining writes and reports the error; then no
 * manifest is written. Only an error of the comm ends a save early.
 *
 * Objects are put deferred and flushed together before they are reported (put.c), so
 * everything that the manifest names is durable before the manifest is.
 *
 * Fault points: checkpoint.gathered, checkpoint.manifest.before, checkpoint.manifest.after.
 */
#include "trainer/checkpoint/put.h"

#include "base/fault.h"
#include "base/log.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/local.h"

#include <string.h>
#include <sys/random.h>

typedef struct Save {
    CheckpointWriter *writer;
    const ObjectTable *table;
    PutPlan plan;
    char folder[CHECKPOINT_FOLDER_MAX];
    WriterReport *own;
    PutMetrics metrics; /* used only on rank 0 */
    Error error;        /* this rank's first failure; code 0: none so far */
} Save;

static void fail(Save *s, int r, const Error *err)
{
    if (s->error.code == 0)
        s->error = err->code < 0 ? *err : (Error){.code = r, .text = "unknown failure"};
}

/* ---- agreement ---- */

/* Rank 0: checks that the folder is this job's. Before any rank of this generation writes, and after a failed save,
 * also checks that the store answers, and removes unfinished objects of dead writers. */
static int query_store(CheckpointWriter *w, Error *err)
{
    Store *store = w->options.store;
    Error said = ERROR_INIT;
    bool puts_if_absent = true;
    int r = writer_own(w, err);
    if (r < 0 || w->asked)
        return r;
    if (w->claimed) /* claimed only now: the store did not answer when this generation began */
        /* writer_retire() logs an error; if the error persists, the save fails later */
        (void)writer_retire(w, &said);
    said = ERROR_INIT;
    r = checkpoint_sweep(store, w->owner, w->options.facts.generation, NULL, &said);
    if (r == -EHOSTUNREACH || r == -CHECKPOINT_NOT_OWNER)
        return error_set(err, r, "%s", said.text);
    if (r < 0)
        log_warning("leftovers stay: %s", said.text);
    r = store_puts_if_absent(store, &puts_if_absent, err);
    if (r < 0)
        return r;
    if (!puts_if_absent && !w->said_absent)
        log_info("%s: this server does not put an object only if it is absent; only etcd decides "
                 "which checkpoint counts",
                 store_uri(store));
    w->said_absent = true;
    w->asked = true;
    return 0;
}

typedef struct SaveAgreement {
    Error error; /* code 0: the save continues */
    PutPlan plan;
} SaveAgreement;

/* Plans a folder that no writer has used: attempts differ even between two jobs with the same name. */
static int plan_save(CheckpointWriter *w, PutPlan *plan, Error *err)
{
    plan->name = (CheckpointName){.step = w->snapshot.scalars.step,
                                  .generation = w->options.facts.generation};
    if (getrandom(&plan->name.attempt, sizeof(plan->name.attempt), 0) != sizeof(plan->name.attempt))
        return error_errno(err, -EIO, "cannot draw an attempt's number");
    const Manifest *latest = w->latest;
    if (latest)
        checkpoint_name_format(&latest->name, plan->committed[0]);
    if (latest && latest->n_committed > 0)
        memcpy(plan->committed[1], latest->committed[latest->n_committed - 1],
               sizeof(plan->committed[1]));
    int r = query_store(w, err);
    if (r == 0)
        plan->name.owner = checkpoint_owner_number(w->owner);
    return r;
}

/* Checks the plan that rank 0 sends: its texts become names of folders that are kept and removed. */
static int check_plan(const CheckpointWriter *w, const PutPlan *plan, Error *err)
{
    CheckpointName name;
    if (plan->name.step != w->snapshot.scalars.step ||
        plan->name.generation != w->options.facts.generation)
        return error_set(err, -EPROTO,
                         "rank 0 saves step %lld of generation %lld, this rank step %lld of %lld",
                         (long long)plan->name.step, (long long)plan->name.generation,
                         (long long)w->snapshot.scalars.step,
                         (long long)w->options.facts.generation);
    for (size_t i = 0; i < ELEMENTSOF(plan->committed); i++) {
        const char *folder = plan->committed[i];
        if (!memchr(folder, '\0', sizeof(plan->committed[i])) ||
            (*folder && checkpoint_name_parse(folder, &name) < 0))
            return error_set(err, -EPROTO,
                             "rank 0 says a committed checkpoint that has no checkpoint's name");
    }
    return 0;
}

/* Returns only an error of the comm. If the store does not answer rank 0, no rank tries to write to the store. */
static int agree_on_plan(Save *s, Error *err)
{
    CheckpointWriter *w = s->writer;
    SaveAgreement a = {0};
    if (w->rank == 0) {
        int r = plan_save(w, &a.plan, &a.error);
        if (r < 0 && a.error.code == 0)
            a.error = (Error){.code = r, .text = "unknown failure"};
        if (r >= 0)
            /* a store that tests for an object before a put may have left a text in the error */
            a.error = ERROR_INIT;
    }
    int r = comm_broadcast(w->options.reports, 0, &a, sizeof(a), err);
    if (r < 0)
        return error_prefix(err, r, "agreeing on the checkpoint's name");
    error_from_outside(&a.error);
    s->error = a.error;
    s->plan = (PutPlan){
        .name = {.step = w->snapshot.scalars.step, .generation = w->options.facts.generation}};
    if (a.error.code == 0 && check_plan(w, &a.plan, &s->error) == 0)
        s->plan = a.plan;
    checkpoint_name_format(&s->plan.name, s->folder);
    return 0;
}

/* ---- reports ---- */

/* Returns 0 if every rank has written all of its part, otherwise the first rank's error. */
static int judge_reports(Save *s, Error *err)
{
    CheckpointWriter *w = s->writer;
    for (int rank = 0; rank < w->size; rank++) {
        WriterReport *report = writer_report(w, rank);
        error_from_outside(&report->error);
        if (report->error.code < 0) {
            *err = report->error;
            return w->size == 1 ? err->code : error_prefix(err, err->code, "rank %d", rank);
        }
        if (report->step != s->plan.name.step)
            return error_set(err, -EPROTO, "rank %d saves step %lld, this rank step %lld", rank,
                             (long long)report->step, (long long)s->plan.name.step);
    }
    return 0;
}

static int gather_reports(Save *s, Error *err)
{
    CheckpointWriter *w = s->writer;
    s->own->step = s->plan.name.step;
    s->own->error = s->error;
    int r = comm_all_gather(w->options.reports, s->own, w->reports, w->report_bytes, err);
    if (r < 0)
        return error_prefix(err, r, "gathering the checkpoint's reports");
    r = judge_reports(s, err);
    if (r < 0)
        fail(s, r, err);
    return 0;
}

/* ---- the manifest (rank 0) ---- */

/* Returns whether a rank's report of one object is valid: the object is that rank's, is reported only once, and has a
 * valid size. */
static bool report_good(const Save *s, const Manifest *m, int rank, const ObjectReport *report)
{
    if (report->index >= m->n_objects || report->n_bytes > INT64_MAX)
        return false;
    const ObjectRecord *o = &m->objects[report->index];
    const uint64_t data_bytes = (uint64_t)o->count * sizeof(float);
    const bool moments = o->kind == OBJECT_MOMENTS;
    return o->n_bytes == 0 && object_owner(s->table, o, s->writer->size) == rank &&
           (moments ? report->n_bytes == 2 * data_bytes : report->n_bytes > data_bytes);
}

static int take_reports(const Save *s, Manifest *m, Error *err)
{
    CheckpointWriter *w = s->writer;
    size_t n_reported = 0;
    memcpy(m->objects, s->table->records, m->n_objects * sizeof(*m->objects));
    for (int rank = 0; rank < w->size; rank++) {
        const WriterReport *report = writer_report(w, rank);
        if (report->n_objects < 0 || (size_t)report->n_objects > w->objects_max)
            return error_set(err, -EPROTO,
                             "rank %d reports %lld objects, more than the %zu that any rank writes",
                             rank, (long long)report->n_objects, w->objects_max);
        for (int64_t k = 0; k < report->n_objects; k++) {
            const ObjectReport *from = &report->objects[k];
            if (!report_good(s, m, rank, from))
                return error_set(err, -EPROTO, "rank %d reports object %llu of %zu with %llu bytes",
                                 rank, (unsigned long long)from->index, m->n_objects,
                                 (unsigned long long)from->n_bytes);
            ObjectRecord *o = &m->objects[from->index];
            o->n_bytes = from->n_bytes;
            o->hash = from->hash;
            o->crc = (uint32_t)from->crc;
            o->header = from->header;
            if (o->kind == OBJECT_MOMENTS)
                m->chunks[o->part] = from->chunk;
            n_reported++;
        }
    }
    if (n_reported != m->n_objects)
        return error_set(err, -EPROTO, "%zu of %zu objects were reported", n_reported,
                         m->n_objects);
    return 0;
}

/* Lists the segments of the newest commit, some of them merged, and then this checkpoint's own segment. */
static void take_segments(const Save *s, Manifest *m)
{
    const Manifest *latest = s->writer->latest;
    const PutMetrics *put = &s->metrics;
    m->metrics_first = latest ? latest->metrics_first : s->writer->snapshot.metrics_first;
    for (size_t i = 0; latest && i < latest->n_segments; i++) {
        const bool begins = put->merged.key[0] && i == put->merged_at;
        m->segments[m->n_segments++] = begins ? put->merged : latest->segments[i];
        i += begins ? METRICS_FAN_IN - 1 : 0;
    }
    if (put->segment.key[0])
        m->segments[m->n_segments++] = put->segment;
    if (m->n_segments > MANIFEST_SEGMENTS_MAX) { /* after at least 190 million steps */
        log_warning("the history's list of metrics is full: steps %lld to %lld leave it",
                    (long long)m->segments[0].first, (long long)m->segments[0].last);
        m->metrics_first = m->segments[1].first;
        memmove(m->segments, m->segments + 1, --m->n_segments * sizeof(*m->segments));
    }
}

/* Copies the history of the newest commit, and adds that commit to it. */
static void take_history(const Save *s, Manifest *m)
{
    const Manifest *latest = s->writer->latest;
    take_segments(s, m);
    if (latest) {
        size_t skip = latest->n_committed == MANIFEST_COMMITTED_MAX;
        m->n_committed = latest->n_committed - skip;
        memcpy(m->committed, latest->committed + skip, m->n_committed * sizeof(*m->committed));
        checkpoint_name_format(&latest->name, m->committed[m->n_committed++]);
    }
}

static int compose_manifest(const Save *s, Manifest **ret, Error *err)
{
    CheckpointWriter *w = s->writer;
    const size_t n_before = w->latest ? w->latest->n_segments : 0;
    const size_t n_maxima = w->options.parameters->n_items * MAXIMA_WINDOW;

    _cleanup_(manifest_freep) Manifest *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "manifest: out of memory");
    m->name = s->plan.name;
    m->facts = w->options.facts;
    m->layout = w->layout;
    m->ema = w->snapshot.ema_active;
    m->n_tensors = (int64_t)w->options.parameters->n_items;
    m->n_objects = s->table->n_records;
    m->scalars = w->snapshot.scalars;
    m->scalars.maxima = calloc(n_maxima, sizeof(uint32_t));
    m->objects = calloc(m->n_objects, sizeof(*m->objects));
    m->chunks = calloc((size_t)m->layout.n_chunks, sizeof(*m->chunks));
    m->segments = calloc(n_before + 1, sizeof(*m->segments));
    m->committed = calloc(MANIFEST_COMMITTED_MAX, sizeof(*m->committed));
    if (!m->scalars.maxima || !m->objects || !m->chunks || !m->segments || !m->committed)
        return error_set(err, -ENOMEM, "manifest: out of memory");

    memcpy(m->scalars.maxima, w->snapshot.scalars.maxima, n_maxima * sizeof(uint32_t));
    take_history(s, m);
    divergence_format(&w->snapshot.divergence, m->divergence);
    step_times_format(&w->snapshot.step_times, m->step_times);
    if (w->options.plan_changes)
        (void)snprintf(m->plan_changes, sizeof(m->plan_changes), "%s", w->options.plan_changes);
    int r = take_reports(s, m, err);
    if (r < 0)
        return r;
    m->digest = manifest_state_digest(m);
    *ret = TAKE_PTR(m);
    return 0;
}

static int write_manifest(Save *s, Error *err)
{
    CheckpointWriter *w = s->writer;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    int r = compose_manifest(s, &m, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *text = NULL;
    if (manifest_format(m, &text) < 0)
        return error_set(err, -ENOMEM, "manifest: out of memory");
    if (strlen(text) > MANIFEST_BYTES_MAX)
        return error_set(err, -E2BIG, "manifest: %zu bytes, it may have at most %d", strlen(text),
                         MANIFEST_BYTES_MAX);
    m->hash = hash_bytes(text, strlen(text));

    char key[CHECKPOINT_FOLDER_MAX + 16];
    (void)snprintf(key, sizeof(key), "%s/manifest.json", s->folder);
    r = fault("checkpoint.manifest.before");
    if (r < 0)
        return error_errno(err, r, "cannot write %s", key);
    r = writer_own(w, err); /* another writer may have taken the folder over during the upload */
    if (r < 0)
        return r;
    r = store_put(w->options.store, key, &(struct iovec){text, strlen(text)}, 1, STORE_IF_ABSENT,
                  err);
    if (r < 0)
        return r;
    w->written = TAKE_PTR(m);
    r = fault("checkpoint.manifest.after");
    return r < 0 ? error_errno(err, r, "after writing %s", key) : 0;
}

/* Removes the manifest of a failed save. */
static void take_back_manifest(Save *s)
{
    CheckpointWriter *w = s->writer;
    Error err = ERROR_INIT;
    char key[CHECKPOINT_FOLDER_MAX + 16];
    if (!w->written)
        return;
    (void)snprintf(key, sizeof(key), "%s/manifest.json", s->folder);
    if (store_delete(w->options.store, key, &err) < 0)
        log_warning("%s of a failed checkpoint stays until the next commit: %s", key, err.text);
    w->written = manifest_free(w->written);
}

/* Removes the objects of a failed save, once all ranks know that the save has no manifest. This frees space on a full
 * disk. */
static void take_back_objects(Save *s)
{
    const size_t n_objects = (size_t)s->own->n_objects;
    _cleanup_free_ char(*texts)[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX] =
        calloc(n_objects + 1, sizeof(*texts));
    _cleanup_free_ const char **keys = calloc(n_objects + 2, sizeof(*keys));
    Error err = ERROR_INIT;
    int r = texts && keys ? 0 : error_set(&err, -ENOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < n_objects; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "%s/%s", s->folder,
                       s->table->records[s->own->objects[i].index].key);
        keys[i] = texts[i];
    }
    if (r == 0) {
        size_t n = n_objects;
        if (s->metrics.segment.key[0])
            keys[n++] = s->metrics.segment.key;
        if (s->metrics.merged.key[0])
            keys[n++] = s->metrics.merged.key;
        r = store_delete_many(s->writer->options.store, keys, n, &err);
    }
    if (r < 0)
        log_warning("objects of the failed checkpoint %s stay until the next commit: %s", s->folder,
                    err.text);
}

/* ---- the whole save ---- */

typedef struct SaveOutcome {
    Error error;
    Hash hash, digest;
} SaveOutcome;

/* Returns only an error of the comm; the save's own error is in s->error. */
static int save_steps(Save *s, SaveOutcome *outcome, Error *err)
{
    CheckpointWriter *w = s->writer;
    Error local = ERROR_INIT;
    int r = agree_on_plan(s, err);
    if (r < 0)
        return r;
    r = snapshot_await(w, &local);
    if (r < 0)
        fail(s, r, &local);
    if (w->snapshot.ema_active && !w->snapshot.ema_complete) {
        r = snapshot_gather_ema(w, err);
        if (r < 0)
            return r;
    }

    local = ERROR_INIT;
    if (s->error.code == 0) {
        r = checkpoint_put_objects(w, &s->plan, s->own, &s->metrics, &local);
        if (r < 0)
            fail(s, r, &local);
    }
    r = gather_reports(s, err);
    if (r < 0)
        return r;

    r = fault("checkpoint.gathered");
    if (r < 0) {
        /* error_errno() returns r; fail() keeps the error */
        (void)error_errno(&local, r, "after gathering the checkpoint's reports");
        fail(s, r, &local);
    }
    if (w->rank == 0 && s->error.code == 0) {
        r = write_manifest(s, &local);
        if (r < 0) {
            fail(s, r, &local);
            /* the manifest must be gone before the other ranks receive the outcome and remove their objects */
            take_back_manifest(s);
        }
    }
    if (w->rank == 0) {
        outcome->error = s->error;
        if (w->written) {
            outcome->hash = w->written->hash;
            outcome->digest = w->written->digest;
        }
    }
    r = comm_broadcast(w->options.reports, 0, outcome, sizeof(*outcome), err);
    error_from_outside(&outcome->error);
    if (r == 0 && outcome->error.code == 0)
        outcome->error = s->error; /* this rank's failure counts even if rank 0 reports none */
    return r < 0 ? error_prefix(err, r, "announcing the checkpoint") : 0;
}

void checkpoint_save(CheckpointWriter *w, CheckpointResult *result)
{
    Save s = {.writer = w, .table = writer_table(w), .own = writer_report(w, w->rank)};
    SaveOutcome outcome = {0};
    memset(s.own, 0, w->report_bytes);

    Error err = ERROR_INIT;
    int r = save_steps(&s, &outcome, &err);
    if (r < 0)
        outcome.error = err.code < 0 ? err : (Error){.code = r, .text = "a collective failed"};
    if (outcome.error.code < 0) {
        take_back_manifest(&s);
        if (r == 0)
            take_back_objects(&s);
        if (w->options.local)
            checkpoint_local_forget(w->options.local, s.folder);
        w->asked = false;
        result->error = outcome.error;
        return;
    }
    result->hash = outcome.hash;
    result->digest = outcome.digest;
    for (size_t i = 0; w->written && i < w->written->n_objects; i++)
        result->n_bytes += w->written->objects[i].n_bytes;
    /* checkpoint_writer_new() has checked that the URI fits */
    (void)snprintf(result->uri, sizeof(result->uri), "%s/%s/manifest.json",
                   store_uri(w->options.store), s.folder);
}
