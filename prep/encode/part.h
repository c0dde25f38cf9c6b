/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - the samples of a part of a unit, encoded: a shard, and a row for each one that was left out.
 *
 * Pictures go to the decoders and come back in order, some of them ahead of the networks, so that both work at once.
 *
 * Ownership: part_maker_new() gives the caller a PartMaker, which borrows what its options name.
 * Units:     samples, bytes. A maker holds 64 MiB of raw pictures, a batch of pixels and one shard.
 * Errors:    -ENOMEDIUM the unit is set aside (raw-set.h), and nothing of the part is left; -ENOTRECOVERABLE pictures
 *            killed their decoders: their keys are in `open`, and the part cannot be ended; the store's, the encoder's
 *            and the decoders'.
 * Threads:   one.
 */
#pragma once

#include "prep/encode/columns.h"
#include "prep/encode/decoders.h"
#include "prep/encode/encoding.h"
#include "prep/encode/report.h"
#include "prep/raw/raw-set.h"

enum { PART_OPEN_MAX = 100 };

typedef struct PartOptions {
    Encoding *encoding;
    const Columns *columns; /* NULL: nothing is encoded, only rows are made */
    Pictures *decoders;
    char *const *named; /* keys to leave out, sorted */
    size_t n_named;
    /* Called often while a part is made; NULL: it is not. */
    void (*tell)(void *context, const RawUnit *unit, const PartReport *part);
    void *context;
} PartOptions;

typedef struct PartMaker PartMaker;

int part_maker_new(const PartOptions *options, PartMaker **ret, Error *err);
PartMaker *part_maker_free(PartMaker *maker);
DEFINE_CLEANUP(PartMaker, part_maker_free)

/* Takes the unit's next shard_samples samples. Fills the report's n_raw, rows and file, but for the file's name.
 * *ret_shard is the caller's; NULL: no sample is left. */
int part_make(PartMaker *maker, RawUnit *unit, PartReport *report, char **ret_shard,
              size_t *ret_bytes, Error *err);
/* Keys of samples whose pictures killed their decoders, since the maker was made: the first PART_OPEN_MAX. */
size_t part_maker_open(const PartMaker *maker, char *const **ret);
