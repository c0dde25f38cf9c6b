/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - softmax(q k^T / sqrt(d)) v, one task per image and head.
 *
 * The forward pass multiplies each block of queries with all keys and saves the maximum and 1 / sum of each row. The
 * backward pass computes the probabilities again from these saved values, for one block of keys and one block of
 * queries at a time, so that it needs the memory of one block only. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    FORWARD_QUERIES = 24, /* queries of a forward block; a multiple of TILE_ROWS */
    QUERIES = 96,         /* queries of a backward block; a multiple of TILE_ROWS */
    KEYS = 192,           /* keys of a backward block; a multiple of TILE_ROWS and TILE_COLUMNS */
};

struct Attention {
    Device *device;
    AttentionShape shape;
    float scale;
    size_t thread_bytes; /* workspace of one thread */
};

/* One head of one image. Strides are in floats, from one token to the next. */
typedef struct Head {
    const Attention *attention;
    size_t d, d_panels, queries, keys, q_stride, kv_stride, out_stride;
    const float *q, *k, *v, *out, *dout;
    float *saved; /* [queries][2]: the maximum and 1 / sum of each row */
} Head;

typedef struct ForwardSpace {
    float *k_columns;     /* [panel of keys][d][16] */
    float *v_panels;      /* [panel of d][keys][16] */
    float *probabilities; /* [FORWARD_QUERIES][keys_stride] */
    size_t keys_stride;
} ForwardSpace;

typedef struct BackwardSpace {
    float *k_columns, *v_columns; /* [panel of keys][d][16] */
    float *k_panels;              /* [panel of d][keys][16] */
    float *q_panels, *do_panels;  /* [panel of d][queries][16] */
    float *delta;                 /* [queries]: for each query the sum of dout * out */
    float *probabilities;         /* [QUERIES][KEYS] */
    float *slopes;                /* [QUERIES][KEYS]: the gradients of the scores */
    Tile *dk, *dv;                /* [KEYS / TILE_ROWS][panel of d] */
} BackwardSpace;

static size_t panels(size_t n) { return DIV_ROUND_UP(n, (size_t)TILE_COLUMNS); }

static float *take_floats(char **at, size_t n_floats)
{
    float *p = (float *)*at;
    *at += floats_bytes(n_floats);
    return p;
}

static ForwardSpace forward_space(const AttentionShape *s, char **at)
{
    const size_t d = (size_t)s->head_dim, keys = (size_t)s->kv_tokens;
    ForwardSpace space = {.keys_stride = ROUND_UP(keys, (size_t)TILE_COLUMNS)};
    space.k_columns = take_floats(at, panels(keys) * d * TILE_COLUMNS);
    space.v_panels = take_floats(at, panels(d) * keys * TILE_COLUMNS);
    space.probabilities = take_floats(at, FORWARD_QUERIES * space.keys_stride);
    return space;
}

static BackwardSpace backward_space(const AttentionShape *s, char **at)
{
    const size_t d = (size_t)s->head_dim, keys = (size_t)s->kv_tokens;
    const size_t queries = (size_t)s->q_tokens;
    const size_t tiles = KEYS / TILE_ROWS * panels(d) * (sizeof(Tile) / sizeof(float));
    BackwardSpace space;
    space.k_columns = take_floats(at, panels(keys) * d * TILE_COLUMNS);
    space.v_columns = take_floats(at, panels(keys) * d * TILE_COLUMNS);
    space.k_panels = take_floats(at, panels(d) * keys * TILE_COLUMNS);
    space.q_panels = take_floats(at, panels(d) * queries * TILE_COLUMNS);
    space.do_panels = take_floats(at, panels(d) * queries * TILE_COLUMNS);
    space.delta = take_floats(at, queries);
    space.probabilities = take_floats(at, QUERIES * KEYS);
    space.slopes = take_floats(at, QUERIES * KEYS);
    space.dk = (Tile *)take_floats(at, tiles);
    space.dv = (Tile *)take_floats(at, tiles);
    return space;
}

static int check_shape(const AttentionShape *s, Error *err)
{
    if (s->n < 1 || s->heads < 1 || s->head_dim < 1 || s->q_tokens < 1 || s->kv_tokens < 1 ||
        (int64_t)s->heads * s->head_dim > s->q_stride ||
        (int64_t)s->heads * s->head_dim > s->kv_stride ||
        (s->causal && s->q_tokens != s->kv_tokens))
        return error_set(err, -EINVAL,
                         "%sattention of %d heads of %d, %lld to %lld tokens, strides %d and %d is "
                         "not supported",
                         s->causal ? "causal " : "", s->heads, s->head_dim, (long long)s->q_tokens,
                         (long long)s->kv_tokens, s->q_stride, s->kv_stride);
    return 0;
}

int cpu_attention_new(Device *device, const AttentionShape *shape, Attention **ret, Error *err)
{
    int r = check_shape(shape, err);
    if (r < 0)
        return r;

    Attention *attention = malloc(sizeof(*attention));
    if (!attention)
        return error_set(err, -ENOMEM, "no memory for an attention");
    char *forward = NULL, *backward = NULL;
    (void)forward_space(shape, &forward); /* the call only adds the size to `forward` */
    if (!shape->forward_only)
        (void)backward_space(shape, &backward);
    *attention = (Attention){.device = device,
                             .shape = *shape,
                             .scale = (float)(1.0 / sqrt((double)shape->head_dim)),
                             .thread_bytes = MAX((size_t)forward, (size_t)backward)};
    *ret = attention;
    return 0;
}

Attention *cpu_attention_free(Attention *attention)
{
    free(attention);
    return NULL;
}

static int attention_team(const Attention *attention)
{
    const AttentionShape *s = &attention->shape;
    return device_team(attention->device,
                       (int64_t)s->n * s->heads * s->head_dim * s->q_tokens * s->kv_tokens);
}

size_t cpu_attention_workspace_bytes(const Attention *attention)
{
    return attention->thread_bytes * (size_t)attention_team(attention);
}

size_t cpu_attention_saved_bytes(const Attention *attention)
{
    const AttentionShape *s = &attention->shape;
    return floats_bytes((size_t)s->n * (size_t)s->heads * (size_t)s->q_tokens * 2);
}

static char *thread_workspace(const Attention *attention, void *workspace)
{
    size_t thread = 0;
#ifdef _OPENMP
    thread = (size_t)omp_get_thread_num();
#endif
    return (char *)workspace + thread * attention->thread_bytes;
}

/* Returns the offset of a head in a tensor, in floats. `task` is the head's number among the heads of all images. */
static size_t head_offset(const AttentionShape *s, int task, int64_t tokens, size_t stride)
{
    return (size_t)(task / s->heads) * (size_t)tokens * stride +
           (size_t)(task % s->heads) * (size_t)s->head_dim;
}

static Head head_of(const Attention *attention, int task, const float *q, const float *k,
                    const float *v, const float *out, const float *dout, float *saved)
{
    const AttentionShape *s = &attention->shape;
    const size_t out_stride = (size_t)s->heads * (size_t)s->head_dim;
    const size_t q_at = head_offset(s, task, s->q_tokens, (size_t)s->q_stride);
    const size_t kv_at = head_offset(s, task, s->kv_tokens, (size_t)s->kv_stride);
    const size_t out_at = head_offset(s, task, s->q_tokens, out_stride);

    return (Head){.attention = attention,
                  .d = (size_t)s->head_dim,
                  .d_panels = panels((size_t)s->head_dim),
                  .queries = (size_t)s->q_tokens,
                  .keys = (size_t)s->kv_tokens,
                  .q_stride = (size_t)s->q_stride,
                  .kv_stride = (size_t)s->kv_stride,
                  .out_stride = out_stride,
                  .q = q + q_at,
                  .k = k + kv_at,
                  .v = v + kv_at,
                  .out = out + out_at,
                  .dout = dout ? dout + out_at : NULL,
                  .saved = saved + (size_t)task * (size_t)s->q_tokens * 2};
}

/* to[panel][i][j] = from[16 * panel + j][i], zeros beyond n rows. */
static void pack_columns(size_t n, size_t d, const float *from, size_t stride, float *to)
{
    for (size_t panel = 0; panel < panels(n); panel++)
        for (size_t j = 0; j < TILE_COLUMNS; j++) {
            size_t row = panel * TILE_COLUMNS + j;
            float *out = to + panel * d * TILE_COLUMNS + j;
            for (size_t i = 0; i < d; i++)
                out[i * TILE_COLUMNS] = row < n ? from[row * stride + i] : 0.0f;
        }
}

/* Rows first..first+5 of a matrix. Row `first` replaces each row from `end` on; the results of the replaced
 * rows are not stored. */
static Segment row_segment(const float *rows, size_t stride, size_t first, size_t end)
{
    Segment s = {.b = 0};
    for (size_t i = 0; i < TILE_ROWS; i++)
        s.a[i] = rows + (first + i < end ? first + i : first) * stride;
    return s;
}

/* A segment of six neighbouring columns of a matrix. */
static Segment column_segment(const float *columns)
{
    Segment s = {.b = 0};
    for (size_t i = 0; i < TILE_ROWS; i++)
        s.a[i] = columns + i;
    return s;
}

/* to[rows][16 * n_panels] = left[rows][d] times the panels of the right matrix, each [d][16]. */
static void multiply_rows(const float *left, size_t left_stride, size_t rows, const float *right,
                          size_t n_panels, size_t d, float *to, size_t to_stride)
{
    for (size_t panel = 0; panel < n_panels; panel++)
        for (size_t row = 0; row < rows; row += TILE_ROWS) {
            Segment s = row_segment(left, left_stride, row, rows);
            Tile tile;
            tile_multiply(&s, 1, 0, 1, right + panel * d * TILE_COLUMNS, TILE_COLUMNS, d, &tile);
            for (size_t i = 0; i < MIN((size_t)TILE_ROWS, rows - row); i++)
                memcpy(to + (row + i) * to_stride + panel * TILE_COLUMNS, tile.at[i],
                       sizeof(tile.at[i]));
        }
}

/* ---- forward ---- */

static float row_maximum(const float *row, size_t n)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = row[0];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = row[i + (size_t)j] > lane[j] ? row[i + (size_t)j] : lane[j];
    for (; i < n; i++)
        lane[0] = row[i] > lane[0] ? row[i] : lane[0];
    for (int j = 1; j < LANES; j++)
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

/* Replaces each element x of the row by e^(scale * (x - maximum)). Returns the sum of the new elements. */
static float row_exponentials(float *row, size_t n, float maximum, float scale)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float p = vector_exp(scale * (row[i + (size_t)j] - maximum));
            row[i + (size_t)j] = p;
            lane[j] += p;
        }
    for (size_t j = 0; i < n; i++, j++) {
        row[i] = vector_exp(scale * (row[i] - maximum));
        lane[j] += row[i];
    }
    return lanes_sum(lane);
}

/* Returns how many of the first n keys the query sees. */
static size_t seen_keys(const Head *h, size_t query, size_t n)
{
    return h->attention->shape.causal ? MIN(query + 1, n) : n;
}

static void forward_block(const Head *h, const ForwardSpace *space, size_t first, size_t rows,
                          float *out)
{
    /* The number of keys that at least one row of the block sees. */
    const size_t keys = h->attention->shape.causal ? first + rows : h->keys;
    multiply_rows(h->q + first * h->q_stride, h->q_stride, rows, space->k_columns, panels(keys),
                  h->d, space->probabilities, space->keys_stride);
    for (size_t row = 0; row < rows; row++) {
        float *p = space->probabilities + row * space->keys_stride;
        float *saved = h->saved + 2 * (first + row);
        const size_t seen = seen_keys(h, first + row, keys);
        saved[0] = row_maximum(p, seen);
        saved[1] = 1.0f / row_exponentials(p, seen, saved[0], h->attention->scale);
        for (size_t i = seen; i < keys; i++)
            p[i] = 0.0f;
    }
    for (size_t panel = 0; panel < h->d_panels; panel++) {
        const size_t columns = MIN((size_t)TILE_COLUMNS, h->d - panel * TILE_COLUMNS);
        for (size_t row = 0; row < rows; row += TILE_ROWS) {
            Segment s = row_segment(space->probabilities, space->keys_stride, row, rows);
            Tile tile;
            tile_multiply(&s, 1, 0, 1, space->v_panels + panel * h->keys * TILE_COLUMNS,
                          TILE_COLUMNS, keys, &tile);
            for (size_t i = 0; i < MIN((size_t)TILE_ROWS, rows - row); i++) {
                const float inverse = h->saved[2 * (first + row + i) + 1];
                float *to = out + (first + row + i) * h->out_stride + panel * TILE_COLUMNS;
                for (size_t j = 0; j < columns; j++)
                    to[j] = tile.at[i][j] * inverse;
            }
        }
    }
}

void cpu_attention_forward(Attention *attention, const void *q, const void *k, const void *v,
                           void *out, void *saved, void *workspace)
{
    const AttentionShape *shape = &attention->shape;
    const int team = attention_team(attention);

#pragma omp parallel for num_threads(team) schedule(dynamic)
    for (int task = 0; task < shape->n * shape->heads; task++) {
        char *at = thread_workspace(attention, workspace);
        const ForwardSpace space = forward_space(shape, &at);
        const Head h = head_of(attention, task, q, k, v, out, NULL, saved);
        float *to = (float *)out + (h.out - (const float *)out);

        pack_columns(h.keys, h.d, h.k, h.kv_stride, space.k_columns);
        pack_panels(h.d, h.v, h.kv_stride, TILE_COLUMNS, 0, h.keys, space.v_panels,
                    h.keys * TILE_COLUMNS);
        for (size_t first = 0; first < h.queries; first += FORWARD_QUERIES)
            forward_block(&h, &space, first, MIN((size_t)FORWARD_QUERIES, h.queries - first), to);
    }
}

/* ---- backward ---- */

/* tiles[block of six keys][panel of d] += left[queries][KEYS]^T x panels of right[queries][16]. */
static void add_transposed(const Head *h, const float *left, size_t keys, const float *right,
                           size_t first, size_t rows, Tile *tiles)
{
    for (size_t panel = 0; panel < h->d_panels; panel++)
        for (size_t six = 0; six * TILE_ROWS < keys; six++) {
            Segment s = column_segment(left + six * TILE_ROWS);
            Tile tile, *sum = &tiles[six * h->d_panels + panel];
            tile_multiply(&s, 1, 0, KEYS, right + (panel * h->queries + first) * TILE_COLUMNS,
                          TILE_COLUMNS, rows, &tile);
            for (int i = 0; i < TILE_ROWS; i++)
                for (int j = 0; j < TILE_COLUMNS; j++)
                    sum->at[i][j] += tile.at[i][j];
        }
}

static void store_keys(const Head *h, const Tile *tiles, size_t keys, float *to)
{
    for (size_t row = 0; row < keys; row++)
        for (size_t i = 0; i < h->d; i++)
            to[row * h->kv_stride + i] = tiles[row / TILE_ROWS * h->d_panels + i / TILE_COLUMNS]
                                             .at[row % TILE_ROWS][i % TILE_COLUMNS];
}

/* Computes the probabilities of the block and the gradients of the scores (before the softmax). */
static void block_slopes(const Head *h, const BackwardSpace *space, size_t first_query, size_t rows,
                         size_t first_key, size_t keys)
{
    const float scale = h->attention->scale;
    /* A panel begins at this offset, because KEYS is a multiple of a panel's width. */
    const size_t right = first_key * h->d;

    multiply_rows(h->q + first_query * h->q_stride, h->q_stride, rows, space->k_columns + right,
                  panels(keys), h->d, space->probabilities, KEYS);
    multiply_rows(h->dout + first_query * h->out_stride, h->out_stride, rows,
                  space->v_columns + right, panels(keys), h->d, space->slopes, KEYS);
    for (size_t row = 0; row < rows; row++) {
        float *p = space->probabilities + row * KEYS, *slope = space->slopes + row * KEYS;
        const float maximum = h->saved[2 * (first_query + row)];
        const float inverse = h->saved[2 * (first_query + row) + 1];
        const float delta = space->delta[first_query + row];
        const size_t end = seen_keys(h, first_query + row, first_key + keys);
        const size_t seen = end > first_key ? end - first_key : 0;
        for (size_t i = 0; i < seen; i++) {
            p[i] = vector_exp(scale * (p[i] - maximum)) * inverse;
            slope[i] = p[i] * (slope[i] - delta) * scale;
        }
        for (size_t i = seen; i < ROUND_UP(keys, (size_t)TILE_ROWS); i++)
            p[i] = slope[i] = 0.0f;
    }
}

static void add_queries(const Head *h, const BackwardSpace *space, size_t first_query, size_t rows,
                        size_t first_key, size_t keys, float *dq)
{
    for (size_t panel = 0; panel < h->d_panels; panel++) {
        const size_t columns = MIN((size_t)TILE_COLUMNS, h->d - panel * TILE_COLUMNS);
        const float *right = space->k_panels + (panel * h->keys + first_key) * TILE_COLUMNS;
        for (size_t row = 0; row < rows; row += TILE_ROWS) {
            Segment s = row_segment(space->slopes, KEYS, row, rows);
            Tile tile;
            tile_multiply(&s, 1, 0, 1, right, TILE_COLUMNS, keys, &tile);
            for (size_t i = 0; i < MIN((size_t)TILE_ROWS, rows - row); i++) {
                float *to = dq + (first_query + row + i) * h->q_stride + panel * TILE_COLUMNS;
                for (size_t j = 0; j < columns; j++)
                    to[j] = first_key == 0 ? tile.at[i][j] : to[j] + tile.at[i][j];
            }
        }
    }
}

static void backward_head(const Head *h, const BackwardSpace *space, float *dq, float *dk,
                          float *dv)
{
    pack_columns(h->keys, h->d, h->k, h->kv_stride, space->k_columns);
    pack_columns(h->keys, h->d, h->v, h->kv_stride, space->v_columns);
    pack_panels(h->d, h->k, h->kv_stride, TILE_COLUMNS, 0, h->keys, space->k_panels,
                h->keys * TILE_COLUMNS);
    pack_panels(h->d, h->q, h->q_stride, TILE_COLUMNS, 0, h->queries, space->q_panels,
                h->queries * TILE_COLUMNS);
    pack_panels(h->d, h->dout, h->out_stride, TILE_COLUMNS, 0, h->queries, space->do_panels,
                h->queries * TILE_COLUMNS);
    for (size_t row = 0; row < h->queries; row++) {
        float lane[LANES] = {0};
        for (size_t i = 0; i < h->d; i++)
            lane[i % LANES] += h->out[row * h->out_stride + i] * h->dout[row * h->out_stride + i];
        space->delta[row] = lanes_sum(lane);
    }

    for (size_t key = 0; key < h->keys; key += KEYS) {
        const size_t keys = MIN((size_t)KEYS, h->keys - key);
        const size_t tiles = DIV_ROUND_UP(keys, (size_t)TILE_ROWS) * h->d_panels;
        memset(space->dk, 0, tiles * sizeof(Tile));
        memset(space->dv, 0, tiles * sizeof(Tile));
        for (size_t query = 0; query < h->queries; query += QUERIES) {
            const size_t rows = MIN((size_t)QUERIES, h->queries - query);
            block_slopes(h, space, query, rows, key, keys);
            add_transposed(h, space->probabilities, keys, space->do_panels, query, rows, space->dv);
            add_transposed(h, space->slopes, keys, space->q_panels, query, rows, space->dk);
            add_queries(h, space, query, rows, key, keys, dq);
        }
        store_keys(h, space->dk, keys, dk + key * h->kv_stride);
        store_keys(h, space->dv, keys, dv + key * h->kv_stride);
    }
}

void cpu_attention_backward(Attention *attention, const void *q, const void *k, const void *v,
                            const void *out, const void *saved, const void *dout, void *dq,
                            void *dk, void *dv, void *workspace)
{
    const AttentionShape *shape = &attention->shape;
    const int team = attention_team(attention);
    assert(!shape->forward_only);

#pragma omp parallel for num_threads(team) schedule(dynamic)
    for (int task = 0; task < shape->n * shape->heads; task++) {
        char *at = thread_workspace(attention, workspace);
        const BackwardSpace space = backward_space(shape, &at);
        const Head h = head_of(attention, task, q, k, v, out, dout, (float *)saved);

        backward_head(&h, &space, (float *)dq + (h.q - (const float *)q),
                      (float *)dk + (h.k - (const float *)k),
                      (float *)dv + (h.v - (const float *)v));
    }
}

void cpu_attention_plan_text(const Attention *attention, KernelPass pass, char *text, size_t size)
{
    (void)attention, (void)pass; /* the text is empty: a CPU device calls no library */
    (void)snprintf(text, size, "%s", "");
}
