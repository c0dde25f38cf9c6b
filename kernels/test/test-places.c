/* SPDX-License-Identifier: Apache-2.0 */
/* test-places.c - shows that a sample gives the same bytes alone and in a batch, in each place, and with any
 * neighbours, for every operation that an encoder runs. The bytes stored for a picture must depend only on the
 * picture. */
#include "kernels/test/testing-reference.h"

enum { BATCH_MAX = 16, WEIGHTS = 1 << 16 };

typedef struct Places {
    Device *device;
    const float *weights; /* [WEIGHTS], random */
} Places;

/* Runs an operation on n samples. */
typedef void Run(const Places *p, int n, const float *x, float *y);

static void convolve(const Places *p, ConvShape shape, const float *x, float *y)
{
    Conv *conv;
    Error err = ERROR_INIT;
    if (conv_new(p->device, &shape, &conv, &err) < 0)
        fail_msg("%s", err.text);
    const size_t n_packed = workspace_floats(conv_packed_bytes(conv));
    const size_t n_space = workspace_floats(conv_workspace_bytes(conv));
    float *packed = floats_new(n_packed), *space = floats_new(n_space);
    conv_pack(conv, p->weights, packed);
    conv_forward(conv, x, packed, p->weights + 7, NULL, NULL, y, space);
    floats_free(packed, n_packed);
    floats_free(space, n_space);
    conv = conv_free(conv);
}

static void run_conv(const Places *p, int n, const float *x, float *y)
{
    convolve(p, (ConvShape){n, 7, 9, 20, 36, 3, 1, .forward_only = true}, x, y);
}

static void run_conv_end(const Places *p, int n, const float *x, float *y)
{
    convolve(p, (ConvShape){n, 6, 10, 20, 36, 3, 2, .pad_end = true, .forward_only = true}, x, y);
}

static void run_linear(const Places *p, int n, const float *x, float *y)
{
    Linear *linear;
    Error err = ERROR_INIT;
    const LinearShape shape = {(int64_t)n * 11, 40, 50, .forward_only = true};
    if (linear_new(p->device, &shape, &linear, &err) < 0)
        fail_msg("%s", err.text);
    const size_t n_packed = workspace_floats(linear_packed_bytes(linear));
    const size_t n_space = workspace_floats(linear_workspace_bytes(linear));
    float *packed = floats_new(n_packed), *space = floats_new(n_space);
    linear_pack(linear, p->weights, packed);
    linear_forward(linear, x, p->weights, packed, p->weights + 7, NULL, y, space);
    floats_free(packed, n_packed);
    floats_free(space, n_space);
    linear = linear_free(linear);
}

static void attend(const Places *p, AttentionShape shape, const float *x, float *y)
{
    Attention *attention;
    Error err = ERROR_INIT;
    const int c = shape.heads * shape.head_dim;
    shape.q_stride = shape.kv_stride = 3 * c;
    shape.forward_only = true;
    if (attention_new(p->device, &shape, &attention, &err) < 0)
        fail_msg("%s", err.text);
    const size_t n_space = workspace_floats(attention_workspace_bytes(attention));
    const size_t n_saved = workspace_floats(attention_saved_bytes(attention));
    float *space = floats_new(n_space), *saved = floats_new(n_saved);
    attention_forward(attention, x, x + c, x + 2 * c, y, saved, space);
    floats_free(space, n_space);
    floats_free(saved, n_saved);
    attention = attention_free(attention);
}

static void run_attention(const Places *p, int n, const float *x, float *y)
{
    attend(p, (AttentionShape){n, 2, 10, 26, 26}, x, y);
}

static void run_causal(const Places *p, int n, const float *x, float *y)
{
    attend(p, (AttentionShape){n, 2, 10, 27, 27, .causal = true}, x, y);
}

static void run_wide_attention(const Places *p, int n, const float *x, float *y)
{
    attend(p, (AttentionShape){n, 1, 512, 6, 6}, x, y);
}

static void run_group_norm(const Places *p, int n, const float *x, float *y)
{
    const GroupNormShape shape = {n, 5, 7, 24, 4, 1e-6, true};
    float saved[BATCH_MAX * 4 * 2];
    group_norm_forward(p->device, &shape, x, NULL, p->weights, p->weights + 24, y, saved);
}

static void run_layer_norm(const Places *p, int n, const float *x, float *y)
{
    const LayerNormShape shape = {(int64_t)n * 3, 52, 1e-5};
    float saved[BATCH_MAX * 3 * 2];
    layer_norm_forward(p->device, &shape, x, p->weights, p->weights + 52, y, saved);
}

static void run_gelu(const Places *p, int n, const float *x, float *y)
{
    gelu_forward(p->device, (int64_t)n * 333, x, y);
}

/* Runs an embedding. Each value of x, which is in [-1, 1), selects one of 100 words. */
static void run_embedding(const Places *p, int n, const float *x, float *y)
{
    enum { TOKENS = 9, C = 28 };
    int32_t ids[BATCH_MAX * TOKENS];
    for (int i = 0; i < n * TOKENS; i++)
        ids[i] = (int32_t)((x[i] + 1) * 49.9f);
    embedding_forward(p->device, n, TOKENS, C, p->weights, p->weights + 40 * C, ids, y);
}

static void run_upsample(const Places *p, int n, const float *x, float *y)
{
    upsample_forward(p->device, n, 6, 8, 5, x, y);
}

static const struct {
    const char *name;
    Run *run;
    size_t x, y; /* elements of one sample */
} operations[] = {
    {"conv", run_conv, 7 * 9 * 20, 7 * 9 * 36},
    {"conv padded at the end", run_conv_end, 6 * 10 * 20, 3 * 5 * 36},
    {"linear", run_linear, 11 * 40, 11 * 50},
    {"attention", run_attention, 26 * 60, 26 * 20},
    {"causal attention", run_causal, 27 * 60, 27 * 20},
    {"attention with a head of 512", run_wide_attention, 6 * 1536, 6 * 512},
    {"group norm", run_group_norm, 5 * 7 * 24, 5 * 7 * 24},
    {"layer norm", run_layer_norm, 3 * 52, 3 * 52},
    {"gelu", run_gelu, 333, 333},
    {"embedding", run_embedding, 9, 9 * 28},
    {"upsample", run_upsample, 3 * 4 * 5, 6 * 8 * 5},
};

static void check(const Places *p, size_t i)
{
    static const int batches[] = {2, 5, BATCH_MAX};
    const size_t n_x = operations[i].x, n_y = operations[i].y;
    float *sample = random_new(n_x, 100 + i), *alone = floats_new(n_y);
    operations[i].run(p, 1, sample, alone);
    for (size_t b = 0; b < ELEMENTSOF(batches); b++) {
        const size_t n = (size_t)batches[b], places[] = {0, n / 2, n - 1};
        float *y = floats_new(n * n_y);
        for (size_t place = 0; place < ELEMENTSOF(places); place++) {
            float *x = random_new(n * n_x, place); /* a different seed gives different neighbours */
            memcpy(x + places[place] * n_x, sample, n_x * sizeof(float));
            operations[i].run(p, (int)n, x, y);
            if (memcmp(y + places[place] * n_y, alone, n_y * sizeof(float)) != 0)
                fail_msg("%s: place %zu of %zu has other bytes than the sample alone",
                         operations[i].name, places[place], n);
            floats_free(x, n * n_x);
        }
        floats_free(y, n * n_y);
    }
    floats_free(sample, n_x);
    floats_free(alone, n_y);
}

static void a_sample_is_its_own(void **state)
{
    (void)state;
    float *weights = random_new(WEIGHTS, 7);
    for (int threads = 1; threads <= 3; threads += 2) {
        const Places p = {.device = cpu_open(threads), .weights = weights};
        for (size_t i = 0; i < ELEMENTSOF(operations); i++)
            check(&p, i);
        (void)device_free(p.device);
    }
    floats_free(weights, WEIGHTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
