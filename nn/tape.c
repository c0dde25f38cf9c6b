/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c - see tape.h: emitting, planning and running. The work of each kind of operation is in
 * operations.c. */
#include "nn/tape.h"

#include <limits.h>
#include <string.h>

int tape_new(Tape **ret)
{
    _cleanup_(tape_freep) Tape *tape = calloc(1, sizeof(*tape));
    if (!tape)
        return -ENOMEM;
    int r = parameter_list_new(&tape->parameters);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(tape);
    return 0;
}

Tape *tape_free(Tape *tape)
{
    if (!tape)
        return NULL;
    for (size_t i = 0; i < tape->n_operations; i++)
        if (tape->operations[i].kind->release)
            tape->operations[i].kind->release(&tape->operations[i]);
    char *const memory[] = {tape->arena, tape->workspace, tape->packed};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        if (memory[i])
            device_release(tape->device, memory[i]);
    (void)parameter_list_free(tape->parameters);
    free(tape->buffers);
    free(tape->values);
    free(tape->operations);
    free(tape);
    return NULL;
}

/* ---- emit ---- */

/* Makes room for one more element; the array's capacity doubles when n is a power of two. Sets tape->r on failure. */
static bool grow(Tape *tape, void **array, size_t n, size_t element_bytes)
{
    if (tape->r < 0)
        return false;
    if ((n & (n - 1)) != 0)
        return true;
    void *larger = realloc(*array, MAX(n * 2, 1) * element_bytes);
    if (!larger) {
        tape->r = -ENOMEM;
        return false;
    }
    *array = larger;
    return true;
}

static void declare(Tape *tape, ParameterKind kind, const char *name, const char *suffix,
                    const int64_t dims[PARAMETER_DIMS_MAX], int64_t fan_in)
{
    if (tape->r == 0)
        tape->r = parameter_list_add(tape->parameters, kind, name, suffix, dims, fan_in);
}

static Layer declare_layer(Tape *tape, const char *name, int in, int out, int kernel, bool is_norm,
                           const int64_t weight_dims[PARAMETER_DIMS_MAX], bool bias)
{
    int64_t start = tape->parameters->n_elements;
    int64_t fan_in = (int64_t)in * kernel * kernel;
    Layer layer = {.first_parameter = tape->parameters->n_items,
                   .weight = start,
                   .bias = -1,
                   .n_weights = 1,
                   .in = in,
                   .out = out,
                   .kernel = kernel};
    declare(tape, is_norm ? PARAMETER_NORM_WEIGHT : PARAMETER_WEIGHT, name, ".weight", weight_dims,
            fan_in);
    if (bias) {
        layer.bias = tape->parameters->n_elements;
        declare(tape, is_norm ? PARAMETER_NORM_BIAS : PARAMETER_BIAS, name, ".bias",
                (int64_t[PARAMETER_DIMS_MAX]){out}, fan_in);
    }
    layer.n_elements = tape->parameters->n_elements - start;
    return layer;
}

Layer tape_conv_layer(Tape *tape, const char *name, int in, int out, int kernel)
{
    return declare_layer(tape, name, in, out, kernel, false,
                         (int64_t[PARAMETER_DIMS_MAX]){out, in, kernel, kernel}, true);
}

Layer tape_linear_layer(Tape *tape, const char *name, int in, int out, bool bias)
{
    return declare_layer(tape, name, in, out, 1, false, (int64_t[PARAMETER_DIMS_MAX]){out, in},
                         bias);
}

Layer tape_norm_layer(Tape *tape, const char *name, int c)
{
    return declare_layer(tape, name, c, c, 1, true, (int64_t[PARAMETER_DIMS_MAX]){c}, true);
}

Layer tape_linear_layers(Tape *tape, const char *const *names, int n, int in, int out)
{
    const int64_t start = tape->parameters->n_elements;
    Layer layer = {.first_parameter = tape->parameters->n_items,
                   .weight = start,
                   .n_weights = n,
                   .in = in,
                   .out = n * out,
                   .kernel = 1};
    for (int i = 0; i < n; i++)
        declare(tape, PARAMETER_WEIGHT, names[i], ".weight", (int64_t[PARAMETER_DIMS_MAX]){out, in},
                in);
    layer.bias = tape->parameters->n_elements;
    for (int i = 0; i < n; i++)
        declare(tape, PARAMETER_BIAS, names[i], ".bias", (int64_t[PARAMETER_DIMS_MAX]){out}, in);
    layer.n_elements = tape->parameters->n_elements - start;
    return layer;
}

Layer tape_embedding_layer(Tape *tape, const char *words, int n_words, const char *positions,
                           int n_positions, int c)
{
    const int64_t start = tape->parameters->n_elements;
    Layer layer = {.first_parameter = tape->parameters->n_items,
                   .weight = start,
                   .n_weights = 1,
                   .in = n_positions,
                   .out = c,
                   .kernel = 1};
    declare(tape, PARAMETER_WEIGHT, words, ".weight", (int64_t[PARAMETER_DIMS_MAX]){n_words, c}, c);
    layer.bias = tape->parameters->n_elements;
    declare(tape, PARAMETER_WEIGHT, positions, ".weight",
            (int64_t[PARAMETER_DIMS_MAX]){n_positions, c}, c);
    layer.n_elements = tape->parameters->n_elements - start;
    return layer;
}

Layer tape_join(Layer a, Layer b)
{
    assert(a.in == b.in && a.kernel == 1 && b.kernel == 1);
    assert(a.bias < 0 && b.bias < 0);
    assert(b.weight == a.weight + a.n_elements);
    /* all joined tensors must have the same size: a sink finds their borders by this size */
    assert(a.out * b.n_weights == b.out * a.n_weights);
    a.out += b.out;
    a.n_weights += b.n_weights;
    a.n_elements += b.n_elements;
    return a;
}

static ValueId add_value(Tape *tape, Value value)
{
    if (!grow(tape, (void **)&tape->values, tape->n_values, sizeof(Value)))
        return NO_VALUE;
    assert(tape->n_values < INT_MAX);
    tape->values[tape->n_values] = value;
    return (ValueId)tape->n_values++;
}

ValueId tape_input(Tape *tape, int n, int h, int w, int c)
{
    return add_value(tape, (Value){.n = n,
                                   .h = h,
                                   .w = w,
                                   .c = c,
                                   .is_bound = true,
                                   .data = NO_BUFFER,
                                   .gradient = NO_BUFFER});
}

void tape_output(Tape *tape, ValueId value)
{
    if (tape->r < 0)
        return;
    for (size_t i = 0; i < tape->n_operations; i++)
        assert(tape->operations[i].out != value || tape->operations[i].in[IN_RESIDUAL] == NO_VALUE);
    tape->values[value].is_bound = true;
}

const Value *tape_value(const Tape *tape, ValueId value)
{
    static const Value nothing = {.n = 1, .h = 1, .w = 1, .c = 1};
    if (tape->r < 0) /* emitting continues after an error, with values that are never used */
        return &nothing;
    assert(value >= 0 && (size_t)value < tape->n_values);
    return &tape->values[value];
}

int64_t value_elements(const Value *value)
{
    return (int64_t)value->n * value->h * value->w * value->c;
}

ValueId tape_emit(Tape *tape, Operation op, int n, int h, int w, int c)
{
    if (!grow(tape, (void **)&tape->operations, tape->n_operations, sizeof(Operation)))
        return NO_VALUE;

    bool wants_gradient = op.layer.n_elements > 0;
    for (int i = 0; i < INPUTS_MAX; i++)
        if (op.in[i] != NO_VALUE)
            wants_gradient |= tape->values[op.in[i]].wants_gradient;
    op.out = add_value(tape, (Value){.n = n,
                                     .h = h,
                                     .w = w,
                                     .c = c,
                                     .wants_gradient = wants_gradient,
                                     .data = NO_BUFFER,
                                     .gradient = NO_BUFFER});
    if (op.out == NO_VALUE)
        return NO_VALUE;
    op.saved = op.bias_gradient = NO_BUFFER;
    op.maker = op.made = -1;
    op.runs_backward = wants_gradient;
    assert(op.in[IN_RESIDUAL] == NO_VALUE || op.in[IN_RESIDUAL] != op.in[IN_X]);
    tape->operations[tape->n_operations++] = op;
    return op.out;
}

/* ---- plan ---- */

static int add_buffer(Tape *tape, size_t bytes)
{
    PlannedBuffer buffer = {.bytes = bytes, .first = INT_MAX, .last = -1};
    if (!grow(tape, (void **)&tape->buffers, tape->n_buffers, sizeof(buffer)))
        return NO_BUFFER;
    tape->buffers[tape->n_buffers] = buffer;
    return (int)tape->n_buffers++;
}

static void touch(Tape *tape, int buffer, int time)
{
    if (buffer != NO_BUFFER)
        planner_touch(&tape->buffers[buffer], time);
}

static void touch_data(Tape *tape, ValueId id, int time)
{
    if (id == NO_VALUE || tape->values[id].is_bound)
        return;
    Value *value = &tape->values[id];
    if (value->data == NO_BUFFER)
        value->data = add_buffer(tape, (size_t)value_elements(value) * tape->element_bytes);
    touch(tape, value->data, time);
}

static void schedule_forward(Tape *tape, Operation *op, int time)
{
    for (int i = 0; i < INPUTS_MAX; i++)
        touch_data(tape, op->in[i], time);
    /* each value has one writer */
    assert(tape->values[op->out].is_bound || tape->values[op->out].data == NO_BUFFER);
    touch_data(tape, op->out, time);
    if (op->saved_bytes > 0)
        op->saved = add_buffer(tape, op->saved_bytes);
    touch(tape, op->saved, time);
}

/* Must be called in the order in which gradients are written: the first writer of a gradient overwrites it, later
 * writers add. */
static void schedule_gradient(Tape *tape, Operation *op, int i, int time)
{
    if (op->in[i] == NO_VALUE || !tape->values[op->in[i]].wants_gradient)
        return;
    Value *value = &tape->values[op->in[i]];
    op->accumulate[i] = value->gradient != NO_BUFFER;
    if (!op->accumulate[i] && i == IN_RESIDUAL)
        /* the residual's gradient and the output's gradient share one buffer; see tape.h */
        value->gradient = tape->values[op->out].gradient;
    else if (!op->accumulate[i])
        value->gradient = add_buffer(tape, (size_t)value_elements(value) * tape->element_bytes);
    touch(tape, value->gradient, time);
}

static void schedule_backward(Tape *tape, Operation *op, int time)
{
    if (!op->runs_backward)
        return;
    for (int i = 0; i < INPUTS_MAX; i++)
        if (op->kind->backward_reads & 1u << i)
            touch_data(tape, op->in[i], time);
    if (op->kind->backward_reads & BACKWARD_READS_OUT)
        touch_data(tape, op->out, time);
    touch(tape, op->saved, time);

    touch(tape, op->bias_gradient, time);
    if (op->made >= 0)
        touch(tape, tape->operations[op->made].bias_gradient, time);
    const Value *out = &tape->values[op->out];
    /* some operation reads the output, and has written the output's gradient */
    assert(out->is_bound || out->gradient != NO_BUFFER || tape->r < 0);
    touch(tape, out->gradient, time);
    schedule_gradient(tape, op, IN_RESIDUAL, time);
    schedule_gradient(tape, op, IN_X, time);
    schedule_gradient(tape, op, IN_SECOND, time);
}

/* Returns whether all operations that read the concat's result can read its two inputs instead. */
static bool is_spare(const Tape *tape, const Operation *concat)
{
    size_t n = 0;
    for (size_t i = 0; i < tape->n_operations; i++) {
        const Operation *op = &tape->operations[i];
        const ValueId residual = op->in[IN_RESIDUAL];
        if (op->in[IN_X] != concat->out && op->in[IN_SECOND] != concat->out &&
            residual != concat->out)
            continue;
        if (op->in[IN_X] != concat->out || !op->kind->reads_joined ||
            op->in[IN_SECOND] != NO_VALUE || residual == concat->out ||
            (residual != NO_VALUE &&
             (residual == concat->in[IN_X] || residual == concat->in[IN_SECOND])))
            return false;
        n++;
    }
    return n > 0 && !tape->values[concat->out].is_bound;
}

void tape_skip_concats(Tape *tape, const Device *device)
{
    size_t n = 0;
    for (size_t i = 0; reads_joined(device) && i < tape->n_operations; i++) {
        const Operation concat = tape->operations[i];
        if (!concat.kind->joins || !is_spare(tape, &concat)) {
            tape->operations[n++] = concat;
            continue;
        }
        for (size_t k = i + 1; k < tape->n_operations; k++) {
            ValueId *in = tape->operations[k].in;
            if (in[IN_X] != concat.out)
                continue;
            in[IN_X] = concat.in[IN_X];
            in[IN_SECOND] = concat.in[IN_SECOND];
        }
    }
    if (reads_joined(device))
        tape->n_operations = n;
}

/* Returns the operation that writes the value's gradient last, or -1. Gradients are written from the tape's end to its
 * beginning, so the first reader of a value is the last writer of the value's gradient.
 */
static int last_writer(const Tape *tape, ValueId value)
{
    for (size_t i = 0; i < tape->n_operations; i++)
        for (int k = 0; k < INPUTS_MAX; k++)
            if (tape->operations[i].in[k] == value)
                return tape->operations[i].in[IN_X] == value ? (int)i : -1;
    return -1;
}

/* Pairs each linear layer that has a bias with the operation that computes the gradient of this bias, if there is
 * one. */
static void pair_sums(Tape *tape)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        Operation *op = &tape->operations[i];
        const int writer = last_writer(tape, op->out);
        if (!op->kind->takes_sums || op->layer.bias < 0 || tape->values[op->out].is_bound ||
            writer < 0 || !tape->operations[writer].kind->sums_gradient)
            continue;
        op->maker = writer;
        tape->operations[writer].made = (int)i;
        op->bias_gradient = add_buffer(tape, (size_t)op->layer.out * sizeof(float));
    }
}

/* The workspace holds the gradients of one operation's parameters: the weight's, then the bias'. The two functions
 * below return the offset of the bias' gradient in the workspace, and the offset after the bias' gradient. */
static size_t bias_scratch_offset(const Tape *tape, const Operation *op)
{
    return tape->scratch_offset +
           ROUND_UP(gradient_form_bytes(&op->form), (size_t)PLANNER_ALIGNMENT);
}

static size_t scratch_end(const Tape *tape, const Operation *op)
{
    return bias_scratch_offset(tape, op) +
           (op->layer.bias < 0 ? 0 : (size_t)op->layer.out) * sizeof(float);
}

static void plan_scratch(Tape *tape)
{
    tape->scratch_offset = ROUND_UP(tape->workspace_bytes, (size_t)PLANNER_ALIGNMENT);
    for (size_t i = 0; i < tape->n_operations; i++)
        if (tape->operations[i].layer.n_elements > 0)
            tape->workspace_bytes =
                MAX(tape->workspace_bytes, scratch_end(tape, &tape->operations[i]));
}

static int make_kernels(Tape *tape, Error *err)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        Operation *op = &tape->operations[i];
        int r = op->kind->plan ? op->kind->plan(tape, op, err) : 0;
        if (r < 0) {
            char text[PARAMETER_NAME_MAX + 64];
            tape_describe(tape, i, text, sizeof(text));
            return error_prefix(err, r, "%s", text);
        }
        op->packed_offset = tape->packed_bytes;
        tape->packed_bytes += ROUND_UP(op->packed_bytes, (size_t)PLANNER_ALIGNMENT);
        tape->workspace_bytes = MAX(tape->workspace_bytes, op->workspace_bytes);
    }
    return 0;
}

static int check_backward(const Tape *tape, Error *err)
{
    for (size_t i = 0; i < tape->n_operations; i++)
        if (tape->operations[i].runs_backward && !tape->operations[i].kind->backward) {
            char text[PARAMETER_NAME_MAX + 64];
            tape_describe(tape, i, text, sizeof(text));
            return error_set(err, -ENOTSUP,
                             "%s: it has no backward, so this network is not trained", text);
        }
    return 0;
}

static int allocate(Tape *tape, size_t n_bytes, char **ret, Error *err)
{
    void *memory = NULL;
    int r = n_bytes > 0 ? device_allocate(tape->device, n_bytes, &memory, err) : 0;
    if (r < 0)
        return r;
    *ret = memory;
    return 0;
}

int tape_measure(Tape *tape, Device *device, bool backward, Error *err)
{
    assert(!tape->device);
    if (tape->r < 0)
        return error_errno(err, tape->r, "emitting the network");
    tape->device = device;
    tape->trains = backward;
    tape->element_bytes = data_type_bytes(device_type(device));
    tape_skip_concats(tape, device);
    int r = backward ? check_backward(tape, err) : 0;
    if (r == 0)
        r = make_kernels(tape, err);
    if (r < 0)
        return r;

    if (backward) {
        pair_sums(tape);
        plan_scratch(tape);
    }
    int time = 0;
    for (size_t i = 0; i < tape->n_operations; i++)
        schedule_forward(tape, &tape->operations[i], time++);
    for (size_t i = tape->n_operations; backward && i-- > 0;)
        schedule_backward(tape, &tape->operations[i], time++);
    r = tape->r < 0 ? tape->r : planner_place(tape->buffers, tape->n_buffers, &tape->arena_bytes);
    if (r < 0)
        return error_errno(err, r, "planning the network's memory");
    return 0;
}

int tape_allocate(Tape *tape, Error *err)
{
    int r = allocate(tape, tape->arena_bytes, &tape->arena, err);
    if (r < 0)
        return error_prefix(err, r, "activations");
    r = allocate(tape, tape->workspace_bytes, &tape->workspace, err);
    if (r < 0)
        return error_prefix(err, r, "workspace");
    r = allocate(tape, tape->packed_bytes, &tape->packed, err);
    if (r < 0)
        return error_prefix(err, r, "packed weights");
    return 0;
}

/* ---- run ---- */

void tape_bind(Tape *tape, ValueId value, const void *data)
{
    assert(tape->values[value].is_bound && !tape->values[value].wants_gradient);
    tape->values[value].bound = (void *)data; /* an input: never written through this pointer */
}

void tape_bind_output(Tape *tape, ValueId value, void *data)
{
    assert(tape->values[value].is_bound);
    tape->values[value].bound = data;
}

void tape_bind_gradient(Tape *tape, ValueId value, const void *gradient)
{
    assert(tape->values[value].is_bound);
    /* the cast is safe, because the gradient of an output is only read */
    tape->values[value].bound_gradient = (void *)gradient;
}

static void *buffer_address(const Tape *tape, int buffer)
{
    if (buffer == NO_BUFFER)
        return NULL;
    const PlannedBuffer *b = &tape->buffers[buffer];
    assert((size_t)buffer < tape->n_buffers && tape->arena &&
           b->offset + b->bytes <= tape->arena_bytes);
    return tape->arena + b->offset;
}

void *tape_data(const Tape *tape, ValueId id)
{
    if (id == NO_VALUE)
        return NULL;
    const Value *value = &tape->values[id];
    return value->is_bound ? value->bound : buffer_address(tape, value->data);
}

void *tape_gradient(const Tape *tape, ValueId id)
{
    if (id == NO_VALUE || !tape->values[id].wants_gradient)
        return NULL;
    const Value *value = &tape->values[id];
    return value->is_bound ? value->bound_gradient : buffer_address(tape, value->gradient);
}

void *tape_saved(const Tape *tape, const Operation *op) { return buffer_address(tape, op->saved); }

/* ---- gradients of parameters ---- */

/* Returns the address in a plain sink of the state's element at `offset`. */
static float *plain_element(const Tape *tape, int64_t offset)
{
    return (float *)tape->sink.to + (offset - tape->sink.first);
}

/* Returns whether the kernel can write directly into the sink, because its result needs no conversion. */
static bool is_direct(const Tape *tape, const Operation *op)
{
    return tape->sink.kind == SINK_PLAIN && op->form.type == DATA_F32 &&
           op->form.order == GRADIENT_AS_STATE;
}

void *tape_weight_gradient(const Tape *tape, const Operation *op)
{
    return is_direct(tape, op) ? (void *)plain_element(tape, op->layer.weight)
                               : tape->workspace + tape->scratch_offset;
}

float *tape_bias_gradient(const Tape *tape, const Operation *op)
{
    if (op->layer.bias < 0)
        return NULL;
    if (tape->sink.kind == SINK_PLAIN)
        return plain_element(tape, op->layer.bias);
    if (op->maker >= 0)
        return buffer_address(tape, op->bias_gradient);
    return (float *)(void *)(tape->workspace + bias_scratch_offset(tape, op));
}

float *tape_sums(const Tape *tape, const Operation *op)
{
    return op->made < 0 ? NULL : tape_bias_gradient(tape, &tape->operations[op->made]);
}

void tape_take_gradients(const Tape *tape, const Operation *op)
{
    const Layer *layer = &op->layer;
    const int64_t n_bias = layer->bias < 0 ? 0 : layer->out;
    const GradientPlace weight = {.offset = layer->weight,
                                  .n = layer->n_elements - n_bias,
                                  .tensor = (int)layer->first_parameter,
                                  .n_tensors = layer->n_weights};
    if (!is_direct(tape, op))
        gradient_take(tape->device, &op->form, tape_weight_gradient(tape, op), &weight,
                      &tape->sink);
    if (n_bias == 0 || tape->sink.kind == SINK_PLAIN)
        return;
    const GradientForm form = {DATA_F32, GRADIENT_AS_STATE, layer->out, 1, 1};
    const GradientPlace bias = {.offset = layer->bias,
                                .n = n_bias,
                                .tensor = (int)layer->first_parameter + layer->n_weights,
                                .n_tensors = layer->n_weights};
    gradient_take(tape->device, &form, tape_bias_gradient(tape, op), &bias, &tape->sink);
}

/* ---- the schedule ---- */

static bool observe(const Tape *tape, TapePhase phase, size_t operation)
{
    return !tape->observer || tape->observer(tape, phase, operation, tape->observer_userdata);
}

void tape_set_weights(Tape *tape, const float *weights)
{
    tape->weights = weights;
    for (size_t i = 0; i < tape->n_operations; i++) {
        const Operation *op = &tape->operations[i];
        if (op->packed_bytes == 0)
            continue;
        op->kind->pack(tape, op);
        if (!observe(tape, TAPE_PACK, i))
            return;
    }
}

void tape_forward(const Tape *tape)
{
    assert(tape->device && (tape->weights || tape->parameters->n_items == 0));
    for (size_t i = 0; i < tape->n_operations; i++) {
        const Operation *op = &tape->operations[i];
        op->kind->forward(tape, op);
        if (!observe(tape, TAPE_FORWARD, i))
            return;
    }
}

/* Adds the output's gradient to the residual's where the residual's gradient had an earlier writer; see
 * schedule_gradient().
 */
static void backward_residual(const Tape *tape, const Operation *op)
{
    if (op->in[IN_RESIDUAL] != NO_VALUE && op->accumulate[IN_RESIDUAL])
        accumulate(tape->device, value_elements(&tape->values[op->out]),
                   tape_gradient(tape, op->out), tape_gradient(tape, op->in[IN_RESIDUAL]));
}

void tape_backward(Tape *tape, const GradientSink *sink,
                   void (*on_ready)(int64_t offset, int64_t n_elements, void *userdata),
                   void *userdata)
{
    assert(tape->trains && (tape->weights || tape->parameters->n_items == 0));
    tape->sink = *sink;
    for (size_t i = tape->n_operations; i-- > 0;) {
        const Operation *op = &tape->operations[i];
        if (!op->runs_backward)
            continue;
        backward_residual(tape, op);
        op->kind->backward(tape, op);
        if (!observe(tape, TAPE_BACKWARD, i))
            return;
        if (on_ready && op->layer.n_elements > 0)
            on_ready(op->layer.weight, op->layer.n_elements, userdata);
    }
}

/* Describes an operation of most kinds: the shape of its input and the number of channels of its output. */
static void describe_values(const Tape *tape, const Operation *op, char *text, size_t size)
{
    const Value *x = &tape->values[op->in[IN_X]], *y = &tape->values[op->out];
    char second[16] = "";
    if (op->kind->reads_joined && op->in[IN_SECOND] != NO_VALUE)
        (void)snprintf(second, sizeof(second), "+%d", tape->values[op->in[IN_SECOND]].c);
    (void)snprintf(text, size, "%dx%dx%d %d%s->%d", x->n, x->h, x->w, x->c, second, y->c);
}

void tape_describe(const Tape *tape, size_t operation, char *text, size_t size)
{
    const Operation *op = &tape->operations[operation];
    char shape[80] = "";
    (op->kind->describe ? op->kind->describe : describe_values)(tape, op, shape, sizeof(shape));
    const ParameterList *list = tape->parameters;
    /* if finite.c has copied the operation from another tape, this is an index into that tape's list */
    const size_t first = op->layer.first_parameter;
    const char *name =
        op->layer.n_elements > 0 && first < list->n_items ? list->items[first].name : "";
    (void)snprintf(text, size, "%s %s%s%s", op->kind->name, shape, *name ? " " : "", name);
}
