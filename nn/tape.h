/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - a network as a list of operations, planned once for one shape and then run many times.
 *
 * 1. Emit. Layers declare parameters. tape_conv() and its like append one Operation each and return
 *    the Value that it will produce. Nothing is computed and no device is needed: a tape that is only
 *    emitted serves as the list of the network's parameters.
 * 2. Plan. tape_measure() lays out the schedule - every operation forward in order, then, for
 *    training, every operation backward in reverse - and finds for each buffer (a value's data, its
 *    gradient, what an operation saves for its backward) the first and the last step that touches
 *    it. The planner packs them into one arena, where dead memory is used again.
 * 3. Run. tape_forward() and tape_backward() walk the schedule through kernels.h. They allocate
 *    nothing, copy nothing, and never look at device memory from the host. The gradient of a layer's
 *    parameters lies in the workspace until, right after it was computed, the sink has taken it; only a
 *    plain sink is written to by the kernels themselves.
 *
 * Gradients need no clearing: the first writer of a gradient overwrites it, later ones add. Where
 * an operation adds a residual, the residual's gradient is the output's gradient; when nothing was
 * written there yet, the two are one buffer and the step costs nothing.
 *
 * Ownership: tape_new() gives the caller a Tape; it borrows the Device and bound memory.
 * Units:     values are NHWC; an image is its own tokens, a text is h = 1, w = tokens.
 * Errors:    emitting never fails by itself: the first error sticks and tape_measure() returns it.
 * Threads:   the device's.
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
    bool is_bound;       /* its memory is tape_bind()'s, not the arena's */
    bool wants_gradient; /* a parameter is upstream of it */
    int data, gradient;  /* indices into Tape.buffers; NO_BUFFER when bound or not wanted */
    void *bound, *bound_gradient;
} Value;

/* The parameters of one operation: one range of the flat buffer. */
typedef struct Layer {
    size_t first_parameter; /* index in the parameter list, for names */
    int64_t weight;         /* offset in the flat buffer */
    int64_t bias;           /* offset in the flat buffer; -1: none */
    int n_weights;      /* tensors that the weight is joined of, all of one shape; and the bias */
    int64_t n_elements; /* weight and bias together; 0: an operation without parameters */
    int in, out, kernel;
} Layer;

/* The inputs of an operation, by role. */
enum { IN_X, IN_SECOND, IN_RESIDUAL, INPUTS_MAX };

struct Operation {
    const OperationKind *kind;
    ValueId in
        [INPUTS_MAX]; /* IN_SECOND: conv's per_image, concat's b, attention's k and v; the channels
                               behind those of IN_X, where a device reads a concat's inputs instead */
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
        Linear *linear[2]; /* of IN_X, and of IN_SECOND */
        Attention *attention;
    } kernel;
    GradientForm form;                  /* of its weight's gradient */
    size_t packed_bytes, packed_offset; /* of its packed weights in Tape.packed */
    size_t saved_bytes;                 /* that forward keeps for backward */
    size_t workspace_bytes;
    int saved; /* index into Tape.buffers */
    int maker; /* the operation whose backward makes the gradient of its bias; -1: its own */
    int made;  /* the operation whose bias' gradient its backward makes; -1: none */
    int bias_gradient;           /* index into Tape.buffers: what a maker leaves; else NO_BUFFER */
    bool accumulate[INPUTS_MAX]; /* backward adds to the gradient of that input */
    bool runs_backward;          /* some gradient is upstream of it */
};

/* A bias' gradient is a sum of columns of the gradient of its operation's output. The operation that writes the
 * output's gradient last can make the sum on the way, and spares a pass that reads that gradient again: `maker` and
 * `made` pair the two operations. */

/* One kind of operation: what the planner must know of it, and the steps that it can run. */
struct OperationKind {
    const char *name;
    unsigned backward_reads; /* backward needs the data of: 1 << IN_*, BACKWARD_READS_OUT */
    bool sums_gradient;      /* backward can sum the columns of the gradient of IN_X: tape_sums() */
    bool takes_sums; /* backward leaves the gradient of its bias to the maker, if it has one */
    bool joins;      /* its result is IN_X and IN_SECOND side by side */
    bool
        reads_joined; /* IN_X may be the first channels, and IN_SECOND the others: reads_joined() of kernels.h */
    int (*plan)(Tape *tape, Operation *op, Error *err);  /* kernel objects and sizes; may be NULL */
    void (*pack)(const Tape *tape, const Operation *op); /* may be NULL */
    void (*forward)(const Tape *tape, const Operation *op);
    void (*backward)(const Tape *tape, const Operation *op); /* NULL: such a tape is not trained */
    void (*release)(Operation *op);                          /* may be NULL */
    /* Writes its shape; NULL: that of x, and the output's channels. */
    void (*describe)(const Tape *tape, const Operation *op, char *text, size_t size);
    /* As conv_plan_text() of kernels.h; NULL: no library computes it. */
    void (*plan_text)(const Operation *op, KernelPass pass, char *text, size_t size);
};

enum { BACKWARD_READS_OUT = 1u << INPUTS_MAX };

/* Called after every step, for code that compares, profiles or tests. false: the run ends behind this step. */
typedef enum TapePhase { TAPE_PACK, TAPE_FORWARD, TAPE_BACKWARD } TapePhase;
typedef bool (*TapeObserver)(const Tape *tape, TapePhase phase, size_t operation, void *userdata);

struct Tape {
    Device *device; /* NULL until tape_measure() */
    bool trains;    /* it runs backward */
    bool
        own_kernels; /* set before tape_measure(): no operation is a library's, whatever the device's plans say */
    ParameterList *parameters;
    Value *values;
    size_t n_values;
    Operation *operations;
    size_t n_operations;
    PlannedBuffer *buffers;
    size_t n_buffers;
    size_t element_bytes; /* of the compute type */
    size_t arena_bytes, packed_bytes;
    size_t
        workspace_bytes; /* all of it; gradients of parameters lie in it from scratch_offset on */
    size_t scratch_offset;
    char *arena, *workspace, *packed; /* device memory */
    const float *weights;             /* flat, of the newest tape_set_weights() */
    GradientSink sink;                /* of the backward that is running */
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
/* Two linear layers without bias over one input, declared one after the other, as one whose output
 * is [a | b]. */
Layer tape_join(Layer a, Layer b);

/* n linear layers with bias over one input, as one whose output is [a | b | ...]. The weights are declared one after
 * another, then the biases. */
Layer tape_linear_layers(Tape *tape, const char *const *names, int n, int in, int out);
/* Two tables of rows of c: of words, and of positions. */
Layer tape_embedding_layer(Tape *tape, const char *words, int n_words, const char *positions,
                           int n_positions, int c);

/* ---- emit: values and operations ---- */

/* A value that the caller binds, without a gradient. */
ValueId tape_input(Tape *tape, int n, int h, int w, int c);
/* Makes value and its gradient lie where the caller binds them. Its operation must have no
 * residual. */
void tape_output(Tape *tape, ValueId value);
/* Borrowed until the next value is emitted. */
const Value *tape_value(const Tape *tape, ValueId value);

/* conv(x) + bias + per_image + residual; 3x3 with padding 1. The last two may be NO_VALUE. */
ValueId tape_conv(Tape *tape, Layer layer, ValueId x, int stride, ValueId per_image,
                  ValueId residual);
/* As tape_conv() without the last two, 3x3 with stride 2, padded only at the right and the bottom
 * (ConvShape.pad_end). */
ValueId tape_conv_end(Tape *tape, Layer layer, ValueId x);
/* A linear layer of every token or pixel, which is a 1x1 convolution, too. residual may be
 * NO_VALUE. */
ValueId tape_linear(Tape *tape, Layer layer, ValueId x, ValueId residual);
/* Self-attention; qkv is [q | k | v]. */
ValueId tape_self_attention(Tape *tape, ValueId qkv, int heads);
/* As tape_self_attention(), but a token sees only itself and the ones before it. */
ValueId tape_causal_attention(Tape *tape, ValueId qkv, int heads);
/* Attention of q to kv, which is [k | v]. */
ValueId tape_cross_attention(Tape *tape, ValueId q, ValueId kv, int heads);
ValueId tape_group_norm(Tape *tape, Layer layer, ValueId x, int groups, double eps, bool silu);
ValueId tape_layer_norm(Tape *tape, Layer layer, ValueId x, double eps);
ValueId tape_geglu(Tape *tape, ValueId x);
/* For inference: like tape_embedding(), it has no backward. */
ValueId tape_gelu(Tape *tape, ValueId x);
/* ids: an input of n x 1 x tokens x 1 of int32_t, each of which has a row of words; as many tokens as positions at the
 * most. The result is n x 1 x tokens x c. */
ValueId tape_embedding(Tape *tape, Layer layer, ValueId ids);
ValueId tape_silu(Tape *tape, ValueId x);
ValueId tape_concat(Tape *tape, ValueId a, ValueId b);
/* Doubles x to h x w; x has half of each side, rounded up. */
ValueId tape_upsample(Tape *tape, ValueId x, int h, int w);
ValueId tape_time_embedding(Tape *tape, ValueId timesteps, int c, bool flip_sin_to_cos,
                            double freq_shift);

/* ---- plan ---- */

/* Makes the kernels and plans the schedule with all sizes. A value that nothing reads keeps its place for
 * one step. -ENOTSUP: an operation that `backward` would have to run has none. */
int tape_measure(Tape *tape, Device *device, bool backward, Error *err);
/* tape_measure() calls it first: where the device's kernels read two tensors as one, a concat that only such operations
 * read leaves the tape, and they get its inputs. */
void tape_skip_concats(Tape *tape, const Device *device);
/* Allocates the memory, without which nothing below works. */
int tape_allocate(Tape *tape, Error *err);

/* ---- run ---- */

void tape_bind(Tape *tape, ValueId value, const void *data);
void tape_bind_output(Tape *tape, ValueId value, void *data);
void tape_bind_gradient(Tape *tape, ValueId value, const void *gradient);
/* Packs the weights for the kernels that want them packed. weights: flat, device memory, read until
 * the next call. */
void tape_set_weights(Tape *tape, const float *weights);
void tape_forward(const Tape *tape);
/* After tape_forward(), with the same inputs still in place. Brings all gradients of parameters into the
 * sink. Calls on_ready with the range of every operation's parameters once they are there. */
void tape_backward(Tape *tape, const GradientSink *sink,
                   void (*on_ready)(int64_t offset, int64_t n_elements, void *userdata),
                   void *userdata);

/* "conv 8x32x32 64->64 k3 down_blocks.0.resnets.0.conv1" */
void tape_describe(const Tape *tape, size_t operation, char *text, size_t size);

/* ---- for operations.c ---- */

ValueId tape_emit(Tape *tape, Operation op, int n, int h, int w, int c);
void *tape_data(const Tape *tape, ValueId value);     /* NULL for NO_VALUE */
void *tape_gradient(const Tape *tape, ValueId value); /* NULL where none is wanted */
void *tape_saved(const Tape *tape, const Operation *op);
/* Where the backward leaves the gradients of the operation's parameters; NULL for a bias that it does not have. */
void *tape_weight_gradient(const Tape *tape, const Operation *op);
float *tape_bias_gradient(const Tape *tape, const Operation *op);
/* Where backward shall leave the column sums of the gradient of IN_X, which are the gradient of another operation's
 * bias; NULL where they are not wanted. */
float *tape_sums(const Tape *tape, const Operation *op);
/* To be called when the operation's gradients are there. */
void tape_take_gradients(const Tape *tape, const Operation *op);
int64_t value_elements(const Value *value);
/* Fills in the layer's one part, or its two parts where its x is in two tensors; returns how many. */
int linear_parts(const Tape *tape, const Operation *op, LinearShape parts[2]);
