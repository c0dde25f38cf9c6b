/* SPDX-License-Identifier: Apache-2.0 */
/* test-tape.c - tests of the operations that only encoders use, against float64: embedding, layers that are joined with
 * their biases, causal attention, GELU, the convolution padded at its end. Also tests tapes that cannot be trained, and
 * which operation makes the gradient of a bias. */
#include "kernels/test/testing-copy.h"
#include "kernels/test/testing-reference.h"
#include "nn/tape.h"

#define TOLERANCE 2e-6

/* Copies the values into new device memory. */
static void *sent(Device *device, const void *values, size_t n_bytes)
{
    Error err = ERROR_INIT;
    void *memory;
    assert_int_equal(device_allocate(device, n_bytes, &memory, &err), 0);
    device_upload(device, memory, values, n_bytes);
    return memory;
}

/* Runs the tape forward once, and compares the output with the expected values. */
static void check_output(Tape *tape, Device *device, ValueId x, const void *input, size_t n_bytes,
                         ValueId y, const float *weights, const double *expected)
{
    Error err = ERROR_INIT;
    const size_t n = (size_t)value_elements(tape_value(tape, y));
    float *zeros = floats_new(n);
    memset(zeros, 0, n * sizeof(float));
    tape_output(tape, y);
    if (tape_measure(tape, device, false, &err) < 0 || tape_allocate(tape, &err) < 0)
        fail_msg("%s", err.text);
    void *in = sent(device, input, n_bytes), *out = sent(device, zeros, n * sizeof(float));
    float *flat = sent(device, weights, (size_t)tape->parameters->n_elements * sizeof(float));
    tape_set_weights(tape, flat);
    tape_bind(tape, x, in);
    tape_bind_output(tape, y, out);
    tape_forward(tape);
    _cleanup_free_ float *found = device_copy_of(device, out, n * sizeof(float));
    assert_near("output", found, expected, n, TOLERANCE);
    device_release(device, in);
    device_release(device, out);
    device_release(device, flat);
    floats_free(zeros, n);
}

enum { TEXTS = 2, TOKENS = 9, C = 12, HEADS = 3, WORDS = 20 };

static void assert_parameters(const Tape *tape, const char *const *names, size_t n)
{
    assert_int_equal(tape->parameters->n_items, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(tape->parameters->items[i].name, names[i]);
}

/* Computes to = from * weight^T + bias, for rows of C elements. */
static void linear_reference(const double *from, const float *weight, const float *bias, double *to)
{
    for (size_t i = 0; i < TEXTS * TOKENS * C; i++) {
        to[i] = (double)bias[i % C];
        for (size_t j = 0; j < C; j++)
            to[i] += from[i / C * C + j] * (double)weight[i % C * C + j];
    }
}

/* Returns element i of the attention of the query `row` to the tokens up to itself, after GELU. */
static double seen_reference(const double *q, const double *k, const double *v, size_t row,
                             size_t i)
{
    const size_t d = C / HEADS, head = i / d * d, first = row / TOKENS * TOKENS;
    double sum = 0, value = 0;
    for (size_t key = first; key <= row; key++) {
        double score = 0;
        for (size_t j = 0; j < d; j++)
            score += q[row * C + head + j] * k[key * C + head + j];
        sum += exp(score / sqrt((double)d));
        value += exp(score / sqrt((double)d)) * v[key * C + i];
    }
    value /= sum;
    return value * 0.5 * erfc(-value / sqrt(2.0));
}

static void a_text_layer_computes_what_it_says(void **state)
{
    (void)state;
    static const char *const names[] = {"token.weight", "position.weight", "q.weight", "k.weight",
                                        "v.weight",     "q.bias",          "k.bias",   "v.bias"};
    static const char *const layers[] = {"q", "k", "v"};
    enum { POSITIONS = TOKENS + 2, ROWS = TEXTS * TOKENS };
    Device *device = cpu_open(2);
    Tape *tape;
    assert_int_equal(tape_new(&tape), 0);
    const ValueId ids = tape_input(tape, TEXTS, 1, TOKENS, 1);
    const Layer embedding = tape_embedding_layer(tape, "token", WORDS, "position", POSITIONS, C);
    const ValueId x = tape_embedding(tape, embedding, ids);
    const Layer qkv = tape_linear_layers(tape, layers, 3, C, C);
    const ValueId y =
        tape_gelu(tape, tape_causal_attention(tape, tape_linear(tape, qkv, x, NO_VALUE), HEADS));
    assert_parameters(tape, names, ELEMENTSOF(names));

    const size_t n = (size_t)tape->parameters->n_elements;
    float *weights = random_new(n, 1);
    int32_t tokens[ROWS];
    double *values = doubles_new((size_t)5 * ROWS * C), *expected = values + (size_t)4 * ROWS * C;
    for (size_t i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)(i * 7 % WORDS);
    for (size_t i = 0; i < (size_t)ROWS * C; i++)
        values[i] = (double)weights[(size_t)tokens[i / C] * C + i % C] +
                    (double)weights[(size_t)WORDS * C + i / C % TOKENS * C + i % C];
    for (size_t i = 0; i < 3; i++)
        linear_reference(values, weights + tape->parameters->items[2 + i].offset,
                         weights + tape->parameters->items[5 + i].offset,
                         values + (i + 1) * ROWS * C);
    for (size_t i = 0; i < (size_t)ROWS * C; i++)
        expected[i] = seen_reference(values + (size_t)ROWS * C, values + (size_t)2 * ROWS * C,
                                     values + (size_t)3 * ROWS * C, i / C, i % C);
    check_output(tape, device, ids, tokens, sizeof(tokens), y, weights, expected);
    tape = tape_free(tape);
    floats_free(weights, n);
    free(values);
    device = device_free(device);
}

/* The convolution, padded only at its end, turns an image of 6 x 8 x 3 into one of 3 x 4 x 5. */
static void the_end_alone_is_padded(void **state)
{
    (void)state;
    enum { H = 6, W = 8, IN = 3, OUT = 5 };
    Device *device = cpu_open(2);
    Tape *tape;
    char text[256];
    assert_int_equal(tape_new(&tape), 0);
    const ValueId x = tape_input(tape, 1, H, W, IN);
    const ValueId y = tape_conv_end(tape, tape_conv_layer(tape, "down", IN, OUT, 3), x);
    assert_int_equal(tape_value(tape, y)->h, H / 2);
    assert_int_equal(tape_value(tape, y)->w, W / 2);
    tape_describe(tape, 0, text, sizeof(text));
    assert_string_equal(text, "conv 1x6x8 3->5 k3 s2 end down.weight");

    const size_t n = (size_t)tape->parameters->n_elements;
    float *weights = random_new(n, 1), *image = random_new(H * W * IN, 2);
    double *expected = doubles_new(H / 2 * W / 2 * OUT);
    for (size_t i = 0; i < H / 2 * W / 2 * OUT; i++) {
        const size_t row = i / OUT / (W / 2) * 2, column = i / OUT % (W / 2) * 2, out = i % OUT;
        expected[i] = (double)weights[OUT * IN * 9 + out];
        for (size_t tap = 0; tap < 9; tap++)
            for (size_t j = 0; row + tap / 3 < H && column + tap % 3 < W && j < IN; j++)
                expected[i] += (double)image[((row + tap / 3) * W + column + tap % 3) * IN + j] *
                               (double)weights[(out * IN + j) * 9 + tap];
    }
    check_output(tape, device, x, image, sizeof(float) * H * W * IN, y, weights, expected);
    tape = tape_free(tape);
    floats_free(weights, n);
    floats_free(image, H * W * IN);
    free(expected);
    device = device_free(device);
}

/* The largest gradient is found separately for each parameter tensor, even if its layer is joined with other layers. */
static void joined_biases_are_tensors_of_their_own(void **state)
{
    (void)state;
    enum { ROWS = 7, IN = 5, OUT = 4, LAYERS = 3, Y = ROWS * LAYERS * OUT };
    static const char *const names[LAYERS] = {"q", "k", "v"};
    Device *device = cpu_open(2);
    Error err = ERROR_INIT;
    Tape *tape;
    assert_int_equal(tape_new(&tape), 0);
    const ValueId x = tape_input(tape, 1, 1, ROWS, IN);
    const Layer layer = tape_linear_layers(tape, names, LAYERS, IN, OUT);
    const ValueId y = tape_linear(tape, layer, x, NO_VALUE);
    tape_output(tape, y);
    assert_int_equal(tape_measure(tape, device, true, &err), 0);
    assert_int_equal(tape_allocate(tape, &err), 0);

    const size_t n = (size_t)tape->parameters->n_elements;
    float *values = random_new(n + ROWS * IN + Y, 1);
    uint32_t zeros[2 * LAYERS] = {0};
    float *weights = sent(device, values, n * sizeof(float));
    float *in = sent(device, values + n, sizeof(float) * ROWS * IN);
    float *out = sent(device, values, sizeof(float) * Y);
    float *dy = sent(device, values + n + ROWS * IN, sizeof(float) * Y);
    float *flat = sent(device, values, n * sizeof(float));
    uint32_t *maxima = sent(device, zeros, sizeof(zeros));
    tape_set_weights(tape, weights);
    tape_bind(tape, x, in);
    tape_bind_output(tape, y, out);
    tape_bind_gradient(tape, y, dy);
    tape_forward(tape);
    tape_backward(tape, &(GradientSink){.kind = SINK_PLAIN, .to = flat}, NULL, NULL);
    tape_backward(tape, &(GradientSink){.kind = SINK_MAXIMA, .maxima = maxima}, NULL, NULL);
    _cleanup_free_ float *gradient = device_copy_of(device, flat, n * sizeof(float));
    _cleanup_free_ uint32_t *found = device_copy_of(device, maxima, sizeof(zeros));
    for (size_t i = 0; i < ELEMENTSOF(zeros); i++) {
        const Parameter *p = &tape->parameters->items[i];
        float largest = 0, told;
        for (int64_t j = 0; j < p->n_elements; j++)
            largest = fmaxf(largest, fabsf(gradient[p->offset + j]));
        memcpy(&told, &found[i], sizeof(told));
        assert_true(largest > 0 && told == largest);
    }
    void *const memory[] = {weights, in, out, dy, flat, maxima};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(device, memory[i]);
    tape = tape_free(tape);
    floats_free(values, n + ROWS * IN + Y);
    device = device_free(device);
}

/* Backward needs a copy of an image in the workspace. The workspace of a tape that is not trained has no room for the
 * copy, which would take gigabytes for an encoder's images. */
static void a_tape_that_is_not_trained_has_no_room_for_it(void **state)
{
    (void)state;
    Device *device = cpu_open(1);
    size_t bytes[2];
    for (int backward = 0; backward < 2; backward++) {
        Error err = ERROR_INIT;
        _cleanup_(tape_freep) Tape *tape = NULL;
        assert_int_equal(tape_new(&tape), 0);
        const ValueId x = tape_input(tape, 1, 32, 32, 8);
        tape_output(tape, tape_conv_end(tape, tape_conv_layer(tape, "down", 8, 8, 3), x));
        assert_int_equal(tape_measure(tape, device, backward == 1, &err), 0);
        bytes[backward] = tape->workspace_bytes;
    }
    assert_int_equal(bytes[0], 0);
    assert_true(device_kind(device) == DEVICE_CUDA || bytes[1] > 32 * 32 * 8 * sizeof(float));
    device = device_free(device);
}

/* An operation without a backward is refused when the tape is planned, not during a step of training. */
static void what_has_no_backward_is_not_trained(void **state)
{
    (void)state;
    Device *device = cpu_open(1);
    for (int embedding = 0; embedding < 2; embedding++) {
        Error err = ERROR_INIT;
        _cleanup_(tape_freep) Tape *tape = NULL;
        assert_int_equal(tape_new(&tape), 0);
        ValueId y;
        if (embedding)
            y = tape_embedding(tape, tape_embedding_layer(tape, "token", WORDS, "position", 8, C),
                               tape_input(tape, 1, 1, 8, 1));
        else
            y = tape_gelu(tape, tape_linear(tape, tape_linear_layer(tape, "fc1", C, C, true),
                                            tape_input(tape, 1, 1, 8, C), NO_VALUE));
        tape_output(tape, y);
        assert_int_equal(tape_measure(tape, device, true, &err), -ENOTSUP);
        assert_non_null(strstr(err.text, embedding ? "embedding 1x1x8 1->12 token.weight"
                                                   : "gelu 1x1x8 12->12"));
        assert_non_null(strstr(err.text, "no backward"));
    }
    device = device_free(device);
}

/* The first layer's gradients, copied by the observer right after the layer's backward. */
typedef struct Seen {
    int n; /* how often the layer's backward has run */
    float *bias, *dy;
} Seen;

enum { GATED = 5, GATED_ROWS = 41, GATED_DY = GATED_ROWS * 2 * GATED };

static bool see_first_layer(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    Seen *seen = userdata;
    const Operation *op = &tape->operations[operation];
    if (phase != TAPE_BACKWARD || operation != 0)
        return true;
    assert_int_equal(op->layer.out, 2 * GATED);
    free(seen->bias);
    free(seen->dy);
    seen->n++;
    seen->bias =
        device_copy_of(tape->device, tape_bias_gradient(tape, op), sizeof(float) * 2 * GATED);
    seen->dy = device_copy_of(tape->device, tape_gradient(tape, op->out), sizeof(float) * GATED_DY);
    return true;
}

/* The operation that reads the first layer's result before the GEGLU does; A_NORM: there is no GEGLU. */
typedef enum Reader { NOBODY, A_SILU, A_CONCAT, A_NORM } Reader;

/* Emits a layer, a norm of its result, and a layer with the first result as its residual. So the norm's gradient is
 * added to the residual's gradient. */
static ValueId emit_normalised(Tape *tape, ValueId x)
{
    enum { WIDTH = 2 * GATED };
    const Layer first = tape_linear_layer(tape, "a", C, WIDTH, true);
    const ValueId a = tape_linear(tape, first, x, NO_VALUE);
    const ValueId norm = tape_layer_norm(tape, tape_norm_layer(tape, "norm", WIDTH), a, 1e-5);
    const Layer second = tape_linear_layer(tape, "b", WIDTH, WIDTH, true);
    const ValueId b = tape_linear(tape, second, norm, a);
    return tape_linear(tape, tape_linear_layer(tape, "c", WIDTH, 3, true), b, NO_VALUE);
}

/* Emits two layers with the same input, and a GEGLU of the first layer's result. In backward, the gradients of the
 * second layer and of its SiLU come between those of the GEGLU and of the first layer. Returns the output. */
static ValueId emit_gated(Tape *tape, ValueId x, Reader reader)
{
    const Layer first = tape_linear_layer(tape, "a", C, 2 * GATED, true);
    const ValueId a = tape_linear(tape, first, x, NO_VALUE);
    const ValueId b = tape_linear(tape, tape_linear_layer(tape, "b", C, 64, true), x, NO_VALUE);
    const ValueId silu = tape_silu(tape, b);
    ValueId before = silu;
    if (reader != NOBODY)
        before = tape_concat(tape, silu, reader == A_SILU ? tape_silu(tape, a) : a);
    const ValueId both = tape_concat(tape, tape_geglu(tape, a), before);
    const int c = tape_value(tape, both)->c;
    return tape_linear(tape, tape_linear_layer(tape, "c", c, 3, true), both, NO_VALUE);
}

static void check_gated(Device *device, Reader reader)
{
    Error err = ERROR_INIT;
    Tape *tape;
    Seen seen = {0};
    assert_int_equal(tape_new(&tape), 0);
    const ValueId x = tape_input(tape, 1, 1, GATED_ROWS, C);
    const ValueId y = reader == A_NORM ? emit_normalised(tape, x) : emit_gated(tape, x, reader);
    tape_output(tape, y);
    assert_int_equal(tape_measure(tape, device, true, &err), 0);
    assert_int_equal(tape_allocate(tape, &err), 0);
    assert_true((tape->operations[0].maker >= 0) == (reader == NOBODY || reader == A_NORM));
    assert_true(tape->operations[1].maker < 0);
    for (size_t i = 0; i < tape->n_operations; i++)
        assert_true(tape->operations[i].made == (tape->operations[0].maker == (int)i ? 0 : -1));

    const size_t n = (size_t)tape->parameters->n_elements;
    float *values = random_new(n + GATED_ROWS * (C + 3), 1);
    float *weights = sent(device, values, n * sizeof(float));
    float *flat = sent(device, values, n * sizeof(float));
    float *in = sent(device, values + n, sizeof(float) * GATED_ROWS * C);
    float *dy = sent(device, values + n + GATED_ROWS * C, sizeof(float) * GATED_ROWS * 3);
    float *out = sent(device, values, sizeof(float) * GATED_ROWS * 3);
    uint32_t zeros[16] = {0}, *maxima = sent(device, zeros, sizeof(zeros));
    tape_set_weights(tape, weights);
    tape_bind(tape, x, in);
    tape_bind_output(tape, y, out);
    tape_bind_gradient(tape, y, dy);
    tape->observer = see_first_layer;
    tape->observer_userdata = &seen;
    tape_forward(tape);
    tape_backward(tape, &(GradientSink){.kind = SINK_PLAIN, .to = flat}, NULL, NULL);
    _cleanup_free_ float *plain = device_copy_of(device, flat, n * sizeof(float));
    tape_backward(tape, &(GradientSink){.kind = SINK_MAXIMA, .maxima = maxima}, NULL, NULL);
    double sums[2 * GATED] = {0};
    for (size_t i = 0; i < GATED_DY; i++)
        sums[i % (2 * GATED)] += (double)seen.dy[i];
    assert_int_equal(seen.n, 2);
    assert_near("the gradient of a bias", seen.bias, sums, 2 * GATED, TOLERANCE);
    assert_memory_equal(seen.bias, plain + tape->operations[0].layer.bias,
                        sizeof(float) * 2 * GATED);

    void *const memory[] = {weights, flat, in, dy, out, maxima};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(device, memory[i]);
    tape = tape_free(tape);
    floats_free(values, n + GATED_ROWS * (C + 3));
    free(seen.bias);
    free(seen.dy);
}

/* The gradient of a layer's bias is a sum over the gradient of the layer's output. If a GEGLU or a LayerNorm writes
 * the gradient of this output last, it also makes the bias' gradient. Otherwise the layer makes the bias' gradient. */
static void the_last_writer_makes_the_gradient_of_a_bias(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    check_gated(device, NOBODY);
    check_gated(device, A_SILU);
    check_gated(device, A_CONCAT);
    check_gated(device, A_NORM);
    device = device_free(device);
}

/* The operation that reads the concat's result in addition to a norm and a layer. */
typedef enum Other {
    NO_OTHER,
    OTHER_SILU,
    OTHER_CONCAT,
    OTHER_RESIDUAL,
    AN_INPUT,
    AN_OUTPUT
} Other;

enum { JOINED = 3 * C, ROWS = 7 };

static ValueId norm_of(Tape *tape, const char *name, ValueId x)
{
    const int c = tape_value(tape, x)->c;
    return tape_group_norm(tape, tape_norm_layer(tape, name, c), x, 2, 1e-5, true);
}

/* Emits two values, their concat, and the operations that read the concat. */
static void emit_concat(Tape *tape, Other other)
{
    const ValueId x = tape_input(tape, 1, 1, ROWS, C);
    const ValueId a = tape_linear(tape, tape_linear_layer(tape, "a", C, C, true), x, NO_VALUE);
    const ValueId b = tape_linear(tape, tape_linear_layer(tape, "b", C, 2 * C, true), x, NO_VALUE);
    const ValueId both = tape_concat(tape, a, b);
    const Layer layer = tape_linear_layer(tape, "c", JOINED, C, true);
    const ValueId y = tape_linear(tape, layer, both, other == AN_INPUT ? a : NO_VALUE);
    ValueId z = norm_of(tape, "norm", both), end = NO_VALUE;
    const Layer wide = tape_linear_layer(tape, "d", JOINED, JOINED, true);
    if (other == OTHER_SILU)
        z = tape_concat(tape, z, tape_silu(tape, both));
    else if (other == OTHER_CONCAT)
        z = tape_concat(tape, both, z);
    else if (other == OTHER_RESIDUAL)
        z = tape_linear(tape, wide, z, both);
    end = tape_concat(tape, y, z);
    tape_output(tape, other == AN_OUTPUT ? both : end);
    if (other == AN_OUTPUT)
        tape_output(tape, end);
}

static int n_of_kind(const Tape *tape, const char *kind)
{
    int n = 0;
    for (size_t i = 0; i < tape->n_operations; i++)
        n += strcmp(tape->operations[i].kind->name, kind) == 0;
    return n;
}

/* A concat is removed from the tape under two conditions: only a norm and layers read its result, and the device can
 * read two tensors as if they were one. */
static void a_concat_that_nobody_needs_leaves_the_tape(void **state)
{
    (void)state;
    Device *device = cpu_open(2);
    for (Other other = NO_OTHER; other <= AN_OUTPUT; other++) {
        Error err = ERROR_INIT;
        Tape *tape;
        assert_int_equal(tape_new(&tape), 0);
        emit_concat(tape, other);
        const int before = n_of_kind(tape, "concat");
        if (tape_measure(tape, device, true, &err) < 0)
            fail_msg("%s", err.text);
        const bool leaves = other == NO_OTHER && reads_joined(device);
        assert_int_equal(n_of_kind(tape, "concat"), leaves ? before - 1 : before);
        for (size_t i = 0; i < tape->n_operations; i++) {
            const Operation *op = &tape->operations[i];
            char text[128], says[128];
            if (op->layer.in != JOINED || op->layer.out == JOINED)
                continue; /* only the layer c is checked */
            tape_describe(tape, i, text, sizeof(text));
            (void)snprintf(says, sizeof(says), "linear 1x1x%d %s->%d c.weight", ROWS,
                           leaves ? "12+24" : "36", C);
            assert_string_equal(text, says);
            assert_int_equal(op->form.in, JOINED);
        }
        tape = tape_free(tape);
    }
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_layer_computes_what_it_says),
        cmocka_unit_test(the_end_alone_is_padded),
        cmocka_unit_test(joined_biases_are_tensors_of_their_own),
        cmocka_unit_test(a_tape_that_is_not_trained_has_no_room_for_it),
        cmocka_unit_test(what_has_no_backward_is_not_trained),
        cmocka_unit_test(the_last_writer_makes_the_gradient_of_a_bias),
        cmocka_unit_test(a_concat_that_nobody_needs_leaves_the_tape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
