/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - plans which ranges of a checkpoint's objects a restore reads, and in which order.
 *
 * Ownership: plan_open() fills a RestorePlan that plan_clear() empties; the plan borrows everything else.
 * Units:     elements of the flat buffer, bytes.
 * Errors:    -EBADMSG: an object that the manifest lists is missing or has another size; those of
 *            the store.
 * Threads:   one.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/restore/reader.h"

typedef enum PartKind {
    PART_TEXT, /* config, index or plans; a restore reads them so that the whole checkpoint is verified */
    PART_HEADER,  /* the header of a weight file */
    PART_DATA,    /* the data of a weight file; the previous part is the file's header */
    PART_MOMENTS, /* m and v of an own chunk */
    PART_EMA,     /* EMA elements of an own chunk */
} PartKind;

typedef struct Part {
    PartKind kind;
    const ObjectRecord *object;
    int64_t first;   /* element of the flat buffer where the data go */
    int64_t chunk;   /* the chunk that PART_MOMENTS and PART_EMA belong to */
    bool ends_chunk; /* the chunk is complete with this part */
    bool mends;      /* the local copy was bad and is replaced by the store's bytes */
    size_t again;    /* index of the part at which a second reading begins */
} Part;

typedef struct RestorePlan {
    Store *store;
    const CheckpointLocal *local; /* NULL: no local copies */
    const Manifest *manifest;
    char folder[CHECKPOINT_FOLDER_MAX];
    Part *parts;         /* owned */
    ReaderRange *ranges; /* owned; one for each part */
    size_t n_parts, room;
    Error *err; /* borrowed; functions that take the plan write their errors to it */
} RestorePlan;

/* err must live as long as the plan. */
void plan_open(Store *store, const CheckpointLocal *local, const Manifest *manifest, Error *err,
               RestorePlan *ret);
void plan_clear(RestorePlan *plan);
/* Plans to read all weight files of the kind. */
int plan_weights(RestorePlan *plan, ObjectKind kind);
/* Plans to read the object with the device's plan set. A checkpoint without such an object leaves *plan empty. */
int plan_device_plans(RestorePlan *plan);
/* Plans a whole restore: small objects, then the weights, then the chunks that this rank keeps. */
int plan_state(RestorePlan *plan, const TrainState *state);
/* Checks with one listing that every planned object exists with its size. */
int plan_check_sizes(const RestorePlan *plan);
