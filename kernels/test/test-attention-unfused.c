/* SPDX-License-Identifier: Apache-2.0 */
/* test-attention-unfused.c - tests attention with an autoencoder's head of 512 in bf16, against float64: in three steps
 * by a cuBLASLt that computes on the host, with plans that are made here, and by the plain kernels without plans. */
#include "kernels/test/emulator/emulated.h"
#include "kernels/test/testing-reference.h"

#include <jansson.h>

/* Rounding to bf16 changes each probability and each result by at most 2^-8 of its value. */
static const double tolerance = 5e-3;

static Device *open_device(bool tune)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .threads = 1,
                                   .type = DATA_BF16,
                                   .tune = tune};
    Device *device;
    Error err = ERROR_INIT;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

/* ---- bf16 in device memory ---- */

static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void *allocated(Device *device, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    if (device_allocate(device, MAX(n_bytes, (size_t)1), &memory, &err) < 0)
        fail_msg("%s", err.text);
    return memory;
}

/* Rounds `values` to bf16, in place, and uploads the rounded values. */
static void *sent(Device *device, float *values, size_t n)
{
    uint16_t *halves = calloc(n, sizeof(*halves));
    assert_non_null(halves);
    for (size_t i = 0; i < n; i++) {
        halves[i] = narrow(values[i]);
        values[i] = widen(halves[i]);
    }
    void *memory = allocated(device, n * sizeof(*halves));
    device_upload(device, memory, halves, n * sizeof(*halves));
    free(halves);
    return memory;
}

/* ---- one attention ---- */

static size_t used(const AttentionShape *s) { return (size_t)(s->heads * s->head_dim); }

/* expected[n][q_tokens][heads * d] */
static void reference(const AttentionShape *s, const float *q, const float *k, const float *v,
                      double *expected)
{
    const size_t queries = (size_t)s->q_tokens, keys = (size_t)s->kv_tokens;
    const size_t q_stride = (size_t)s->q_stride, kv_stride = (size_t)s->kv_stride;
    const size_t d = (size_t)s->head_dim;
    double *p = doubles_new(keys);
    for (size_t row = 0; row < (size_t)s->n * queries; row++)
        for (size_t head = 0; head < used(s); head += d) {
            const size_t first = row / queries * keys;
            double most = -INFINITY, sum = 0;
            for (size_t key = 0; key < keys; key++) {
                p[key] = 0;
                for (size_t i = 0; i < d; i++)
                    p[key] += (double)q[row * q_stride + head + i] *
                              (double)k[(first + key) * kv_stride + head + i];
                p[key] /= sqrt((double)d);
                most = fmax(most, p[key]);
            }
            for (size_t key = 0; key < keys; key++)
                sum += p[key] = exp(p[key] - most);
            for (size_t key = 0; key < keys; key++)
                for (size_t i = 0; i < d; i++)
                    expected[row * used(s) + head + i] +=
                        p[key] / sum * (double)v[(first + key) * kv_stride + head + i];
        }
    free(p);
}

static void check(Device *device, const AttentionShape *shape, float size)
{
    AttentionShape s = *shape;
    Attention *attention;
    Error err = ERROR_INIT;
    s.forward_only = true;
    if (attention_new(device, &s, &attention, &err) < 0)
        fail_msg("%s", err.text);
    const bool merged = s.q_stride == (int)(3 * used(&s));
    const size_t n_q = (size_t)(s.n * s.q_tokens * s.q_stride);
    const size_t n_kv = (size_t)(s.n * s.kv_tokens * s.kv_stride);
    const size_t n_out = (size_t)(s.n * s.q_tokens) * used(&s);
    float *q = random_new(n_q, 1), *kv = random_new(n_kv, 2);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= size;
    char *q_ = sent(device, q, n_q), *kv_ = sent(device, kv, n_kv);
    const float *k = merged ? q + used(&s) : kv, *v = k + used(&s);
    char *k_ = merged ? q_ + 2 * used(&s) : kv_, *v_ = k_ + 2 * used(&s);
    void *out = allocated(device, n_out * sizeof(uint16_t));
    void *saved = allocated(device, attention_saved_bytes(attention));
    void *space = allocated(device, attention_workspace_bytes(attention));
    attention_forward(attention, q_, k_, v_, out, saved, space);
    assert_int_equal(device_synchronise(device, &err), 0);

    uint16_t *halves = calloc(n_out, sizeof(*halves));
    float *found = floats_new(n_out);
    double *expected = doubles_new(n_out);
    device_download(device, halves, out, n_out * sizeof(*halves));
    for (size_t i = 0; i < n_out; i++)
        found[i] = widen(halves[i]);
    reference(&s, q, k, v, expected);
    assert_near("attention", found, expected, n_out, tolerance);
    void *const memory[] = {q_, kv_, out, saved, space};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(device, memory[i]);
    floats_free(q, n_q);
    floats_free(kv, n_kv);
    floats_free(found, n_out);
    free(halves);
    free(expected);
    attention = attention_free(attention);
}

/* q, k and v in one row, as in a tape; k and v in one row, with several heads; several images. */
static const AttentionShape shapes[] = {{1, 1, 512, 64, 64, 1536, 1536},
                                        {2, 1, 512, 40, 40, 1536, 1536},
                                        {2, 2, 256, 24, 72, 512, 1024},
                                        {3, 1, 384, 9, 8, 384, 768}};

static bool has(const char *plans, const char *operation)
{
    json_t *root = json_loads(plans, 0, NULL);
    const bool found = json_object_get(json_object_get(root, "operations"), operation) != NULL;
    json_decref(root);
    return found;
}

static void two_products_and_a_softmax_are_attention(void **state)
{
    (void)state;
    Device *device = open_device(true);
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check(device, &shapes[i], 1.0f);
    check(device, &shapes[0], 30.0f); /* scores above a hundred */
    char *plans;
    assert_int_equal(device_plans(device, &plans), 0);
    assert_true(has(plans, "product bf16 attention n2 h1 d512 40x40 s1536,1536 scores"));
    assert_true(has(plans, "product bf16 attention n2 h1 d512 40x40 s1536,1536 values"));
    device = device_free(device);

    device = open_device(false); /* the plans are replayed */
    Error err = ERROR_INIT;
    if (device_use_plans(device, plans, &err) < 0)
        fail_msg("%s", err.text);
    check(device, &shapes[1], 1.0f);
    static const AttentionShape other = {1, 1, 512, 16, 16, 1536, 1536};
    check(device, &other, 1.0f); /* without an entry the plain kernel computes the shape */
    device = device_free(device);
    free(plans);
}

static void half_an_entry_is_refused(void **state)
{
    (void)state;
    static const char values[] = "product bf16 attention n2 h1 d512 40x40 s1536,1536 values";
    Device *device = open_device(true);
    check(device, &shapes[1], 1.0f);
    char *plans;
    assert_int_equal(device_plans(device, &plans), 0);
    device = device_free(device);
    json_t *root = json_loads(plans, 0, NULL);
    assert_int_equal(json_object_del(json_object_get(root, "operations"), values), 0);
    free(plans);
    plans = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);

    device = open_device(false);
    Error err = ERROR_INIT;
    AttentionShape s = shapes[1];
    Attention *attention = NULL;
    s.forward_only = true;
    assert_int_equal(device_use_plans(device, plans, &err), 0);
    assert_int_equal(attention_new(device, &s, &attention, &err), -ENOENT);
    assert_null(attention);
    assert_non_null(strstr(err.text, values));
    device = device_free(device);
    free(plans);
}

/* A device that makes plans adds no products for shapes that the three steps do not serve: causal attention, heads of
 * 320, and attention that is trained. The plain kernels compute these shapes. */
static void what_is_left_is_computed_by_the_plain_kernels(void **state)
{
    (void)state;
    static const AttentionShape others[] = {{1, 1, 512, 40, 40, 512, 1024, .causal = true},
                                            {1, 1, 320, 24, 24, 320, 640}};
    Device *device = open_device(true);
    Error err = ERROR_INIT;
    char *plans;
    for (size_t i = 0; i < ELEMENTSOF(others); i++) {
        Attention *attention;
        AttentionShape s = others[i];
        s.forward_only = true;
        if (attention_new(device, &s, &attention, &err) < 0)
            fail_msg("%s", err.text);
        attention = attention_free(attention);
    }
    AttentionShape trained = shapes[0];
    Attention *attention;
    assert_int_equal(attention_new(device, &trained, &attention, &err), 0);
    attention = attention_free(attention);
    assert_int_equal(device_plans(device, &plans), 0);
    assert_null(strstr(plans, "product bf16"));
    free(plans);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_products_and_a_softmax_are_attention),
        cmocka_unit_test(half_an_entry_is_refused),
        cmocka_unit_test(what_is_left_is_computed_by_the_plain_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
