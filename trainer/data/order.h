/* order.h - which sample a position trains: a pure function with O(1) seek.
 *
 * position -> (stream, pass, index in the pass) by a tree of two-way Beatty splits of the streams'
 * integer proportions, then index -> sample by a keyed Feistel permutation of units, then one
 * inside windows. A sample id is its index among the valid samples of its stream, in file order.
 *
 * Ownership: the caller owns the Order and the arrays it points to; order_init() writes only *ret.
 * Units:     positions and samples are counts; proportions become parts of 2^32 that sum exactly.
 * Errors:    -EINVAL from order_init (no streams, an empty stream with a proportion, a bad
 * proportion). Threads:   any; everything is immutable after order_init(). Pure: no I/O, clock,
 * malloc, log or global. Source:    ARCHITECTURE.md "Order"; Black and Rogaway 2002
 * (cycle-walking); Luby and Rackoff 1988.
 */
#pragma once

#include "base/macro.h"

enum { ORDER_STREAMS_MAX = 64, ORDER_ALGORITHM = 1 };

typedef struct OrderStream {
    int64_t n_samples; /* valid samples */
    int64_t unit;      /* U: samples that stay together in the first permutation, about one shard */
    double proportion; /* any positive scale */
} OrderStream;

typedef struct OrderNode { /* of the split tree, internal */
    int32_t left, right;   /* < 0: ~stream */
    uint64_t left_part, total;
} OrderNode;

typedef struct Order {
    uint64_t seed;
    int64_t window; /* B: samples inside which the second permutation mixes */
    size_t n_streams;
    OrderStream streams[ORDER_STREAMS_MAX];
    uint64_t parts[ORDER_STREAMS_MAX]; /* of 2^32 */
    OrderNode nodes[ORDER_STREAMS_MAX];
} Order;

typedef struct OrderSample {
    int stream;
    int64_t pass;   /* traversals of the stream that were completed before */
    int64_t sample; /* 0 .. n_samples - 1 */
} OrderSample;

int order_init(const OrderStream *streams, size_t n_streams, uint64_t seed, int64_t window,
               Order *ret);
OrderSample order_at(const Order *order, int64_t position);
