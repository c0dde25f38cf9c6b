/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c - the kinds of operation that a tape can hold: for each, how it is emitted, which kernels it needs, and
 * what its steps call. tape.c does everything else.
 *
 * To add a kind, declare its emitter in tape.h, and define the emitter and an OperationKind here. Its backward_reads
 * must name every input or output whose data its backward reads. */
#include "nn/tape.h"

#include <inttypes.h>
#include <string.h>

/* Returns an operation with only x as input. The emitter of the kind adds other inputs and the shape. */
static Operation operation_of(const OperationKind *kind, Layer layer, ValueId x)
{
    return (Operation){.kind = kind, .layer = layer, .in = {x, NO_VALUE, NO_VALUE}};
}

static const Layer no_layer = {0};

static void *packed(const Tape *tape, const Operation *op)
{
    return op->packed_bytes > 0 ? tape->packed + op->packed_offset : NULL;
}

static const float *weight(const Tape *tape, const Operation *op)
{
    return tape->weights + op->layer.weight;
}

static const float *bias(const Tape *tape, const Operation *op)
{
    return op->layer.bias < 0 ? NULL : tape->weights + op->layer.bias;
}

/* Returns the form of the gradient of a parameter that is a vector. */
static GradientForm vector_form(const Operation *op)
{
    return (GradientForm){DATA_F32, GRADIENT_AS_STATE, op->layer.out, 1, 1};
}

static void *in_data(const Tape *tape, const Operation *op, int i)
{
    return tape_data(tape, op->in[i]);
}

static void *in_gradient(const Tape *tape, const Operation *op, int i)
{
    return tape_gradient(tape, op->in[i]);
}

static void *out_data(const Tape *tape, const Operation *op) { return tape_data(tape, op->out); }

static void *out_gradient(const Tape *tape, const Operation *op)
{
    return tape_gradient(tape, op->out);
}

static const Value *in_value(const Tape *tape, const Operation *op, int i)
{
    return &tape->values[op->in[i]];
}

static int64_t rows_of(const Value *value) { return (int64_t)value->n * value->h * value->w; }

/* ---- convolution ---- */

static int conv_plan(Tape *tape, Operation *op, Error *err)
{
    op->shape.conv.forward_only = !tape->trains;
    op->shape.conv.own_kernels = tape->own_kernels;
    int r = conv_new(tape->device, &op->shape.conv, &op->kernel.conv, err);
    if (r < 0)
        return r;
    op->form = conv_gradient_form(op->kernel.conv);
    op->packed_bytes = conv_packed_bytes(op->kernel.conv);
    op->workspace_bytes = conv_workspace_bytes(op->kernel.conv);
    return 0;
}

static void conv_pack_weights(const Tape *tape, const Operation *op)
{
    conv_pack(op->kernel.conv, weight(tape, op), packed(tape, op));
}

static void conv_run_forward(const Tape *tape, const Operation *op)
{
    conv_forward(op->kernel.conv, in_data(tape, op, IN_X), packed(tape, op), bias(tape, op),
                 in_data(tape, op, IN_SECOND), in_data(tape, op, IN_RESIDUAL), out_data(tape, op),
                 tape->workspace);
}

static void conv_run_backward(const Tape *tape, const Operation *op)
{
    const Value *out = &tape->values[op->out];
    void *dy = out_gradient(tape, op), *dx = in_gradient(tape, op, IN_X);
    void *dper_image = in_gradient(tape, op, IN_SECOND);

    /* each projection of the time embedding is the input of only one convolution */
    assert(!op->accumulate[IN_SECOND]);
    if (dper_image)
        spatial_sum(tape->device, out->n, (int64_t)out->h * out->w, out->c, dy, dper_image);
    conv_backward_weight(op->kernel.conv, in_data(tape, op, IN_X), dy,
                         tape_weight_gradient(tape, op), tape_bias_gradient(tape, op),
                         tape->workspace);
    tape_take_gradients(tape, op);
    if (dx)
        conv_backward_data(op->kernel.conv, dy, weight(tape, op), packed(tape, op), dx,
                           op->accumulate[IN_X], tape->workspace);
}

static void conv_release(Operation *op) { op->kernel.conv = conv_free(op->kernel.conv); }

static void conv_describe(const Tape *tape, const Operation *op, char *text, size_t size)
{
    (void)tape; /* the shape is the whole description */
    const ConvShape *s = &op->shape.conv;
    (void)snprintf(text, size, "%dx%dx%d %d->%d k%d s%d%s", s->n, s->h, s->w, s->c_in, s->c_out,
                   s->kernel, s->stride, s->pad_end ? " end" : "");
}

static void conv_report_plan(const Operation *op, KernelPass pass, char *text, size_t size)
{
    conv_plan_text(op->kernel.conv, pass, text, size);
}

static const OperationKind conv_kind = {
    .name = "conv",
    .backward_reads = 1u << IN_X,
    .plan = conv_plan,
    .pack = conv_pack_weights,
    .forward = conv_run_forward,
    .backward = conv_run_backward,
    .release = conv_release,
    .describe = conv_describe,
    .plan_text = conv_report_plan,
};

static ValueId emit_conv(Tape *tape, Layer layer, ValueId x, int stride, bool pad_end,
                         ValueId per_image, ValueId residual)
{
    const Value v = *tape_value(tape, x);
    Operation op = operation_of(&conv_kind, layer, x);
    op.in[IN_SECOND] = per_image;
    op.in[IN_RESIDUAL] = residual;
    op.shape.conv = (ConvShape){.n = v.n,
                                .h = v.h,
                                .w = v.w,
                                .c_in = layer.in,
                                .c_out = layer.out,
                                .kernel = layer.kernel,
                                .stride = stride,
                                .pad_end = pad_end};
    assert(tape->r < 0 || v.c == layer.in);
    return tape_emit(tape, op, v.n, conv_output_side(&op.shape.conv, v.h),
                     conv_output_side(&op.shape.conv, v.w), layer.out);
}

ValueId tape_conv(Tape *tape, Layer layer, ValueId x, int stride, ValueId per_image,
                  ValueId residual)
{
    return emit_conv(tape, layer, x, stride, false, per_image, residual);
}

ValueId tape_conv_end(Tape *tape, Layer layer, ValueId x)
{
    return emit_conv(tape, layer, x, 2, true, NO_VALUE, NO_VALUE);
}

/* ---- linear ---- */

/* If x lies in two tensors, each tensor has its own columns of the weight and its own product. The second product is
 * added to the first. */
int linear_parts(const Tape *tape, const Operation *op, LinearShape parts[2])
{
    const int n_second = op->in[IN_SECOND] == NO_VALUE ? 0 : in_value(tape, op, IN_SECOND)->c;
    parts[0] = parts[1] = op->shape.linear;
    if (n_second == 0)
        return 1;
    parts[0].columns = parts[1].columns = op->layer.in;
    parts[0].in = parts[1].first = op->layer.in - n_second;
    parts[1].in = n_second;
    return 2;
}

static size_t first_packed_bytes(const Operation *op)
{
    return ROUND_UP(linear_packed_bytes(op->kernel.linear[0]), (size_t)DEVICE_ALIGNMENT);
}

static int linear_plan(Tape *tape, Operation *op, Error *err)
{
    LinearShape parts[2];
    op->shape.linear.forward_only = !tape->trains;
    op->shape.linear.own_kernels = tape->own_kernels;
    const int n = linear_parts(tape, op, parts);
    for (int i = 0; i < n; i++) {
        Linear **linear = &op->kernel.linear[i];
        int r = linear_new(tape->device, &parts[i], linear, err);
        if (r < 0)
            return r;
        op->packed_bytes = (i > 0 ? first_packed_bytes(op) : 0) + linear_packed_bytes(*linear);
        op->workspace_bytes = MAX(op->workspace_bytes, linear_workspace_bytes(*linear));
    }
    op->form = linear_gradient_form(op->kernel.linear[0]);
    op->form.in = op->layer.in;
    return 0;
}

/* Returns the address of the packed weights of part i. */
static void *linear_packed(const Tape *tape, const Operation *op, int i)
{
    char *all = packed(tape, op);
    return all && i > 0 ? all + first_packed_bytes(op) : all;
}

static void linear_pack_weights(const Tape *tape, const Operation *op)
{
    for (int i = 0; i < 2 && op->kernel.linear[i]; i++)
        linear_pack(op->kernel.linear[i], weight(tape, op), linear_packed(tape, op, i));
}

static void linear_run_forward(const Tape *tape, const Operation *op)
{
    void *y = out_data(tape, op);
    linear_forward(op->kernel.linear[0], in_data(tape, op, IN_X), weight(tape, op),
                   linear_packed(tape, op, 0), bias(tape, op), in_data(tape, op, IN_RESIDUAL), y,
                   tape->workspace);
    if (op->kernel.linear[1])
        linear_forward(op->kernel.linear[1], in_data(tape, op, IN_SECOND), weight(tape, op),
                       linear_packed(tape, op, 1), NULL, y, y, tape->workspace);
}

static void linear_run_backward(const Tape *tape, const Operation *op)
{
    void *dy = out_gradient(tape, op), *dweight = tape_weight_gradient(tape, op);
    float *dbias = op->maker < 0 ? tape_bias_gradient(tape, op) : NULL;
    for (int i = 0; i < 2 && op->kernel.linear[i]; i++)
        linear_backward_weight(op->kernel.linear[i], in_data(tape, op, IN_X + i), dy, dweight,
                               i == 0 ? dbias : NULL, tape->workspace);
    tape_take_gradients(tape, op);
    for (int i = 0; i < 2 && op->kernel.linear[i]; i++) {
        void *dx = in_gradient(tape, op, IN_X + i);
        if (dx)
            linear_backward_data(op->kernel.linear[i], dy, weight(tape, op),
                                 linear_packed(tape, op, i), dx, op->accumulate[IN_X + i],
                                 tape->workspace);
    }
}

static void linear_release(Operation *op)
{
    for (int i = 0; i < 2; i++)
        op->kernel.linear[i] = linear_free(op->kernel.linear[i]);
}

/* The two parts of a layer have separate plans. If their plan entries differ, writes the names of both entries, without
 * details. */
static void linear_report_plan(const Operation *op, KernelPass pass, char *text, size_t size)
{
    char second[512];
    linear_plan_text(op->kernel.linear[0], pass, text, size);
    if (!op->kernel.linear[1])
        return;
    linear_plan_text(op->kernel.linear[1], pass, second, sizeof(second));
    text[strcspn(text, ":")] = second[strcspn(second, ":")] = '\0';
    const size_t used = strlen(text);
    if (*second && strcmp(text, second) != 0)
        (void)snprintf(text + used, size - used, "%s%s", used ? "; " : "", second);
}

static const OperationKind linear_kind = {
    .name = "linear",
    .backward_reads = 1u << IN_X | 1u << IN_SECOND,
    .takes_sums = true,
    .reads_joined = true,
    .plan = linear_plan,
    .pack = linear_pack_weights,
    .forward = linear_run_forward,
    .backward = linear_run_backward,
    .release = linear_release,
    .plan_text = linear_report_plan,
};

ValueId tape_linear(Tape *tape, Layer layer, ValueId x, ValueId residual)
{
    const Value v = *tape_value(tape, x);
    Operation op = operation_of(&linear_kind, layer, x);
    op.in[IN_RESIDUAL] = residual;
    op.shape.linear = (LinearShape){.rows = rows_of(&v), .in = layer.in, .out = layer.out};
    assert(tape->r < 0 || v.c == layer.in);
    return tape_emit(tape, op, v.n, v.h, v.w, layer.out);
}

/* ---- attention ---- */

/* Addresses of q, k and v. For self-attention all three are in the first value; otherwise k and v are in the second
 * value. */
typedef struct Heads {
    char *q, *k, *v;
} Heads;

static Heads attention_heads(const Tape *tape, const Operation *op, char *first, char *second)
{
    size_t c = (size_t)op->shape.attention.heads * (size_t)op->shape.attention.head_dim;
    size_t bytes = c * tape->element_bytes;
    if (op->in[IN_SECOND] == NO_VALUE)
        return (Heads){first, first + bytes, first + 2 * bytes};
    return (Heads){first, second, second + bytes};
}

static int attention_plan(Tape *tape, Operation *op, Error *err)
{
    op->shape.attention.forward_only = !tape->trains;
    op->shape.attention.own_kernels = tape->own_kernels;
    int r = attention_new(tape->device, &op->shape.attention, &op->kernel.attention, err);
    if (r < 0)
        return r;
    op->saved_bytes = attention_saved_bytes(op->kernel.attention);
    op->workspace_bytes = attention_workspace_bytes(op->kernel.attention);
    return 0;
}

static void attention_run_forward(const Tape *tape, const Operation *op)
{
    Heads h = attention_heads(tape, op, in_data(tape, op, IN_X), in_data(tape, op, IN_SECOND));
    attention_forward(op->kernel.attention, h.q, h.k, h.v, out_data(tape, op), tape_saved(tape, op),
                      tape->workspace);
}

static void attention_run_backward(const Tape *tape, const Operation *op)
{
    Heads h = attention_heads(tape, op, in_data(tape, op, IN_X), in_data(tape, op, IN_SECOND));
    Heads d =
        attention_heads(tape, op, in_gradient(tape, op, IN_X), in_gradient(tape, op, IN_SECOND));
    /* the kernel overwrites the gradients */
    assert(!op->accumulate[IN_X] && !op->accumulate[IN_SECOND]);
    attention_backward(op->kernel.attention, h.q, h.k, h.v, out_data(tape, op),
                       tape_saved(tape, op), out_gradient(tape, op), d.q, d.k, d.v,
                       tape->workspace);
}

static void attention_release(Operation *op)
{
    op->kernel.attention = attention_free(op->kernel.attention);
}

static void attention_describe(const Tape *tape, const Operation *op, char *text, size_t size)
{
    (void)tape; /* the shape is the whole description */
    const AttentionShape *s = &op->shape.attention;
    (void)snprintf(text, size, "n%d h%d d%d %" PRId64 "x%" PRId64 "%s", s->n, s->heads, s->head_dim,
                   s->q_tokens, s->kv_tokens, s->causal ? " causal" : "");
}

static void attention_report_plan(const Operation *op, KernelPass pass, char *text, size_t size)
{
    attention_plan_text(op->kernel.attention, pass, text, size);
}

static const OperationKind attention_kind = {
    .name = "attention",
    .backward_reads = 1u << IN_X | 1u << IN_SECOND | BACKWARD_READS_OUT,
    .plan = attention_plan,
    .forward = attention_run_forward,
    .backward = attention_run_backward,
    .release = attention_release,
    .describe = attention_describe,
    .plan_text = attention_report_plan,
};

static ValueId emit_attention(Tape *tape, ValueId first, ValueId second, int heads, bool causal)
{
    const Value q = *tape_value(tape, first);
    const Value kv = second == NO_VALUE ? q : *tape_value(tape, second);
    int c = second == NO_VALUE ? q.c / 3 : q.c;
    Operation op = operation_of(&attention_kind, no_layer, first);
    op.in[IN_SECOND] = second;
    op.shape.attention = (AttentionShape){.n = q.n,
                                          .heads = heads,
                                          .head_dim = c / heads,
                                          .q_tokens = (int64_t)q.h * q.w,
                                          .kv_tokens = (int64_t)kv.h * kv.w,
                                          .q_stride = q.c,
                                          .kv_stride = kv.c,
                                          .causal = causal};
    assert(tape->r < 0 || (c % heads == 0 && kv.c == (second == NO_VALUE ? 3 : 2) * c));
    return tape_emit(tape, op, q.n, q.h, q.w, c);
}

ValueId tape_self_attention(Tape *tape, ValueId qkv, int heads)
{
    return emit_attention(tape, qkv, NO_VALUE, heads, false);
}

ValueId tape_causal_attention(Tape *tape, ValueId qkv, int heads)
{
    return emit_attention(tape, qkv, NO_VALUE, heads, true);
}

ValueId tape_cross_attention(Tape *tape, ValueId q, ValueId kv, int heads)
{
    return emit_attention(tape, q, kv, heads, false);
}

/* ---- normalisation ---- */

static int group_norm_plan(Tape *tape, Operation *op, Error *err)
{
    (void)err; /* this function cannot fail */
    GroupNormShape *s = &op->shape.group_norm;
    s->c_second = op->in[IN_SECOND] == NO_VALUE ? 0 : in_value(tape, op, IN_SECOND)->c;
    op->form = vector_form(op);
    op->saved_bytes = (size_t)s->n * (size_t)s->groups * 2 * sizeof(float);
    op->workspace_bytes = group_norm_workspace_bytes(tape->device, s);
    return 0;
}

static void group_norm_run_forward(const Tape *tape, const Operation *op)
{
    group_norm_forward(tape->device, &op->shape.group_norm, in_data(tape, op, IN_X),
                       in_data(tape, op, IN_SECOND), weight(tape, op), bias(tape, op),
                       out_data(tape, op), tape_saved(tape, op));
}

static void group_norm_run_backward(const Tape *tape, const Operation *op)
{
    group_norm_backward(tape->device, &op->shape.group_norm, in_data(tape, op, IN_X),
                        in_data(tape, op, IN_SECOND), weight(tape, op), bias(tape, op),
                        tape_saved(tape, op), out_gradient(tape, op), in_gradient(tape, op, IN_X),
                        op->accumulate[IN_X], in_gradient(tape, op, IN_SECOND),
                        op->accumulate[IN_SECOND], tape_weight_gradient(tape, op),
                        tape_bias_gradient(tape, op), tape->workspace);
    tape_take_gradients(tape, op);
}

static const OperationKind group_norm_kind = {
    .name = "group_norm",
    .backward_reads = 1u << IN_X | 1u << IN_SECOND,
    .reads_joined = true,
    .plan = group_norm_plan,
    .forward = group_norm_run_forward,
    .backward = group_norm_run_backward,
};

ValueId tape_group_norm(Tape *tape, Layer layer, ValueId x, int groups, double eps, bool silu)
{
    const Value v = *tape_value(tape, x);
    Operation op = operation_of(&group_norm_kind, layer, x);
    op.shape.group_norm = (GroupNormShape){
        .n = v.n, .h = v.h, .w = v.w, .c = layer.in, .groups = groups, .eps = eps, .silu = silu};
    assert(tape->r < 0 || (v.c == layer.in && v.c % groups == 0));
    return tape_emit(tape, op, v.n, v.h, v.w, v.c);
}

static int layer_norm_plan(Tape *tape, Operation *op, Error *err)
{
    (void)err; /* this function cannot fail */
    const LayerNormShape *s = &op->shape.layer_norm;
    op->form = vector_form(op);
    op->saved_bytes = (size_t)s->rows * 2 * sizeof(float);
    op->workspace_bytes = layer_norm_workspace_bytes(tape->device, s);
    return 0;
}

static void layer_norm_run_forward(const Tape *tape, const Operation *op)
{
    layer_norm_forward(tape->device, &op->shape.layer_norm, in_data(tape, op, IN_X),
                       weight(tape, op), bias(tape, op), out_data(tape, op), tape_saved(tape, op));
}

static void layer_norm_run_backward(const Tape *tape, const Operation *op)
{
    layer_norm_backward(tape->device, &op->shape.layer_norm, in_data(tape, op, IN_X),
                        weight(tape, op), tape_saved(tape, op), out_gradient(tape, op),
                        in_gradient(tape, op, IN_X), op->accumulate[IN_X],
                        tape_weight_gradient(tape, op), tape_bias_gradient(tape, op),
                        tape_sums(tape, op), tape->workspace);
    tape_take_gradients(tape, op);
}

static const OperationKind layer_norm_kind = {
    .name = "layer_norm",
    .backward_reads = 1u << IN_X,
    .sums_gradient = true,
    .plan = layer_norm_plan,
    .forward = layer_norm_run_forward,
    .backward = layer_norm_run_backward,
};

ValueId tape_layer_norm(Tape *tape, Layer layer, ValueId x, double eps)
{
    const Value v = *tape_value(tape, x);
    Operation op = operation_of(&layer_norm_kind, layer, x);
    op.shape.layer_norm = (LayerNormShape){.rows = rows_of(&v), .c = layer.in, .eps = eps};
    assert(tape->r < 0 || v.c == layer.in);
    return tape_emit(tape, op, v.n, v.h, v.w, v.c);
}

/* ---- elementwise and movement ---- */

static void geglu_run_forward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    geglu_forward(tape->device, rows_of(y), y->c, in_data(tape, op, IN_X), out_data(tape, op));
}

static int geglu_plan(Tape *tape, Operation *op, Error *err)
{
    (void)err; /* this function cannot fail */
    const Value *y = &tape->values[op->out];
    if (tape->trains)
        op->workspace_bytes = geglu_workspace_bytes(tape->device, rows_of(y), y->c);
    return 0;
}

static void geglu_run_backward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    assert(!op->accumulate[IN_X]); /* the kernel overwrites the gradient */
    geglu_backward(tape->device, rows_of(y), y->c, in_data(tape, op, IN_X), out_gradient(tape, op),
                   in_gradient(tape, op, IN_X), tape_sums(tape, op), tape->workspace);
}

static const OperationKind geglu_kind = {
    .name = "geglu",
    .backward_reads = 1u << IN_X,
    .sums_gradient = true,
    .plan = geglu_plan,
    .forward = geglu_run_forward,
    .backward = geglu_run_backward,
};

ValueId tape_geglu(Tape *tape, ValueId x)
{
    const Value v = *tape_value(tape, x);
    assert(tape->r < 0 || v.c % 2 == 0);
    return tape_emit(tape, operation_of(&geglu_kind, no_layer, x), v.n, v.h, v.w, v.c / 2);
}

static void silu_run_forward(const Tape *tape, const Operation *op)
{
    silu_forward(tape->device, value_elements(&tape->values[op->out]), in_data(tape, op, IN_X),
                 out_data(tape, op));
}

static void silu_run_backward(const Tape *tape, const Operation *op)
{
    silu_backward(tape->device, value_elements(&tape->values[op->out]), in_data(tape, op, IN_X),
                  out_gradient(tape, op), in_gradient(tape, op, IN_X), op->accumulate[IN_X]);
}

static const OperationKind silu_kind = {
    .name = "silu",
    .backward_reads = 1u << IN_X,
    .forward = silu_run_forward,
    .backward = silu_run_backward,
};

ValueId tape_silu(Tape *tape, ValueId x)
{
    const Value v = *tape_value(tape, x);
    return tape_emit(tape, operation_of(&silu_kind, no_layer, x), v.n, v.h, v.w, v.c);
}

static void gelu_run_forward(const Tape *tape, const Operation *op)
{
    gelu_forward(tape->device, value_elements(&tape->values[op->out]), in_data(tape, op, IN_X),
                 out_data(tape, op));
}

static const OperationKind gelu_kind = {
    .name = "gelu",
    .forward = gelu_run_forward,
};

ValueId tape_gelu(Tape *tape, ValueId x)
{
    const Value v = *tape_value(tape, x);
    return tape_emit(tape, operation_of(&gelu_kind, no_layer, x), v.n, v.h, v.w, v.c);
}

/* The layer's weight is the table of words, its bias the table of positions. */
static void embedding_run_forward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    embedding_forward(tape->device, y->n, y->w, y->c, weight(tape, op), bias(tape, op),
                      in_data(tape, op, IN_X), out_data(tape, op));
}

static const OperationKind embedding_kind = {
    .name = "embedding",
    .forward = embedding_run_forward,
};

ValueId tape_embedding(Tape *tape, Layer layer, ValueId ids)
{
    const Value v = *tape_value(tape, ids);
    assert(tape->r < 0 || (v.h == 1 && v.c == 1 && v.w <= layer.in && v.is_bound));
    return tape_emit(tape, operation_of(&embedding_kind, layer, ids), v.n, 1, v.w, layer.out);
}

static void concat_run_forward(const Tape *tape, const Operation *op)
{
    const Value *a = in_value(tape, op, IN_X), *b = in_value(tape, op, IN_SECOND);
    concat_forward(tape->device, rows_of(a), a->c, b->c, in_data(tape, op, IN_X),
                   in_data(tape, op, IN_SECOND), out_data(tape, op));
}

static void concat_run_backward(const Tape *tape, const Operation *op)
{
    const Value *a = in_value(tape, op, IN_X), *b = in_value(tape, op, IN_SECOND);
    concat_backward(tape->device, rows_of(a), a->c, b->c, out_gradient(tape, op),
                    in_gradient(tape, op, IN_X), op->accumulate[IN_X],
                    in_gradient(tape, op, IN_SECOND), op->accumulate[IN_SECOND]);
}

static const OperationKind concat_kind = {
    .name = "concat",
    .joins = true,
    .forward = concat_run_forward,
    .backward = concat_run_backward,
};

ValueId tape_concat(Tape *tape, ValueId a, ValueId b)
{
    const Value va = *tape_value(tape, a), vb = *tape_value(tape, b);
    Operation op = operation_of(&concat_kind, no_layer, a);
    op.in[IN_SECOND] = b;
    assert(tape->r < 0 || (a != b && va.h == vb.h && va.w == vb.w));
    assert(tape->r < 0 || va.wants_gradient == vb.wants_gradient);
    return tape_emit(tape, op, va.n, va.h, va.w, va.c + vb.c);
}

static void upsample_run_forward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    upsample_forward(tape->device, y->n, y->h, y->w, y->c, in_data(tape, op, IN_X),
                     out_data(tape, op));
}

static void upsample_run_backward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    upsample_backward(tape->device, y->n, y->h, y->w, y->c, out_gradient(tape, op),
                      in_gradient(tape, op, IN_X), op->accumulate[IN_X]);
}

static const OperationKind upsample_kind = {
    .name = "upsample",
    .forward = upsample_run_forward,
    .backward = upsample_run_backward,
};

ValueId tape_upsample(Tape *tape, ValueId x, int h, int w)
{
    const Value v = *tape_value(tape, x);
    assert(tape->r < 0 || (v.h == (h + 1) / 2 && v.w == (w + 1) / 2));
    return tape_emit(tape, operation_of(&upsample_kind, no_layer, x), v.n, h, w, v.c);
}

static void time_run_forward(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    time_embedding(tape->device, y->n, y->c, op->shape.time.flip_sin_to_cos,
                   op->shape.time.freq_shift, in_data(tape, op, IN_X), out_data(tape, op));
}

static const OperationKind time_kind = {
    .name = "time_embedding",
    .forward = time_run_forward,
};

ValueId tape_time_embedding(Tape *tape, ValueId timesteps, int c, bool flip_sin_to_cos,
                            double freq_shift)
{
    const Value v = *tape_value(tape, timesteps);
    Operation op = operation_of(&time_kind, no_layer, timesteps);
    op.shape.time.flip_sin_to_cos = flip_sin_to_cos;
    op.shape.time.freq_shift = freq_shift;
    return tape_emit(tape, op, v.n, 1, 1, c);
}
