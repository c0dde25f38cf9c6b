/* SPDX-License-Identifier: Apache-2.0 */
/* test-finite.c - each kind of operation is made to leave a NaN, forward and backward, in each of its results. The
 * report must name the operation and the result. If a library computed the result, the report must also say whether the
 * project's own kernels make it finite.
 * An operation is spoiled by replacing its kind: the replacement calls the real functions and then writes a NaN into
 * the result. On a device without libraries the test pretends that there is a plan. */
#include "base/clock.h"
#include "kernels/test/testing-reference.h"
#include "nn/finite.h"
#include "nn/results.h"

enum { N = 2, SIDE = 4, C = 16, TOKENS = 3, HEADS = 2, PLAN_MAX = 320, RESULT_BYTES_MAX = 1 << 15 };
#define PLANNED "cuDNN, by the plan of conv bf16 pretended"
#define HINT "; our own kernels make it finite: \"own_kernels\":true in that entry"

typedef struct Bench {
    Device *device;
    Tape *tape;
    float *weights;                       /* device memory */
    void *x, *text, *out, *dout;          /* device memory, in the compute type */
    int32_t *numbers;                     /* device memory: timesteps, or ids */
    ValueId in_x, in_text, in_numbers, y; /* NO_VALUE: the tape has no such input */
} Bench;

/* ---- a tape of all kinds ---- */

/* Emits every kind that has a backward, with and without its optional inputs. */
static ValueId emit_trained(Tape *t, Bench *b)
{
    b->in_x = tape_input(t, N, SIDE, SIDE, C);
    b->in_text = tape_input(t, N, 1, TOKENS, C);
    b->in_numbers = tape_input(t, N, 1, 1, 1);
    const Layer of_time = tape_linear_layer(t, "time", C, C, true);
    const Layer conv_in = tape_conv_layer(t, "conv_in", C, C, 3);
    const Layer norm = tape_norm_layer(t, "norm", C);
    const Layer conv = tape_conv_layer(t, "conv", C, C, 3),
                down = tape_conv_layer(t, "down", C, C, 3);
    const Layer shortcut = tape_linear_layer(t, "shortcut", 2 * C, C, true);
    const Layer norm1 = tape_norm_layer(t, "norm1", C);
    const Layer qkv = tape_linear_layer(t, "qkv", C, 3 * C, false);
    const Layer to_out = tape_linear_layer(t, "to_out", C, C, true);
    const Layer q = tape_linear_layer(t, "q", C, C, false),
                kv = tape_linear_layer(t, "kv", C, 2 * C, false);
    const Layer ff = tape_linear_layer(t, "ff", C, 2 * C, true);
    const Layer conv_out = tape_conv_layer(t, "conv_out", 2 * C, C, 3);

    const ValueId time =
        tape_silu(t, tape_linear(t, of_time, tape_time_embedding(t, b->in_numbers, C, true, 0),
                                 NO_VALUE));
    const ValueId h = tape_conv(t, conv_in, b->in_x, 1, time, NO_VALUE);
    const ValueId h2 =
        tape_conv(t, conv, tape_group_norm(t, norm, h, 4, 1e-5, true), 1, NO_VALUE, h);
    const ValueId up = tape_upsample(t, tape_conv(t, down, h2, 2, NO_VALUE, NO_VALUE), SIDE, SIDE);
    const ValueId l = tape_linear(t, shortcut, tape_concat(t, up, h2), NO_VALUE);
    const ValueId self =
        tape_self_attention(t, tape_linear(t, qkv, tape_layer_norm(t, norm1, l, 1e-5), NO_VALUE),
                            HEADS);
    const ValueId o = tape_linear(t, to_out, self, l);
    const ValueId cross = tape_cross_attention(t, tape_linear(t, q, o, NO_VALUE),
                                               tape_linear(t, kv, b->in_text, NO_VALUE), HEADS);
    const ValueId gated = tape_geglu(t, tape_linear(t, ff, cross, NO_VALUE));
    /* Some devices remove the other concat from the tape, but not this one. */
    return tape_conv(t, conv_out, tape_concat(t, gated, h), 1, NO_VALUE, NO_VALUE);
}

/* Emits the kinds that have no backward. */
static ValueId emit_inferred(Tape *t, Bench *b)
{
    static const char *const names[] = {"q", "k", "v"};
    b->in_x = b->in_text = NO_VALUE;
    b->in_numbers = tape_input(t, N, 1, TOKENS, 1);
    const Layer words = tape_embedding_layer(t, "words", 8, "positions", TOKENS, C);
    const Layer qkv = tape_linear_layers(t, names, 3, C, C);
    const Layer end = tape_conv_layer(t, "end", C, C, 3);
    const ValueId x = tape_linear(t, qkv, tape_embedding(t, words, b->in_numbers), NO_VALUE);
    const ValueId y = tape_gelu(t, tape_causal_attention(t, x, HEADS));
    b->in_x = tape_input(t, N, SIDE, SIDE, C);
    (void)y; /* no operation reads y */
    return tape_conv_end(t, end, b->in_x);
}

/* Allocates device memory with random values, uniform in [-1, 1). narrow: in the compute type; otherwise in fp32. */
static void *random_on(Device *device, int64_t n, uint64_t seed, bool narrow)
{
    Error err = ERROR_INIT;
    void *wide, *memory;
    float *values = random_new((size_t)n, seed);
    assert_int_equal(device_allocate(device, (size_t)n * sizeof(float), &wide, &err), 0);
    device_upload(device, wide, values, (size_t)n * sizeof(float));
    floats_free(values, (size_t)n);
    if (!narrow)
        return wide;
    assert_int_equal(device_allocate(device, (size_t)n * sizeof(float), &memory, &err), 0);
    cast_from_f32(device, n, wide, memory);
    assert_int_equal(device_synchronise(device, &err), 0);
    device_release(device, wide);
    return memory;
}

static void bench_open(Bench *b, ValueId (*emit)(Tape *, Bench *), bool backward)
{
    Error err = ERROR_INIT;
    const int32_t numbers[N * TOKENS] = {1, 5, 2, 7, 0, 3};
    *b = (Bench){.device = cpu_open(2)};
    assert_int_equal(tape_new(&b->tape), 0);
    b->y = emit(b->tape, b);
    tape_output(b->tape, b->y);
    if (tape_measure(b->tape, b->device, backward, &err) < 0 || tape_allocate(b->tape, &err) < 0)
        fail_msg("%s", err.text);
    const int64_t image = N * SIDE * SIDE * C;
    b->weights = random_on(b->device, b->tape->parameters->n_elements, 1, false);
    b->x = random_on(b->device, image, 2, true);
    b->text = random_on(b->device, N * TOKENS * C, 3, true);
    b->out = random_on(b->device, image, 4, true);
    b->dout = random_on(b->device, image, 5, true);
    assert_int_equal(device_allocate(b->device, sizeof(numbers), (void **)&b->numbers, &err), 0);
    device_upload(b->device, b->numbers, numbers, sizeof(numbers));
    const ValueId inputs[] = {b->in_x, b->in_text, b->in_numbers};
    const void *const memory[] = {b->x, b->text, b->numbers};
    for (size_t i = 0; i < ELEMENTSOF(inputs); i++)
        if (inputs[i] != NO_VALUE)
            tape_bind(b->tape, inputs[i], memory[i]);
    tape_bind_output(b->tape, b->y, b->out);
    tape_bind_gradient(b->tape, b->y, b->dout);
    tape_set_weights(b->tape, b->weights);
}

static void bench_close(Bench *b)
{
    Error err = ERROR_INIT;
    assert_int_equal(device_synchronise(b->device, &err), 0);
    b->tape = tape_free(b->tape);
    void *memory[] = {b->weights, b->x, b->text, b->out, b->dout, b->numbers};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(b->device, memory[i]);
    b->device = device_free(b->device);
}

/* ---- spoiling ---- */

/* The result to spoil, and how the library and the project's own kernels behave. */
static struct {
    const OperationKind *kind; /* the operation's kind before it was replaced */
    TapeResult result;
    /* forward or backward of the result's operation has run, and so the result has been spoiled */
    bool runs;
    bool pretends; /* the test pretends that a library computed the result */
    bool own_too;  /* the project's own kernels leave a NaN as well */
    /* own_late: the project's own kernels take an hour; own_is_refused: the project's own kernels get no memory */
    bool own_late, own_is_refused;
    bool adds;                   /* the operation adds to the result's earlier value */
    char left[RESULT_BYTES_MAX]; /* the result before it was spoiled */
} spoiled;

/* ---- wrappers of the clock and of the device ---- */

static uint64_t later_usec;
static int await_fails;
static bool await_lasts;

__typeof__(clock_monotonic_usec) __real_clock_monotonic_usec, __wrap_clock_monotonic_usec;
__typeof__(device_await) __real_device_await, __wrap_device_await;
__typeof__(device_allocate) __real_device_allocate, __wrap_device_allocate;
__typeof__(device_release) __real_device_release, __wrap_device_release;
static int n_held; /* number of allocations of device memory that are not released */

uint64_t __wrap_clock_monotonic_usec(void) { return __real_clock_monotonic_usec() + later_usec; }

/* With await_lasts set, the wait may take 60 s, so that the device finishes although the deadline has passed. */
int __wrap_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    if (await_fails)
        return error_set(err, await_fails, "it is broken");
    return __real_device_await(device, fence, await_lasts ? 60 * USEC_PER_SEC : timeout_usec, err);
}

/* With own_is_refused, refuses every allocation that the project's own kernels make: only they allocate memory after
 * the result was spoiled. */
int __wrap_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    if (spoiled.own_is_refused && spoiled.runs)
        return error_set(err, -ENOMEM, "no memory");
    n_held++;
    return __real_device_allocate(device, n_bytes, ret, err);
}

void __wrap_device_release(Device *device, void *memory)
{
    n_held -= memory != NULL;
    __real_device_release(device, memory);
}

/* ---- operations that are spoiled ---- */

/* Without a library, the project's own kernels also computed the result the first time: the same inputs must give the
 * same bits. */
static void check_same(const Tape *tape, const Operation *op, const ResultPlace *place)
{
    static char left[RESULT_BYTES_MAX];
    const size_t n = (size_t)place->n * data_type_bytes(place->type);
    const int input = (int)spoiled.result - RESULT_OF_INPUT;
    if (!place->data)
        return;
    assert_true(n <= sizeof(left));
    device_download(tape->device, tape->own_kernels ? left : spoiled.left, place->data, n);
    if (!tape->own_kernels)
        spoiled.adds = input >= 0 && input < INPUTS_MAX && op->accumulate[input];
    else if (!spoiled.adds && !getenv("SDTRAIN_CUDA_LIBRARIES") && spoiled.result != RESULT_SAVED)
        assert_memory_equal(left, spoiled.left, n);
}

static void spoil(const Tape *tape, const Operation *op)
{
    const ResultPlace place = tape_result(tape, (size_t)(op - tape->operations), spoiled.result);
    const size_t bytes = data_type_bytes(place.type);
    const uint32_t nan = 0x7fc07fc0;
    check_same(tape, op, &place);
    spoiled.runs = true;
    if (tape->own_kernels && spoiled.own_late)
        later_usec += 3600 * USEC_PER_SEC;
    if (place.data && (!tape->own_kernels || spoiled.own_too))
        device_upload(tape->device, (char *)(uintptr_t)place.data + (size_t)(place.n - 1) * bytes,
                      &nan, bytes);
}

/* Checks that no library computes any pass of an operation that must use the project's own kernels. */
static void check_own(const Tape *tape, const Operation *op)
{
    char plan[PLAN_MAX] = "";
    for (KernelPass pass = KERNEL_FORWARD;
         tape->own_kernels && spoiled.kind->plan_text && pass <= KERNEL_BACKWARD_WEIGHT; pass++) {
        spoiled.kind->plan_text(op, pass, plan, sizeof(plan));
        assert_string_equal(plan, "");
    }
}

static void forward_spoiled(const Tape *tape, const Operation *op)
{
    check_own(tape, op);
    spoiled.kind->forward(tape, op);
    if (spoiled.result < RESULT_OF_INPUT)
        spoil(tape, op);
}

static void backward_spoiled(const Tape *tape, const Operation *op)
{
    check_own(tape, op);
    spoiled.kind->backward(tape, op);
    if (spoiled.result >= RESULT_OF_INPUT)
        spoil(tape, op);
}

static void pretended_plan(const Operation *op, KernelPass pass, char *text, size_t size)
{
    if (spoiled.pretends)
        (void)snprintf(text, size, "%s", PLANNED ": {\"engine\":1}");
    else
        spoiled.kind->plan_text(op, pass, text, size);
}

static uint64_t in_time(void) { return clock_monotonic_usec() + 60 * USEC_PER_SEC; }

static void look(Bench *b, bool backward, uint64_t until_usec, char text[TAPE_FINITE_TEXT_MAX])
{
    Error err = ERROR_INIT;
    TapeFinite *f;
    const int held = n_held;
    if (tape_finite_new(b->tape, until_usec, &f, &err) < 0)
        fail_msg("%s", err.text);
    const GradientSink sink = tape_finite_sink(f);
    tape_finite_watch(f);
    tape_forward(b->tape);
    if (backward && !*tape_finite_text(f))
        tape_backward(b->tape, &sink, NULL, NULL);
    tape_finite_end(f);
    (void)snprintf(text, TAPE_FINITE_TEXT_MAX, "%s", tape_finite_text(f));
    /* the device works; only the wrapper failed */
    assert_int_equal(device_synchronise(b->device, &err), 0);
    f = tape_finite_free(f);
    /* The memory of a TapeFinite is released, or all of it is kept if the device may still use it. */
    assert_int_equal(n_held, await_fails == -ETIMEDOUT ? held + 3 : held);
}

/* Spoils the given result of the given operation, and runs the check. ret_plan gets the name of the result's library
 * plan. Returns false if there is no such result. */
static bool look_at_spoiled(Bench *b, size_t operation, TapeResult result, bool backward,
                            char text[TAPE_FINITE_TEXT_MAX], char ret_plan[PLAN_MAX])
{
    Operation *op = &b->tape->operations[operation];
    OperationKind kind = *op->kind;
    const bool in_backward = result >= RESULT_OF_INPUT;
    if (!tape_result(b->tape, operation, result).data ||
        (in_backward && (!backward || !op->runs_backward)))
        return false;
    spoiled.kind = op->kind;
    spoiled.result = result;
    spoiled.runs = false;
    kind.forward = forward_spoiled;
    kind.backward = kind.backward ? backward_spoiled : NULL;
    kind.plan_text = kind.plan_text ? pretended_plan : NULL;
    op->kind = &kind;
    look(b, backward, in_time(), text);
    tape_result_plan_text(b->tape, operation, result, ret_plan, PLAN_MAX);
    op->kind = spoiled.kind;
    if (*ret_plan)
        ret_plan[strcspn(ret_plan, ":")] = '\0'; /* the report does not contain the plan's entry */
    if (result == RESULT_PACKED)
        tape_set_weights(b->tape, b->weights);
    return true;
}

/* Spoils one result and checks the report. If a library computed the result, the report must end with the text
 * `own`, which is about the project's own kernels, and *n_planned is increased. Returns the number of results that were
 * checked: 0 or 1. */
static int check(Bench *b, size_t operation, TapeResult result, bool backward, const char *own,
                 int *n_planned)
{
    char text[TAPE_FINITE_TEXT_MAX], plan[PLAN_MAX], name[PARAMETER_NAME_MAX + 64], says[640];
    if (!look_at_spoiled(b, operation, result, backward, text, plan))
        return 0;
    tape_describe(b->tape, operation, name, sizeof(name));
    (void)snprintf(says, sizeof(says), "first is %s: %s (1 of %lld values)%s%s%s", name,
                   tape_result_name(result), (long long)tape_result(b->tape, operation, result).n,
                   *plan ? ", " : "", plan, *plan ? own : "");
    assert_string_equal(text, says);
    *n_planned += *plan != '\0';
    return 1;
}

/* Checks every result of every operation. Returns the number of results. */
static int check_all(ValueId (*emit)(Tape *, Bench *), bool backward, const char *own,
                     int *n_planned)
{
    int n = 0;
    Bench b;
    bench_open(&b, emit, backward);
    for (size_t i = 0; i < b.tape->n_operations; i++)
        for (TapeResult result = 0; result < N_RESULTS; result++)
            n += check(&b, i, result, backward, own, n_planned);
    bench_close(&b);
    return n;
}

/* ---- cases ---- */

static void what_is_finite_says_nothing(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX];
    Bench b;
    bench_open(&b, emit_trained, true);
    look(&b, true, in_time(), text);
    assert_string_equal(text, "");
    bench_close(&b);
}

/* Every kind of operation is in the tape of emit_trained() or of emit_inferred(). A new kind must be added to one of
 * these tapes. */
static void all_kinds_are_there(void **state)
{
    (void)state;
    static const char *const kinds[] = {"conv",       "linear", "attention", "group_norm",
                                        "layer_norm", "geglu",  "silu",      "concat",
                                        "upsample",   "gelu",   "embedding", "time_embedding"};
    for (size_t k = 0; k < ELEMENTSOF(kinds); k++) {
        int n = 0;
        for (int trained = 0; trained < 2; trained++) {
            Bench b;
            bench_open(&b, trained ? emit_trained : emit_inferred, trained);
            for (size_t i = 0; i < b.tape->n_operations; i++)
                n += strcmp(b.tape->operations[i].kind->name, kinds[k]) == 0;
            bench_close(&b);
        }
        if (n == 0)
            fail_msg("no tape has %s", kinds[k]);
    }
}

static void each_result_of_each_kind_is_named(void **state)
{
    (void)state;
    int n_planned = 0;
    assert_in_range(check_all(emit_trained, true, HINT, &n_planned), 80,
                    82); /* devices differ in the weights that they pack */
    assert_int_equal(check_all(emit_inferred, false, HINT, &n_planned), 8);
    if (!getenv("SDTRAIN_CUDA_LIBRARIES"))
        assert_int_equal(n_planned, 0);
    else
        assert_in_range(n_planned, 20, 200);
}

static void our_own_kernels_are_asked(void **state)
{
    (void)state;
    int n_planned = 0;
    spoiled.pretends = true;
    (void)check_all(emit_trained, true, HINT, &n_planned);
    (void)check_all(emit_inferred, false, HINT, &n_planned);
    assert_in_range(n_planned, 30, 200);
    spoiled.own_too = true;
    (void)check_all(emit_trained, true, "; our own kernels make it no better", &n_planned);
    spoiled.own_too = false;
    spoiled.own_late = await_lasts = true;
    (void)check_all(emit_trained, true, "; our own kernels do not tell: no time was left",
                    &n_planned);
    spoiled.own_late = await_lasts = spoiled.pretends = false;
}

static void nothing_runs_behind_it(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX], plan[PLAN_MAX];
    uint32_t before[4], after[4];
    Bench b;
    bench_open(&b, emit_trained, true);
    device_download(b.device, before, b.out, sizeof(before));
    assert_true(look_at_spoiled(&b, b.tape->n_operations - 2, RESULT_OUT, true, text, plan));
    device_download(b.device, after, b.out, sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
    bench_close(&b);
}

static void infinity_is_not_finite_either(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX];
    float large;
    Bench b;
    bench_open(&b, emit_trained, true);
    /* weight of the linear layer after the time embedding */
    const int64_t at = b.tape->operations[1].layer.weight;
    for (int i = 0; i < 2; i++) {
        large = i == 0 ? 3e38f : -3e38f;
        device_upload(b.device, b.weights + at + i, &large, sizeof(large));
    }
    tape_set_weights(b.tape, b.weights);
    look(&b, true, in_time(), text);
    if (strncmp(text, "first is ", 9) != 0 || !strstr(text, " values)"))
        fail_msg("%s", text);
    bench_close(&b);
}

/* Checks outside a run of the tape: weights are reported by their names, other memory by the name that the caller
 * gives, and the loss as the loss. */
static void what_no_operation_leaves_is_named(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    TapeFinite *f;
    Bench b;
    const float bad = INFINITY;
    const double losses[] = {-1e300, INFINITY};
    bench_open(&b, emit_trained, true);
    const Parameter *p = &b.tape->parameters->items[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tape_finite_new(b.tape, in_time(), &f, &err), 0);
        assert_true(tape_finite_look_at_weights(f, b.weights));
        assert_true(
            tape_finite_look(f, "dout", device_type(b.device), N * SIDE * SIDE * C, b.dout));
        device_upload(b.device, tape_finite_loss(f), &losses[0], sizeof(double));
        assert_true(tape_finite_look_at_loss(f));
        device_upload(b.device, tape_finite_loss(f), &losses[1], sizeof(double));
        device_upload(b.device, b.weights + p->offset, &bad, sizeof(bad));
        char says[256];
        if (i == 0) {
            assert_false(tape_finite_look_at_weights(f, b.weights));
            (void)snprintf(says, sizeof(says), "first is the parameter %s (1 of %lld values)",
                           p->name, (long long)p->n_elements);
        } else if (i == 1) {
            assert_false(tape_finite_look(f, "it", DATA_F32, 3, b.weights + p->offset));
            (void)snprintf(says, sizeof(says), "first is it (1 of 3 values)");
        } else {
            assert_false(tape_finite_look_at_loss(f));
            (void)snprintf(says, sizeof(says), "first is the loss, inf, of a finite prediction");
        }
        assert_string_equal(tape_finite_text(f), says);
        assert_false(tape_finite_look(f, "what comes later", DATA_F32, 3, b.weights));
        assert_false(tape_finite_look_at_loss(f));
        assert_string_equal(tape_finite_text(f), says);
        f = tape_finite_free(f);
        const float good = 0;
        device_upload(b.device, b.weights + p->offset, &good, sizeof(good));
    }
    bench_close(&b);
}

static void time_that_is_over_is_told(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX];
    Bench b;
    bench_open(&b, emit_trained, true);
    await_lasts = true;
    look(&b, true, clock_monotonic_usec(), text);
    assert_string_equal(text, "nobody knows what is first: no time was left at time_embedding "
                              "2x1x1 1->16");
    await_lasts = false;
    bench_close(&b);
}

static void a_device_that_breaks_is_quoted(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX];
    Bench b;
    bench_open(&b, emit_trained, true);
    await_fails = -EIO;
    look(&b, true, in_time(), text);
    assert_string_equal(text, "nobody knows what is first: it is broken at time_embedding "
                              "2x1x1 1->16");
    await_fails = 0;
    bench_close(&b);
}

/* If a check fails, the text reports no number and no loss, and later checks do not change it. */
static void a_look_that_fails_says_where(void **state)
{
    (void)state;
    Bench b;
    Error err = ERROR_INIT;
    TapeFinite *f;
    bench_open(&b, emit_trained, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tape_finite_new(b.tape, in_time(), &f, &err), 0);
        await_fails = -EIO;
        assert_false(i ? tape_finite_look_at_loss(f)
                       : tape_finite_look(f, "the target", DATA_F32, 1, b.weights));
        await_fails = 0;
        const char *says = i ? "nobody knows what is first: it is broken at the loss"
                             : "nobody knows what is first: it is broken at the target";
        assert_string_equal(tape_finite_text(f), says);
        assert_false(tape_finite_look_at_loss(f));
        assert_false(tape_finite_look(f, "more", DATA_F32, 1, b.weights));
        assert_string_equal(tape_finite_text(f), says);
        /* the device works; only the wrapper failed */
        assert_int_equal(device_synchronise(b.device, &err), 0);
        f = tape_finite_free(f);
    }
    bench_close(&b);
}

/* Memory that a hanging device may use is kept, and so is the device. */
static void a_device_that_hangs_is_left_alone(void **state)
{
    (void)state;
    static Bench b;
    char text[TAPE_FINITE_TEXT_MAX];
    bench_open(&b, emit_trained, true);
    await_fails = -ETIMEDOUT;
    look(&b, true, in_time(), text);
    assert_string_equal(text, "nobody knows what is first: no time was left at time_embedding "
                              "2x1x1 1->16");
    await_fails = 0;
}

static void who_has_no_memory_for_our_own_kernels_says_so(void **state)
{
    (void)state;
    char text[TAPE_FINITE_TEXT_MAX], plan[PLAN_MAX];
    Bench b;
    bench_open(&b, emit_trained, true);
    spoiled.pretends = spoiled.own_is_refused = true;
    size_t conv = 0;
    while (strcmp(b.tape->operations[conv].kind->name, "conv") != 0)
        conv++;
    assert_true(look_at_spoiled(&b, conv, RESULT_OUT, true, text, plan));
    spoiled.pretends = spoiled.own_is_refused = false;
    if (!strstr(text, PLANNED "; our own kernels do not tell: ") || !strstr(text, "no memory"))
        fail_msg("%s", text);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_finite_says_nothing),
        cmocka_unit_test(all_kinds_are_there),
        cmocka_unit_test(each_result_of_each_kind_is_named),
        cmocka_unit_test(our_own_kernels_are_asked),
        cmocka_unit_test(nothing_runs_behind_it),
        cmocka_unit_test(infinity_is_not_finite_either),
        cmocka_unit_test(what_no_operation_leaves_is_named),
        cmocka_unit_test(time_that_is_over_is_told),
        cmocka_unit_test(a_device_that_breaks_is_quoted),
        cmocka_unit_test(a_look_that_fails_says_where),
        cmocka_unit_test(a_device_that_hangs_is_left_alone),
        cmocka_unit_test(who_has_no_memory_for_our_own_kernels_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
