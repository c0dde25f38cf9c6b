/* SPDX-License-Identifier: Apache-2.0 */
/* check-attention.c - checks attention at its full shape against float64, for check-operations.c. */
#include "base/memory.h"
#include "nn/test/checks.h"

#include <math.h>
#include <stdlib.h>

enum { HEADS_CHECKED = 2 };

typedef struct AttentionCase {
    AttentionShape shape;
    Attention *attention;
    bool is_self;  /* q, k and v lie in one tensor's rows */
    int64_t width; /* heads * head_dim */
    Tensor q, kv, dq, dkv, out, dout;
    void *saved, *workspace;
    /* The head that was drawn last, and its results in float64. */
    int64_t image, head;
    double *p, *dp; /* softmax, and gradient of the scores: [q_tokens][kv_tokens] */
} AttentionCase;

static size_t element_bytes(void) { return data_type_bytes(checks.type); }

static char *keys(const AttentionCase *c, const Tensor *q, const Tensor *kv)
{
    return c->is_self ? q->device + (size_t)c->width * element_bytes() : kv->device;
}

static void attention_run(void *context)
{
    AttentionCase *c = context;
    const size_t bytes = (size_t)c->width * element_bytes();
    char *k = keys(c, &c->q, &c->kv);
    attention_forward(c->attention, c->q.device, k, k + bytes, c->out.device, c->saved,
                      c->workspace);
}

static void attention_run_backward(void *context)
{
    AttentionCase *c = context;
    const size_t bytes = (size_t)c->width * element_bytes();
    char *k = keys(c, &c->q, &c->kv), *dk = keys(c, &c->dq, &c->dkv);
    if (!c->is_self) { /* backward must write both tensors completely */
        checks_poison(c->dq.device, tensor_bytes(&c->dq));
        checks_poison(c->dkv.device, tensor_bytes(&c->dkv));
    }
    attention_backward(c->attention, c->q.device, k, k + bytes, c->out.device, c->saved,
                       c->dout.device, c->dq.device, dk, dk + bytes, c->workspace);
}

static double q_at(AttentionCase *c, int64_t row, int64_t d)
{
    const AttentionShape *s = &c->shape;
    return tensor_value(&c->q,
                        (c->image * s->q_tokens + row) * s->q_stride + c->head * s->head_dim + d);
}

/* which: 0 for k, 1 for v */
static double kv_at(AttentionCase *c, int which, int64_t row, int64_t d)
{
    const AttentionShape *s = &c->shape;
    const int64_t from = (c->is_self ? 1 + which : which) * c->width + c->head * s->head_dim + d;
    return tensor_value(c->is_self ? &c->q : &c->kv,
                        (c->image * s->kv_tokens + row) * s->kv_stride + from);
}

static double out_at(AttentionCase *c, Tensor *out, int64_t row, int64_t d)
{
    return tensor_value(out, (c->image * c->shape.q_tokens + row) * c->width +
                                 c->head * c->shape.head_dim + d);
}

/* Computes one row of the softmax and of the scores' gradient, with 0 for tokens that the row does not attend to. k and
 * v: [head_dim][kv_tokens], so that the loop over many tokens is the inner one. */
static void softmax_row(AttentionCase *c, int64_t row, const double *restrict k,
                        const double *restrict v)
{
    const AttentionShape *s = &c->shape;
    double *restrict p = c->p + row * s->kv_tokens, *restrict dp = c->dp + row * s->kv_tokens;
    double q[512], dout[512], largest = -INFINITY, sum = 0, delta = 0;
    const int64_t seen = s->causal ? row + 1 : s->kv_tokens;
    assert(s->head_dim <= (int)ELEMENTSOF(q));
    for (int d = 0; d < s->head_dim; d++) {
        q[d] = q_at(c, row, d);
        dout[d] = out_at(c, &c->dout, row, d);
        delta += dout[d] * out_at(c, &c->out, row, d);
    }
    for (int64_t j = 0; j < s->kv_tokens; j++)
        p[j] = dp[j] = 0;
    for (int d = 0; d < s->head_dim; d++)
        for (int64_t j = 0; j < seen; j++) {
            p[j] += q[d] * k[d * s->kv_tokens + j];
            dp[j] += dout[d] * v[d * s->kv_tokens + j];
        }
    for (int64_t j = 0; j < seen; j++) {
        p[j] /= sqrt(s->head_dim);
        largest = MAX(largest, p[j]);
    }
    for (int64_t j = 0; j < seen; j++)
        sum += p[j] = exp(p[j] - largest);
    for (int64_t j = 0; j < seen; j++) {
        p[j] /= sum;
        dp[j] = p[j] * (dp[j] - delta) / sqrt(s->head_dim);
    }
}

static double *columns_of(AttentionCase *c, int which)
{
    const AttentionShape *s = &c->shape;
    double *rows = memory_given(malloc((size_t)(s->kv_tokens * s->head_dim) * sizeof(*rows)));
    for (int64_t j = 0; j < s->kv_tokens; j++)
        for (int d = 0; d < s->head_dim; d++)
            rows[d * s->kv_tokens + j] = kv_at(c, which, j, d);
    return rows;
}

/* Draws a head at random, and computes its whole softmax. */
static void attention_draw(AttentionCase *c)
{
    c->image = checks_draw(c->shape.n);
    c->head = checks_draw(c->shape.heads);
    _cleanup_free_ double *k = columns_of(c, 0), *v = columns_of(c, 1);
    for (int64_t row = 0; row < c->shape.q_tokens; row++)
        softmax_row(c, row, k, v);
}

enum { EACH = SAMPLES / HEADS_CHECKED };

static int attention_sample(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    AttentionCase *c = context;
    const AttentionShape *s = &c->shape;
    for (int i = 0; i < SAMPLES; i++) {
        if (i % EACH == 0)
            attention_draw(c);
        const int64_t row = checks_draw(s->q_tokens), d = checks_draw(s->head_dim);
        at[i] = (c->image * s->q_tokens + row) * c->width + c->head * s->head_dim + d;
        want[i] = 0;
        for (int64_t j = 0; j < s->kv_tokens; j++)
            want[i] += c->p[row * s->kv_tokens + j] * kv_at(c, 1, j, d);
    }
    return SAMPLES;
}

static int attention_sample_q(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    AttentionCase *c = context;
    const AttentionShape *s = &c->shape;
    for (int i = 0; i < SAMPLES; i++) {
        if (i % EACH == 0)
            attention_draw(c);
        const int64_t row = checks_draw(s->q_tokens), d = checks_draw(s->head_dim);
        at[i] = (c->image * s->q_tokens + row) * s->q_stride + c->head * s->head_dim + d;
        want[i] = 0;
        for (int64_t j = 0; j < s->kv_tokens; j++)
            want[i] += c->dp[row * s->kv_tokens + j] * kv_at(c, 0, j, d);
    }
    return SAMPLES;
}

/* Samples dk and dv in turn. */
static int attention_sample_kv(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    AttentionCase *c = context;
    const AttentionShape *s = &c->shape;
    for (int i = 0; i < SAMPLES; i++) {
        if (i % EACH == 0)
            attention_draw(c);
        const int which = i % 2;
        const int64_t row = checks_draw(s->kv_tokens), d = checks_draw(s->head_dim);
        at[i] = (c->image * s->kv_tokens + row) * s->kv_stride +
                ((c->is_self ? 1 : 0) + which) * c->width + c->head * s->head_dim + d;
        want[i] = 0;
        for (int64_t j = 0; j < s->q_tokens; j++)
            want[i] += which ? c->p[j * s->kv_tokens + row] * out_at(c, &c->dout, j, d)
                             : c->dp[j * s->kv_tokens + row] * q_at(c, j, d);
    }
    return SAMPLES;
}

static void run_passes(AttentionCase *c, const char *operation)
{
    const Pass passes[] = {
        {operation, "forward", &c->out, attention_run, attention_sample, c},
        {operation, "backward, q", &c->dq, attention_run_backward, attention_sample_q, c},
        {operation, "backward, k and v", c->is_self ? &c->dq : &c->dkv, attention_run_backward,
         attention_sample_kv, c},
    };
    for (size_t i = 0; i < (c->shape.forward_only ? 1 : ELEMENTSOF(passes)); i++) {
        if (passes[i].out == &c->dq && c->shape.kv_tokens == 1)
            continue; /* with one token the softmax is 1 and its gradient is 0 */
        if (i > 0)
            attention_run(c); /* fills `out` and `saved`, which backward reads */
        checks_run(&passes[i]);
    }
}

/* Runs the passes again with all scores near -128, whose exponentials are 0 in fp32. A kernel that works on tiles of
 * tokens must not use a score of 0 for the missing tokens of a last tile that is not full. Setting one element of each
 * head gives these scores. */
static void run_passes_far_below_zero(AttentionCase *c, const char *operation)
{
    const AttentionShape *s = &c->shape;
    _cleanup_free_ char *name = memory_format("%s, far below zero", operation);
    const int64_t width = c->width, from = c->is_self ? width : 0;
    const float root = sqrtf((float)s->head_dim);
    assert(root == 8.0f); /* so that bf16 represents -128 and the root exactly */
    tensor_set(&c->q, s->q_stride, 0, width, s->head_dim, -128.0f);
    tensor_set(c->is_self ? &c->q : &c->kv, s->kv_stride, from, from + width, s->head_dim, root);
    run_passes(c, name);
}

void check_attention(const AttentionShape *s, const char *operation)
{
    AttentionCase c = {.shape = *s, .width = (int64_t)s->heads * s->head_dim};
    Error err = ERROR_INIT;
    c.is_self = s->q_stride == 3 * c.width;
    checks_must(attention_new(checks.device, s, &c.attention, &err), &err);
    c.saved = checks_allocate(attention_saved_bytes(c.attention));
    c.workspace = checks_allocate(attention_workspace_bytes(c.attention));
    c.q = tensor_random(s->n * s->q_tokens * s->q_stride, checks.type);
    c.kv = tensor_random(s->n * s->kv_tokens * s->kv_stride, checks.type);
    c.dq = tensor_new(c.q.n, checks.type);
    c.dkv = tensor_new(c.kv.n, checks.type);
    c.out = tensor_new(s->n * s->q_tokens * c.width, checks.type);
    c.dout = tensor_random(c.out.n, checks.type);
    const size_t n_scores = (size_t)(s->q_tokens * s->kv_tokens);
    c.p = memory_given(malloc(n_scores * sizeof(double)));
    c.dp = memory_given(malloc(n_scores * sizeof(double)));
    run_passes(&c, operation);
    if (checks.type == DATA_BF16 && s->head_dim == 64 && (s->q_tokens % 128 || s->kv_tokens % 128))
        run_passes_far_below_zero(&c, operation);
    Tensor *const all[] = {&c.q, &c.kv, &c.dq, &c.dkv, &c.out, &c.dout};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        tensor_free(all[i]);
    device_release(checks.device, c.saved);
    device_release(checks.device, c.workspace);
    free(c.p);
    free(c.dp);
    c.attention = attention_free(c.attention);
}
