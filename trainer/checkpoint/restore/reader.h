/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h - reads ranges of objects in order, ahead of the caller.
 *
 * One request at a time would wait a network's round trip for each. So a range comes in pieces, and
 * while the caller uses one, up to 15 further ones are under way.
 *
 * Ownership: reader_new() gives the caller a Reader, which borrows the store, the local copies, the device
 *            and the ranges. A piece's data are the caller's until the next call.
 * Units:     bytes.
 * Errors:    as store_get_range(); from a local copy also -errno of the file.
 * Threads:   one.
 */
#pragma once

#include "store/store.h"
#include "trainer/checkpoint/local.h"
#include "trainer/state/train-state.h"

enum { READER_KEY_MAX = 192 };

/* The size of a piece; tests lower it. */
extern size_t reader_piece_bytes;

typedef struct ReaderRange {
    char key[READER_KEY_MAX];
    uint64_t offset, n_bytes; /* of the object; at least one byte */
    bool local;               /* read from the local copy; the caller may change it before it
                                 rewinds to this range */
} ReaderRange;

typedef struct ReaderPiece {
    size_t range; /* index */
    uint64_t at;  /* within the range */
    size_t n_bytes;
    const char *data;
} ReaderPiece;

typedef struct Reader Reader;

/* device: pieces lie in its host memory, from where they can be sent to it; NULL: in plain memory. */
int reader_new(Store *store, const CheckpointLocal *local, Device *device,
               const ReaderRange *ranges, size_t n_ranges, Reader **ret, Error *err);
Reader *reader_free(Reader *reader);
DEFINE_CLEANUP(Reader, reader_free)
/* 1: the next piece is in *ret; 0: there is no further one. After an error ret->range is the range
 * that it happened in, and the only call that helps is reader_rewind(). */
int reader_next(Reader *reader, ReaderPiece *ret, Error *err);
/* Drops the reads under way; the next piece is the first one of that range. */
void reader_rewind(Reader *reader, size_t range);
