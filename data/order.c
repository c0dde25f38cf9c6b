/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - see order.h. Each step from a position to its sample is a closed form, so any position costs the same and
 * no state has to be saved or replayed. */
#include "data/order.h"

#include <errno.h>
#include <string.h>

enum { FEISTEL_ROUNDS = 6 };

#define PARTS_TOTAL (UINT64_C(1) << 32)
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

/* A bijection of 64-bit words in which every input bit reaches every output bit (the finaliser of
 * SplitMix64). */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static inline uint64_t key_derive(uint64_t key, uint64_t word)
{
    return mix(mix(key + GOLDEN) ^ (word * GOLDEN + 1));
}

/* A keyed permutation of 0 .. n-1: an unbalanced Feistel network on the ceil(log2(n)) bits of n-1, repeated until the
 * result is below n. The domain is smaller than 2n, so fewer than two repetitions are expected; the loop ends because x
 * itself is on its cycle. */
static uint64_t permute(uint64_t key, uint64_t n, uint64_t x)
{
    assert(x < n);
    if (n == 1)
        return 0;

    unsigned bits = 64 - (unsigned)__builtin_clzll(n - 1);
    unsigned low_bits = bits - bits / 2;
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1;
    uint64_t high_mask = (UINT64_C(1) << bits / 2) - 1;
    uint64_t key_step = mix(key ^ GOLDEN);

    do {
        uint64_t low = x & low_mask, high = x >> low_bits, round_key = key;
        for (unsigned i = 0; i < FEISTEL_ROUNDS; i += 2) {
            high ^= ((low ^ round_key) * GOLDEN >> 32) & high_mask;
            round_key += key_step;
            low ^= ((high ^ round_key) * GOLDEN >> 32) & low_mask;
            round_key += key_step;
        }
        x = high << low_bits | low;
    } while (x >= n);
    return x;
}

/* Maps an index in the pass to a sample. The inner permutation mixes the indices inside windows of B; the outer
 * permutation moves whole units of U samples, so that a window reads about B/U units. If the last unit is short, only
 * the full units are permuted, and the short unit is inserted before the slot that a hash selects: indices behind the
 * short unit are shifted by the length of that unit. */
static int64_t sample_in_pass(const OrderStream *stream, int64_t window, uint64_t pass_key,
                              int64_t index)
{
    int64_t n = stream->n_samples, unit = stream->unit;

    int64_t w = index / window;
    int64_t first = w * window;
    uint64_t window_key = key_derive(pass_key, (uint64_t)w + 2);
    index = first + (int64_t)permute(window_key, (uint64_t)MIN(window, n - first),
                                     (uint64_t)(index - first));

    int64_t n_full = n / unit;
    int64_t short_length = n - n_full * unit;
    if (short_length > 0) {
        int64_t slot = (int64_t)(key_derive(pass_key, 1) % (uint64_t)(n_full + 1));
        if (index >= slot * unit) {
            if (index < slot * unit + short_length)
                return n_full * unit + (index - slot * unit);
            index -= short_length;
        }
    }
    int64_t u =
        (int64_t)permute(key_derive(pass_key, 0), (uint64_t)n_full, (uint64_t)(index / unit));
    return u * unit + index % unit;
}

/* Returns how many of a node's first t positions belong to its left child: round(t * left_part / total). With total at
 * most 2^32, no product overflows 64 bits. */
static inline uint64_t split_count(const OrderNode *node, uint64_t t)
{
    uint64_t whole = t / node->total, rest = t % node->total;
    return whole * node->left_part + (rest * node->left_part + node->total / 2) / node->total;
}

OrderSample order_at(const Order *order, int64_t position)
{
    assert(position >= 0);

    uint64_t t = (uint64_t)position;
    int32_t at = order->root;
    while (at >= 0) {
        const OrderNode *node = &order->nodes[at];
        uint64_t left = split_count(node, t);
        if (split_count(node, t + 1) > left) {
            t = left;
            at = node->left;
        } else {
            t -= left;
            at = node->right;
        }
    }

    size_t s = (size_t)~at;
    const OrderStream *stream = &order->streams[s];
    int64_t pass = (int64_t)t / stream->n_samples, index = (int64_t)t % stream->n_samples;
    uint64_t pass_key = key_derive(order->keys[s], (uint64_t)pass);
    return (OrderSample){.stream = (int)s,
                         .pass = pass,
                         .sample = sample_in_pass(stream, order->window, pass_key, index)};
}

/* Converts the proportions to parts of 2^32 by largest remainder; the earlier stream wins a tie. */
static int divide_parts(Order *order)
{
    double sum = 0;
    for (size_t i = 0; i < order->n_streams; i++) {
        double p = order->streams[i].proportion;
        if (!(p >= 0 && p <= 0x1p500))
            return -EINVAL;
        sum += p;
    }
    if (!(sum >= 0x1p-500))
        return -EINVAL;

    double remainders[ORDER_STREAMS_MAX];
    uint64_t given = 0;
    for (size_t i = 0; i < order->n_streams; i++) {
        double share = order->streams[i].proportion / sum * (double)PARTS_TOTAL;
        order->parts[i] = (uint64_t)share;
        remainders[i] = share - (double)order->parts[i];
        given += order->parts[i];
    }
    assert(given <= PARTS_TOTAL && PARTS_TOTAL - given <= order->n_streams);
    for (; given < PARTS_TOTAL; given++) {
        size_t best = 0;
        for (size_t i = 1; i < order->n_streams; i++)
            if (remainders[i] > remainders[best])
                best = i;
        order->parts[best]++;
        remainders[best] = -1;
    }
    return 0;
}

/* Builds the tree over leaves[0 .. n-1], cut where the weights of its halves differ least, so that a stream with a
 * large proportion is found in few splits. Returns the node, or ~stream for one leaf. */
static int32_t build_tree(Order *order, const int32_t *leaves, size_t n, int32_t *n_nodes)
{
    if (n == 1)
        return ~leaves[0];

    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += order->parts[leaves[i]];
    size_t cut = 1;
    uint64_t left = order->parts[leaves[0]];
    while (cut < n - 1 && left + order->parts[leaves[cut]] / 2 < total / 2)
        left += order->parts[leaves[cut++]];

    int32_t at = (*n_nodes)++;
    order->nodes[at] = (OrderNode){.left_part = left, .total = total};
    order->nodes[at].left = build_tree(order, leaves, cut, n_nodes);
    order->nodes[at].right = build_tree(order, leaves + cut, n - cut, n_nodes);
    return at;
}

int order_init(const OrderStream *streams, size_t n_streams, uint64_t seed, int64_t window,
               Order *ret)
{
    if (n_streams < 1 || n_streams > ORDER_STREAMS_MAX || window < 1)
        return -EINVAL;

    Order order = {.window = window, .n_streams = n_streams};
    memcpy(order.streams, streams, n_streams * sizeof(streams[0]));
    int r = divide_parts(&order);
    if (r < 0)
        return r;

    int32_t leaves[ORDER_STREAMS_MAX];
    size_t n_leaves = 0;
    for (size_t i = 0; i < n_streams; i++) {
        order.keys[i] = key_derive(seed, i);
        if (streams[i].proportion == 0)
            continue;
        if (streams[i].n_samples < 1 || streams[i].unit < 1 || order.parts[i] == 0)
            return -EINVAL;
        leaves[n_leaves++] = (int32_t)i;
    }
    int32_t n_nodes = 0;
    order.root = build_tree(&order, leaves, n_leaves, &n_nodes);
    *ret = order;
    return 0;
}
