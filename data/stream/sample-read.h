/* SPDX-License-Identifier: Apache-2.0 */
/* sample-read.h - one sample's bytes, asked for ahead of time, checked, failures tried again.
 *
 * A reader begins many reads and polls them. A read needs its shard (opening), then its range if it is read by range
 * (range), then its bytes are checked (ready). A failed attempt forgets what it came from and begins afresh. After
 * SAMPLE_READ_ATTEMPTS attempts the read has failed for good.
 *
 * Ownership: a SampleRead is the caller's, zero at first. It stays where it is from sample_read_begin() to
 *            sample_read_end(), and borrows the Shards. sample_read_clear() frees its buffer.
 * Units:     bytes; wake_usec is clock_monotonic_usec().
 * Errors:    -EBADMSG corrupt, -ENOENT a missing shard, the store's; the text names shard, sample, range, and both
 *            hashes where they differ. -EHOSTUNREACH, -EACCES and -ENOMEM are not tried again here.
 * Threads:   one at a time for all reads of a Shards, and of those that share its ReadBudget.
 */
#pragma once

#include "data/stream/shards.h"

enum { SAMPLE_READ_ATTEMPTS = 3 };

typedef enum SampleReadState {
    SAMPLE_READ_IDLE,    /* not begun, or ended */
    SAMPLE_READ_OPENING, /* its shard is not readable yet */
    SAMPLE_READ_RANGE,   /* its range is under way */
    SAMPLE_READ_READY,   /* its bytes are in the buffer and right */
    SAMPLE_READ_FAILED,  /* for good: `failure` and `why` */
} SampleReadState;

typedef struct SampleRead {
    SampleReadState state;
    Shards *shards;
    IndexPlace place;
    struct KeptShard *entry; /* that it refers to; NULL: none */
    StoreRead range_read;    /* under way in SAMPLE_READ_RANGE */
    char *buffer;
    size_t room;         /* of the buffer */
    size_t n_bytes;      /* of the sample */
    size_t n_budget;     /* that the read takes of the ReadBudget */
    uint32_t range[2];   /* of the shard: the sample's first byte, and the first behind it */
    int attempts;        /* that have failed */
    uint64_t again_usec; /* when the next attempt begins; 0: now */
    int failure;
    Error why;
} SampleRead;

/* Does not wait. A failure is told by sample_read_poll(). */
void sample_read_begin(SampleRead *read, Shards *shards, IndexPlace place);
/* Begins a read that has failed already: r, why. */
void sample_read_refuse(SampleRead *read, int r, const Error *why);
/* 1: *ret are the sample's bytes, until sample_read_end(). 0: not yet; poll again when the event count was signalled,
 * or at *wake_usec, which is made earlier where needed. Otherwise it failed for good. first: this is the sample that is
 * wanted next of all; other reads wait where there is no room beside it. */
int sample_read_poll(SampleRead *read, bool first, uint64_t *wake_usec, const void **ret,
                     size_t *ret_bytes, Error *err);
/* Cancels what is under way; the read may be begun anew. */
void sample_read_end(SampleRead *read);
void sample_read_clear(SampleRead *read);
