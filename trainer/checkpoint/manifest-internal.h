/* manifest-internal.h - what manifest.json holds, for the checkpoint's own sources; others see checkpoint.h.
 *
 * Ownership: a Manifest owns its arrays; manifest_free() accepts half-built ones.
 * Units:     elements of the flat buffer, bytes, steps.
 * Errors:    as checkpoint.h.
 * Threads:   immutable after reading; any.
 */
#pragma once

#include "base/json.h"
#include "protocol/manifest-limits.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/object.h"

enum {
    MANIFEST_VERSION = 2,
    MANIFEST_DIGEST_ALGORITHM = 1, /* train_state_chunk_hash() and train_state_digest() */
    METRICS_KEY_MAX = 96,
    METRICS_FAN_IN = 16, /* neighbours of one level that become one of the next */
    METRICS_LEVEL_MAX = 16,
};

/* Names one attempt at one checkpoint; its folder and its metrics carry all four. */
typedef struct CheckpointName {
    int64_t step, owner, generation;
    uint32_t attempt;
} CheckpointName;

void checkpoint_name_format(const CheckpointName *name, char folder[CHECKPOINT_FOLDER_MAX]);
/* Is b of a later world than a? Of this owner, or of the owner after it. */
static inline bool checkpoint_name_is_later(const CheckpointName *a, const CheckpointName *b)
{
    return b->owner != a->owner ? b->owner > a->owner : b->generation > a->generation;
}
/* -EINVAL unless folder is exactly what checkpoint_name_format() writes. */
int checkpoint_name_parse(const char *folder, CheckpointName *ret);

typedef struct MetricsSegment {
    char key[METRICS_KEY_MAX];
    int64_t first, last; /* steps */
    int64_t n_lines;     /* fewer than steps: some were lost before it was merged */
    int64_t level; /* 0: as a save wrote it; else merged of METRICS_FAN_IN of the level below */
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc;
} MetricsSegment;

/* "metrics/metrics-<first>-<last>-o<owner>-g<generation>-<attempt>.jsonl" */
void metrics_key_format(const CheckpointName *name, int64_t first, int64_t last,
                        char key[METRICS_KEY_MAX]);
/* -EINVAL; ret_name->step is the last step. */
int metrics_key_parse(const char *key, CheckpointName *ret_name, int64_t *ret_first);

struct Manifest {
    CheckpointName name;
    CheckpointFacts facts;
    TrainScalars scalars; /* owns maxima */
    int64_t n_tensors;
    ChunkLayout layout;
    bool ema;
    ObjectRecord *objects; /* in the order of ObjectTable */
    size_t n_objects;
    Hash *chunks; /* [layout.n_chunks] */
    Hash digest;
    int64_t metrics_first;    /* the history's first step: 1, or the one after the adopted */
    MetricsSegment *segments; /* contiguous from metrics_first to scalars.step */
    size_t n_segments;
    char (*committed)[CHECKPOINT_FOLDER_MAX]; /* checkpoints committed before, oldest first */
    size_t n_committed;
    Hash hash; /* of the text; set by reading */
};

/* The state digest that follows from the manifest's chunk hashes and scalars. */
Hash manifest_state_digest(const Manifest *manifest);
/* What the member "hash" holds: of all other members, sorted and without white space. */
int manifest_seal(const json_t *root, Hash *ret);
/* The text of manifest.json; caller frees. */
int manifest_format(const Manifest *manifest, char **ret);
/* source names the text in errors. Does not set hash. */
int manifest_parse(const char *source, const char *text, size_t n_bytes, Manifest **ret,
                   Error *err);
