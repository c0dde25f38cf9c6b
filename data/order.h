/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - which sample a position trains: a pure function with O(1) seek.
 *
 * position -> (stream, count in the stream) by a tree of two-way Beatty splits of the streams'
 * integer proportions; count -> (pass, index in the pass) by division; index -> sample by a keyed
 * Feistel permutation inside windows, then one of whole units. A sample id is its index among the
 * valid samples of its stream, in file order.
 *
 * Ownership: the caller owns the Order; order_init() copies the streams and writes only *ret.
 * Units:     positions and samples are counts; proportions become parts of 2^32 that sum exactly.
 * Errors:    -EINVAL from order_init: no streams or too many, an empty stream with a proportion, a
 *            proportion that is not finite, negative, or under 2^-33 of the whole, a unit or window
 *            under 1.
 * Threads:   any; everything is immutable after order_init(). Pure: no I/O, clock, malloc, log or
 *            global.
 * Invariant: within a pass every sample of a stream comes exactly once; after any number of
 *            positions each split of the tree is within 1/2 of its proportion. The order of
 *            ORDER_ALGORITHM never changes: checkpoints rely on it (golden values in test-order.c).
 * Source:    docs/reference/order.md; Black and Rogaway 2002 (cycle-walking); Luby and Rackoff 1988
 *            (Feistel networks as permutations); Beatty's sequences for the split.
 */
#pragma once

#include "base/macro.h"

enum { ORDER_STREAMS_MAX = 64, ORDER_ALGORITHM = 1 };

typedef struct OrderStream {
    int64_t n_samples; /* valid samples */
    int64_t unit;      /* U: samples that stay together in the outer permutation, about one shard */
    double proportion; /* any positive scale; 0: the stream is not used */
} OrderStream;

typedef struct OrderNode {     /* a node of the split tree, internal */
    int32_t left, right;       /* < 0: ~stream */
    uint64_t left_part, total; /* parts of 2^32 */
} OrderNode;

typedef struct Order {
    int64_t window; /* B: samples inside which the inner permutation mixes */
    size_t n_streams;
    OrderStream streams[ORDER_STREAMS_MAX];
    uint64_t parts[ORDER_STREAMS_MAX]; /* of 2^32; their sum is 2^32 */

    /* internal */
    int32_t root; /* of nodes, or < 0: ~stream */
    OrderNode nodes[ORDER_STREAMS_MAX];
    uint64_t keys[ORDER_STREAMS_MAX]; /* of (seed, stream) */
} Order;

typedef struct OrderSample {
    int stream;
    int64_t pass;   /* traversals of the stream that were completed before */
    int64_t sample; /* 0 .. n_samples - 1 */
} OrderSample;

int order_init(const OrderStream *streams, size_t n_streams, uint64_t seed, int64_t window,
               Order *ret);

/* Tells which sample position (0, 1, ...) trains. */
OrderSample order_at(const Order *order, int64_t position);
