/* SPDX-License-Identifier: Apache-2.0 */
/* put.c - see put.h.
 *
 * Objects are put deferred and flushed together: on file:// one commit of the file system's journal serves all, on S3
 * the objects are sent while the next objects are hashed and copied. So headers and texts that are made here are kept
 * until the flush.
 *
 * Copies on this node's disk (local.h) are written at the same time; after the first error no more copies are written.
 *
 * Fault points: checkpoint.object (each).
 */
#include "trainer/checkpoint/put.h"

#include "base/fault.h"
#include "base/log.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/local.h"
#include "trainer/checkpoint/metrics.h"
#include "trainer/checkpoint/weight-file.h"

#include <string.h>

typedef struct Put {
    CheckpointWriter *writer;
    const ObjectTable *table;
    char folder[CHECKPOINT_FOLDER_MAX];
    bool copying; /* local copies are being written */
} Put;

/* ---- local copies ---- */

static uint64_t bytes_about(const CheckpointWriter *w, const ObjectRecord *record)
{
    const uint64_t n = record->kind == OBJECT_PLANS ? strlen(w->options.plans)
                                                    : (uint64_t)record->count * sizeof(float);
    /* the result includes space for a header or a text */
    return 65536 + (record->kind == OBJECT_MOMENTS ? 2 * n : n);
}

static void begin_copies(Put *p, const PutPlan *plan)
{
    CheckpointWriter *w = p->writer;
    if (!w->options.local)
        return;
    char keep[COMMITTED_KEPT + 1][CHECKPOINT_FOLDER_MAX];
    memcpy(keep, plan->committed, sizeof(plan->committed));
    memcpy(keep[COMMITTED_KEPT], p->folder, sizeof(p->folder));
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < p->table->n_records; i++)
        if (object_owner(p->table, &p->table->records[i], w->size) == w->rank)
            n_bytes += bytes_about(w, &p->table->records[i]);

    Error err = ERROR_INIT;
    p->copying =
        checkpoint_local_begin(w->options.local, (const char(*)[CHECKPOINT_FOLDER_MAX])keep,
                               ELEMENTSOF(keep), n_bytes, &err) == 0;
    if (!p->copying)
        log_warning("no copy on this node of %s: %s", p->folder, err.text);
}

static void copy_object(Put *p, const char *key, const struct iovec *parts, size_t n_parts)
{
    Error err = ERROR_INIT;
    if (!p->copying ||
        checkpoint_local_put(p->writer->options.local, key, parts, n_parts, &err) == 0)
        return;
    log_warning("no copy on this node of %s: %s", p->folder, err.text);
    checkpoint_local_end(p->writer->options.local, false);
    p->copying = false;
}

/* ---- objects ---- */

static int put_object(Put *p, const ObjectRecord *record, struct iovec *parts, size_t n_parts,
                      ObjectReport *ret, Error *err)
{
    char key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX];
    (void)snprintf(key, sizeof(key), "%s/%s", p->folder, record->key);
    int r = fault("checkpoint.object");
    if (r < 0)
        return error_errno(err, r, "cannot write %s", key);

    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    if (hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "%s: out of memory", key);
    uint32_t crc = 0;
    for (size_t i = 0; i < n_parts; i++) {
        hasher_update(hasher, parts[i].iov_base, parts[i].iov_len);
        crc = crc32c(crc, parts[i].iov_base, parts[i].iov_len);
        ret->n_bytes += parts[i].iov_len;
    }
    ret->hash = hasher_digest(hasher);
    ret->crc = crc;
    /* STORE_IF_ABSENT is not used, as it costs a request for each large object: the random attempt makes the name
     * unique. */
    r = store_put(p->writer->options.store, key, parts, n_parts, STORE_DEFER, err);
    if (r == 0)
        copy_object(p, key, parts, n_parts);
    return r;
}

/* Keeps a text that a deferred put points to; checkpoint_put_objects() frees it after the flush. */
static char *until_flush(Put *p, char *text)
{
    CheckpointWriter *w = p->writer;
    assert(w->n_texts < w->texts_max);
    return w->texts[w->n_texts++] = text;
}

static int put_text(Put *p, const ObjectRecord *record, const char *text, ObjectReport *ret,
                    Error *err)
{
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)}; /* the store only reads the data */
    return put_object(p, record, &part, 1, ret, err);
}

static int put_index(Put *p, const ObjectRecord *record, ObjectReport *ret, Error *err)
{
    char *index;
    if (weight_index_format(p->writer->options.parameters, p->table, &index) < 0)
        return error_set(err, -ENOMEM, "%s: out of memory", record->key);
    return put_text(p, record, until_flush(p, index), ret, err);
}

static int put_weights(Put *p, const ObjectRecord *record, SnapshotKind kind, ObjectReport *ret,
                       Error *err)
{
    const float *from = snapshot_range(p->writer, kind, record->first, record->count);
    char *header;
    size_t n_bytes;
    int r = weight_file_header(p->writer->options.parameters, record, &header, &n_bytes, err);
    if (r < 0)
        return r;
    ret->header = hash_bytes(header, n_bytes);
    struct iovec parts[] = {{until_flush(p, header), n_bytes},
                            {(void *)(uintptr_t)from, /* the store only reads the data */
                             (size_t)record->count * sizeof(float)}};
    return put_object(p, record, parts, ELEMENTSOF(parts), ret, err);
}

/* Computes the same hash as train_state_chunk_hash(). */
static int snapshot_chunk_hash(const CheckpointWriter *w, const ObjectRecord *record, Hash *ret)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    const SnapshotKind n_kinds = w->snapshot.ema_active ? SNAPSHOT_KINDS : SNAPSHOT_EMA;
    if (hasher_new(&hasher) < 0)
        return -ENOMEM;
    for (SnapshotKind kind = 0; kind < n_kinds; kind++)
        hasher_update(hasher, snapshot_range(w, kind, record->first, record->count),
                      (size_t)record->count * sizeof(float));
    *ret = hasher_digest(hasher);
    return 0;
}

static int put_moments(Put *p, const ObjectRecord *record, ObjectReport *ret, Error *err)
{
    const CheckpointWriter *w = p->writer;
    assert(chunk_owner(record->part, w->size) == w->rank);
    const size_t n_bytes = (size_t)record->count * sizeof(float);
    const float *m = snapshot_range(w, SNAPSHOT_MOMENTS_M, record->first, record->count);
    const float *v = snapshot_range(w, SNAPSHOT_MOMENTS_V, record->first, record->count);
    struct iovec parts[] = {{(void *)(uintptr_t)m, n_bytes}, /* the store only reads the data */
                            {(void *)(uintptr_t)v, n_bytes}};
    if (snapshot_chunk_hash(w, record, &ret->chunk) < 0)
        return error_set(err, -ENOMEM, "%s: out of memory", record->key);
    return put_object(p, record, parts, ELEMENTSOF(parts), ret, err);
}

static int put_record(Put *p, const ObjectRecord *record, ObjectReport *ret, Error *err)
{
    CheckpointWriter *w = p->writer;
    switch (record->kind) {
    case OBJECT_CONFIG:
    case OBJECT_EMA_CONFIG:
        return put_text(p, record, w->options.unet_config, ret, err);
    case OBJECT_INDEX:
    case OBJECT_EMA_INDEX:
        return put_index(p, record, ret, err);
    case OBJECT_WEIGHTS:
        return put_weights(p, record, SNAPSHOT_WEIGHTS, ret, err);
    case OBJECT_EMA_WEIGHTS:
        return put_weights(p, record, SNAPSHOT_EMA, ret, err);
    case OBJECT_MOMENTS:
        return put_moments(p, record, ret, err);
    case OBJECT_PLANS:
        return put_text(p, record, w->options.plans, ret, err);
    case OBJECT_KINDS:
        break;
    }
    assert(false);
    return -EINVAL;
}

static int put_segment(Put *p, const CheckpointName *name, const char *text, MetricsSegment *s,
                       Error *err)
{
    s->hash = hash_bytes(text, (size_t)s->n_bytes);
    s->crc = crc32c(0, text, (size_t)s->n_bytes);
    metrics_key_format(name, s->first, s->last, s->key);
    struct iovec part = {(void *)(uintptr_t)text,
                         (size_t)s->n_bytes}; /* the store only reads the data */
    return store_put(p->writer->options.store, s->key, &part, 1, STORE_IF_ABSENT, err);
}

/* Returns whether an error of a put of metrics fails the save. If the store is unreachable or full, the save would fail
 * anyway, and the lines wait for the next save. If the store refuses only metrics, the manifest lists the metrics all
 * the same, and the lines are put as soon as the store accepts metrics again. */
static bool fails_the_save(int r)
{
    return r == -EHOSTUNREACH || r == -ENOMEM || r == -ENOSPC || r == -EDQUOT;
}

static int put_own_metrics(Put *p, const CheckpointName *name, MetricsSegment *ret, Error *err)
{
    const Snapshot *s = &p->writer->snapshot;
    if (s->metrics_last < s->metrics_first)
        return 0;
    *ret = (MetricsSegment){.first = s->metrics_first,
                            .last = s->metrics_last,
                            .n_lines = s->metrics_last - s->metrics_first + 1,
                            .n_bytes = strlen(s->metrics)};
    Error why = ERROR_INIT;
    int r = put_segment(p, name, s->metrics, ret, &why);
    if (fails_the_save(r)) {
        *err = why;
        return r;
    }
    if (r < 0) {
        metrics_missed_add(p->writer->missed, ret, s->metrics);
        log_warning("metrics of steps %lld to %lld wait for the next save: %s",
                    (long long)ret->first, (long long)ret->last, why.text);
    }
    return 0;
}

/* Puts merged metrics if a merge is due. After an error the next save tries again. */
static void put_merged_metrics(Put *p, const CheckpointName *name, PutMetrics *ret)
{
    CheckpointWriter *w = p->writer;
    const Manifest *latest = w->latest;
    _cleanup_free_ char *text = NULL;
    Error why = ERROR_INIT;
    if (!latest || metrics_missed_steps(w->missed, latest) > 0 ||
        !metrics_find_merge(latest->segments, latest->n_segments, &ret->merged_at))
        return;
    int r = metrics_merge(w->options.store, &latest->segments[ret->merged_at], &ret->merged, &text,
                          &why);
    if (r == 0)
        r = put_segment(p, name, text, &ret->merged, &why);
    if (r < 0) {
        ret->merged.key[0] = '\0';
        log_warning("metrics are not merged now: %s", why.text);
    }
}

static int put_metrics(Put *p, const CheckpointName *name, PutMetrics *ret, Error *err)
{
    CheckpointWriter *w = p->writer;
    Error why = ERROR_INIT;
    if (w->rank != 0)
        return 0;
    if (metrics_missed_put(w->missed, w->options.store, w->latest, &why) < 0)
        log_warning("metrics still wait: %s", why.text);
    int r = put_own_metrics(p, name, &ret->segment, err);
    if (r == 0)
        put_merged_metrics(p, name, ret);
    return r;
}

/* ---- the whole put ---- */

static int put_records(Put *p, WriterReport *own, Error *err)
{
    CheckpointWriter *w = p->writer;
    for (size_t i = 0; i < p->table->n_records; i++) {
        const ObjectRecord *record = &p->table->records[i];
        if (object_owner(p->table, record, w->size) != w->rank)
            continue;
        ObjectReport *report = &own->objects[own->n_objects++];
        *report = (ObjectReport){.index = i};
        int r = put_record(p, record, report, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int checkpoint_put_objects(CheckpointWriter *w, const PutPlan *plan, WriterReport *own,
                           PutMetrics *ret_metrics, Error *err)
{
    Put p = {.writer = w, .table = writer_table(w)};
    checkpoint_name_format(&plan->name, p.folder);
    *ret_metrics = (PutMetrics){0};
    begin_copies(&p, plan);
    int r = put_records(&p, own, err);
    if (r == 0)
        r = put_metrics(&p, &plan->name, ret_metrics, err);
    /* Flushes after a failure, too: the store may still be reading the data of earlier puts. */
    int q = store_flush(w->options.store, r == 0 ? err : NULL);
    while (w->n_texts > 0)
        free(w->texts[--w->n_texts]);
    r = r < 0 ? r : q;
    if (p.copying)
        checkpoint_local_end(w->options.local, r == 0);
    return r;
}
