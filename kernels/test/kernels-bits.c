/* SPDX-License-Identifier: Apache-2.0 */
/* kernels-bits.c - runs every operation on fixed inputs and prints a digest of each result.
 *
 *     kernels-bits THREADS OFFSET [f32|bf16 SEED]
 *     kernels-bits cuda OFFSET f32|bf16 0 [brief]
 *
 * The first line is the device's numerics. tests/golden/kernels-bits.txt contains the right output. test-bits compares
 * this output for other numbers of threads, other alignments (inputs and outputs begin OFFSET elements behind a 64-byte
 * boundary), other neighbours in memory (random, here) and the library built without vectors.
 *
 * kernels-bits-emulated does the same for the CUDA kernels, with their emulator: activations have the named type, and
 * SEED draws the order in which threads and blocks run. `cuda` runs the kernels on a GPU, which must print the same
 * except for the first line. `brief` runs each kind of operation at a few small shapes, for slow tools. */
#include "base/number/exactmath.h"
#include "base/number/hash.h"
#include "base/number/philox.h"
#include "kernels/kernels.h"
#include "kernels/test/testing-copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 8, BUFFER_FLOATS = 1 << 20, FILLED_FLOATS = 1 << 18 };

enum { WORDS_BYTES = 256 };

typedef struct Space {
    Device *device;
    float *host[BUFFERS]; /* values that fill() makes for b */
    /* the first n_drawn[i] values for host[i], kept because drawing them takes long */
    float *drawn[BUFFERS];
    size_t n_drawn[BUFFERS];
    /* Device memory. */
    float *memory[BUFFERS], *b[BUFFERS]; /* b begins OFFSET elements behind `memory` */
    /* a[i] has the values of b[i] in the device's type. If b[i] has that type, a[i] is the same pointer. */
    void *a_memory[BUFFERS], *a[BUFFERS];
    void *packed, *workspace;
    char *words; /* [8][WORDS_BYTES]: eight places for small values */

    const char *prefix; /* the prefix of the printed names */
    size_t n_filled;    /* how many elements of each buffer are filled */
} Space;

/* Uploads the values that were filled on the host, in both types. */
static void upload(Space *s)
{
    for (int i = 0; i < BUFFERS; i++) {
        device_upload(s->device, s->b[i], s->host[i], s->n_filled * sizeof(float));
        if (s->a[i] != s->b[i])
            cast_from_f32(s->device, (int64_t)s->n_filled, s->b[i], s->a[i]);
    }
}

/* Copies the bytes to word i in device memory, and returns its address. */
static void *word(Space *s, int i, const void *value, size_t n_bytes)
{
    char *to = s->words + (size_t)i * WORDS_BYTES;
    device_upload(s->device, to, value, n_bytes);
    return to;
}

/* Fills a buffer on the host. An element's value does not depend on n. */
static void fill_one(Space *s, int i, size_t n)
{
    for (size_t j = s->n_drawn[i]; j < n; j++)
        s->drawn[i][j] = 2 * philox_uniform(philox4x32(99, (uint64_t)i, j).word[0]) - 1;
    s->n_drawn[i] = MAX(s->n_drawn[i], n);
    memcpy(s->host[i], s->drawn[i], n * sizeof(float));
}

static void fill(Space *s)
{
    for (int i = 0; i < BUFFERS; i++)
        fill_one(s, i, s->n_filled);
    upload(s);
}

static void print_host(const char *name, const void *data, size_t n_bytes)
{
    char text[HASH_TEXT_BYTES];
    printf("%s %s\n", name, hash_format(hash_bytes(data, n_bytes), text));
}

/* Prints the hash of device memory. */
static void print(const Space *s, const char *name, const void *data, size_t n_bytes)
{
    _cleanup_free_ void *copy = device_copy_of(s->device, data, n_bytes);
    (void)fputs(s->prefix, stdout); /* ignored: the reader notices a broken pipe */
    print_host(name, copy, n_bytes);
}

static void print_floats(const Space *s, const char *name, const float *data, size_t n)
{
    print(s, name, data, n * sizeof(float));
}

/* Prints the hash of n values of the device's type. */
static void print_values(const Space *s, const char *name, const void *data, size_t n)
{
    print(s, name, data, n * data_type_bytes(device_type(s->device)));
}

static void stop(const Error *err)
{
    (void)fprintf(stderr, "kernels-bits: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void run_conv(Space *s, const ConvShape *shape)
{
    _cleanup_(conv_freep) Conv *conv = NULL;
    Error err = ERROR_INIT;
    const size_t taps = (size_t)(shape->kernel * shape->kernel);
    const size_t n_x = (size_t)(shape->n * shape->h * shape->w * shape->c_in);
    const size_t ho = (size_t)conv_output_side(shape, shape->h);
    const size_t wo = (size_t)conv_output_side(shape, shape->w);
    const size_t n_y = (size_t)shape->n * ho * wo * (size_t)shape->c_out;
    const size_t n_w = taps * (size_t)shape->c_in * (size_t)shape->c_out;

    if (conv_new(s->device, shape, &conv, &err) < 0)
        stop(&err);
    fill(s);
    if (n_w > s->n_filled) { /* the weights have more elements than the other operands */
        fill_one(s, 1, n_w);
        device_upload(s->device, s->b[1], s->host[1], n_w * sizeof(float));
    }
    conv_pack(conv, s->b[1], s->packed);
    conv_forward(conv, s->a[0], s->packed, s->b[2], s->a[3], s->a[4], s->a[5], s->workspace);
    print_values(s, "conv forward", s->a[5], n_y);
    conv_backward_data(conv, s->a[4], s->b[1], s->packed, s->a[6], true, s->workspace);
    print_values(s, "conv backward by data", s->a[6], n_x);
    conv_backward_weight(conv, s->a[0], s->a[4], s->b[7], s->b[3], s->workspace);
    print_floats(s, "conv backward by weight", s->b[7], n_w);
    print_floats(s, "conv bias", s->b[3], (size_t)shape->c_out);
}

static void run_attention(Space *s, const AttentionShape *shape)
{
    _cleanup_(attention_freep) Attention *attention = NULL;
    Error err = ERROR_INIT;
    const size_t n_q = (size_t)(shape->n * shape->q_tokens) * (size_t)shape->q_stride;
    const size_t n_kv = (size_t)(shape->n * shape->kv_tokens) * (size_t)shape->kv_stride;

    if (attention_new(s->device, shape, &attention, &err) < 0)
        stop(&err);
    fill(s);
    attention_forward(attention, s->a[0], s->a[1], s->a[2], s->a[3], s->b[4], s->workspace);
    print_values(s, "attention forward", s->a[3], n_q);
    attention_backward(attention, s->a[0], s->a[1], s->a[2], s->a[3], s->b[4], s->a[5], s->a[6],
                       s->a[7], s->packed, s->workspace);
    print_values(s, "attention dq", s->a[6], n_q);
    print_values(s, "attention dk", s->a[7], n_kv);
    print_values(s, "attention dv", s->packed, n_kv);
}

static void run_group_norm(Space *s, const GroupNormShape *shape)
{
    const size_t n = (size_t)(shape->n * shape->h * shape->w * shape->c), c = (size_t)shape->c;

    fill(s);
    group_norm_forward(s->device, shape, s->a[0], NULL, s->b[1], s->b[2], s->a[3], s->b[4]);
    print_values(s, "group norm forward", s->a[3], n);
    group_norm_backward(s->device, shape, s->a[0], NULL, s->b[1], s->b[2], s->b[4], s->a[3],
                        s->a[5], false, NULL, false, s->b[6], s->b[7], s->workspace);
    print_values(s, "group norm dx", s->a[5], n);
    print_floats(s, "group norm dgamma", s->b[6], c);
    print_floats(s, "group norm dbeta", s->b[7], c);
}

static void run_layer_norm(Space *s, const LayerNormShape *shape)
{
    const size_t n = (size_t)shape->rows * (size_t)shape->c, c = (size_t)shape->c;

    fill(s);
    layer_norm_forward(s->device, shape, s->a[0], s->b[1], s->b[2], s->a[3], s->b[4]);
    print_values(s, "layer norm forward", s->a[3], n);
    layer_norm_backward(s->device, shape, s->a[0], s->b[1], s->b[4], s->a[3], s->a[5], true,
                        s->b[6], s->b[7], NULL, s->workspace);
    print_values(s, "layer norm dx", s->a[5], n);
    print_floats(s, "layer norm dgamma", s->b[6], c);
    print_floats(s, "layer norm dbeta", s->b[7], c);
}

static void run_norms(Space *s)
{
    run_group_norm(s, &(GroupNormShape){3, 9, 11, 120, 12, 1e-5, true});
    run_layer_norm(s, &(LayerNormShape){211, 93, 1e-5});
}

static void run_elementwise(Space *s)
{
    const int64_t n = 100003;
    const size_t size = (size_t)n;

    fill(s);
    for (int64_t i = 0; i < n; i++)
        s->host[0][i] *= 20;
    upload(s);
    geglu_forward(s->device, 331, 151, s->a[0], s->a[2]);
    print_values(s, "geglu forward", s->a[2], 331 * 151);
    geglu_backward(s->device, 331, 151, s->a[0], s->a[1], s->a[2], NULL, NULL);
    print_values(s, "geglu backward", s->a[2], 2 * 331 * 151);
    silu_forward(s->device, n, s->a[0], s->a[2]);
    print_values(s, "silu forward", s->a[2], size);
    silu_backward(s->device, n, s->a[0], s->a[1], s->a[3], true);
    print_values(s, "silu backward", s->a[3], size);
    upsample_backward(s->device, 3, 18, 22, 67, s->a[0], s->a[4], true);
    print_values(s, "upsample backward", s->a[4], 3 * 9 * 11 * 67);
    spatial_sum(s->device, 5, 199, 37, s->a[0], s->a[5]);
    print_values(s, "spatial sum", s->a[5], 5 * 37);
}

static void run_diffusion(Space *s)
{
    static const int64_t positions[] = {5, 6, INT64_C(1) << 33};
    static const int32_t steps[] = {3, 999, 77};
    const int32_t *timesteps = word(s, 0, steps, sizeof(steps));
    double *loss = word(s, 1, &(double){0}, sizeof(double));

    normal_noise(s->device, 12345, 3, 4093, word(s, 2, positions, sizeof(positions)), s->b[0]);
    print_floats(s, "noise", s->b[0], (size_t)3 * 4093);
    fill(s);
    diffuse(s->device, 3, 4093, s->b[0], s->b[1], timesteps, s->b[2], s->b[3], true, s->b[4],
            s->b[5]);
    print_floats(s, "noised", s->b[4], (size_t)3 * 4093);
    print_floats(s, "target", s->b[5], (size_t)3 * 4093);
    mse_loss(s->device, 100003, s->a[0], s->b[1], 0.37f, loss, s->a[6], s->workspace);
    print(s, "loss", loss, sizeof(*loss));
    print_values(s, "slope of the loss", s->a[6], 100003);
    time_embedding(s->device, 3, 320, true, 0, timesteps, s->a[0]);
    print_values(s, "time embedding", s->a[0], (size_t)3 * 320);
}

/* Counts a gradient of n elements from 0, with one exponent, and prints the sums and the gradient that they represent,
 * which is the first moment if AdamW's beta1 is 0. */
static void run_sums(Space *s, StatePlan *plan, int64_t n, int bits, int32_t exponent,
                     const char *counted, const char *mean)
{
    const AdamW moments = {
        .eps = 1, .beta2 = 0.5, .gradient_scale = 1, .correction1 = 1, .correction2 = 1};
    int32_t *exponents = word(s, 0, &exponent, sizeof(exponent));
    const GradientSink sink = {.kind = SINK_COUNT,
                               .bits = bits,
                               .to = s->packed,
                               .exponents = exponents,
                               .maxima = word(s, 1, &(uint32_t){0}, sizeof(uint32_t)),
                               .fresh = word(s, 2, &(uint32_t){1}, sizeof(uint32_t))};
    const GradientSums sums = {.data = s->packed,
                               .type = bits == 64 ? SUM_I64 : SUM_I32,
                               .exponents = exponents,
                               .scale = 1.0 / 3};

    state_count(plan, s->b[0], 0, n, &sink);
    print(s, counted, s->packed, (size_t)n * (size_t)bits / 8);
    device_clear(s->device, s->b[5], (size_t)n * sizeof(float));
    state_update(plan, &moments, 0, &sums, s->b[6], s->b[5], s->b[7], NULL);
    print_floats(s, mean, s->b[5], (size_t)n);
}

static void run_state(Space *s)
{
    const int64_t n = 100003;
    const size_t size = (size_t)n;
    const TensorSpan span = {0, n};
    const StatePlanShape shape = {.tensors = &span,
                                  .n_tensors = 1,
                                  .n_elements = n,
                                  .chunk_elements = 1 << 17,
                                  .n_ranks = 1,
                                  .n_shards = 1};
    const AdamW adamw = {.lr = 1e-3f,
                         .eps = 1e-8f,
                         .weight_decay = 0.01f,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .gradient_scale = 0.7f,
                         .correction1 = 0.19f,
                         .correction2 = 0.002f};
    const GradientSums plain = {.data = s->b[0], .type = SUM_F32};
    _cleanup_(state_plan_freep) StatePlan *plan = NULL;
    Error err = ERROR_INIT;
    double *sum = word(s, 3, &(double){0}, sizeof(double));
    uint32_t *max = word(s, 4, &(uint32_t){0}, sizeof(uint32_t));
    const GradientSink maxima = {.kind = SINK_MAXIMA, .maxima = max};

    if (state_plan_new(s->device, &shape, &plan, &err) < 0)
        stop(&err);
    fill(s);
    for (size_t i = 0; i < size; i++)
        s->host[3][i] = s->host[3][i] * s->host[3][i];
    upload(s);
    state_update(plan, &adamw, 0.9999, &plain, s->b[1], s->b[2], s->b[3], s->b[4]);
    print_floats(s, "weights", s->b[1], size);
    print_floats(s, "first moments", s->b[2], size);
    print_floats(s, "second moments", s->b[3], size);
    print_floats(s, "ema", s->b[4], size);
    state_squares(plan, &plain, sum);
    print(s, "sum of squares", sum, sizeof(*sum));
    state_count(plan, s->b[0], 0, n, &maxima);
    print(s, "absolute maximum", max, sizeof(*max));
    run_sums(s, plan, n, 32, 29, "quantised", "dequantised");
    run_sums(s, plan, n, 64, 57, "quantised to 64 bits", "dequantised from 64 bits");
}

/* Runs the operations that move packs of 16 bytes if the rows consist of packs and are aligned to 16 bytes. */
static void run_packs(Space *s)
{
    const size_t n = 99 * 40;

    fill(s);
    geglu_forward(s->device, 99, 40, s->a[0], s->a[2]);
    print_values(s, "geglu forward in packs", s->a[2], n);
    geglu_backward(s->device, 99, 40, s->a[0], s->a[1], s->a[2], NULL, NULL);
    print_values(s, "geglu backward in packs", s->a[2], 2 * n);
    silu_forward(s->device, (int64_t)n, s->a[0], s->a[2]);
    print_values(s, "silu forward in packs", s->a[2], n);
    silu_backward(s->device, (int64_t)n, s->a[0], s->a[1], s->a[3], true);
    print_values(s, "silu backward in packs", s->a[3], n);
    accumulate(s->device, (int64_t)n, s->a[0], s->a[3]);
    print_values(s, "sum in packs", s->a[3], n);
    concat_forward(s->device, 99, 16, 24, s->a[0], s->a[1], s->a[2]);
    print_values(s, "concat forward in packs", s->a[2], n);
    concat_backward(s->device, 99, 16, 24, s->a[2], s->a[3], true, s->a[4], false);
    print_values(s, "concat backward in packs, left", s->a[3], 99 * 16);
    print_values(s, "concat backward in packs, right", s->a[4], 99 * 24);
    upsample_forward(s->device, 3, 17, 22, 24, s->a[0], s->a[2]);
    print_values(s, "upsample forward in packs", s->a[2], 3 * 17 * 22 * 24);
    upsample_backward(s->device, 3, 18, 21, 24, s->a[2], s->a[3], true);
    print_values(s, "upsample backward in packs", s->a[3], 3 * 9 * 11 * 24);
    run_group_norm(s, &(GroupNormShape){2, 13, 23, 160, 16, 1e-5, true});
    run_group_norm(s, &(GroupNormShape){2, 23, 24, 40, 4, 1e-5, true}); /* clusters of two blocks */
    run_group_norm(s, &(GroupNormShape){1, 47, 45, 40, 4, 1e-5, false}); /* 8 blocks, 2 idle */
    run_layer_norm(s, &(LayerNormShape){5, 2600, 1e-5}); /* more packs than a block has threads */
    cast_from_f32(s->device, (int64_t)n, s->b[0], s->a[3]);
    print_values(s, "cast in packs", s->a[3], n);
    cast_to_f32(s->device, (int64_t)n, s->a[3], s->b[4]);
    print_floats(s, "cast back in packs", s->b[4], n);
}

/* ---- the shapes of sd2-base, with fewer samples and smaller sides ---- */

enum { SD2_FILLED = 1 << 15 };

static void run_sd2_matrices(Space *s)
{
    static const ConvShape convs[] = {{1, 4, 4, 320, 320, 3, 1}, {1, 8, 8, 4, 320, 3, 1},
                                      {1, 8, 8, 320, 4, 3, 1},   {1, 4, 4, 320, 320, 3, 2},
                                      {1, 3, 3, 960, 320, 1, 1}, {1, 1, 77, 320, 640, 1, 1}};
    static const AttentionShape attentions[] = {
        {1, 2, 64, 64, 64, 384, 384}, {1, 2, 64, 16, 16, 384, 384}, {1, 1, 64, 256, 256, 192, 192},
        {1, 1, 64, 64, 77, 64, 128},  {2, 1, 64, 16, 77, 64, 128},  {1, 1, 64, 1024, 77, 64, 128},
    };
    for (size_t i = 0; i < ELEMENTSOF(convs); i++)
        run_conv(s, &convs[i]);
    s->n_filled = (size_t)2 * SD2_FILLED;
    for (size_t i = 0; i < ELEMENTSOF(attentions); i++)
        run_attention(s, &attentions[i]);
}

/* Runs few rows, because kernels choose their variants by the width of a row. */
static void run_sd2_rows(Space *s)
{
    static const int geglu[] = {1280, 2560, 5120};
    static const int concat[][2] = {{320, 320}, {640, 320}, {640, 640}, {1280, 640}, {1280, 1280}};
    static const int64_t rows = 3;

    for (size_t i = 0; i < ELEMENTSOF(geglu); i++) {
        fill(s);
        geglu_forward(s->device, rows, geglu[i], s->a[0], s->a[2]);
        print_values(s, "geglu forward", s->a[2], (size_t)(rows * geglu[i]));
        geglu_backward(s->device, rows, geglu[i], s->a[0], s->a[1], s->a[2], NULL, NULL);
        print_values(s, "geglu backward", s->a[2], (size_t)(2 * rows * geglu[i]));
    }
    for (size_t i = 0; i < ELEMENTSOF(concat); i++) {
        const int ca = concat[i][0], cb = concat[i][1];
        fill(s);
        concat_forward(s->device, rows, ca, cb, s->a[0], s->a[1], s->a[2]);
        print_values(s, "concat forward", s->a[2], (size_t)(rows * (ca + cb)));
        concat_backward(s->device, rows, ca, cb, s->a[2], s->a[3], true, s->a[4], false);
        print_values(s, "concat da", s->a[3], (size_t)(rows * ca));
        print_values(s, "concat db", s->a[4], (size_t)(rows * cb));
    }
    fill(s);
    upsample_forward(s->device, 1, 4, 4, 1280, s->a[0], s->a[2]);
    print_values(s, "upsample forward", s->a[2], (size_t)4 * 4 * 1280);
    upsample_backward(s->device, 1, 4, 4, 1280, s->a[2], s->a[3], false);
    print_values(s, "upsample backward", s->a[3], (size_t)2 * 2 * 1280);
    spatial_sum(s->device, 2, 9, 1280, s->a[0], s->a[4]);
    print_values(s, "spatial sum", s->a[4], (size_t)2 * 1280);
    silu_forward(s->device, 2 * 1280, s->a[0], s->a[5]);
    print_values(s, "silu forward", s->a[5], (size_t)2 * 1280);
}

static void run_sd2(Space *s)
{
    static const GroupNormShape groups[] = {
        {2, 5, 6, 320, 32, 1e-5, true},  {1, 4, 5, 640, 32, 1e-5, true},
        {1, 4, 4, 960, 32, 1e-5, true},  {1, 4, 4, 1280, 32, 1e-5, true},
        {1, 3, 3, 1920, 32, 1e-5, true}, {1, 2, 4, 2560, 32, 1e-5, true},
        {1, 4, 4, 640, 32, 1e-6, false},
    };
    static const int layers[] = {320, 640, 1280};

    s->prefix = "sd2 ";
    s->n_filled = SD2_FILLED;
    for (size_t i = 0; i < ELEMENTSOF(groups); i++)
        run_group_norm(s, &groups[i]);
    for (size_t i = 0; i < ELEMENTSOF(layers); i++)
        run_layer_norm(s, &(LayerNormShape){9, layers[i], 1e-5});
    run_sd2_rows(s);
    run_sd2_matrices(s);
}

/* ---- operations that an autoencoder and a text encoder need beyond a U-Net's ---- */

static void run_encoders(Space *s)
{
    enum { TEXTS = 3, TOKENS = 21, ROWS = 50 };
    static const ConvShape convs[] = {{2, 10, 14, 30, 50, 3, 2, true},
                                      {1, 7, 9, 20, 33, 3, 2, true}};
    static const AttentionShape attentions[] = {{2, 3, 20, 77, 77, 60, 60, true},
                                                {1, 2, 8, 130, 130, 32, 32, true},
                                                {1, 1, 512, 40, 40, 512, 512, false}};
    const size_t n = 20011;
    int32_t ids[TEXTS * TOKENS];
    static_assert(sizeof(ids) <= WORDS_BYTES, "they are a word");

    s->prefix = "encoder ";
    s->n_filled = (size_t)1 << 16;
    for (size_t i = 0; i < ELEMENTSOF(convs); i++)
        run_conv(s, &convs[i]);
    for (size_t i = 0; i < ELEMENTSOF(attentions); i++)
        run_attention(s, &attentions[i]);
    fill(s);
    for (size_t i = 0; i < n; i++)
        s->host[0][i] *= 12;
    upload(s);
    for (size_t i = 0; i < ELEMENTSOF(ids); i++)
        ids[i] = (int32_t)(i * 37 % ROWS);
    gelu_forward(s->device, (int64_t)n, s->a[0], s->a[2]);
    print_values(s, "gelu", s->a[2], n);
    gelu_forward(s->device, (int64_t)n - 3, s->a[0], s->a[2]); /* whole packs */
    print_values(s, "gelu in packs", s->a[2], n - 3);
    embedding_forward(s->device, TEXTS, TOKENS, 99, s->b[0], s->b[1], word(s, 0, ids, sizeof(ids)),
                      s->a[2]);
    print_values(s, "embedding", s->a[2], (size_t)(TEXTS * TOKENS * 99));
    embedding_forward(s->device, TEXTS, TOKENS, 104, s->b[0], s->b[1], word(s, 0, ids, sizeof(ids)),
                      s->a[2]);
    print_values(s, "embedding in packs", s->a[2], (size_t)(TEXTS * TOKENS * 104));
}

/* Runs GroupNorm on two tensors that are read as one, with the gradient of the second tensor in `packed`; then a linear
 * layer that uses some columns of a weight. */
static void run_joined(Space *s, bool brief)
{
    static const GroupNormShape groups[] = {{2, 23, 24, 40, 4, 1e-5, true, 16},
                                            {1, 3, 3, 1920, 32, 1e-5, true, 640},
                                            {2, 9, 9, 35, 5, 1e-5, false, 15}};
    static const LinearShape layer = {33, 24, 56, .first = 16, .columns = 40};
    _cleanup_(linear_freep) Linear *linear = NULL;
    Error err = ERROR_INIT;
    s->prefix = "joined ";
    for (size_t i = 0; i < (brief ? 1 : ELEMENTSOF(groups)); i++) {
        const GroupNormShape *g = &groups[i];
        const size_t rows = (size_t)(g->n * g->h * g->w), c = (size_t)g->c;
        const size_t second = rows * (size_t)g->c_second;
        fill(s);
        group_norm_forward(s->device, g, s->a[0], s->a[1], s->b[1], s->b[2], s->a[3], s->b[4]);
        print_values(s, "group norm forward", s->a[3], rows * c);
        device_copy(s->device, s->packed, s->a[0],
                    second * data_type_bytes(device_type(s->device)));
        group_norm_backward(s->device, g, s->a[0], s->a[1], s->b[1], s->b[2], s->b[4], s->a[3],
                            s->a[5], false, s->packed, true, s->b[6], s->b[7], s->workspace);
        print_values(s, "group norm dx", s->a[5], rows * c - second);
        print_values(s, "group norm dsecond", s->packed, second);
        print_floats(s, "group norm dgamma", s->b[6], c);
        print_floats(s, "group norm dbeta", s->b[7], c);
    }
    if (linear_new(s->device, &layer, &linear, &err) < 0)
        stop(&err);
    fill(s);
    linear_pack(linear, s->b[1], s->packed);
    linear_forward(linear, s->a[0], s->b[1], s->packed, s->b[2], NULL, s->a[3], s->workspace);
    print_values(s, "linear forward", s->a[3], (size_t)(layer.rows * layer.out));
    linear_backward_data(linear, s->a[3], s->b[1], s->packed, s->a[5], true, s->workspace);
    print_values(s, "linear dx", s->a[5], (size_t)(layer.rows * layer.in));
    linear_backward_weight(linear, s->a[0], s->a[3], s->b[6], NULL, s->workspace);
    print_floats(s, "linear dweight", s->b[6], (size_t)(layer.out * layer.columns));
}

/* Runs backward with the sums of the columns of a[5], which contains earlier gradients to which the new ones are
 * added. */
static void run_layer_norm_sums(Space *s, const LayerNormShape *shape)
{
    const size_t c = (size_t)shape->c;
    fill(s);
    layer_norm_forward(s->device, shape, s->a[0], s->b[1], s->b[2], s->a[3], s->b[4]);
    layer_norm_backward(s->device, shape, s->a[0], s->b[1], s->b[4], s->a[3], s->a[5], true,
                        s->b[2], s->b[6], s->b[7], s->workspace);
    print_values(s, "layer norm dx", s->a[5], (size_t)shape->rows * c);
    print_floats(s, "layer norm dgamma", s->b[2], c);
    print_floats(s, "layer norm dbeta", s->b[6], c);
    print_floats(s, "layer norm's columns", s->b[7], c);
}

/* Sums the columns of matrices that are cut into pieces, then runs the column sums in the backward of GEGLU and of
 * LayerNorm. */
static void run_sums_of_columns(Space *s, bool brief)
{
    static const ConvShape convs[] = {{1, 192, 129, 1, 8, 1, 1}, {1, 128, 129, 1, 12, 1, 1}};
    static const LayerNormShape norms[] = {{701, 40, 1e-5}, {211, 93, 1e-5}, {70, 320, 1e-5},
                                           {9, 640, 1e-5},  {9, 1280, 1e-5}, {5, 2600, 1e-5}};
    static const struct {
        int64_t rows;
        int f;
    } geglu[] = {{2100, 8}, {1025, 9}, {3, 1280}, {5, 2560}, {2, 5120}, {40, 104}, {66000, 1}};
    s->prefix = "sums ";
    for (size_t i = 0; i < (brief ? 1 : ELEMENTSOF(convs)); i++)
        run_conv(s, &convs[i]);
    for (size_t i = 0; i < (brief ? 2 : ELEMENTSOF(geglu)); i++) {
        const int64_t rows = geglu[i].rows;
        const int f = geglu[i].f;
        fill(s);
        geglu_backward(s->device, rows, f, s->a[0], s->a[1], s->a[2], s->b[7], s->workspace);
        print_values(s, "geglu backward", s->a[2], (size_t)(2 * rows * f));
        print_floats(s, "geglu's columns", s->b[7], 2 * (size_t)f);
    }
    for (size_t i = 0; i < (brief ? 1 : ELEMENTSOF(norms)); i++)
        run_layer_norm_sums(s, &norms[i]);
}

/* Prints hashes of the functions that the operations use, and that the data order, the initial weights and the
 * schedules use directly. */
static void run_base(void)
{
    enum { N = 20000 };
    static double values[N];

    for (size_t i = 0; i < N; i++)
        values[i] = exact_exp(((double)i - 10000) / 14);
    print_host("exp", values, N * sizeof(double));
    for (size_t i = 0; i < N; i++)
        values[i] = exact_log(((double)i + 1) * 0.37);
    print_host("log", values, N * sizeof(double));
    for (size_t i = 0; i < N; i++)
        values[i] = exact_sin(((double)i - 10000) * 3.7) + 2 * exact_cos((double)i * 4.9);
    print_host("sin and cos", values, N * sizeof(double));
    static Philox words[N];
    for (size_t i = 0; i < N; i++)
        words[i] = philox4x32(i * UINT64_C(0x9E3779B97F4A7C15), i, ~i);
    print_host("philox", words, N * sizeof(Philox));
}

static void print_numerics(const Space *s)
{
    _cleanup_free_ char *text = NULL;
    if (device_numerics(s->device, &text) < 0)
        exit(EXIT_FAILURE);
    puts(text);
}

#ifdef BITS_EMULATED
#include "kernels/test/emulator/emulated.h"
static int open_device(const DeviceOptions *options, const char *seed, Device **ret, Error *err)
{
    emulated_device_seed(seed ? strtoull(seed, NULL, 10) : 0);
    return emulated_device_open(options, ret, err);
}
#else
static int open_device(const DeviceOptions *options, const char *seed, Device **ret, Error *err)
{
    (void)seed; /* no order is drawn on this device */
    return device_open(options, ret, err);
}
#endif

int main(int argc, char **argv)
{
    static const ConvShape convs[] = {{2, 9, 11, 30, 50, 3, 1}, {1, 16, 16, 64, 64, 3, 1},
                                      {2, 10, 7, 20, 33, 3, 2}, {1, 1, 1100, 37, 65, 1, 1},
                                      {1, 8, 8, 4, 64, 3, 1},   {3, 5, 5, 270, 17, 3, 1}};
    static const AttentionShape attentions[] = {{2, 3, 20, 130, 77, 60, 60},
                                                {1, 2, 16, 100, 210, 32, 32}};
    Space s = {.prefix = "", .n_filled = FILLED_FLOATS};
    Error err = ERROR_INIT;

    const bool brief = argc == 6 && strcmp(argv[5], "brief") == 0;
    const size_t n_shapes = brief ? 1 : ELEMENTSOF(convs);
    argc -= brief;
    if (argc != 3 && argc != 5) {
        (void)fprintf(stderr, "usage: kernels-bits THREADS OFFSET [f32|bf16 SEED [brief]]\n");
        return EXIT_FAILURE;
    }
    const bool is_bf16 = argc == 5 && strcmp(argv[3], "bf16") == 0;
    const bool is_cuda = strcmp(argv[1], "cuda") == 0;
    const DeviceOptions options = {.kind = is_cuda ? DEVICE_CUDA : DEVICE_CPU,
                                   .threads = MAX(atoi(argv[1]), 1),
                                   .type = is_bf16 ? DATA_BF16 : DATA_F32};
    const int offset = atoi(argv[2]);
    const size_t bytes = (BUFFER_FLOATS + 16) * sizeof(float);
    if (open_device(&options, argc == 5 ? argv[4] : NULL, &s.device, &err) < 0)
        stop(&err);
    for (int i = 0; i < BUFFERS; i++) {
        void *memory;
        if (device_allocate(s.device, bytes, &memory, &err) < 0)
            stop(&err);
        s.host[i] = memory_given(calloc(BUFFER_FLOATS, sizeof(float)));
        s.drawn[i] = memory_given(calloc(BUFFER_FLOATS, sizeof(float)));
        s.memory[i] = memory;
        s.a[i] = s.b[i] = s.memory[i] + offset;
        if (is_bf16 && device_allocate(s.device, bytes, &s.a_memory[i], &err) < 0)
            stop(&err);
        if (is_bf16)
            s.a[i] = (char *)s.a_memory[i] + (size_t)offset * data_type_bytes(DATA_BF16);
    }
    if (device_allocate(s.device, 8 * WORDS_BYTES, (void **)&s.words, &err) < 0 ||
        device_allocate(s.device, 2 * bytes, &s.packed, &err) < 0 ||
        device_allocate(s.device, 8 * bytes, &s.workspace, &err) < 0)
        stop(&err);

    print_numerics(&s);
    run_base();
    for (size_t i = 0; i < n_shapes; i++)
        run_conv(&s, &convs[i]);
    for (size_t i = 0; i < MIN(n_shapes, ELEMENTSOF(attentions)); i++)
        run_attention(&s, &attentions[i]);
    run_norms(&s);
    run_elementwise(&s);
    run_diffusion(&s);
    run_state(&s);
    if (argc == 5 && !brief)
        run_packs(&s);
    if (argc == 5 && !brief)
        run_sd2(&s);
    if (brief) /* in bf16 this attention runs on tensor cores, in clusters of two blocks */
        run_attention(&s, &(AttentionShape){1, 2, 64, 520, 77, 128, 128});
    else
        run_encoders(&s);
    if (reads_joined(s.device))
        run_joined(&s, brief);
    run_sums_of_columns(&s, brief);

    for (int i = 0; i < BUFFERS; i++) {
        if (is_bf16)
            device_release(s.device, s.a_memory[i]);
        device_release(s.device, s.memory[i]);
        free(s.drawn[i]);
        free(s.host[i]);
    }
    device_release(s.device, s.words);
    device_release(s.device, s.packed);
    device_release(s.device, s.workspace);
    s.device = device_free(s.device);
    return 0;
}
