/* SPDX-License-Identifier: Apache-2.0 */
/* sample-read.h - reads one sample's bytes ahead of time, checks them, and retries failures.
 *
 * A reader begins many reads and polls them. A read waits for its shard (state "opening"), then for its bytes, if
 * samples are read by range ("range"); at last its bytes have been checked ("ready"). After a failed attempt, the
 * shard's data that the attempt used are dropped, and the read begins again. After SAMPLE_READ_ATTEMPTS attempts the
 * read has failed for good.
 *
 * Ownership: a SampleRead is the caller's, zero at first. It must not be moved between sample_read_begin() and
 *            sample_read_end(), and borrows the Shards. sample_read_clear() frees its buffer.
 * Units:     bytes; wake_usec is clock_monotonic_usec().
 * Errors:    -EBADMSG corrupt bytes, -ENOENT a missing shard, the store's errors; the text names shard, sample, range,
 *            and both hashes if they differ. -EHOSTUNREACH, -EACCES and -ENOMEM are not retried here.
 * Threads:   only one thread at a time may use the reads of all Shards that share a ReadBudget.
 */
#pragma once

#include "data/stream/shards.h"

enum { SAMPLE_READ_ATTEMPTS = 3 };

typedef enum SampleReadState {
    SAMPLE_READ_IDLE,    /* not begun, or ended */
    SAMPLE_READ_OPENING, /* the sample's shard is not readable yet */
    SAMPLE_READ_RANGE,   /* the sample's range has been requested */
    SAMPLE_READ_READY,   /* the sample's bytes are in the buffer and verified */
    SAMPLE_READ_FAILED,  /* failed for good: see `failure` and `why` */
} SampleReadState;

typedef struct SampleRead {
    SampleReadState state;
    Shards *shards;
    IndexPlace place;
    struct KeptShard *entry; /* the shard's entry; NULL: the read has no entry */
    StoreRead range_read;    /* in progress while the state is SAMPLE_READ_RANGE */
    char *buffer;
    size_t room;         /* size of the buffer */
    size_t n_bytes;      /* size of the sample */
    size_t n_budget;     /* bytes that the read uses of the ReadBudget */
    uint32_t range[2];   /* in the shard: the sample's first byte, and the first byte behind it */
    int attempts;        /* number of failed attempts */
    uint64_t again_usec; /* when the next attempt begins; 0: now */
    int failure;
    Error why;
} SampleRead;

/* Begins a read and does not wait. sample_read_poll() reports failures. */
void sample_read_begin(SampleRead *read, Shards *shards, IndexPlace place);
/* Begins a read that has failed already, with error r and text why. */
void sample_read_refuse(SampleRead *read, int r, const Error *why);
/* Returns 1 if *ret are the sample's bytes, valid until sample_read_end(); 0 if they have not arrived: poll again when
 * the event count was signalled, or at *wake_usec, which is made earlier if needed; a negative errno if the read has
 * failed for good. first: the caller needs this sample next, so this read goes on even without room; all
 * other reads wait for room. */
int sample_read_poll(SampleRead *read, bool first, uint64_t *wake_usec, const void **ret,
                     size_t *ret_bytes, Error *err);
/* Cancels the read's requests; the read may be begun again. */
void sample_read_end(SampleRead *read);
void sample_read_clear(SampleRead *read);
