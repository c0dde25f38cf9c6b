/* SPDX-License-Identifier: Apache-2.0 */
/* first-attention-expected.h - the operands of first-attention.c, and the results of their attention in float64.
 *
 * All operands come from one table of normal draws: element i of an operand is element offset + i of the table, modulo
 * its size, for every shape. So operands are filled once, and the host knows each element without a copy. In the tables
 * of q and k for scores far below zero, each EACH-th element is replaced. Strides, heads and offsets are multiples of
 * EACH, so each head begins with a replaced element, which makes all scores near -128.
 *
 * Units: elements. Threads: the main thread.
 * Ownership: tables_make() allocates tables that are never freed; expect() gives the caller the Expected, for
 *            expected_free().
 * Errors:    none: without memory the process ends.
 */
#pragma once

#include "base/memory.h"
#include "base/number/philox.h"
#include "kernels/cuda/attention/attention-choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD = 64,           /* elements of each head */
    TABLE = 1 << 22,     /* the draws in a table */
    EACH = HEAD,         /* distance between the first elements of heads */
    SAMPLES = 64,        /* elements of out that are computed in float64 */
    PAIRS_MAX = 1 << 19, /* the most pairs (query, key) of a head whose gradients are computed */
};

/* ---- operands ---- */

static struct {
    uint16_t *usual, *far_q, *far_k;
} tables;

static inline size_t offset_of(AttentionTensor tensor) { return (size_t)tensor * 7777 * EACH; }

static inline uint16_t bf16_of(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline double of_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* Makes a copy of the table in which each head begins with `first`. */
static inline uint16_t *table_with(double first)
{
    uint16_t *table = memory_zeroed(TABLE, sizeof(*table));
    memcpy(table, tables.usual, TABLE * sizeof(*table));
    for (size_t i = 0; i < TABLE; i += EACH)
        table[i] = bf16_of(first);
    return table;
}

static inline void tables_make(void)
{
    tables.usual = memory_zeroed(TABLE, sizeof(*tables.usual));
    for (size_t i = 0; i < TABLE; i += 2) {
        const Philox draws = philox4x32(7, 0, i);
        const double u = ((double)draws.word[0] + 1) / 4294967296.0;
        const double angle = (double)draws.word[1] * (2 * 3.14159265358979323846 / 4294967296.0);
        tables.usual[i] = bf16_of(sqrt(-2 * log(u)) * cos(angle));
        tables.usual[i + 1] = bf16_of(sqrt(-2 * log(u)) * sin(angle));
    }
    tables.far_q = table_with(-128);
    /* A score is near -128 * 8 divided by the root of HEAD, which is 8. */
    tables.far_k = table_with(8);
}

static inline const uint16_t *table_of(AttentionTensor tensor, bool far)
{
    return far && tensor == ATTENTION_Q   ? tables.far_q
           : far && tensor == ATTENTION_K ? tables.far_k
                                          : tables.usual;
}

/* ---- places ---- */

typedef struct Head {
    const AttentionShape *s;
    bool far;
    int64_t image, head;
} Head;

static inline int64_t tokens_of(const AttentionShape *s, AttentionTensor t)
{
    return t == ATTENTION_K || t == ATTENTION_V || t == ATTENTION_DK || t == ATTENTION_DV
               ? s->kv_tokens
               : s->q_tokens;
}

/* Returns the number of elements from row to row of a tensor in bf16. */
static inline int64_t stride_of(const AttentionShape *s, AttentionTensor t)
{
    return (int64_t)(attention_image_bytes(s, t) / sizeof(uint16_t)) / tokens_of(s, t);
}

/* Returns the index of the head's first element in a row. */
static inline size_t place_of(const Head *h, AttentionTensor t, int64_t row)
{
    return (size_t)((h->image * tokens_of(h->s, t) + row) * stride_of(h->s, t) + h->head * HEAD);
}

/* Reads the head's part of a row of an operand. */
static inline void take_row(const Head *h, AttentionTensor t, int64_t row, double to[HEAD])
{
    const uint16_t *table = table_of(t, h->far);
    const size_t from = offset_of(t) + place_of(h, t, row);
    for (size_t d = 0; d < HEAD; d++)
        to[d] = of_bf16(table[(from + d) % TABLE]);
}

/* Returns all rows of the head. */
static inline double *rows_of(const Head *h, AttentionTensor t)
{
    const int64_t n = tokens_of(h->s, t);
    double *rows = memory_zeroed((size_t)n * HEAD, sizeof(*rows));
    for (int64_t row = 0; row < n; row++)
        take_row(h, t, row, rows + row * HEAD);
    return rows;
}

/* ---- float64 ---- */

static inline double dot(const double a[HEAD], const double b[HEAD])
{
    double sum[4] = {0};
    for (int d = 0; d < HEAD; d += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += a[d + i] * b[d + i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static inline void add(double to[HEAD], double weight, const double from[HEAD])
{
    for (int d = 0; d < HEAD; d++)
        to[d] += weight * from[d];
}

/* Computes the softmax of a query's scores. Returns the logarithm of the sum of their exponentials. */
static inline double softmax(const double q[HEAD], const double *k, int64_t n, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        p[j] = dot(q, k + j * HEAD) / sqrt(HEAD);
        most = MAX(most, p[j]);
    }
    for (int64_t j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < n; j++)
        p[j] /= sum;
    return most + log(sum);
}

/* The right results, computed once for a shape and its scores: samples of out and sums, and the gradients of one
 * head. */
typedef struct Expected {
    Head head; /* the head whose gradients are known: the last one */
    struct {
        Head head;
        int64_t row;
        int d;
        double out, sum;
    } samples[SAMPLES];
    double *gradients[3]; /* dq, dk, dv: [tokens][HEAD]; NULL: not computed */
} Expected;

/* Computes the samples. The first one is in the tensor's last row, behind which a tail of a tile would be. */
static inline void expect_samples(Expected *e, const AttentionShape *s, bool far)
{
    _cleanup_free_ double *p = memory_zeroed((size_t)s->kv_tokens, sizeof(*p));
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const Philox draws = philox4x32(11, 0, i);
        Head h = {s, far, s->n - 1, s->heads - 1};
        int64_t row = s->q_tokens - 1;
        if (i > 0) {
            h.image = draws.word[0] % s->n;
            h.head = draws.word[1] % s->heads;
            row = draws.word[2] % s->q_tokens;
        }
        const int d = (int)(draws.word[3] % HEAD);
        double q[HEAD];
        take_row(&h, ATTENTION_Q, row, q);
        _cleanup_free_ double *k = rows_of(&h, ATTENTION_K);
        e->samples[i].head = h;
        e->samples[i].row = row;
        e->samples[i].d = d;
        e->samples[i].sum = softmax(q, k, s->kv_tokens, p);
        const size_t v = offset_of(ATTENTION_V) + place_of(&h, ATTENTION_V, 0) + (size_t)d;
        const size_t stride = (size_t)stride_of(s, ATTENTION_V);
        for (size_t j = 0; j < (size_t)s->kv_tokens; j++)
            e->samples[i].out += p[j] * of_bf16(tables.usual[(v + j * stride) % TABLE]);
    }
}

static inline void expect_gradients(Expected *e)
{
    const AttentionShape *s = e->head.s;
    _cleanup_free_ double *p = memory_zeroed((size_t)s->kv_tokens, sizeof(*p)),
                          *q = rows_of(&e->head, ATTENTION_Q), *k = rows_of(&e->head, ATTENTION_K),
                          *v = rows_of(&e->head, ATTENTION_V),
                          *dout = rows_of(&e->head, ATTENTION_DOUT);
    double *dq = memory_zeroed((size_t)s->q_tokens * HEAD, sizeof(*dq));
    double *dk = memory_zeroed((size_t)s->kv_tokens * HEAD, sizeof(*dk));
    double *dv = memory_zeroed((size_t)s->kv_tokens * HEAD, sizeof(*dv));
    for (int64_t i = 0; i < s->q_tokens; i++) {
        const double *query = q + i * HEAD, *up = dout + i * HEAD;
        double out[HEAD] = {0};
        (void)softmax(query, k, s->kv_tokens, p);
        for (int64_t j = 0; j < s->kv_tokens; j++)
            add(out, p[j], v + j * HEAD);
        const double delta = dot(out, up);
        for (int64_t j = 0; j < s->kv_tokens; j++) {
            const double slope = p[j] * (dot(up, v + j * HEAD) - delta) / sqrt(HEAD);
            add(dq + i * HEAD, slope, k + j * HEAD);
            add(dk + j * HEAD, slope, query);
            add(dv + j * HEAD, p[j], up);
        }
    }
    e->gradients[0] = dq;
    e->gradients[1] = dk;
    e->gradients[2] = dv;
}

static inline Expected *expect(const AttentionShape *s, bool far)
{
    Expected *e = memory_new(Expected);
    e->head = (Head){s, far, s->n - 1, s->heads - 1};
    expect_samples(e, s, far);
    if (s->q_tokens * s->kv_tokens <= PAIRS_MAX)
        expect_gradients(e);
    return e;
}

static inline void expected_free(Expected *e)
{
    for (int i = 0; i < 3; i++)
        free(e->gradients[i]);
    free(e);
}
