/* SPDX-License-Identifier: Apache-2.0 */
/* bench-kernels.c - measures how fast each operation runs at the shapes of a mid-size U-Net.
 *
 *     bench-kernels [THREADS [PART OF A NAME]]
 *
 * Prints one line for each measurement: the fastest of several runs, in GF/s for products, GB/s for the rest. */
#include "base/clock.h"
#include "base/number/philox.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 15, BUFFERS = 6 };

typedef struct Bench {
    Device *device;
    const char *only;
    float *buffer[BUFFERS];
    void *workspace;
    StatePlan *plan; /* the plan of a state of 8192 x 256 elements */
} Bench;

typedef struct Operation {
    const char *name;
    double work; /* the floating-point operations, or the bytes, of one run */
    const char *unit;
    void (*run)(const Bench *bench, const void *object);
    const void *object;
} Operation;

static void measure(const Bench *bench, const char *shape, const Operation *op)
{
    double best = 1e9;
    char name[128];

    (void)snprintf(name, sizeof(name), "%s %s", op->name, shape);
    if (bench->only && !strstr(name, bench->only))
        return;
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = clock_boottime_usec();
        op->run(bench, op->object);
        best = MIN(best, (double)(clock_boottime_usec() - start) * 1e-6);
    }
    printf("%-52s %8.3f ms %8.1f %s\n", name, best * 1e3, op->work / best * 1e-9, op->unit);
}

static void refuse(const Error *err)
{
    (void)fprintf(stderr, "bench-kernels: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* ---- convolution and linear: x, y, packed, weight ---- */

static void run_conv_forward(const Bench *b, const void *conv)
{
    conv_forward((Conv *)conv, b->buffer[0], b->buffer[2], b->buffer[4], NULL, b->buffer[5],
                 b->buffer[1], b->workspace);
}

static void run_conv_data(const Bench *b, const void *conv)
{
    conv_backward_data((Conv *)conv, b->buffer[1], b->buffer[3], b->buffer[2], b->buffer[5], false,
                       b->workspace);
}

static void run_conv_weight(const Bench *b, const void *conv)
{
    conv_backward_weight((Conv *)conv, b->buffer[0], b->buffer[5], b->buffer[3], b->buffer[4],
                         b->workspace);
}

static void run_conv_pack(const Bench *b, const void *conv)
{
    conv_pack((Conv *)conv, b->buffer[3], b->buffer[2]);
}

static void bench_conv(const Bench *bench, const ConvShape *s)
{
    _cleanup_(conv_freep) Conv *conv = NULL;
    Error err = ERROR_INIT;
    char shape[64];
    const int taps = s->kernel * s->kernel;
    const double flops = 2.0 * s->n * ((s->h - 1) / s->stride + 1) * ((s->w - 1) / s->stride + 1) *
                         s->c_in * s->c_out * taps;

    if (conv_new(bench->device, s, &conv, &err) < 0)
        refuse(&err);
    if (s->h == 1)
        (void)snprintf(shape, sizeof(shape), "linear %d x %d -> %d", s->w, s->c_in, s->c_out);
    else
        (void)snprintf(shape, sizeof(shape), "conv %dx%dx%d %d -> %d k%d s%d", s->n, s->h, s->w,
                       s->c_in, s->c_out, s->kernel, s->stride);
    const Operation ops[] = {
        {"forward", flops, "GF/s", run_conv_forward, conv},
        {"backward-data", flops, "GF/s", run_conv_data, conv},
        {"backward-weight", flops, "GF/s", run_conv_weight, conv},
        {"pack", 8.0 * s->c_in * s->c_out * taps, "GB/s", run_conv_pack, conv},
    };
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        measure(bench, shape, &ops[i]);
}

/* ---- attention ---- */

static void run_attention_forward(const Bench *b, const void *attention)
{
    attention_forward((Attention *)attention, b->buffer[0], b->buffer[1], b->buffer[2],
                      b->buffer[3], b->buffer[4], b->workspace);
}

static void run_attention_backward(const Bench *b, const void *attention)
{
    float *d = b->buffer[5];
    const size_t third = (size_t)1 << 20;
    attention_backward((Attention *)attention, b->buffer[0], b->buffer[1], b->buffer[2],
                       b->buffer[3], b->buffer[4], b->buffer[0], d, d + third, d + 2 * third,
                       b->workspace);
}

static void bench_attention(const Bench *bench, const AttentionShape *s)
{
    _cleanup_(attention_freep) Attention *attention = NULL;
    Error err = ERROR_INIT;
    char shape[64];
    const double flops =
        4.0 * s->n * s->heads * s->head_dim * (double)s->q_tokens * (double)s->kv_tokens;

    if (attention_new(bench->device, s, &attention, &err) < 0)
        refuse(&err);
    (void)snprintf(shape, sizeof(shape), "attention %dx%d d%d %lldx%lld", s->n, s->heads,
                   s->head_dim, (long long)s->q_tokens, (long long)s->kv_tokens);
    const Operation ops[] = {
        {"forward", flops, "GF/s", run_attention_forward, attention},
        {"backward", 2.5 * flops, "GF/s", run_attention_backward, attention},
    };
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        measure(bench, shape, &ops[i]);
}

/* ---- operations that memory bounds ---- */

static void run_group_norm(const Bench *b, const void *shape)
{
    group_norm_forward(b->device, shape, b->buffer[0], NULL, b->buffer[4], b->buffer[5],
                       b->buffer[1], b->buffer[3]);
}

static void run_group_norm_backward(const Bench *b, const void *shape)
{
    group_norm_backward(b->device, shape, b->buffer[0], NULL, b->buffer[4], b->buffer[5],
                        b->buffer[3], b->buffer[1], b->buffer[2], false, NULL, false,
                        b->buffer[4] + 4096, b->buffer[4] + 8192, b->workspace);
}

static void run_layer_norm(const Bench *b, const void *shape)
{
    layer_norm_forward(b->device, shape, b->buffer[0], b->buffer[4], b->buffer[5], b->buffer[1],
                       b->buffer[3]);
}

static void run_layer_norm_backward(const Bench *b, const void *shape)
{
    layer_norm_backward(b->device, shape, b->buffer[0], b->buffer[4], b->buffer[3], b->buffer[1],
                        b->buffer[2], false, b->buffer[4] + 4096, b->buffer[4] + 8192, NULL,
                        b->workspace);
}

static void run_geglu(const Bench *b, const void *shape)
{
    const LayerNormShape *s = shape;
    geglu_forward(b->device, s->rows, s->c, b->buffer[0], b->buffer[1]);
}

static void run_geglu_backward(const Bench *b, const void *shape)
{
    const LayerNormShape *s = shape;
    geglu_backward(b->device, s->rows, s->c, b->buffer[0], b->buffer[1], b->buffer[2], NULL, NULL);
}

static void run_noise(const Bench *b, const void *shape)
{
    const int64_t positions[] = {0, 1, 2, 3, 4, 5, 6, 7};
    (void)shape;
    normal_noise(b->device, 1, 8, 4096, positions, b->buffer[0]);
}

static void run_count(const Bench *b, const void *shape)
{
    const LayerNormShape *s = shape;
    static const int32_t exponent = 20;
    uint32_t maximum = 0;
    const GradientForm form = {DATA_F32, GRADIENT_AS_STATE, (int)s->rows, s->c, 1};
    const GradientPlace place = {.n = s->rows * s->c, .n_tensors = 1};
    const GradientSink sink = {.kind = SINK_COUNT,
                               .bits = 32,
                               .to = b->buffer[3],
                               .exponents = &exponent,
                               .maxima = &maximum};
    gradient_take(b->device, &form, b->buffer[0], &place, &sink);
}

static void run_adamw(const Bench *b, const void *shape)
{
    (void)shape; /* the plan contains the shape */
    const AdamW adamw = {.lr = 1e-4f,
                         .eps = 1e-8f,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .gradient_scale = 1,
                         .correction1 = 1,
                         .correction2 = 1};
    const GradientSums sums = {.data = b->buffer[0], .type = SUM_F32};
    state_update(b->plan, &adamw, 0, &sums, b->buffer[1], b->buffer[2], b->buffer[4], NULL);
}

static void bench_memory(const Bench *bench)
{
    static const GroupNormShape norm[] = {{8, 32, 32, 64, 32, 1e-5, true},
                                          {8, 32, 32, 192, 32, 1e-5, true},
                                          {8, 16, 16, 128, 32, 1e-5, true},
                                          {8, 8, 8, 256, 32, 1e-5, true},
                                          {2, 32, 32, 320, 32, 1e-5, true}};
    for (size_t i = 0; i < ELEMENTSOF(norm); i++) {
        char shape[64];
        const double bytes = 4.0 * norm[i].n * norm[i].h * norm[i].w * norm[i].c;
        (void)snprintf(shape, sizeof(shape), "group-norm %dx%dx%dx%d", norm[i].n, norm[i].h,
                       norm[i].w, norm[i].c);
        measure(bench, shape, &(Operation){"forward", 2 * bytes, "GB/s", run_group_norm, &norm[i]});
        measure(bench, shape,
                &(Operation){"backward", 3 * bytes, "GB/s", run_group_norm_backward, &norm[i]});
    }
    static const LayerNormShape rows = {8192, 64, 1e-5}, wide = {8192, 256, 1e-5};
    const double bytes = 4.0 * 8192 * 64, wide_bytes = 4 * bytes;
    const Operation ops[] = {
        {"layer-norm", 2 * bytes, "GB/s", run_layer_norm, &rows},
        {"layer-norm-backward", 3 * bytes, "GB/s", run_layer_norm_backward, &rows},
        {"geglu", 3 * wide_bytes, "GB/s", run_geglu, &wide},
        {"geglu-backward", 5 * wide_bytes, "GB/s", run_geglu_backward, &wide},
        {"noise", 4.0 * 8 * 4096, "GB/s", run_noise, &wide},
        {"count", 3 * wide_bytes, "GB/s", run_count, &wide},
        {"adamw", 7 * wide_bytes, "GB/s", run_adamw, &wide},
    };
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        measure(bench, i < 2 ? "8192x64" : "8192x256", &ops[i]);
}

static void bench_plans(const Bench *bench)
{
    uint64_t start = clock_boottime_usec();
    for (int i = 0; i < 100; i++) {
        const ConvShape s = {8, 32, 32, 64 + i % 4, 64 + i / 4, 3, 1 + i % 2};
        _cleanup_(conv_freep) Conv *conv = NULL;
        Error err = ERROR_INIT;
        if (conv_new(bench->device, &s, &conv, &err) < 0)
            refuse(&err);
    }
    printf("%-52s %8.3f ms\n", "100 plans", (double)(clock_boottime_usec() - start) * 1e-3);
}

int main(int argc, char **argv)
{
    static const ConvShape convs[] = {{8, 32, 32, 64, 64, 3, 1},     {8, 16, 16, 128, 128, 3, 1},
                                      {8, 8, 8, 256, 256, 3, 1},     {8, 16, 16, 384, 128, 3, 1},
                                      {8, 32, 32, 192, 64, 3, 1},    {8, 8, 8, 512, 256, 3, 1},
                                      {8, 32, 32, 4, 64, 3, 1},      {8, 32, 32, 64, 4, 3, 1},
                                      {8, 32, 32, 64, 64, 3, 2},     {8, 32, 32, 192, 64, 1, 1},
                                      {2, 32, 32, 320, 320, 3, 1},   {1, 1, 8192, 64, 64, 1, 1},
                                      {1, 1, 8192, 64, 512, 1, 1},   {1, 1, 8192, 256, 64, 1, 1},
                                      {1, 1, 2048, 128, 1024, 1, 1}, {1, 1, 512, 256, 2048, 1, 1},
                                      {1, 1, 512, 1024, 256, 1, 1},  {1, 1, 616, 64, 128, 1, 1},
                                      {1, 1, 8, 256, 256, 1, 1}};
    static const AttentionShape attentions[] = {{8, 2, 32, 1024, 1024, 64, 64},
                                                {8, 1, 64, 1024, 1024, 64, 64},
                                                {8, 4, 16, 1024, 1024, 64, 64},
                                                {8, 4, 32, 256, 256, 128, 128},
                                                {8, 8, 32, 64, 64, 256, 256},
                                                {8, 2, 32, 1024, 77, 64, 64},
                                                {8, 4, 32, 256, 77, 128, 128}};
    const size_t n_floats = (size_t)1 << 24;
    Error err = ERROR_INIT;
    Bench bench = {.only = argc > 2 ? argv[2] : NULL};
    const DeviceOptions options = {.kind = DEVICE_CPU,
                                   .threads = argc > 1 ? atoi(argv[1]) : 1,
                                   .type = DATA_F32};

    if (device_open(&options, &bench.device, &err) < 0)
        refuse(&err);
    for (int i = 0; i < BUFFERS; i++) {
        void *memory;
        if (device_allocate(bench.device, n_floats * sizeof(float), &memory, &err) < 0)
            refuse(&err);
        bench.buffer[i] = memory;
        for (size_t j = 0; j < n_floats; j++)
            bench.buffer[i][j] = philox_uniform((uint32_t)(j * 2654435761u)) - (i == 4 ? 0 : 0.5f);
    }
    if (device_allocate(bench.device, n_floats * 8, &bench.workspace, &err) < 0)
        refuse(&err);

    const TensorSpan span = {0, 8192 * 256};
    const StatePlanShape state = {.tensors = &span,
                                  .n_tensors = 1,
                                  .n_elements = span.n,
                                  .chunk_elements = 1 << 20,
                                  .n_ranks = 1,
                                  .n_shards = 1};
    if (state_plan_new(bench.device, &state, &bench.plan, &err) < 0)
        refuse(&err);

    for (size_t i = 0; i < ELEMENTSOF(convs); i++)
        bench_conv(&bench, &convs[i]);
    for (size_t i = 0; i < ELEMENTSOF(attentions); i++)
        bench_attention(&bench, &attentions[i]);
    bench_memory(&bench);
    bench_plans(&bench);

    for (int i = 0; i < BUFFERS; i++)
        device_release(bench.device, bench.buffer[i]);
    device_release(bench.device, bench.workspace);
    bench.plan = state_plan_free(bench.plan);
    bench.device = device_free(bench.device);
    return 0;
}
