/* plan.h - what a restore reads: ranges of a checkpoint's objects, in their order.
 *
 * Ownership: plan_open() fills a RestorePlan that plan_clear() empties; it borrows the rest.
 * Units:     elements of the flat buffer, bytes.
 * Errors:    -EBADMSG what the manifest lists is missing or has another size; those of the store.
 * Threads:   one.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/reader.h"

typedef enum PartKind {
    PART_TEXT,    /* config or index: nothing here needs it, but a checkpoint verifies as a whole */
    PART_HEADER,  /* of a weight file */
    PART_DATA,    /* the rest of it; the part before is its header */
    PART_MOMENTS, /* of an own chunk */
    PART_EMA,     /* elements of an own chunk */
} PartKind;

typedef struct Part {
    PartKind kind;
    const ObjectRecord *object;
    int64_t first;   /* element where the data go */
    int64_t chunk;   /* of moments and EMA */
    bool ends_chunk; /* it is complete then */
    bool mends;      /* the local copy was bad: what is read replaces it */
    size_t again;    /* index of the part to begin with when this one does not verify */
} Part;

typedef struct RestorePlan {
    Store *store;
    const CheckpointLocal *local; /* or NULL */
    const Manifest *manifest;
    char folder[CHECKPOINT_FOLDER_MAX];
    Part *parts;         /* owned */
    ReaderRange *ranges; /* owned; one a part */
    size_t n_parts, room;
    Error *err;
} RestorePlan;

/* err: where every function that takes the plan says what is wrong. */
void plan_open(Store *store, const CheckpointLocal *local, const Manifest *manifest, Error *err,
               RestorePlan *ret);
void plan_clear(RestorePlan *plan);
/* All weight files of that kind. */
int plan_weights(RestorePlan *plan, ObjectKind kind);
/* What is small first, then the weights, then the chunks that this rank keeps. */
int plan_state(RestorePlan *plan, const TrainState *state);
/* Is every planned object there, with its size? */
int plan_check_sizes(const RestorePlan *plan);
