/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - a network as a list of operations, planned once for one shape and then run many times.
 *
 * 1. Emit. Layers declare parameters. tape_conv() and the other emitters append one Operation each and return the Value
 *    that the operation will produce. Nothing is computed and no device is needed: a tape that is only emitted serves
 *    as the list of the network's parameters.
 * 2. Plan. tape_measure() lays out the schedule - every operation forward in order, then, for training, every operation
 *    backward in reverse - and finds for each buffer (a value's data, its gradient, what an operation saves for its
 *    backward) the first and the last step that uses it. The planner packs the buffers into one arena, where memory of
 *    buffers that are no longer needed is used again.
 * 3. Run. tape_forward() and tape_backward() walk the schedule through kernels.h. They allocate nothing, copy nothing,
 *    and never read device memory from the host. A kernel writes the gradient of a layer's parameters into the
 *    workspace, and the sink takes it right afterwards; only into a plain sink do the kernels write directly.
 *
 * Gradients need no clearing: the first writer of a gradient overwrites it, later writers add. Where an operation adds
 * a residual, the residual's gradient is the output's gradient; if the residual's gradient has no earlier writer, both
 * gradients share one buffer and the step costs nothing.
 *
 * Folder:    defaults of the headers here: Threads: the device's.
 * Ownership: tape_new() gives the caller a Tape. The tape borrows the Device and the bound memory.
 * Units:     values are NHWC; an image is its own tokens, a text is h = 1, w = tokens.
 * Errors:    emitting never fails by itself: the first error sticks and tape_measure() returns it.
 */
#pragma once

#include "kernels/kernels.h"
#include "nn/parameters.h"
#include "nn/planner.h"

typedef struct Tape Tape;
typedef struct Operation Operation;
typedef struct OperationKind OperationKind;

typedef int ValueId;
enum { NO_VALUE = -1, NO_BUFFER = -1 };

/* ---- parts of a tape; read-only outside of tape.c and operations.c ---- */

typedef struct Value {
    int n, h, w, c;
    /* the caller binds the value's memory with tape_bind(); the arena does not hold it */
    bool is_bound;
    bool wants_gradient; /* the value depends on a parameter */
    /* indices into Tape.buffers; NO_BUFFER: the caller binds the memory, or no gradient is wanted */
    int data, gradient;
    void *bound, *bound_gradient;
} Value;

/* The parameters of one operation: one range of the flat buffer. */
typedef struct Layer {
    /* index of the layer's first parameter in the parameter list, which has the names */
    size_t first_parameter;
    int64_t weight; /* offset in the flat buffer */
    int64_t bias;   /* offset in the flat buffer; -1: none */
    /* number of tensors of one size that are joined into the weight; the bias is joined from as many tensors */
    int n_weights;
    /* elements of weight and bias together; 0: the operation has no parameters */
    int64_t n_elements;
    int in, out, kernel;
} Layer;

/* The inputs of an operation, by role. */
enum { IN_X, IN_SECOND, IN_RESIDUAL, INPUTS_MAX };

struct Operation {
    const OperationKind *kind;
    /* IN_SECOND: conv's per_image, concat's b, attention's k and v; or the channels after those of IN_X, if the device
     * reads a concat's inputs directly. */
    ValueId in[INPUTS_MAX];
    ValueId out;
    Layer layer;
    union {
        ConvShape conv;
        LinearShape linear;
        AttentionShape attention;
        GroupNormShape group_norm;
        LayerNormShape layer_norm;
        struct {
            bool flip_sin_to_cos;
            double freq_shift;
        } time;
    } shape;
    union {
        Conv *conv;
        Linear *linear[2]; /* [0] for IN_X, [1] for IN_SECOND */
        Attention *attention;
    } kernel;
    GradientForm form;                  /* form of the gradient of the operation's weight */
    size_t packed_bytes, packed_offset; /* size and place of the packed weights in Tape.packed */
    size_t saved_bytes;                 /* bytes that forward keeps for backward */
    size_t workspace_bytes;
    int saved; /* index into Tape.buffers of the bytes that forward keeps */
    /* index of the operation whose backward makes the gradient of this operation's bias; -1: this operation's own
     * backward */
    int maker;
    /* index of another operation, if this operation's backward makes the gradient of that operation's bias; -1: none */
    int made;
    /* index into Tape.buffers of the gradient that the maker writes; NO_BUFFER without a maker */
    int bias_gradient;
    /* for each input: backward adds to the input's gradient instead of overwriting it */
    bool accumulate[INPUTS_MAX];
    bool runs_backward; /* the operation runs backward, since its output depends on a parameter */
};

/* The gradient of a bias is the sum of columns of the gradient of its operation's output. The operation that writes the
 * output's gradient last can compute this sum at the same time, which saves reading the gradient again: `maker` and
 * `made` pair the two operations. */

/* One kind of operation: the properties that the planner needs, and the steps that the kind can run. */
struct OperationKind {
    const char *name;
    unsigned backward_reads; /* data that backward reads: bits 1 << IN_* and BACKWARD_READS_OUT */
    /* backward can sum the columns of the gradient of IN_X; see tape_sums() */
    bool sums_gradient;
    /* if the operation has a maker, backward leaves the gradient of its bias to the maker */
    bool takes_sums;
    bool joins; /* the result is IN_X and IN_SECOND side by side */
    /* IN_X may be the first channels and IN_SECOND the other channels of one input; see reads_joined() of kernels.h. */
    bool reads_joined;
    /* makes kernel objects and computes sizes; may be NULL */
    int (*plan)(Tape *tape, Operation *op, Error *err);
    void (*pack)(const Tape *tape, const Operation *op); /* may be NULL */
    void (*forward)(const Tape *tape, const Operation *op);
    /* NULL: a tape with this kind cannot be trained */
    void (*backward)(const Tape *tape, const Operation *op);
    void (*release)(Operation *op); /* may be NULL */
    /* Writes the operation's shape; NULL: the shape of x and the channels of the output are written. */
    void (*describe)(const Tape *tape, const Operation *op, char *text, size_t size);
    /* Writes the text of a plan, as conv_plan_text() of kernels.h does; NULL: no library computes this kind. */
    void (*plan_text)(const Operation *op, KernelPass pass, char *text, size_t size);
};

enum { BACKWARD_READS_OUT = 1u << INPUTS_MAX };

/* Called after every step, for code that compares, profiles or tests. If the observer returns false, the run ends after
 * this step. */
typedef enum TapePhase { TAPE_PACK, TAPE_FORWARD, TAPE_BACKWARD } TapePhase;
typedef bool (*TapeObserver)(const Tape *tape, TapePhase phase, size_t operation, void *userdata);

struct Tape {
    Device *device; /* NULL until tape_measure() */
    bool trains;    /* the tape is planned for backward, too */
    /* Set before tape_measure(): all operations use the project's own kernels, whatever the device's plans say. */
    bool own_kernels;
    ParameterList *parameters;
    Value *values;
    size_t n_values;
    Operation *operations;
    size_t n_operations;
    PlannedBuffer *buffers;
    size_t n_buffers;
    size_t element_bytes; /* size of an element of the compute type */
    size_t arena_bytes, packed_bytes;
    /* size of the whole workspace; gradients of parameters lie in it from scratch_offset on */
    size_t workspace_bytes;
    size_t scratch_offset;
    char *arena, *workspace, *packed; /* device memory */
    const float *weights;             /* flat buffer that tape_set_weights() got last */
    GradientSink sink;                /* the sink of the backward that is running */
    TapeObserver observer;            /* NULL: none */
    void *observer_userdata;
    int r; /* first error while emitting */
};

int tape_new(Tape **ret);
Tape *tape_free(Tape *tape);
DEFINE_CLEANUP(Tape, tape_free)

/* ---- emit: layers, in the order of the parameter list ---- */

Layer tape_conv_layer(Tape *tape, const char *name, int in, int out, int kernel);
Layer tape_linear_layer(Tape *tape, const char *name, int in, int out, bool bias);
Layer tape_norm_layer(Tape *tape, const char *name, int c);
/* Joins two linear layers over one input, without bias and declared one after the other, into one layer with the output
 * [a | b]. */
Layer tape_join(Layer a, Layer b);

/* Declares n linear layers with bias over one input, as one layer with the output [a | b | ...]. All weights are
 * declared first, then all biases. */
Layer tape_linear_layers(Tape *tape, const char *const *names, int n, int in, int out);
/* Declares two tables with rows of c elements: one of words, one of positions. */
Layer tape_embedding_layer(Tape *tape, const char *words, int n_words, const char *positions,
                           int n_positions, int c);

/* ---- emit: values and operations ---- */

/* Adds a value that the caller binds. It has no gradient. */
ValueId tape_input(Tape *tape, int n, int h, int w, int c);
/* Makes the value and its gradient lie in memory that the caller binds. The operation that produces the value must have
 * no residual. */
void tape_output(Tape *tape, ValueId value);
/* The pointer is valid until the next value is emitted. */
const Value *tape_value(const Tape *tape, ValueId value);

/* conv(x) + bias + per_image + residual; a 3x3 kernel has padding 1. per_image and residual may be NO_VALUE. */
ValueId tape_conv(Tape *tape, Layer layer, ValueId x, int stride, ValueId per_image,
                  ValueId residual);
/* Like tape_conv() without per_image and residual, 3x3 with stride 2, padded only at the right and the bottom
 * (ConvShape.pad_end). */
ValueId tape_conv_end(Tape *tape, Layer layer, ValueId x);
/* A linear layer on every token or pixel; this is also a 1x1 convolution. residual may be NO_VALUE. */
ValueId tape_linear(Tape *tape, Layer layer, ValueId x, ValueId residual);
/* Self-attention; qkv is [q | k | v]. */
ValueId tape_self_attention(Tape *tape, ValueId qkv, int heads);
/* Like tape_self_attention(), but each token attends only to itself and to earlier tokens. */
ValueId tape_causal_attention(Tape *tape, ValueId qkv, int heads);
/* Attention of q to kv, which is [k | v]. */
ValueId tape_cross_attention(Tape *tape, ValueId q, ValueId kv, int heads);
ValueId tape_group_norm(Tape *tape, Layer layer, ValueId x, int groups, double eps, bool silu);
ValueId tape_layer_norm(Tape *tape, Layer layer, ValueId x, double eps);
ValueId tape_geglu(Tape *tape, ValueId x);
/* tape_gelu() and tape_embedding() are only for inference: they have no backward. */
ValueId tape_gelu(Tape *tape, ValueId x);
/* ids is an input of n x 1 x tokens x 1 of int32_t; each id is a row of the table of words. There are at most as many
 * tokens as positions. The result is n x 1 x tokens x c. */
ValueId tape_embedding(Tape *tape, Layer layer, ValueId ids);
ValueId tape_silu(Tape *tape, ValueId x);
ValueId tape_concat(Tape *tape, ValueId a, ValueId b);
/* Doubles x to h x w. The sides of x are h / 2 and w / 2, rounded up. */
ValueId tape_upsample(Tape *tape, ValueId x, int h, int w);
ValueId tape_time_embedding(Tape *tape, ValueId timesteps, int c, bool flip_sin_to_cos,
                            double freq_shift);

/* ---- plan ---- */

/* Makes the kernels, plans the schedule and computes all sizes. A value that no operation reads keeps its memory for
 * one step. Returns -ENOTSUP if `backward` is set and an operation that must run backward has no backward. */
int tape_measure(Tape *tape, Device *device, bool backward, Error *err);
/* The first step of tape_measure(). If the device has kernels that read two tensors as one, removes each concat that
 * only operations with such kernels read, and gives these operations the concat's inputs. */
void tape_skip_concats(Tape *tape, const Device *device);
/* Allocates the memory, which every function below needs. */
int tape_allocate(Tape *tape, Error *err);

/* ---- run ---- */

void tape_bind(Tape *tape, ValueId value, const void *data);
void tape_bind_output(Tape *tape, ValueId value, void *data);
void tape_bind_gradient(Tape *tape, ValueId value, const void *gradient);
/* Packs the weights for the kernels that need packed weights. weights: flat, device memory, read until the next
 * call. */
void tape_set_weights(Tape *tape, const float *weights);
void tape_forward(const Tape *tape);
/* Called after tape_forward(), with the same inputs still in place. Writes all gradients of parameters into the sink.
 * After each operation it calls on_ready with the range of the operation's parameters, whose gradients are then
 * complete. */
void tape_backward(Tape *tape, const GradientSink *sink,
                   void (*on_ready)(int64_t offset, int64_t n_elements, void *userdata),
                   void *userdata);

/* Writes a text such as "conv 8x32x32 64->64 k3 down_blocks.0.resnets.0.conv1". */
void tape_describe(const Tape *tape, size_t operation, char *text, size_t size);

/* ---- for operations.c ---- */

ValueId tape_emit(Tape *tape, Operation op, int n, int h, int w, int c);
void *tape_data(const Tape *tape, ValueId value);     /* NULL for NO_VALUE */
void *tape_gradient(const Tape *tape, ValueId value); /* NULL if the value wants no gradient */
void *tape_saved(const Tape *tape, const Operation *op);
/* Return where backward must write the gradients of the operation's parameters; NULL for the bias if the operation has
 * none. */
void *tape_weight_gradient(const Tape *tape, const Operation *op);
float *tape_bias_gradient(const Tape *tape, const Operation *op);
/* Returns where backward must write the sums of the columns of IN_X's gradient. These sums are the gradient of another
 * operation's bias. NULL: the sums are not wanted. */
float *tape_sums(const Tape *tape, const Operation *op);
/* Gives the gradients of the operation's parameters to the sink. The operation's backward calls this function when
 * these gradients are computed. */
void tape_take_gradients(const Tape *tape, const Operation *op);
int64_t value_elements(const Value *value);
/* Fills in the shape of the layer's one part, or of its two parts if its x lies in two tensors. Returns the number of
 * parts. */
int linear_parts(const Tape *tape, const Operation *op, LinearShape parts[2]);
