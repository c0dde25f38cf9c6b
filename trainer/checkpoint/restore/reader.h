/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h - reads ranges of objects in order, ahead of the caller.
 *
 * With one request at a time, each request would wait for a round trip of the network. So a range is read in pieces,
 * and while the caller uses one piece, up to 15 further pieces are being read.
 *
 * Units: bytes. Threads: one.
 * Ownership: reader_new() gives the caller a Reader, which borrows the store, the local copies, the device
 *            and the ranges. A piece's data are the caller's until the next call.
 * Errors:    as store_get_range(); from a local copy also -errno of the file.
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
    /* the bytes of the object that the range covers; n_bytes is at least 1 */
    uint64_t offset, n_bytes;
    /* The range is read from the local copy. The caller may change this field before it rewinds to the range. */
    bool local;
} ReaderRange;

typedef struct ReaderPiece {
    size_t range; /* index of the range */
    uint64_t at;  /* offset within the range */
    size_t n_bytes;
    const char *data;
} ReaderPiece;

typedef struct Reader Reader;

/* device: pieces lie in its host memory, from which they can be sent to the device; NULL: pieces lie in plain
 * memory. */
int reader_new(Store *store, const CheckpointLocal *local, Device *device,
               const ReaderRange *ranges, size_t n_ranges, Reader **ret, Error *err);
Reader *reader_free(Reader *reader);
DEFINE_CLEANUP(Reader, reader_free)
/* Returns 1 with the next piece in *ret, or 0 if there is no further piece. After an error ret->range is the range that
 * failed, and the caller can continue only with reader_rewind(). */
int reader_next(Reader *reader, ReaderPiece *ret, Error *err);
/* Drops the reads in progress; the next piece is the first piece of that range. */
void reader_rewind(Reader *reader, size_t range);
