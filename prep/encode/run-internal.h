/* SPDX-License-Identifier: Apache-2.0 */
/* run-internal.h - the state that the steps of encode_run() share.
 *
 * Units: samples, bytes. Errors: as encode.h. Threads: one.
 * Ownership: encode.c fills and clears an EncodeRun, which owns everything that it points to except the options.
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
    InputList units; /* the folder's list; empty if an older version began the folder */
    Pictures *decoders;
    PartMaker *maker;
    char **named;
    size_t n_named;
    Progress progress;
    uint64_t unit_bytes;              /* size of the current unit */
    int64_t unit_index;               /* index of the next sample to be counted */
    int64_t block_samples, block_bad; /* counts in the current block of 10,000 samples */
    Reasons block_reasons;
    char *first_aside; /* error of the first unit that was set aside */
} EncodeRun;

/* Counts the next n_raw samples of the input, of which `rows` were rejected. -EDOM: too many samples in a block of
 * 10,000 were rejected. */
int run_count(EncodeRun *run, int64_t n_raw, const RejectRow *rows, size_t n_rows, Error *err);

/* Returns the totals of a unit that was read to its end, and logs its damage. */
InputTotals run_input(const RawUnit *unit, char **ret_damage);
/* Returns r, the result of a unit; but -ENOMEDIUM is logged and counted, and becomes 0. */
int run_set_aside(EncodeRun *run, int r, const Error *why);

/* Encodes a unit, or its missing parts. -ENOTRECOVERABLE: a part stays open, and the other parts are done. */
int unit_encode(EncodeRun *run, size_t unit, Error *err);

/* Makes the dataset from the reports of all units. */
int dataset_finish(EncodeRun *run, Error *err);
/* Repeats the cleaning that a process may have missed if it was killed after it had made the dataset; failures are
 * harmless. */
void dataset_tidy(EncodeRun *run);
/* Checks that the finished dataset was made without the samples that the options name. */
int dataset_check_named(EncodeRun *run, Error *err);
