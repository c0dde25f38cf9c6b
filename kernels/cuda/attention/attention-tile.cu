/* SPDX-License-Identifier: Apache-2.0 */
/* attention-tile.cu - see attention-tile.h.
 *
 * A block's shared memory contains all keys and values of a head, in KT tiles of 16. A warp computes 16 queries: their
 * scores are sums of consecutive mma operations and stay in registers, where the softmax is computed; the results,
 * rounded to bf16, are an operand of the next product.
 *
 * Backward computes the probabilities again from the values that forward saved. Eight warps process 128 queries and
 * store probabilities and slopes of the scores in shared memory; then each warp adds up 16 columns of dk or of dv over
 * these queries. A cluster of blocks shares the queries of a head; the sums of the blocks are added in the blocks'
 * order.
 *
 * Places behind the last key have the probability 0, whatever the scores of the keys are; rows behind the last query
 * have no weight. */
#include "kernels/cuda/attention/attention-tile.h"

#include "kernels/cuda/kernels/mma.cuh"

#include <math.h>

enum {
    HEAD = 64,         /* elements of a head */
    TILE = 16,         /* rows and columns that one load reads */
    KEYS_MAX = 80,     /* the most keys; the scores of so many keys are 40 registers of a lane */
    ROW = HEAD + 8,    /* elements from row to row in shared memory: see mma.cuh */
    ROWS = 16 * WARPS, /* queries that a block processes at once */
    ROUNDS = 2, /* backward uses a block for each ROUNDS * ROWS queries, at most CLUSTER_BLOCKS */
    CLUSTER_BLOCKS = 8,
    SUMS_ROW = HEAD + 8, /* floats from row to row of the sums at the end of backward */
};

static_assert(CLUSTER_BLOCKS <= 8, "more are not for every GPU");

bool attention_tile_serves(const Device *device, const AttentionShape *shape)
{
    return device->type == DATA_BF16 && shape->head_dim == HEAD && shape->kv_tokens <= KEYS_MAX;
}

/* The parts of an AttentionShape that the kernels use. */
struct TileHeads {
    int64_t queries, q_stride, kv_stride, out_stride;
    int keys, rounds;
    float scale;
    bool causal;
    bool packs; /* all rows of a head begin on boundaries of 16 bytes */
};

template <typename... Pointers>
static TileHeads heads_of(const AttentionShape *s, int rounds, Pointers... pointers)
{
    const int64_t width = (int64_t)s->heads * HEAD;
    return TileHeads{s->q_tokens,
                     s->q_stride,
                     s->kv_stride,
                     width,
                     (int)s->kv_tokens,
                     rounds,
                     (float)(1.0 / sqrt((double)HEAD)),
                     s->causal,
                     in_packs<Bf16>(s->q_stride, pointers...) && in_packs<Bf16>(s->kv_stride)};
}

/* Returns how many keys, from the first one on, the query sees. */
__device__ static inline int keys_of(const TileHeads &h, int64_t query)
{
    return h.causal && query < h.keys ? (int)query + 1 : h.keys;
}

/* ---- rows of a head: 8 words of 16 bytes ---- */

enum { WORDS = HEAD / 8 };

/* Returns the address of token i of this block's head. In the grid, y is the head and z the image. */
template <typename T>
__device__ static inline T *token(T *base, int64_t tokens, int64_t stride, int64_t i)
{
    return base + (blockIdx.z * tokens + i) * stride + (int64_t)blockIdx.y * HEAD;
}

__device__ static inline Words<16> load_eight(const Bf16 *from, bool packs)
{
    if (packs)
        return load_words<16>(from);
    Words<16> words;
    UNROLL for (int i = 0; i < 4; i++) words.at[i] =
        (uint32_t)from[2 * i + 1].bits << 16 | from[2 * i].bits;
    return words;
}

__device__ static inline void store_eight(Bf16 *to, const Words<16> &words, bool packs)
{
    if (packs) {
        store_words(to, words);
        return;
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        to[2 * i].bits = (uint16_t)words.at[i];
        to[2 * i + 1].bits = (uint16_t)(words.at[i] >> 16);
    }
}

__device__ static inline void store_two(Bf16 *to, uint32_t word, bool packs)
{
    if (packs) {
        *(uint32_t *)(void *)to = word;
    } else {
        to[0].bits = (uint16_t)word;
        to[1].bits = (uint16_t)(word >> 16);
    }
}

/* All threads load the keys, or the values, into shared memory. Rows behind the last key are 0. */
template <int KT>
__device__ static inline void bring_keys(const TileHeads &h, const Bf16 *from, Bf16 *to)
{
    for (int i = (int)threadIdx.x; i < KT * TILE * WORDS; i += THREADS) {
        const int row = i / WORDS, at = i % WORDS * 8;
        Words<16> words = {};
        if (row < h.keys)
            words = load_eight(token(from, h.keys, h.kv_stride, row) + at, h.packs);
        *(Words<16> *)(void *)(to + row * ROW + at) = words;
    }
}

/* A warp loads 16 rows into shared memory. Rows from `there` on do not exist and become 0. */
__device__ static inline void bring_rows(const Bf16 *from, int64_t stride, int there, Bf16 *to,
                                         bool packs)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL for (int i = 0; i < TILE * WORDS / 32; i++)
    {
        const int row = i * 4 + lane / WORDS, at = lane % WORDS * 8;
        Words<16> words = {};
        if (row < there)
            words = load_eight(from + row * stride + at, packs);
        *(Words<16> *)(void *)(to + row * ROW + at) = words;
    }
}

/* Combines the values of the four lanes that share a row of sums. */
__device__ static inline float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ static inline float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* ---- forward ---- */

/* Computes the scores of 16 queries; scores[n] are those of keys 8n to 8n + 7. */
template <int KT>
__device__ static inline void multiply_keys(const Bf16 *queries, const Bf16 *keys,
                                            MmaSums scores[2 * KT])
{
    UNROLL for (int n = 0; n < 2 * KT; n++) scores[n] = MmaSums{};
    UNROLL for (int k = 0; k < HEAD; k += TILE)
    {
        const MmaA a = load_a(queries + k, ROW);
        UNROLL for (int j = 0; j < KT; j++)
        {
            const MmaPair b = load_b(keys + j * TILE * ROW + k, ROW);
            warp_mma(a, b.left, &scores[2 * j]);
            warp_mma(a, b.right, &scores[2 * j + 1]);
        }
    }
}

/* Turns scores into exponentials. Stores, for the two rows of a lane, the largest score in `most` and the sum of the
 * exponentials in `sum`. */
template <int KT>
__device__ static inline void exponentials(const TileHeads &h, int64_t first,
                                           MmaSums scores[2 * KT], float most[2], float sum[2])
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    UNROLL for (int row = 0; row < 2; row++)
    {
        const int keys = keys_of(h, first + g + 8 * row);
        most[row] = -INFINITY;
        UNROLL for (int n = 0; n < 2 * KT; n++) UNROLL for (int i = 0; i < 2; i++)
        {
            float *score = &scores[n].at[2 * row + i];
            *score = 8 * n + 2 * t + i < keys ? h.scale * *score : -INFINITY;
            most[row] = fmaxf(most[row], *score);
        }
        most[row] = row_max(most[row]);
        sum[row] = 0;
        UNROLL for (int n = 0; n < 2 * KT; n++) UNROLL for (int i = 0; i < 2; i++)
        {
            float *score = &scores[n].at[2 * row + i];
            *score = vector_exp(*score - most[row]); /* 0 for a score of -infinity */
            sum[row] += *score;
        }
        sum[row] = row_sum(sum[row]);
    }
}

template <int KT>
__device__ static inline void multiply_values(const MmaA weights[KT], const Bf16 *values,
                                              MmaSums sums[HEAD / 8])
{
    UNROLL for (int n = 0; n < HEAD / 8; n++) sums[n] = MmaSums{};
    UNROLL for (int j = 0; j < KT; j++)
    {
        UNROLL for (int c = 0; c < HEAD / TILE; c++)
        {
            const MmaPair b = load_b_turned(values + j * TILE * ROW + c * TILE, ROW);
            warp_mma(weights[j], b.left, &sums[2 * c]);
            warp_mma(weights[j], b.right, &sums[2 * c + 1]);
        }
    }
}

/* Multiplies a lane's sums by the factor of their row, narrows them and stores them in 16 rows of shared memory. */
__device__ static inline void put_rows(const MmaSums sums[HEAD / 8], const float times[2], Bf16 *to)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    UNROLL for (int n = 0; n < HEAD / 8; n++) UNROLL for (int row = 0; row < 2; row++) *
        (uint32_t *)(void *)(to + (g + 8 * row) * ROW + 8 * n + 2 * t) =
        narrow_pair(sums[n].at[2 * row] * times[row], sums[n].at[2 * row + 1] * times[row]);
}

__device__ static inline int64_t row_number(const TileHeads &h, int64_t query)
{
    return ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * h.queries + query;
}

/* One warp computes 16 queries from `first` on. The warp's rows in shared memory are `mine`. */
template <int KT>
__device__ static inline void forward_rows(const TileHeads &h, const Bf16 *q, const Bf16 *keys,
                                           const Bf16 *values, int64_t first, Bf16 *mine, Bf16 *out,
                                           float *saved)
{
    const int lane = (int)threadIdx.x % 32;
    const int there = (int)MIN(h.queries - first, (int64_t)TILE);
    MmaSums scores[2 * KT], sums[HEAD / 8];
    MmaA weights[KT];
    float most[2], sum[2];
    bring_rows(token(q, h.queries, h.q_stride, first), h.q_stride, there, mine, h.packs);
    __syncwarp();
    multiply_keys<KT>(mine, keys, scores);
    exponentials<KT>(h, first, scores, most, sum);
    UNROLL for (int j = 0; j < KT; j++) weights[j] = words_of_a(scores[2 * j], scores[2 * j + 1]);
    multiply_values<KT>(weights, values, sums);
    const float inverse[2] = {1.0f / sum[0], 1.0f / sum[1]};
    __syncwarp(); /* all lanes have read the queries, which put_rows() overwrites */
    put_rows(sums, inverse, mine);
    __syncwarp();
    UNROLL for (int i = 0; i < TILE * WORDS / 32; i++)
    {
        const int row = i * 4 + lane / WORDS, at = lane % WORDS * 8;
        if (row < there)
            store_eight(token(out, h.queries, h.out_stride, first + row) + at,
                        *(const Words<16> *)(const void *)(mine + row * ROW + at), h.packs);
    }
    UNROLL for (int row = 0; row < 2; row++) if (lane % 4 == 0 && lane / 4 + 8 * row < there)
    {
        float *to = saved + 2 * row_number(h, first + lane / 4 + 8 * row);
        to[0] = most[row];
        to[1] = inverse[row];
    }
}

template <int KT>
__global__ void __launch_bounds__(THREADS, 2)
    attention_tile_forward_kernel(TileHeads h, const Bf16 *q, const Bf16 *k, const Bf16 *v,
                                  Bf16 *out, float *saved)
{
    SHARED_ARRAY(Bf16, shared);
    const int warp = (int)threadIdx.x / 32;
    Bf16 *keys = shared, *values = keys + KT * TILE * ROW;
    Bf16 *mine = values + KT * TILE * ROW + warp * TILE * ROW;
    bring_keys<KT>(h, k, keys);
    bring_keys<KT>(h, v, values);
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * ROWS + warp * TILE;
    if (first < h.queries)
        forward_rows<KT>(h, q, keys, values, first, mine, out, saved);
}

static size_t forward_bytes(int tiles)
{
    return (size_t)(2 * tiles * TILE + ROWS) * ROW * sizeof(Bf16);
}

/* Runs a statement with KT defined as a number of tiles of 16 that is enough for `keys` keys. */
#define WITH_TILES(keys, ...)                                                                      \
    do {                                                                                           \
        if ((keys) <= 16) {                                                                        \
            constexpr int KT = 1;                                                                  \
            __VA_ARGS__;                                                                           \
        } else if ((keys) <= 64) {                                                                 \
            constexpr int KT = 4;                                                                  \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int KT = 5;                                                                  \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

void attention_tile_forward(Device *device, const AttentionShape *s, const void *q, const void *k,
                            const void *v, void *out, float *saved)
{
    const int64_t blocks = DIV_ROUND_UP(s->q_tokens, (int64_t)ROWS);
    const dim3 grid((unsigned)blocks, (unsigned)s->heads, (unsigned)s->n);
    const TileHeads h = heads_of(s, 1, q, k, v, out);
    WITH_TILES(s->kv_tokens,
               LAUNCH(device, grid, THREADS, forward_bytes(KT), attention_tile_forward_kernel<KT>,
                      h, (const Bf16 *)q, (const Bf16 *)k, (const Bf16 *)v, (Bf16 *)out, saved));
}

/* ---- backward ---- */

/* The values that forward saved for a query, the query's sum of dout * out, and the number of keys that it sees. */
struct BackwardRow {
    float most, inverse, delta;
    int keys;
};

template <int KT> struct BackwardShared {
    Bf16 keys[KT * TILE * ROW], values[KT * TILE * ROW];
    Bf16 queries[ROWS * ROW], slopes[ROWS * ROW]; /* slopes: gradient of the output */
    Bf16 weights[ROWS * (KT * TILE + 8)];     /* the probabilities of all keys, for each query */
    Bf16 differences[ROWS * (KT * TILE + 8)]; /* gradients of the scaled scores */
    BackwardRow rows[ROWS];
};

/* The sums of dv and dk over this block's queries. At the end they replace BackwardShared in shared memory. */
template <int KT> struct BackwardSums {
    float of[2][KT * TILE * SUMS_ROW];
};

/* A warp loads 16 rows of dout, and computes each row's sum of dout * out. */
__device__ static inline void bring_slopes(const TileHeads &h, const Bf16 *dout, const Bf16 *out,
                                           int there, Bf16 *to, BackwardRow *rows)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL for (int i = 0; i < TILE * WORDS / 32; i++)
    {
        const int row = i * 4 + lane / WORDS, at = lane % WORDS * 8;
        Words<16> slope = {}, result = {};
        float delta = 0;
        if (row < there) {
            slope = load_eight(dout + row * h.out_stride + at, h.packs);
            result = load_eight(out + row * h.out_stride + at, h.packs);
        }
        *(Words<16> *)(void *)(to + row * ROW + at) = slope;
        UNROLL for (int j = 0; j < 4; j++)
        {
            delta = fmaf(float_from_bits(slope.at[j] << 16), float_from_bits(result.at[j] << 16),
                         delta);
            delta = fmaf(float_from_bits(slope.at[j] & 0xffff0000u),
                         float_from_bits(result.at[j] & 0xffff0000u), delta);
        }
        for (int mask = 1; mask < WORDS; mask *= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, mask);
        if (lane % WORDS == 0)
            rows[row].delta = delta;
    }
}

/* A warp loads the values that forward saved for its 16 rows, and computes how many keys each row sees. */
__device__ static inline void bring_saved(const TileHeads &h, const float *saved, int64_t first,
                                          int there, BackwardRow *rows)
{
    const int row = (int)threadIdx.x % 32;
    if (row < TILE) {
        const float *from = saved + 2 * row_number(h, first + row);
        rows[row].most = row < there ? from[0] : 0;
        rows[row].inverse = row < there ? from[1] : 0;
        rows[row].keys = keys_of(h, first + row);
    }
}

/* For 16 queries and 16 keys: turns scores into probabilities (weights), and products of dout and the values into
 * slopes of the scores (differences). */
__device__ static inline void slopes_of(const TileHeads &h, const BackwardRow *rows, int first_key,
                                        MmaSums weights[2], MmaSums differences[2])
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    UNROLL for (int n = 0; n < 2; n++) UNROLL for (int i = 0; i < 4; i++)
    {
        const BackwardRow row = rows[g + i / 2 * 8];
        float *weight = &weights[n].at[i], *difference = &differences[n].at[i];
        const float exponential = vector_exp(h.scale * *weight - row.most);
        *weight = first_key + 8 * n + 2 * t + i % 2 < row.keys ? exponential * row.inverse : 0;
        *difference = *weight * (*difference - row.delta);
    }
}

__device__ static inline void put_words(const MmaA &words, Bf16 *to, int stride)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    UNROLL for (int i = 0; i < 4; i++) *
        (uint32_t *)(void *)(to + (g + i % 2 * 8) * stride + i / 2 * 8 + 2 * t) = words.at[i];
}

/* For a warp's 16 queries: stores the probabilities and the slopes of the scores in shared memory. slopes[j] are the
 * slopes of 16 keys, as an operand of mma. */
template <int KT>
__device__ static inline void multiply_back(const TileHeads &h, BackwardShared<KT> *s,
                                            MmaA slopes[KT])
{
    constexpr int STRIDE = KT * TILE + 8;
    const int first = (int)threadIdx.x / 32 * TILE;
    MmaA query[HEAD / TILE], dout[HEAD / TILE];
    UNROLL for (int k = 0; k < HEAD / TILE; k++)
    {
        query[k] = load_a(s->queries + first * ROW + k * TILE, ROW);
        dout[k] = load_a(s->slopes + first * ROW + k * TILE, ROW);
    }
    UNROLL for (int j = 0; j < KT; j++)
    {
        MmaSums weights[2] = {}, differences[2] = {};
        UNROLL for (int k = 0; k < HEAD / TILE; k++)
        {
            const MmaPair key = load_b(s->keys + j * TILE * ROW + k * TILE, ROW);
            const MmaPair value = load_b(s->values + j * TILE * ROW + k * TILE, ROW);
            warp_mma(query[k], key.left, &weights[0]);
            warp_mma(query[k], key.right, &weights[1]);
            warp_mma(dout[k], value.left, &differences[0]);
            warp_mma(dout[k], value.right, &differences[1]);
        }
        slopes_of(h, s->rows + first, j * TILE, weights, differences);
        slopes[j] = words_of_a(differences[0], differences[1]);
        put_words(words_of_a(weights[0], weights[1]), s->weights + first * STRIDE + j * TILE,
                  STRIDE);
        put_words(slopes[j], s->differences + first * STRIDE + j * TILE, STRIDE);
    }
}

template <int KT>
__device__ static inline void write_dq(const TileHeads &h, const MmaA slopes[KT], const Bf16 *keys,
                                       int there, Bf16 *dq)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    UNROLL for (int c = 0; c < HEAD; c += TILE)
    {
        MmaSums sums[2] = {};
        UNROLL for (int j = 0; j < KT; j++)
        {
            const MmaPair b = load_b_turned(keys + j * TILE * ROW + c, ROW);
            warp_mma(slopes[j], b.left, &sums[0]);
            warp_mma(slopes[j], b.right, &sums[1]);
        }
        UNROLL for (int i = 0; i < 4; i++) if (g + i / 2 * 8 < there)
            store_two(dq + (g + i / 2 * 8) * h.q_stride + c + i % 2 * 8 + 2 * t,
                      narrow_pair(sums[i % 2].at[i / 2 * 2] * h.scale,
                                  sums[i % 2].at[i / 2 * 2 + 1] * h.scale),
                      h.packs);
    }
}

/* Adds the terms of `steps` times 16 queries to the warp's sums of 16 columns. Warps 0 to 3 compute dv, the other warps
 * dk. */
template <int KT>
__device__ static inline void add_queries(const BackwardShared<KT> *s, int steps,
                                          MmaSums sums[2 * KT])
{
    constexpr int STRIDE = KT * TILE + 8;
    const int warp = (int)threadIdx.x / 32;
    const Bf16 *left = warp < 4 ? s->weights : s->differences;
    const Bf16 *right = (warp < 4 ? s->slopes : s->queries) + warp % 4 * TILE;
    for (int step = 0; step < steps; step++) {
        const MmaPair b = load_b_turned(right + step * TILE * ROW, ROW);
        UNROLL for (int j = 0; j < KT; j++)
        {
            const MmaA a = load_a_turned(left + step * TILE * STRIDE + j * TILE, STRIDE);
            warp_mma(a, b.left, &sums[2 * j]);
            warp_mma(a, b.right, &sums[2 * j + 1]);
        }
    }
}

template <int KT>
__device__ static inline void put_sums(const MmaSums sums[2 * KT], BackwardSums<KT> *to)
{
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    float *mine = to->of[warp / 4] + warp % 4 * TILE;
    UNROLL for (int n = 0; n < 2 * KT; n++) UNROLL for (int i = 0; i < 4; i++)
        mine[(n / 2 * TILE + g + i / 2 * 8) * SUMS_ROW + n % 2 * 8 + 2 * t + i % 2] = sums[n].at[i];
}

/* Adds two neighbouring sums of all blocks of the cluster, in the blocks' order. */
__device__ static inline void cluster_sum(const float *mine, float sum[2])
{
    for (unsigned rank = 0; rank < cluster_size(); rank++) {
        const uint64_t two = double_bits(cluster_read((const double *)(const void *)mine, rank));
        sum[0] += float_from_bits((uint32_t)two);
        sum[1] += float_from_bits((uint32_t)(two >> 32));
    }
}

/* Each thread of the cluster computes 8 elements at a time, first of dv, then of dk. */
template <int KT>
__device__ static inline void write_sums(const TileHeads &h, const BackwardSums<KT> *s, Bf16 *dk,
                                         Bf16 *dv)
{
    for (int i = (int)(cluster_rank() * THREADS + threadIdx.x); i < 2 * h.keys * WORDS;
         i += (int)cluster_size() * THREADS) {
        const int of = i / (h.keys * WORDS), row = i / WORDS % h.keys, at = i % WORDS * 8;
        const float scale = of == 0 ? 1.0f : h.scale;
        Words<16> words;
        UNROLL for (int j = 0; j < 4; j++)
        {
            float sum[2] = {};
            cluster_sum(&s->of[of][row * SUMS_ROW + at + 2 * j], sum);
            words.at[j] = narrow_pair(sum[0] * scale, sum[1] * scale);
        }
        store_eight(token(of == 0 ? dv : dk, h.keys, h.kv_stride, row) + at, words, h.packs);
    }
}

template <int KT>
__global__ void __launch_bounds__(THREADS, 2)
    attention_tile_backward_kernel(TileHeads h, const Bf16 *q, const Bf16 *k, const Bf16 *v,
                                   const Bf16 *out, const float *saved, const Bf16 *dout, Bf16 *dq,
                                   Bf16 *dk, Bf16 *dv)
{
    SHARED_ARRAY(BackwardShared<KT>, s);
    const int warp = (int)threadIdx.x / 32;
    MmaSums sums[2 * KT] = {};
    bring_keys<KT>(h, k, s->keys);
    bring_keys<KT>(h, v, s->values);
    __syncthreads();
    for (int round = 0; round < h.rounds; round++) {
        const int64_t first = ((int64_t)blockIdx.x * h.rounds + round) * ROWS;
        const int64_t mine = first + warp * TILE;
        const int there = (int)MIN(h.queries - mine, (int64_t)TILE);
        if (there > 0) {
            BackwardRow *rows = s->rows + warp * TILE;
            bring_rows(token(q, h.queries, h.q_stride, mine), h.q_stride, there,
                       s->queries + warp * TILE * ROW, h.packs);
            bring_slopes(h, token(dout, h.queries, h.out_stride, mine),
                         token(out, h.queries, h.out_stride, mine), there,
                         s->slopes + warp * TILE * ROW, rows);
            bring_saved(h, saved, mine, there, rows);
            __syncwarp();
            MmaA slopes[KT];
            multiply_back<KT>(h, s, slopes);
            write_dq<KT>(h, slopes, s->keys, there, token(dq, h.queries, h.q_stride, mine));
        }
        __syncthreads();
        const int64_t rows = MIN(h.queries - first, (int64_t)ROWS);
        add_queries<KT>(s, (int)DIV_ROUND_UP(MAX(rows, (int64_t)0), (int64_t)TILE), sums);
        __syncthreads();
    }
    BackwardSums<KT> *all = (BackwardSums<KT> *)(void *)s;
    put_sums<KT>(sums, all);
    cluster_sync();
    write_sums<KT>(h, all, dk, dv);
    cluster_sync(); /* no block ends while another block reads its memory */
}

#ifdef __CUDACC__
/* A kernel may use more than 48 KiB of shared memory only after this call, which is needed on each GPU. If CUDA
 * refuses, the launch fails. */
template <typename Kernel>
static void allow_shared(const Device *device, Kernel kernel, size_t n_bytes)
{
    (void)cuda_compute_stream(device); /* makes the device's GPU current */
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
}
#else
#define allow_shared(device, kernel, n_bytes)
#endif

void attention_tile_backward(Device *device, const AttentionShape *s, const void *q, const void *k,
                             const void *v, const void *out, const float *saved, const void *dout,
                             void *dq, void *dk, void *dv)
{
    const int64_t tiles = DIV_ROUND_UP(s->q_tokens, (int64_t)ROWS);
    const int64_t blocks = CLAMP(tiles / ROUNDS, (int64_t)1, (int64_t)CLUSTER_BLOCKS);
    const dim3 grid((unsigned)blocks, (unsigned)s->heads, (unsigned)s->n);
    const TileHeads h =
        heads_of(s, (int)DIV_ROUND_UP(tiles, blocks), q, k, v, out, dout, dq, dk, dv);
    WITH_TILES(s->kv_tokens, {
        constexpr size_t n_bytes = MAX(sizeof(BackwardShared<KT>), sizeof(BackwardSums<KT>));
        allow_shared(device, attention_tile_backward_kernel<KT>, n_bytes);
        LAUNCH_CLUSTERS(device, (unsigned)blocks, grid, THREADS, n_bytes,
                        attention_tile_backward_kernel<KT>, h, (const Bf16 *)q, (const Bf16 *)k,
                        (const Bf16 *)v, (const Bf16 *)out, saved, (const Bf16 *)dout, (Bf16 *)dq,
                        (Bf16 *)dk, (Bf16 *)dv);
    });
}
