/* SPDX-License-Identifier: Apache-2.0 */
/* finite.c - see finite.h. */
#include "nn/finite.h"

#include "base/clock.h"
#include "base/memory.h"
#include "nn/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct TapeFinite {
    Tape *tape;
    uint64_t until_usec;
    /* device memory: for each result of the checked operation, how many values are not finite */
    uint64_t *counts;
    uint32_t *maxima; /* device memory: maxima of the gradients of tensors, which no code reads */
    double *loss;     /* device memory */
    bool hangs;       /* the device hangs, and may still use this object's memory */
    char text[TAPE_FINITE_TEXT_MAX];
};

int tape_finite_new(Tape *tape, uint64_t until_usec, TapeFinite **ret, Error *err)
{
    _cleanup_(tape_finite_freep) TapeFinite *f = memory_new(TapeFinite);
    f->tape = tape;
    f->until_usec = until_usec;
    int r = device_allocate(tape->device, N_RESULTS * sizeof(*f->counts), (void **)&f->counts, err);
    if (r == 0)
        r = device_allocate(tape->device, MAX(tape->parameters->n_items, 1u) * sizeof(*f->maxima),
                            (void **)&f->maxima, err);
    if (r == 0)
        r = device_allocate(tape->device, sizeof(*f->loss), (void **)&f->loss, err);
    if (r == 0)
        *ret = TAKE_PTR(f);
    return r;
}

/* Keeps the memory until the process ends, for a device that hangs. The array is volatile because no code reads it. */
static void keep(const void *memory)
{
    static _unused_ const void *volatile kept[2];
    kept[kept[0] != NULL] = memory;
}

TapeFinite *tape_finite_free(TapeFinite *f)
{
    if (!f)
        return NULL;
    if (f->hangs) {
        keep(f);
        return NULL;
    }
    device_release(f->tape->device, f->counts);
    device_release(f->tape->device, f->maxima);
    device_release(f->tape->device, f->loss);
    free(f);
    return NULL;
}

GradientSink tape_finite_sink(const TapeFinite *f)
{
    return (GradientSink){.kind = SINK_MAXIMA, .maxima = f->maxima};
}

const char *tape_finite_text(const TapeFinite *f) { return f->text; }

bool tape_finite_hangs(const TapeFinite *f) { return f->hangs; }

static void append_text(TapeFinite *f, const char *format, ...) _printf_(2, 3);

static void append_text(TapeFinite *f, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(f->text, sizeof(f->text), format, ap); /* text that does not fit is truncated */
    va_end(ap);
}

/* ---- counting ---- */

/* Waits for the counts and reads them. Returns -ETIME if the deadline has passed. */
static int read_counts(TapeFinite *f, uint64_t counts[N_RESULTS], Error *err)
{
    Device *device = f->tape->device;
    const uint64_t now = clock_monotonic_usec();
    const uint64_t left = now < f->until_usec ? f->until_usec - now : 0;
    int r = device_await(device, device_fence(device, LANE_COMPUTE), left, err);
    f->hangs = r == -ETIMEDOUT;
    if (r == -ETIMEDOUT || (r == 0 && left == 0))
        return error_set(err, -ETIME, "no time was left");
    if (r == 0)
        device_download(device, counts, f->counts, N_RESULTS * sizeof(*counts));
    return r;
}

static void begin_counts(const TapeFinite *f)
{
    device_clear(f->tape->device, f->counts, N_RESULTS * sizeof(*f->counts));
}

static void count_results(const TapeFinite *f, const Tape *tape, size_t operation, TapeResult first,
                          TapeResult end)
{
    for (TapeResult result = first; result < end; result++) {
        const ResultPlace place = tape_result(tape, operation, result);
        if (place.data)
            count_non_finite(tape->device, place.type, place.n, place.data, &f->counts[result]);
    }
}

bool tape_finite_look(TapeFinite *f, const char *what, DataType type, int64_t n, const void *data)
{
    uint64_t counts[N_RESULTS];
    Error err = ERROR_INIT;
    if (*f->text)
        return false;
    begin_counts(f);
    count_non_finite(f->tape->device, type, n, data, f->counts);
    if (read_counts(f, counts, &err) < 0)
        append_text(f, "nobody knows what is first: %s at %s", err.text, what);
    else if (counts[0] > 0)
        append_text(f, "first is %s (%" PRIu64 " of %" PRId64 " values)", what, counts[0], n);
    return !*f->text;
}

bool tape_finite_look_at_weights(TapeFinite *f, const float *weights)
{
    const ParameterList *list = f->tape->parameters;
    char first[TAPE_FINITE_TEXT_MAX];
    if (tape_finite_look(f, "the weights", DATA_F32, list->n_elements, weights) || f->hangs)
        return !*f->text;
    memcpy(first, f->text, sizeof(first));
    for (size_t i = 0; i < list->n_items; i++) {
        const Parameter *p = &list->items[i];
        char what[PARAMETER_NAME_MAX + 16];
        (void)snprintf(what, sizeof(what), "the parameter %s", p->name);
        *f->text = '\0';
        if (!tape_finite_look(f, what, DATA_F32, p->n_elements, weights + p->offset))
            return false;
    }
    /* a second check found each parameter finite: the device gives inconsistent results */
    memcpy(f->text, first, sizeof(first));
    return false;
}

double *tape_finite_loss(TapeFinite *f) { return f->loss; }

bool tape_finite_look_at_loss(TapeFinite *f)
{
    uint64_t counts[N_RESULTS];
    double loss = 0;
    Error err = ERROR_INIT;
    if (*f->text)
        return false;
    if (read_counts(f, counts, &err) < 0) {
        append_text(f, "nobody knows what is first: %s at the loss", err.text);
        return false;
    }
    device_download(f->tape->device, &loss, f->loss, sizeof(loss));
    if (!isfinite(loss))
        append_text(f, "first is the loss, %g, of a finite prediction", loss);
    return !*f->text;
}

/* ---- the project's own kernels ---- */

/* Makes a value of the tape `from` an input of this tape. Both tapes then use the same memory. */
static ValueId borrow(Tape *tape, const Tape *from, ValueId id, bool backward)
{
    if (id == NO_VALUE)
        return NO_VALUE;
    const Value *v = &from->values[id];
    const ValueId input = tape_input(tape, v->n, v->h, v->w, v->c);
    if (input == NO_VALUE)
        return NO_VALUE;
    Value *value = &tape->values[input];
    value->wants_gradient = backward && v->wants_gradient;
    value->bound = tape_data(from, id);
    value->bound_gradient = tape_gradient(from, id);
    return input;
}

/* Makes a tape that holds only the given operation, with its inputs and results in the memory of the tape `from`. Where
 * the operation's backward adds to a gradient, this tape overwrites the gradient. The residual is left out in backward,
 * since its gradient is finite exactly if the result's gradient is. */
static int own_tape_new(const Tape *from, size_t operation, bool backward, Tape **ret, Error *err)
{
    _cleanup_(tape_freep) Tape *tape = NULL;
    Operation op = from->operations[operation];
    const Value *y = &from->values[op.out];
    const ValueId out = op.out;
    int r = tape_new(&tape);
    if (r < 0)
        return error_errno(err, r, "a tape of one operation");
    tape->own_kernels = true;
    memset(&op.kernel, 0, sizeof(op.kernel)); /* the kernels belong to the tape `from` */
    if (backward)
        op.in[IN_RESIDUAL] = NO_VALUE;
    for (int i = 0; i < INPUTS_MAX; i++)
        op.in[i] = borrow(tape, from, op.in[i], backward);
    const ValueId result = tape_emit(tape, op, y->n, y->h, y->w, y->c);
    if (result != NO_VALUE) {
        Value *value = &tape->values[result];
        value->is_bound = true;
        value->bound = tape_data(from, out);
        value->bound_gradient = tape_gradient(from, out);
    }
    r = tape_measure(tape, from->device, backward, err);
    if (r == 0)
        r = tape_allocate(tape, err);
    if (r == 0)
        *ret = TAKE_PTR(tape);
    return r;
}

/* Runs the operation with the project's own kernels. Their forward saves other data for backward than a library's
 * forward does. So, where backward reads saved data, forward runs first; its inputs are still in memory. */
static void run_own(const TapeFinite *f, Tape *tape, bool backward)
{
    const GradientSink sink = tape_finite_sink(f);
    const bool reads_out = tape->operations[0].kind->backward_reads & BACKWARD_READS_OUT;
    tape_set_weights(tape, f->tape->weights);
    if (!backward || reads_out)
        tape_forward(tape);
    if (backward)
        tape_backward(tape, &sink, NULL, NULL);
}

/* Computes the result again with the project's own kernels. Returns how many values of the new result are not finite,
 * or a negative errno. */
static int64_t query_own_kernels(TapeFinite *f, size_t operation, TapeResult result, Error *err)
{
    uint64_t counts[N_RESULTS];
    const bool backward = result >= RESULT_OF_INPUT;
    Tape *tape = NULL;
    int r = own_tape_new(f->tape, operation, backward, &tape, err);
    if (r < 0)
        return r;
    begin_counts(f);
    run_own(f, tape, backward);
    count_results(f, tape, 0, result, result + 1);
    r = read_counts(f, counts, err);
    if (f->hangs)
        keep(tape);
    else
        tape = tape_free(tape);
    return r < 0 ? r : (int64_t)counts[result];
}

/* ---- watching ---- */

/* Writes which library computes the result, and the name of the plan's entry, but not the JSON of the entry. */
static void name_plan(const Tape *tape, size_t operation, TapeResult result, char *text,
                      size_t size)
{
    tape_result_plan_text(tape, operation, result, text, size);
    char *entry = strstr(text, ": {");
    if (entry)
        *entry = '\0';
}

static void report_found(TapeFinite *f, size_t operation, TapeResult result, uint64_t n_bad)
{
    Error err = ERROR_INIT;
    char name[PARAMETER_NAME_MAX + 64], plan[320], own[160] = "";
    tape_describe(f->tape, operation, name, sizeof(name));
    name_plan(f->tape, operation, result, plan, sizeof(plan));
    if (*plan) {
        const int64_t n = query_own_kernels(f, operation, result, &err);
        (void)snprintf(own, sizeof(own), "%s",
                       n == 0
                           ? "; our own kernels make it finite: \"own_kernels\":true in that entry"
                       : n > 0 ? "; our own kernels make it no better"
                               : "; our own kernels do not tell");
        if (n < 0)
            (void)snprintf(own + strlen(own), sizeof(own) - strlen(own), ": %.100s", err.text);
    }
    append_text(f, "first is %s: %s (%" PRIu64 " of %" PRId64 " values)%s%s%s", name,
                tape_result_name(result), n_bad, tape_result(f->tape, operation, result).n,
                *plan ? ", " : "", plan, own);
}

static bool watch(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    TapeFinite *f = userdata;
    uint64_t counts[N_RESULTS];
    Error err = ERROR_INIT;
    const TapeResult first = phase == TAPE_FORWARD ? RESULT_PACKED : RESULT_OF_INPUT;
    const TapeResult end = phase == TAPE_FORWARD ? RESULT_OF_INPUT : N_RESULTS;
    if (phase == TAPE_PACK || *f->text)
        return !*f->text;
    begin_counts(f);
    count_results(f, tape, operation, first, end);
    if (read_counts(f, counts, &err) < 0) {
        char name[PARAMETER_NAME_MAX + 64];
        tape_describe(tape, operation, name, sizeof(name));
        append_text(f, "nobody knows what is first: %s at %s", err.text, name);
        return false;
    }
    for (TapeResult result = first; result < end && !*f->text; result++)
        if (counts[result] > 0)
            report_found(f, operation, result, counts[result]);
    return !*f->text;
}

void tape_finite_watch(TapeFinite *f)
{
    assert(!f->tape->observer);
    /* the arena may still hold a NaN of the run before, in gaps that this run does not write */
    if (f->tape->arena)
        device_clear(f->tape->device, f->tape->arena, f->tape->arena_bytes);
    f->tape->observer = watch;
    f->tape->observer_userdata = f;
}

void tape_finite_end(TapeFinite *f)
{
    assert(f->tape->observer == watch);
    f->tape->observer = NULL;
    f->tape->observer_userdata = NULL;
}
