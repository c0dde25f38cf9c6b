/* SPDX-License-Identifier: Apache-2.0 */
/* test-attention.c - tests attention against float64, forward and backward, where q, k and v share rows or not. */
#include "kernels/test/testing-reference.h"

#define TOLERANCE 3e-6

typedef struct Head {
    int n, head;
    const AttentionShape *s;
} Head;

static size_t q_at(Head h, int64_t token, int i)
{
    return ((size_t)h.n * (size_t)h.s->q_tokens + (size_t)token) * (size_t)h.s->q_stride +
           (size_t)(h.head * h.s->head_dim + i);
}

static size_t kv_at(Head h, int64_t token, int i)
{
    return ((size_t)h.n * (size_t)h.s->kv_tokens + (size_t)token) * (size_t)h.s->kv_stride +
           (size_t)(h.head * h.s->head_dim + i);
}

static size_t out_at(Head h, int64_t token, int i)
{
    return ((size_t)h.n * (size_t)h.s->q_tokens + (size_t)token) *
               (size_t)(h.s->heads * h.s->head_dim) +
           (size_t)(h.head * h.s->head_dim + i);
}

typedef struct Reference {
    const float *q, *k, *v, *dout;
    double *out, *dq, *dk, *dv;
} Reference;

static void reference_row(Head h, const Reference *r, int64_t token)
{
    const int64_t keys = h.s->causal ? token + 1 : h.s->kv_tokens;
    const int d = h.s->head_dim;
    const double scale = 1.0 / sqrt((double)d);
    double *p = doubles_new((size_t)keys), *dp = doubles_new((size_t)keys);
    double max = -INFINITY, sum = 0, delta = 0;

    for (int64_t key = 0; key < keys; key++) {
        for (int i = 0; i < d; i++)
            p[key] += (double)r->q[q_at(h, token, i)] * (double)r->k[kv_at(h, key, i)] * scale;
        max = MAX(max, p[key]);
    }
    for (int64_t key = 0; key < keys; key++)
        sum += p[key] = exp(p[key] - max);
    for (int64_t key = 0; key < keys; key++) {
        p[key] /= sum;
        for (int i = 0; i < d; i++) {
            const double slope = (double)r->dout[out_at(h, token, i)];
            r->out[out_at(h, token, i)] += p[key] * (double)r->v[kv_at(h, key, i)];
            r->dv[kv_at(h, key, i)] += p[key] * slope;
            dp[key] += slope * (double)r->v[kv_at(h, key, i)];
        }
        delta += p[key] * dp[key];
    }
    for (int64_t key = 0; key < keys; key++)
        for (int i = 0; i < d; i++) {
            const double slope = p[key] * (dp[key] - delta) * scale;
            r->dq[q_at(h, token, i)] += slope * (double)r->k[kv_at(h, key, i)];
            r->dk[kv_at(h, key, i)] += slope * (double)r->q[q_at(h, token, i)];
        }
    free(p);
    free(dp);
}

static void assert_untouched(const float *p, size_t rows, size_t stride, size_t used)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = used; i < stride; i++)
            assert_true(p[row * stride + i] == GUARD_VALUE);
}

static void clear_untouched(float *p, size_t rows, size_t stride, size_t used)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = used; i < stride; i++)
            p[row * stride + i] = 0;
}

static void check(Device *device, const AttentionShape *s, float size)
{
    const size_t n_q = (size_t)(s->n * s->q_tokens) * (size_t)s->q_stride;
    const size_t n_kv = (size_t)(s->n * s->kv_tokens) * (size_t)s->kv_stride;
    const size_t used = (size_t)(s->heads * s->head_dim);
    const size_t n_out = (size_t)(s->n * s->q_tokens) * used;
    float *q = random_new(n_q, 1), *k = random_new(n_kv, 2), *v = random_new(n_kv, 3);
    float *dout = random_new(n_out, 4);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= size;
    const Reference r = {
        q, k, v, dout, doubles_new(n_out), doubles_new(n_q), doubles_new(n_kv), doubles_new(n_kv)};
    for (int n = 0; n < s->n; n++)
        for (int head = 0; head < s->heads; head++)
            for (int64_t token = 0; token < s->q_tokens; token++)
                reference_row((Head){n, head, s}, &r, token);

    Attention *attention;
    Error err = ERROR_INIT;
    if (attention_new(device, s, &attention, &err) < 0)
        fail_msg("%s", err.text);
    const size_t n_space = workspace_floats(attention_workspace_bytes(attention));
    const size_t n_saved = workspace_floats(attention_saved_bytes(attention));
    float *space = floats_new(n_space), *saved = floats_new(n_saved), *out = floats_new(n_out);
    float *dq = floats_new(n_q), *dk = floats_new(n_kv), *dv = floats_new(n_kv);
    attention_forward(attention, q, k, v, out, saved, space);
    assert_near("attention", out, r.out, n_out, TOLERANCE);
    attention_backward(attention, q, k, v, out, saved, dout, dq, dk, dv, space);
    assert_untouched(dq, n_q / (size_t)s->q_stride, (size_t)s->q_stride, used);
    assert_untouched(dk, n_kv / (size_t)s->kv_stride, (size_t)s->kv_stride, used);
    assert_untouched(dv, n_kv / (size_t)s->kv_stride, (size_t)s->kv_stride, used);
    clear_untouched(dq, n_q / (size_t)s->q_stride, (size_t)s->q_stride, used);
    clear_untouched(dk, n_kv / (size_t)s->kv_stride, (size_t)s->kv_stride, used);
    clear_untouched(dv, n_kv / (size_t)s->kv_stride, (size_t)s->kv_stride, used);
    assert_near("dv", dv, r.dv, n_kv, TOLERANCE);
    if (s->kv_tokens > 1) { /* with one key the probability is 1, and dq and dk are zero */
        assert_near("dq", dq, r.dq, n_q, TOLERANCE * 2);
        assert_near("dk", dk, r.dk, n_kv, TOLERANCE * 2);
    }

    floats_free(q, n_q);
    floats_free(k, n_kv);
    floats_free(v, n_kv);
    floats_free(dout, n_out);
    floats_free(space, n_space);
    floats_free(saved, n_saved);
    floats_free(out, n_out);
    floats_free(dq, n_q);
    floats_free(dk, n_kv);
    floats_free(dv, n_kv);
    free(r.out);
    free(r.dq);
    free(r.dk);
    free(r.dv);
    attention = attention_free(attention);
}

static void test_attention(void **state)
{
    (void)state;
    static const AttentionShape shapes[] = {
        {1, 1, 1, 1, 1, 1, 1},
        {2, 2, 4, 7, 1, 8, 8},
        {1, 3, 10, 7, 16, 30, 30},
        {2, 2, 16, 64, 77, 32, 40},
        {1, 1, 64, 77, 64, 64, 64},
        {1, 2, 17, 16, 7, 40, 35},
        {1, 1, 30, 97, 193, 30, 30},
        {1, 2, 3, 200, 390, 7, 9},
        {3, 5, 8, 64, 64, 120, 120},
        {1, 1, 160, 49, 13, 160, 160},
        {1, 2, 40, 100, 209, 80, 240},
        /* shapes of sd2-base, with q, k and v in one row, or k and v in one row */
        {1, 2, 64, 64, 64, 384, 384},
        {1, 2, 64, 16, 16, 384, 384},
        {1, 1, 64, 256, 256, 192, 192},
        {2, 1, 64, 64, 77, 64, 128},
        {1, 2, 64, 16, 77, 128, 256},
        /* one head of an autoencoder */
        {1, 1, 512, 36, 36, 1536, 1536},
        {2, 1, 512, 5, 5, 512, 512}};
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check(device, &shapes[i], 1.0f);
    device = device_free(device);
}

/* Causal attention is right for a text encoder's shape, and for lengths near the sizes of blocks. */
static void test_causal(void **state)
{
    (void)state;
    static const AttentionShape shapes[] = {{1, 1, 3, 1, 1, 3, 3, true},
                                            {2, 2, 4, 7, 7, 8, 8, true},
                                            {1, 3, 10, 24, 24, 30, 30, true},
                                            {2, 2, 64, 77, 77, 384, 384, true},
                                            {1, 1, 20, 193, 193, 20, 60, true},
                                            {1, 2, 8, 390, 390, 16, 20, true},
                                            {1, 1, 512, 25, 25, 512, 512, true}};
    Device *device = cpu_open(2);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check(device, &shapes[i], 1.0f);
    device = device_free(device);
}

/* A token's result has the same bits whatever follows: later tokens add exactly 0. */
static void test_later_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 77, C = 16, FIRST = 33 * C, ALL = TOKENS * C };
    static const AttentionShape shape = {1, 2, 8, TOKENS, TOKENS, C, C, true};
    Device *device = cpu_open(1);
    Attention *attention;
    Error err = ERROR_INIT;
    assert_int_equal(attention_new(device, &shape, &attention, &err), 0);
    const size_t n_space = workspace_floats(attention_workspace_bytes(attention));
    const size_t n_saved = workspace_floats(attention_saved_bytes(attention));
    float *space = floats_new(n_space), *saved = floats_new(n_saved);
    float *x = random_new(ALL, 1), *a = floats_new(ALL), *b = floats_new(ALL);
    attention_forward(attention, x, x, x, a, saved, space);
    for (size_t i = FIRST; i < ALL; i++)
        x[i] = 1e4f * x[i] + 3.0f;
    attention_forward(attention, x, x, x, b, saved, space);
    assert_memory_equal(a, b, FIRST * sizeof(float));
    assert_memory_not_equal(a + FIRST, b + FIRST, (ALL - FIRST) * sizeof(float));
    floats_free(x, ALL);
    floats_free(a, ALL);
    floats_free(b, ALL);
    floats_free(space, n_space);
    floats_free(saved, n_saved);
    attention = attention_free(attention);
    device = device_free(device);
}

/* With scores of several hundred the softmax is nearly one-hot and does not overflow. */
static void test_large_scores(void **state)
{
    (void)state;
    static const AttentionShape shape = {1, 2, 16, 33, 77, 32, 32};
    Device *device = cpu_open(1);
    check(device, &shape, 3.0f);

    const size_t n = 33 * 32, m = 77 * 32;
    float *q = random_new(n, 1), *k = random_new(m, 2), *v = random_new(m, 3);
    float *out = floats_new(n);
    for (size_t i = 0; i < n; i++)
        q[i] *= 1000.0f;
    Attention *attention;
    Error err = ERROR_INIT;
    assert_int_equal(attention_new(device, &shape, &attention, &err), 0);
    const size_t n_space = workspace_floats(attention_workspace_bytes(attention));
    const size_t n_saved = workspace_floats(attention_saved_bytes(attention));
    float *space = floats_new(n_space), *saved = floats_new(n_saved);
    attention_forward(attention, q, k, v, out, saved, space);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(out[i]) <= 1.0f);
    floats_free(q, n);
    floats_free(k, m);
    floats_free(v, m);
    floats_free(out, n);
    floats_free(space, n_space);
    floats_free(saved, n_saved);
    attention = attention_free(attention);
    device = device_free(device);
}

static void test_refuses_shapes(void **state)
{
    (void)state;
    static const AttentionShape bad[] = {{0, 1, 8, 4, 4, 8, 8},
                                         {1, 0, 8, 4, 4, 8, 8},
                                         {1, 2, 8, 4, 4, 15, 16},
                                         {1, 2, 8, 4, 0, 16, 16},
                                         {1, 2, 8, 4, 5, 16, 16, true}};
    Device *device = cpu_open(1);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Attention *attention = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(attention_new(device, &bad[i], &attention, &err), -EINVAL);
        assert_null(attention);
        assert_non_null(strstr(err.text, "not supported"));
    }
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),      cmocka_unit_test(test_causal),
        cmocka_unit_test(test_later_tokens),   cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_refuses_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
