/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - finds the sample that a position trains: a pure function with O(1) seek.
 *
 * A tree of two-way Beatty splits of the streams' integer proportions maps a position to (stream, count in the stream);
 * a division maps the count to (pass, index in the pass); a keyed Feistel permutation inside windows, then one of whole
 * units, map the index to a sample. A sample id is its index among the valid samples of its stream, in file order.
 *
 * Ownership: the caller owns the Order; order_init() copies the streams and writes only *ret.
 * Units:     positions and samples are counts; proportions become parts of 2^32 that sum exactly.
 * Errors:    -EINVAL from order_init: no streams or too many, an empty stream with a proportion, a proportion that is
 *            not finite, negative, or under 2^-33 of the whole, a unit or window under 1.
 * Threads:   any; everything is immutable after order_init(). Pure: no I/O, clock, malloc, log or global.
 * Invariant: within a pass, every sample of a stream is used exactly once; after any number of positions, each split of
 *            the tree is within 1/2 of its proportion. The order of ORDER_ALGORITHM never changes: checkpoints rely on
 *            it (golden values in test-order.c).
 * Source:    docs/reference/order.md; Black and Rogaway 2002 (cycle-walking); Luby and Rackoff 1988 (Feistel networks
 *            as permutations); Beatty's sequences for the split.
 */
#pragma once

#include "base/macro.h"

enum { ORDER_STREAMS_MAX = 64, ORDER_ALGORITHM = 1 };

typedef struct OrderStream {
    int64_t n_samples; /* number of valid samples in the stream */
    int64_t unit;      /* U: samples that stay together in the outer permutation, about one shard */
    double proportion; /* weight relative to the sum of all weights; 0: the stream is not used */
} OrderStream;

typedef struct OrderNode {     /* a node of the split tree, internal */
    int32_t left, right;       /* index of a child node; negative: ~(index of a stream) */
    uint64_t left_part, total; /* proportions in units of 2^-32 */
} OrderNode;

typedef struct Order {
    int64_t window; /* B: the inner permutation mixes inside windows of B samples */
    size_t n_streams;
    OrderStream streams[ORDER_STREAMS_MAX];
    uint64_t parts[ORDER_STREAMS_MAX]; /* proportions in units of 2^-32; sum: 2^32 */

    /* internal */
    int32_t root; /* index of a node; negative: ~(index of a stream) */
    OrderNode nodes[ORDER_STREAMS_MAX];
    uint64_t keys[ORDER_STREAMS_MAX]; /* derived from (seed, stream) */
} Order;

typedef struct OrderSample {
    int stream;
    int64_t pass;   /* traversals of the stream that were completed before this sample */
    int64_t sample; /* 0 .. n_samples - 1 */
} OrderSample;

int order_init(const OrderStream *streams, size_t n_streams, uint64_t seed, int64_t window,
               Order *ret);

/* Returns the sample that a position (0, 1, ...) trains. */
OrderSample order_at(const Order *order, int64_t position);
