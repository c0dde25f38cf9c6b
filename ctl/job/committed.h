/* committed.h - a committed checkpoint as its manifest.json describes it: metrics for reports,
 * weights for export. Each object is checked by size and hash before it is used.
 *
 * Ownership: committed_open() fills a Committed; committed_close() accepts a zeroed one. Metrics
 *            are the caller's to free().
 * Units:     steps, bytes.
 * Errors:    -ENOENT no such object; -EBADMSG something does not verify; the text names the object.
 * Threads:   the main thread.
 * Source:    docs/reference/manifest.md.
 */
#pragma once

#include "base/json.h"
#include "cluster/records.h"
#include "store/store.h"

typedef struct Committed {
    Store *store;     /* of the job's checkpoint URI */
    char folder[128]; /* of this checkpoint in it */
    json_t *manifest;
} Committed;

int committed_open(const CheckpointCommit *commit, Committed *ret, Error *err);
void committed_close(Committed *committed);

typedef struct MetricsLine {
    int64_t step;
    double loss, lr, grad_norm; /* NAN: the line does not have it */
} MetricsLine;

typedef struct CommittedMetrics {
    MetricsLine *lines; /* one per step, in order; steps that are lost have none */
    size_t n_lines;
    int64_t *saved; /* steps of checkpoints: the newest 65, and where older segments end */
    size_t n_saved;
    int64_t n_lost, first_lost,
        last_lost; /* steps of the history; the first and the last that is lost */
    char why[200]; /* what is wrong with the first segment that is lost */
} CommittedMetrics;

/* An object that is missing or does not verify costs its own steps alone. Arrays are free()d by the
 * caller. */
int committed_metrics(const Committed *committed, CommittedMetrics *ret, Error *err);

/* One object as the manifest lists it. */
typedef struct CommittedObject {
    char key[256]; /* in the store */
    uint64_t n_bytes;
    Hash hash;
} CommittedObject;

/* All objects of a kind ("weights", "ema-weights"), in order; free()d by the caller. */
int committed_objects(const Committed *committed, const char *kind, CommittedObject **ret,
                      size_t *ret_n, Error *err);
