/* SPDX-License-Identifier: Apache-2.0 */
/* run-internal.h - what the steps of encode_run() share.
 *
 * Ownership: encode.c fills and clears an EncodeRun; it owns all that it points to but the options.
 * Units:     samples, bytes.
 * Errors:    as encode.h.
 * Threads:   one.
 */
#pragma once

#include "prep/encode/encode.h"
#include "prep/encode/folder.h"
#include "prep/encode/part.h"
#include "prep/encode/progress.h"

typedef struct EncodeRun {
    const EncodeOptions *options;
    Recipe *recipe;
    Encoding encoding;
    Columns columns;
    RawSet *set;
    Folder folder;
    InputList units; /* as the folder has them; none: a version before began it */
    Pictures *decoders;
    PartMaker *maker;
    char **named;
    size_t n_named;
    Progress progress;
    uint64_t unit_bytes;              /* of the unit under way */
    int64_t unit_index;               /* of the next sample to be counted */
    int64_t block_samples, block_bad; /* of the 10,000 samples under way */
    Reasons block_reasons;
    char *first_aside; /* why the first unit that is set aside is */
} EncodeRun;

/* Counts the next n_raw samples of the input, whose rows these are; -EDOM: too many of 10,000 were rejected. */
int run_count(EncodeRun *run, int64_t n_raw, const RejectRow *rows, size_t n_rows, Error *err);

/* Counts a unit whose last sample was asked for, and logs what is wrong with it. */
InputTotals run_input(const RawUnit *unit, char **ret_damage);
/* Passes on r, what became of a unit; -ENOMEDIUM, which is told and counted, becomes 0. */
int run_set_aside(EncodeRun *run, int r, const Error *why);

/* Encodes a unit, or what is missing of it. -ENOTRECOVERABLE: a part stays open, and the others are done. */
int unit_encode(EncodeRun *run, size_t unit, Error *err);

/* Makes the dataset of what all units left. */
int dataset_finish(EncodeRun *run, Error *err);
/* Does what a life that was killed after it had made the dataset did not do any more; failures harm nobody. */
void dataset_tidy(EncodeRun *run);
/* Whether the dataset, which is finished, was made without the samples that the options name. */
int dataset_check_named(EncodeRun *run, Error *err);
