/* reader.h - ranges of objects in their order, read ahead of whoever takes them.
 *
 * A range comes in pieces. While the caller uses one, up to 15 further ones are
 * under way; that is where a store with a network in between gets its throughput from.
 *
 * Ownership: reader_new() gives the caller a Reader, which borrows the store, the local copies and
 *            the ranges. A piece's data are the caller's until the next call.
 * Units:     bytes.
 * Errors:    as store_get_range(); from a local copy also -errno of the file.
 * Threads:   one.
 */
#pragma once

#include "store/store.h"
#include "trainer/checkpoint/local.h"

enum { READER_KEY_MAX = 192 };

/* Of a piece; tests lower it. */
extern size_t reader_piece_bytes;

typedef struct ReaderRange {
    char key[READER_KEY_MAX];
    uint64_t offset, n_bytes; /* of the object; at least one byte */
    bool local;               /* from the local copy; may change until the range is rewound to */
} ReaderRange;

typedef struct ReaderPiece {
    size_t range; /* index */
    uint64_t at;  /* within the range */
    size_t n_bytes;
    const char *data;
} ReaderPiece;

typedef struct Reader Reader;

int reader_new(Store *store, const CheckpointLocal *local, const ReaderRange *ranges,
               size_t n_ranges, Reader **ret, Error *err);
Reader *reader_free(Reader *reader);
DEFINE_CLEANUP(Reader, reader_free)
/* 1: the next piece is in *ret; 0: that was all. After an error ret->range says which range it is
 * of, and only rewinding helps. */
int reader_next(Reader *reader, ReaderPiece *ret, Error *err);
/* Forgets what is under way; the next piece is the first one of that range. */
void reader_rewind(Reader *reader, size_t range);
