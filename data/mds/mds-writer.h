/* SPDX-License-Identifier: Apache-2.0 */
/* mds-writer.h - writes an MDS dataset: shards, then index.json.
 *
 * Raw shards and index.json are byte for byte those of mosaicml-streaming's MDSWriter; compressed shards depend on the
 * zstd library's version.
 *
 * Units: bytes. Threads: one.
 * Ownership: mds_writer_new() gives the caller a MdsWriter and borrows the Store; fields are copied.
 * Errors:    -EINVAL fields that do not fit the columns; -EFBIG a sample that no shard can hold; -EEXIST the store has
 *            an index.json, or a shard of that name; the store's errors.
 * Invariant: index.json is written last: a dataset without it was not finished.
 */
#pragma once

#include "data/mds/mds-shard.h"
#include "store/store.h"

typedef struct MdsWriter MdsWriter;

typedef MdsShardOptions MdsWriterOptions;

enum { MDS_SIZE_LIMIT_DEFAULT = 1 << 26 };

int mds_writer_new(Store *store, const MdsSchema *schema, const MdsWriterOptions *options,
                   MdsWriter **ret, Error *err);
MdsWriter *mds_writer_free(MdsWriter *writer);
DEFINE_CLEANUP(MdsWriter, mds_writer_free)
/* Adds a sample: fields[n_columns] in the schema's order, each payload in its column's encoding. */
int mds_writer_add(MdsWriter *writer, const MdsField *fields, Error *err);
/* Writes the last shard, then index.json. */
int mds_writer_finish(MdsWriter *writer, Error *err);
