/* SPDX-License-Identifier: Apache-2.0 */
/* check-operations.c - every convolution, linear layer and attention of a grain of sd2-base, or of its autoencoder's
 * encoder and text encoder, at its full shape, on a device:
 *
 *     check-operations cpu|emulated|cuda f32|bf16 SIDE GRAIN [KIND|all [SAMPLES [sd2|encoders [DONE]]]]
 *
 * SIDE is the side of the latents: 64 for pictures of 512^2. Each pass of an operation runs twice into memory full of
 * NaN: the bits must be the same, and nothing may be written behind the results. SAMPLES (default: 4096) of the
 * results, drawn with a fixed seed, are compared with float64 sums of the same inputs. Encoders run only forward; in
 * bf16 the program makes their plans itself if no plan set is named. The first DONE operations are left out. The
 * program prints one JSON line per pass, and exits with 1 if a pass is wrong. */
#include "nn/tape.h"
#include "nn/test/checks.h"
#include "nn/test/testing-encoders.h"
#include "nn/test/testing-sd2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- convolution; a linear layer is a convolution of 1 x rows pixels ---- */

typedef struct ConvCase {
    ConvShape shape;
    int to_h, to_w;
    int first, columns; /* the layer uses columns [first, first + c_in) of the weight's `columns` */
    Conv *conv;         /* NULL: `linear` is checked */
    Linear *linear;
    GradientForm form;
    Tensor x, weight, packed, dy, y, dx, dweight, dbias, bias, per_image, residual;
    void *workspace;
} ConvCase;

static void conv_run(void *context)
{
    ConvCase *c = context;
    if (c->linear)
        linear_forward(c->linear, c->x.device, (const float *)c->weight.device, c->packed.device,
                       (const float *)c->bias.device, c->residual.device, c->y.device,
                       c->workspace);
    else
        conv_forward(c->conv, c->x.device, c->packed.device, (const float *)c->bias.device,
                     c->per_image.device, c->residual.device, c->y.device, c->workspace);
}

/* Runs forward with the residual in the memory of y. */
static void conv_run_in_place(void *context)
{
    ConvCase *c = context;
    device_copy(checks.device, c->y.device, c->residual.device, tensor_bytes(&c->y));
    if (c->linear)
        linear_forward(c->linear, c->x.device, (const float *)c->weight.device, c->packed.device,
                       (const float *)c->bias.device, c->y.device, c->y.device, c->workspace);
    else
        conv_forward(c->conv, c->x.device, c->packed.device, (const float *)c->bias.device,
                     c->per_image.device, c->y.device, c->y.device, c->workspace);
}

/* Overwrites dx with the gradient of the input. Its variant conv_run_data_added() adds the gradient to a copy of x. */
static void conv_run_data(void *context)
{
    ConvCase *c = context;
    if (c->linear)
        linear_backward_data(c->linear, c->dy.device, (const float *)c->weight.device,
                             c->packed.device, c->dx.device, false, c->workspace);
    else
        conv_backward_data(c->conv, c->dy.device, (const float *)c->weight.device, c->packed.device,
                           c->dx.device, false, c->workspace);
}

static void conv_run_data_added(void *context)
{
    ConvCase *c = context;
    device_copy(checks.device, c->dx.device, c->x.device, tensor_bytes(&c->dx));
    if (c->linear)
        linear_backward_data(c->linear, c->dy.device, (const float *)c->weight.device,
                             c->packed.device, c->dx.device, true, c->workspace);
    else
        conv_backward_data(c->conv, c->dy.device, (const float *)c->weight.device, c->packed.device,
                           c->dx.device, true, c->workspace);
}

static void conv_run_weight(void *context)
{
    ConvCase *c = context;
    checks_poison(c->dbias.device, tensor_bytes(&c->dbias));
    tensor_forget(&c->dbias);
    if (c->linear)
        linear_backward_weight(c->linear, c->x.device, c->dy.device, c->dweight.device,
                               (float *)c->dbias.device, c->workspace);
    else
        conv_backward_weight(c->conv, c->x.device, c->dy.device, c->dweight.device,
                             (float *)c->dbias.device, c->workspace);
}

/* Returns the weight as the kernels see it: rounded to the device's type. */
static double weight_at(ConvCase *c, int out, int in, int tap)
{
    const int taps = c->shape.kernel * c->shape.kernel;
    const double value =
        tensor_value(&c->weight, ((int64_t)out * c->columns + c->first + in) * taps + tap);
    if (checks.type == DATA_F32)
        return value;
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; /* to the nearest bf16 */
    memcpy(&narrow, &bits, sizeof(narrow));
    return (double)narrow;
}

static int conv_sample(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    ConvCase *c = context;
    const ConvShape *s = &c->shape;
    for (int i = 0; i < checks.n_samples; i++) {
        at[i] = checks_draw(c->y.n);
        const int out = (int)(at[i] % s->c_out);
        const int64_t pixel = at[i] / s->c_out, image = pixel / c->to_w / c->to_h;
        const int64_t row = pixel / c->to_w % c->to_h * s->stride - conv_padding(s);
        const int64_t column = pixel % c->to_w * s->stride - conv_padding(s);
        double sum = tensor_value(&c->bias, out) + tensor_value(&c->residual, at[i]);
        if (!c->linear)
            sum += tensor_value(&c->per_image, image * s->c_out + out);
        for (int tap = 0; tap < s->kernel * s->kernel; tap++) {
            const int64_t y = row + tap / s->kernel, x = column + tap % s->kernel;
            if (y < 0 || y >= s->h || x < 0 || x >= s->w)
                continue;
            for (int in = 0; in < s->c_in; in++)
                sum += tensor_value(&c->x, ((image * s->h + y) * s->w + x) * s->c_in + in) *
                       weight_at(c, out, in, tap);
        }
        want[i] = sum;
    }
    return checks.n_samples;
}

static int conv_sample_data(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    ConvCase *c = context;
    const ConvShape *s = &c->shape;
    for (int i = 0; i < checks.n_samples; i++) {
        at[i] = checks_draw(c->dx.n);
        const int in = (int)(at[i] % s->c_in);
        const int64_t pixel = at[i] / s->c_in, image = pixel / s->w / s->h;
        double sum = 0;
        for (int tap = 0; tap < s->kernel * s->kernel; tap++) {
            const int64_t y = pixel / s->w % s->h + conv_padding(s) - tap / s->kernel;
            const int64_t x = pixel % s->w + conv_padding(s) - tap % s->kernel;
            if (y < 0 || y % s->stride || y / s->stride >= c->to_h || x < 0 || x % s->stride ||
                x / s->stride >= c->to_w)
                continue;
            const int64_t from = (image * c->to_h + y / s->stride) * c->to_w + x / s->stride;
            for (int out = 0; out < s->c_out; out++)
                sum += tensor_value(&c->dy, from * s->c_out + out) * weight_at(c, out, in, tap);
        }
        want[i] = sum;
    }
    return checks.n_samples;
}

static int conv_sample_data_added(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    ConvCase *c = context;
    const int n = conv_sample_data(context, at, want);
    for (int i = 0; i < n; i++)
        want[i] += tensor_value(&c->x, at[i]);
    return n;
}

/* Samples a grid of GRID output channels and GRID pairs of (tap, input channel), so that one loop over the pixels is
 * enough. */
static int conv_sample_weight(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    ConvCase *c = context;
    const ConvShape *s = &c->shape;
    const int taps = s->kernel * s->kernel;
    int64_t outs[GRID], columns[GRID];
    for (int i = 0; i < GRID; i++) {
        outs[i] = checks_draw(s->c_out);
        columns[i] = checks_draw((int64_t)s->c_in * taps); /* a column is an index into [tap][in] */
    }
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t out = outs[i / GRID], column = columns[i % GRID];
        at[i] = c->form.order == GRADIENT_CHANNELS_LAST
                    ? out * taps * c->columns + c->first + column
                    : (out * s->c_in + column % s->c_in) * taps + column / s->c_in;
        want[i] = 0;
    }
    for (int64_t pixel = 0; pixel < (int64_t)s->n * c->to_h * c->to_w; pixel++) {
        double of_dy[GRID], of_x[GRID];
        for (int i = 0; i < GRID; i++) {
            const int tap = (int)(columns[i] / s->c_in);
            const int64_t image = pixel / c->to_w / c->to_h;
            const int64_t y =
                pixel / c->to_w % c->to_h * s->stride - conv_padding(s) + tap / s->kernel;
            const int64_t x = pixel % c->to_w * s->stride - conv_padding(s) + tap % s->kernel;
            const bool inside = y >= 0 && y < s->h && x >= 0 && x < s->w;
            const int64_t from = ((image * s->h + y) * s->w + x) * s->c_in + columns[i] % s->c_in;
            of_x[i] = inside ? tensor_value(&c->x, from) : 0;
            of_dy[i] = tensor_value(&c->dy, pixel * s->c_out + outs[i]);
        }
        for (int i = 0; i < SAMPLES; i++)
            want[i] += of_dy[i / GRID] * of_x[i % GRID];
    }
    return SAMPLES;
}

static int conv_sample_bias(void *context, int64_t at[SAMPLES], double want[SAMPLES])
{
    ConvCase *c = context;
    for (int i = 0; i < GRID; i++) {
        at[i] = checks_draw(c->shape.c_out);
        want[i] = 0;
    }
    for (int64_t pixel = 0; pixel < c->dy.n / c->shape.c_out; pixel++)
        for (int i = 0; i < GRID; i++)
            want[i] += tensor_value(&c->dy, pixel * c->shape.c_out + at[i]);
    return GRID;
}

static void conv_check(ConvCase *c, const char *operation)
{
    const ConvShape *s = &c->shape;
    const int64_t n_y = (int64_t)s->n * c->to_h * c->to_w * s->c_out;
    const int64_t n_x = (int64_t)s->n * s->h * s->w * s->c_in;
    const int64_t n_w = (int64_t)s->c_out * c->columns * s->kernel * s->kernel;
    c->x = tensor_random(n_x, checks.type);
    c->weight = tensor_random(n_w, DATA_F32);
    c->dy = tensor_random(n_y, checks.type);
    c->bias = tensor_random(s->c_out, DATA_F32);
    c->per_image = tensor_random((int64_t)s->n * s->c_out, checks.type);
    c->residual = tensor_random(n_y, checks.type);
    c->y = tensor_new(n_y, checks.type);
    c->dx = tensor_new(n_x, checks.type);
    c->dweight = tensor_new(n_w, c->form.type);
    c->dbias = tensor_new(s->c_out, DATA_F32);
    if (c->linear)
        linear_pack(c->linear, (const float *)c->weight.device, c->packed.device);
    else
        conv_pack(c->conv, (const float *)c->weight.device, c->packed.device);
    const Pass passes[] = {
        {operation, "forward", &c->y, conv_run, conv_sample, c},
        {operation, "forward, in place", &c->y, conv_run_in_place, conv_sample, c},
        {operation, "backward_data", &c->dx, conv_run_data, conv_sample_data, c},
        {operation, "backward_data, added", &c->dx, conv_run_data_added, conv_sample_data_added, c},
        {operation, "backward_weight", &c->dweight, conv_run_weight, conv_sample_weight, c},
        {operation, "backward_weight, bias", &c->dbias, conv_run_weight, conv_sample_bias, c},
    };
    for (size_t i = 0; i < (s->forward_only ? 1 : ELEMENTSOF(passes)); i++)
        checks_run(&passes[i]);
    Tensor *const all[] = {&c->x, &c->weight, &c->dy,      &c->bias,  &c->per_image,
                           &c->y, &c->dx,     &c->dweight, &c->dbias, &c->residual};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        tensor_free(all[i]);
}

static void check_conv(const ConvShape *shape, const char *operation)
{
    ConvCase c = {.shape = *shape,
                  .to_h = conv_output_side(shape, shape->h),
                  .to_w = conv_output_side(shape, shape->w),
                  .columns = shape->c_in};
    Error err = ERROR_INIT;
    checks_must(conv_new(checks.device, shape, &c.conv, &err), &err);
    c.form = conv_gradient_form(c.conv);
    c.packed.device = checks_allocate(conv_packed_bytes(c.conv));
    c.workspace = checks_allocate(conv_workspace_bytes(c.conv));
    conv_check(&c, operation);
    device_release(checks.device, c.packed.device);
    device_release(checks.device, c.workspace);
    c.conv = conv_free(c.conv);
}

static void check_linear_part(const LinearShape *shape, const char *operation)
{
    ConvCase c = {.shape = {1, 1, (int)shape->rows, shape->in, shape->out, 1, 1,
                            .forward_only = shape->forward_only},
                  .to_h = 1,
                  .to_w = (int)shape->rows,
                  .first = shape->first,
                  .columns = shape->columns > 0 ? shape->columns : shape->in};
    Error err = ERROR_INIT;
    checks_must(linear_new(checks.device, shape, &c.linear, &err), &err);
    c.form = linear_gradient_form(c.linear);
    c.packed.device = checks_allocate(linear_packed_bytes(c.linear));
    c.workspace = checks_allocate(linear_workspace_bytes(c.linear));
    conv_check(&c, operation);
    device_release(checks.device, c.packed.device);
    device_release(checks.device, c.workspace);
    c.linear = linear_free(c.linear);
}

static void check_linear(const Tape *tape, const Operation *op, const char *operation)
{
    LinearShape parts[2];
    const int n = linear_parts(tape, op, parts);
    for (int i = 0; i < n; i++) {
        char name[160];
        (void)snprintf(name, sizeof(name), "%s%s", operation,
                       n == 1   ? ""
                       : i == 0 ? ", the first"
                                : ", the second");
        check_linear_part(&parts[i], name);
    }
}

/* ---- all operations of a grain ---- */

/* Writes the operation's kind and shape, or "" if only the project's own kernels compute the operation. */
static void name_of(const Tape *tape, const Operation *op, char name[128])
{
    const ConvShape *c = &op->shape.conv;
    const LinearShape *l = &op->shape.linear;
    const AttentionShape *a = &op->shape.attention;
    LinearShape parts[2];
    if (strcmp(op->kind->name, "conv") == 0)
        (void)snprintf(name, 128, "conv n%d %dx%d %d->%d k%d s%d%s", c->n, c->h, c->w, c->c_in,
                       c->c_out, c->kernel, c->stride, c->pad_end ? " end" : "");
    else if (strcmp(op->kind->name, "linear") == 0)
        (void)snprintf(name, 128, "linear %lldx%d->%d%s", (long long)l->rows, l->in, l->out,
                       linear_parts(tape, op, parts) == 1 ? "" : " in two");
    else if (strcmp(op->kind->name, "attention") == 0)
        (void)snprintf(name, 128, "attention n%d h%d d%d %lldx%lld%s", a->n, a->heads, a->head_dim,
                       (long long)a->q_tokens, (long long)a->kv_tokens, a->causal ? " causal" : "");
    else
        *name = '\0';
}

static bool is_repeated(const Tape *tape, size_t i, const char *name)
{
    char other[128];
    for (size_t k = 0; k < i; k++) {
        name_of(tape, &tape->operations[k], other);
        if (strcmp(other, name) == 0)
            return true;
    }
    return false;
}

/* Marks all operations as forward-only, since encoders are not trained. */
static void leave_out_backward(Tape *tape)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        Operation *op = &tape->operations[i];
        if (strcmp(op->kind->name, "conv") == 0)
            op->shape.conv.forward_only = true;
        else if (strcmp(op->kind->name, "linear") == 0)
            op->shape.linear.forward_only = true;
        else if (strcmp(op->kind->name, "attention") == 0)
            op->shape.attention.forward_only = true;
    }
}

static int n_left_out; /* number of operations that are still to be left out */

static void check_all(const Tape *tape, const char *kind)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        const Operation *op = &tape->operations[i];
        char name[128];
        name_of(tape, op, name);
        if (!*name || (kind && strcmp(op->kind->name, kind) != 0) || is_repeated(tape, i, name))
            continue;
        if (n_left_out > 0)
            n_left_out--;
        else if (strcmp(op->kind->name, "conv") == 0)
            check_conv(&op->shape.conv, name);
        else if (strcmp(op->kind->name, "linear") == 0)
            check_linear(tape, op, name);
        else
            check_attention(&op->shape.attention, name);
    }
}

static void check_encoders(int side, int n, const char *kind)
{
    Tape *tapes[] = {vae_encoder_tape_new(8 * side, n), clip_text_tape_new(n)};
    for (size_t i = 0; i < ELEMENTSOF(tapes); i++) {
        leave_out_backward(tapes[i]);
        check_all(tapes[i], kind);
        tapes[i] = tape_free(tapes[i]);
    }
}

static void check_sd2(int side, int n, const char *kind)
{
    Tape *tape = sd2_tape_new(side, n);
    tape_skip_concats(tape, checks.device);
    check_all(tape, kind);
    tape = tape_free(tape);
}

int main(int argc, char **argv)
{
    const int side = argc > 3 ? atoi(argv[3]) : 0, grain = argc > 4 ? atoi(argv[4]) : 0;
    const char *kind = argc > 5 && strcmp(argv[5], "all") != 0 ? argv[5] : NULL;
    const bool is_f32 = argc > 2 && strcmp(argv[2], "f32") == 0;
    const bool encoders = argc > 7 && strcmp(argv[7], "encoders") == 0;
    n_left_out = argc > 8 ? atoi(argv[8]) : 0;
    checks.n_samples = argc > 6 ? atoi(argv[6]) : SAMPLES;
    if (argc < 5 || argc > 9 || n_left_out < 0 || checks.n_samples < 1 ||
        checks.n_samples > SAMPLES || side < 8 || side > 128 || grain < 1 || grain > 1024 ||
        (!is_f32 && strcmp(argv[2], "bf16") != 0) ||
        (argc > 7 && !encoders && strcmp(argv[7], "sd2") != 0)) {
        (void)fprintf(stderr, "usage: check-operations cpu|emulated|cuda f32|bf16 SIDE GRAIN "
                              "[KIND|all [SAMPLES [sd2|encoders [DONE]]]]\n");
        return 2;
    }
    /* A plan set has an encoder's plans for only one batch size, so the device makes plans if no set is named. */
    const bool tunes = encoders && !is_f32 &&
                       (strcmp(argv[1], "cuda") == 0 ? !getenv("SDTRAIN_CUDA_PLANS")
                                                     : getenv("SDTRAIN_CUDA_LIBRARIES") != NULL);
    checks_open(argv[1], is_f32 ? DATA_F32 : DATA_BF16, tunes);
    (encoders ? check_encoders : check_sd2)(side, grain, kind);
    (void)fprintf(stderr, "%d passes, %d wrong\n", checks.n_passes, checks.n_wrong);
    return checks.n_passes > 0 && checks.n_wrong == 0 ? 0 : 1;
}
