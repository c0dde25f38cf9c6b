/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - encodes the samples of a part of a unit: a shard, and a row for each sample that was left out.
 *
 * Pictures are given to the decoders and returned in order, some of them ahead of the networks, so that both work at
 * the same time.
 *
 * Ownership: part_maker_new() gives the caller a PartMaker, which borrows the objects in its options.
 * Units:     samples, bytes. A PartMaker holds 64 MiB of raw pictures, a batch of pixels and one shard.
 * Errors:    -ENOMEDIUM the unit is set aside (raw-set.h), and the part's samples were discarded; -ENOTRECOVERABLE
 *            pictures killed their decoders: part_maker_open() returns their keys, and the part cannot be finished;
 *            errors of the store, the encoder and the decoders.
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
    char *const *named; /* keys of samples to leave out, sorted */
    size_t n_named;
    /* Called often while a part is made, to report progress; may be NULL. */
    void (*tell)(void *context, const RawUnit *unit, const PartReport *part);
    void *context;
} PartOptions;

typedef struct PartMaker PartMaker;

int part_maker_new(const PartOptions *options, PartMaker **ret, Error *err);
PartMaker *part_maker_free(PartMaker *maker);
DEFINE_CLEANUP(PartMaker, part_maker_free)

/* Makes a part of the unit's next shard_samples samples. Fills the report's n_raw, rows and file, except for the file's
 * name. *ret_shard is the caller's; NULL: all samples were left out. */
int part_make(PartMaker *maker, RawUnit *unit, PartReport *report, char **ret_shard,
              size_t *ret_bytes, Error *err);
/* Returns the keys of samples whose pictures killed their decoders since the maker was made: the first PART_OPEN_MAX of
 * them. */
size_t part_maker_open(const PartMaker *maker, char *const **ret);
