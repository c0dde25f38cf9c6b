/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu - softmax(q k^T / sqrt(d)) v. cuDNN or cuBLASLt computes it where the device's plans have an entry
 * (attention-library.h, attention-unfused.h). Otherwise no library is used: tensor cores compute the shapes that
 * attention-tile.h serves, and the kernels here compute all others, of any length, in fp32 and bf16; they are
 * deterministic but slow.
 *
 * A block of one warp computes one query of one head (forward, dq) or one key (dk, dv). The probabilities of a row are
 * in shared memory; backward computes them again from the row's maximum and 1 / sum, which forward saved. */
#include "kernels/cuda/attention/attention-library.h"
#include "kernels/cuda/attention/attention-tile.h"
#include "kernels/cuda/attention/attention-unfused.h"
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"

#include <math.h>
#include <stdlib.h>

enum {
    LANES_OF_QUERY = 32,
    HEAD_MAX = 512,         /* elements of a head */
    TOKENS_MAX = 11 * 1024, /* the most tokens: so many floats fit 48 KiB of shared memory */
};

struct Attention {
    Device *device;
    AttentionShape shape;
    AttentionLibrary *library; /* if library and unfused are NULL, our own kernels are used */
    AttentionUnfused *unfused;
    bool tile; /* our own kernels for the shape are the kernels of attention-tile.h */
};

#ifndef SDTRAIN_CUDA_ATTENTION
/* This build has no cuDNN for attention: our own kernels compute every attention. */
int attention_library_new(Device *, const AttentionShape *, AttentionLibrary **ret, Error *)
{
    *ret = NULL;
    return 0;
}

AttentionLibrary *attention_library_free(AttentionLibrary *library) { return library; }

size_t attention_library_workspace_bytes(const AttentionLibrary *) { return 0; }

void attention_library_plan_text(const AttentionLibrary *, KernelPass, char *, size_t) {}

size_t attention_library_saved_bytes(const AttentionLibrary *) { return 0; }

void attention_library_forward(AttentionLibrary *, const void *, const void *, const void *, void *,
                               void *, void *)
{
}

void attention_library_backward(AttentionLibrary *, const void *, const void *, const void *,
                                const void *, const void *, const void *, void *, void *, void *,
                                void *)
{
}
#endif

#ifndef SDTRAIN_CUDA_LIBRARIES
bool attention_unfused_serves(const AttentionShape *) { return false; }

int attention_unfused_new(Device *, const AttentionShape *, AttentionUnfused **, Error *err)
{
    return error_set(err, -ENODEV, "this module was built without cuBLASLt");
}

AttentionUnfused *attention_unfused_free(AttentionUnfused *unfused) { return unfused; }

size_t attention_unfused_workspace_bytes(const AttentionUnfused *) { return 0; }

void attention_unfused_forward(AttentionUnfused *, const void *, const void *, const void *, void *,
                               void *)
{
}
#endif

/* The parts of an AttentionShape that the kernels use. */
struct Heads {
    int64_t queries, keys, q_stride, kv_stride, out_stride;
    int heads, d;
    float scale;
    bool causal;
};

/* Returns how many keys, from the first one on, the query sees. first_query_of() returns the first query that sees a
 * key. */
__device__ static inline int64_t keys_of(const Heads &h, int64_t query)
{
    return h.causal ? query + 1 : h.keys;
}

__device__ static inline int64_t first_query_of(const Heads &h, int64_t key)
{
    return h.causal ? key : 0;
}

static Heads heads_of(const Attention *attention)
{
    const AttentionShape &s = attention->shape;
    return Heads{s.q_tokens,
                 s.kv_tokens,
                 s.q_stride,
                 s.kv_stride,
                 (int64_t)s.heads * s.head_dim,
                 s.heads,
                 s.head_dim,
                 (float)(1.0 / sqrt((double)s.head_dim)),
                 s.causal};
}

int cuda_attention_new(Device *device, const AttentionShape *shape, Attention **ret, Error *err)
{
    if (shape->n < 1 || shape->heads < 1 || shape->head_dim < 1 || shape->head_dim > HEAD_MAX ||
        shape->q_tokens < 1 || shape->kv_tokens < 1 || shape->q_tokens > TOKENS_MAX ||
        shape->kv_tokens > TOKENS_MAX || shape->q_stride < shape->heads * shape->head_dim ||
        shape->kv_stride < shape->heads * shape->head_dim ||
        (shape->causal && shape->q_tokens != shape->kv_tokens))
        return error_set(err, -EINVAL,
                         "%sattention of %d heads of %d, %lld to %lld tokens, is not supported",
                         shape->causal ? "causal " : "", shape->heads, shape->head_dim,
                         (long long)shape->q_tokens, (long long)shape->kv_tokens);
    AttentionLibrary *library = NULL;
    AttentionUnfused *unfused = NULL;
    int r = cuda_compute_begin(cuda_compute(device), err);
    if (r > 0 && shape->own_kernels)
        r = 0;
    else if (r > 0 && attention_unfused_serves(shape))
        r = attention_unfused_new(device, shape, &unfused, err);
    else if (r > 0)
        r = attention_library_new(device, shape, &library, err);
    if (r < 0)
        return r;
    Attention *attention = (Attention *)calloc(1, sizeof(*attention));
    if (!attention) {
        (void)attention_library_free(library);
        (void)attention_unfused_free(unfused);
        return error_set(err, -ENOMEM, "no memory for an attention");
    }
    attention->device = device;
    attention->shape = *shape;
    attention->library = library;
    attention->unfused = unfused;
    attention->tile = !library && !unfused && attention_tile_serves(device, shape);
    *ret = attention;
    return 0;
}

Attention *cuda_attention_free(Attention *attention)
{
    if (attention) {
        (void)attention_library_free(attention->library);
        (void)attention_unfused_free(attention->unfused);
    }
    free(attention);
    return NULL;
}

static size_t rows_of(const Attention *attention)
{
    const AttentionShape &s = attention->shape;
    return (size_t)s.n * (size_t)s.heads * (size_t)s.q_tokens;
}

size_t cuda_attention_workspace_bytes(const Attention *attention)
{
    if (attention->library)
        return attention_library_workspace_bytes(attention->library);
    if (attention->unfused)
        return attention_unfused_workspace_bytes(attention->unfused);
    if (attention->tile || attention->shape.forward_only)
        return 0;
    return rows_of(attention) * sizeof(float); /* for each query the sum of dout * out */
}

size_t cuda_attention_saved_bytes(const Attention *attention)
{
    if (attention->library)
        return attention_library_saved_bytes(attention->library);
    return rows_of(attention) * 2 * sizeof(float);
}

/* Returns the address of token i of this block's head. In the grid, x is the token, y the head and z the image. */
template <typename T>
__device__ static inline T *token(T *base, int64_t tokens, int64_t stride, int64_t i, int d)
{
    return base + (blockIdx.z * tokens + i) * stride + (int64_t)blockIdx.y * d;
}

__device__ static inline int64_t row_number(const Heads &h, int64_t query)
{
    return ((int64_t)blockIdx.z * h.heads + blockIdx.y) * h.queries + query;
}

template <typename T> __device__ static inline float dot(const T *a, const T *b, int d)
{
    float sum = 0;
    for (int i = 0; i < d; i++)
        sum = fmaf(widen(a[i]), widen(b[i]), sum);
    return sum;
}

__device__ static inline float warp_max(float x)
{
    for (int mask = 16; mask > 0; mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    return x;
}

#ifdef __CUDACC__
#define SHARED_FLOATS(name) extern __shared__ float name[]
#else
#define SHARED_FLOATS(name) float *name = (float *)emulate::shared()
#endif

/* Returns the bytes of so many floats, rounded up to words of 16 bytes: the compiled code reads such
 * words at the end of a loop, and memcheck reports a read behind the last float as an error. */
static size_t shared_bytes(int64_t floats) { return (size_t)DIV_ROUND_UP(floats, 4) * 16; }

template <typename T>
__global__ void attention_forward_kernel(Heads h, const T *q, const T *k, const T *v, T *out,
                                         float *saved)
{
    SHARED_FLOATS(weights); /* [keys] */
    const int64_t query = blockIdx.x, seen = keys_of(h, query);
    const T *mine = token(q, h.queries, h.q_stride, query, h.d);
    float most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < seen; i += LANES_OF_QUERY) {
        weights[i] = h.scale * dot(mine, token(k, h.keys, h.kv_stride, i, h.d), h.d);
        most = fmaxf(most, weights[i]);
    }
    most = warp_max(most);
    for (int64_t i = threadIdx.x; i < seen; i += LANES_OF_QUERY) {
        weights[i] = vector_exp(weights[i] - most);
        sum += weights[i];
    }
    sum = warp_sum(sum);
    __syncwarp(); /* all lanes see the weights */
    const float inverse = 1.0f / sum;
    for (int j = (int)threadIdx.x; j < h.d; j += LANES_OF_QUERY) {
        float value = 0;
        for (int64_t i = 0; i < seen; i++)
            value = fmaf(weights[i], widen(token(v, h.keys, h.kv_stride, i, h.d)[j]), value);
        token(out, h.queries, h.out_stride, query, h.d)[j] = narrow<T>(value * inverse);
    }
    if (threadIdx.x == 0) {
        saved[2 * row_number(h, query)] = most;
        saved[2 * row_number(h, query) + 1] = inverse;
    }
}

void cuda_attention_forward(Attention *attention, const void *q, const void *k, const void *v,
                            void *out, void *saved, void *workspace)
{
    if (attention->library) {
        attention_library_forward(attention->library, q, k, v, out, saved, workspace);
        return;
    }
    if (attention->unfused) {
        attention_unfused_forward(attention->unfused, q, k, v, out, workspace);
        return;
    }
    Device *device = attention->device;
    const AttentionShape &s = attention->shape;
    if (attention->tile) {
        attention_tile_forward(device, &s, q, k, v, out, (float *)saved);
        return;
    }
    const dim3 grid((unsigned)s.q_tokens, (unsigned)s.heads, (unsigned)s.n);
    WITH_TYPE(device, LAUNCH(device, grid, LANES_OF_QUERY, shared_bytes(s.kv_tokens),
                             attention_forward_kernel<T>, heads_of(attention), (const T *)q,
                             (const T *)k, (const T *)v, (T *)out, (float *)saved));
}

/* Computes the probability that a query gives to a key, and the gradient of their dot product (before scaling). */
template <typename T>
__device__ static inline void pair_slope(const Heads &h, const T *q, const T *k, const T *v,
                                         const T *dout, const float *saved, float delta,
                                         float *probability, float *slope)
{
    *probability = vector_exp(h.scale * dot(q, k, h.d) - saved[0]) * saved[1];
    *slope = *probability * (dot(dout, v, h.d) - delta) * h.scale;
}

template <typename T>
__global__ void attention_query_kernel(Heads h, const T *q, const T *k, const T *v, const T *out,
                                       const float *saved, const T *dout, T *dq, float *deltas)
{
    SHARED_FLOATS(slopes); /* [keys] */
    const int64_t query = blockIdx.x, row = row_number(h, query), seen = keys_of(h, query);
    const T *mine = token(q, h.queries, h.q_stride, query, h.d);
    const T *result = token(out, h.queries, h.out_stride, query, h.d);
    const T *dresult = token(dout, h.queries, h.out_stride, query, h.d);
    float delta = 0;
    for (int j = (int)threadIdx.x; j < h.d; j += LANES_OF_QUERY)
        delta = fmaf(widen(result[j]), widen(dresult[j]), delta);
    delta = warp_sum(delta);
    for (int64_t i = threadIdx.x; i < seen; i += LANES_OF_QUERY) {
        float probability;
        pair_slope(h, mine, token(k, h.keys, h.kv_stride, i, h.d),
                   token(v, h.keys, h.kv_stride, i, h.d), dresult, saved + 2 * row, delta,
                   &probability, &slopes[i]);
    }
    __syncwarp();
    for (int j = (int)threadIdx.x; j < h.d; j += LANES_OF_QUERY) {
        float value = 0;
        for (int64_t i = 0; i < seen; i++)
            value = fmaf(slopes[i], widen(token(k, h.keys, h.kv_stride, i, h.d)[j]), value);
        token(dq, h.queries, h.q_stride, query, h.d)[j] = narrow<T>(value);
    }
    if (threadIdx.x == 0)
        deltas[row] = delta;
}

template <typename T>
__global__ void attention_key_kernel(Heads h, const T *q, const T *k, const T *v,
                                     const float *saved, const T *dout, const float *deltas, T *dk,
                                     T *dv)
{
    SHARED_FLOATS(columns); /* [queries]: the key's probabilities, then its slopes */
    const int64_t key = blockIdx.x, first = first_query_of(h, key);
    const T *mine = token(k, h.keys, h.kv_stride, key, h.d);
    const T *value = token(v, h.keys, h.kv_stride, key, h.d);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = first + threadIdx.x; i < h.queries; i += LANES_OF_QUERY) {
            const int64_t row = row_number(h, i);
            float probability, slope;
            pair_slope(h, token(q, h.queries, h.q_stride, i, h.d), mine, value,
                       token(dout, h.queries, h.out_stride, i, h.d), saved + 2 * row, deltas[row],
                       &probability, &slope);
            columns[i] = pass == 0 ? probability : slope;
        }
        __syncwarp();
        for (int j = (int)threadIdx.x; j < h.d; j += LANES_OF_QUERY) {
            float sum = 0;
            for (int64_t i = first; i < h.queries; i++) {
                const T *from = pass == 0 ? token(dout, h.queries, h.out_stride, i, h.d)
                                          : token(q, h.queries, h.q_stride, i, h.d);
                sum = fmaf(columns[i], widen(from[j]), sum);
            }
            token(pass == 0 ? dv : dk, h.keys, h.kv_stride, key, h.d)[j] = narrow<T>(sum);
        }
        __syncwarp();
    }
}

void cuda_attention_backward(Attention *attention, const void *q, const void *k, const void *v,
                             const void *out, const void *saved, const void *dout, void *dq,
                             void *dk, void *dv, void *workspace)
{
    assert(!attention->shape.forward_only);
    if (attention->library) {
        attention_library_backward(attention->library, q, k, v, out, saved, dout, dq, dk, dv,
                                   workspace);
        return;
    }
    Device *device = attention->device;
    const AttentionShape &s = attention->shape;
    if (attention->tile) {
        attention_tile_backward(device, &s, q, k, v, out, (const float *)saved, dout, dq, dk, dv);
        return;
    }
    const Heads h = heads_of(attention);
    const dim3 queries((unsigned)s.q_tokens, (unsigned)s.heads, (unsigned)s.n);
    const dim3 keys((unsigned)s.kv_tokens, (unsigned)s.heads, (unsigned)s.n);
    float *deltas = (float *)workspace;
    WITH_TYPE(device, {
        LAUNCH(device, queries, LANES_OF_QUERY, shared_bytes(s.kv_tokens),
               attention_query_kernel<T>, h, (const T *)q, (const T *)k, (const T *)v,
               (const T *)out, (const float *)saved, (const T *)dout, (T *)dq, deltas);
        LAUNCH(device, keys, LANES_OF_QUERY, shared_bytes(s.q_tokens), attention_key_kernel<T>, h,
               (const T *)q, (const T *)k, (const T *)v, (const float *)saved, (const T *)dout,
               (const float *)deltas, (T *)dk, (T *)dv);
    });
}

void cuda_attention_plan_text(const Attention *attention, KernelPass pass, char *text, size_t size)
{
    if (attention->library)
        attention_library_plan_text(attention->library, pass, text, size);
    else
        cuda_plan_text(cuda_compute(attention->device), "", NULL, text, size);
}
