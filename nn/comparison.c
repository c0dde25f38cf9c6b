/* SPDX-License-Identifier: Apache-2.0 */
/* comparison.c - see comparison.h. */
#include "nn/comparison.h"

#include "base/memory.h"
#include "nn/results.h"

#include <stdlib.h>

enum { RUNS = 2 };

struct TapeComparison {
    Tape *tape;
    int run;
    /* device memory: fingerprints [RUNS][operations][N_RESULTS] */
    uint64_t *sums;
};

static size_t sums_of_run(const TapeComparison *c) { return c->tape->n_operations * N_RESULTS; }

int tape_comparison_new(Tape *tape, TapeComparison **ret, Error *err)
{
    TapeComparison *c = memory_new(TapeComparison);
    c->tape = tape;
    int r = device_allocate(tape->device, RUNS * sums_of_run(c) * sizeof(*c->sums),
                            (void **)&c->sums, err);
    if (r < 0) {
        free(c);
        return r;
    }
    *ret = c;
    return 0;
}

TapeComparison *tape_comparison_free(TapeComparison *c)
{
    if (!c)
        return NULL;
    device_release(c->tape->device, c->sums);
    free(c);
    return NULL;
}

/* ---- watching ---- */

/* Packed weights and saved data are not compared: a difference in them shows in the results computed from them. */
static TapeResult first_of(TapePhase phase)
{
    return phase == TAPE_FORWARD ? RESULT_OUT : RESULT_OF_INPUT;
}

static TapeResult end_of(TapePhase phase)
{
    return phase == TAPE_FORWARD ? RESULT_OUT + 1 : N_RESULTS;
}

static bool watch(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    const TapeComparison *c = userdata;
    uint64_t *sums = c->sums + (size_t)c->run * sums_of_run(c) + operation * N_RESULTS;
    if (phase == TAPE_PACK)
        return true;
    for (TapeResult result = first_of(phase); result < end_of(phase); result++) {
        const ResultPlace place = tape_result(tape, operation, result);
        if (place.data)
            fingerprint(tape->device, (size_t)place.n * data_type_bytes(place.type), place.data,
                        &sums[result]);
    }
    return true;
}

void tape_comparison_watch(TapeComparison *c, int run)
{
    assert(run >= 0 && run < RUNS && !c->tape->observer);
    c->run = run;
    c->tape->observer = watch;
    c->tape->observer_userdata = c;
}

void tape_comparison_end(TapeComparison *c)
{
    assert(c->tape->observer == watch);
    c->tape->observer = NULL;
    c->tape->observer_userdata = NULL;
}

/* ---- reporting ---- */

static int differs(const TapeComparison *c, size_t operation, TapeResult result, Error *err)
{
    char name[PARAMETER_NAME_MAX + 64], plan[320];
    tape_describe(c->tape, operation, name, sizeof(name));
    tape_result_plan_text(c->tape, operation, result, plan, sizeof(plan));
    return error_set(err, -EXDEV, "%s: %s has other bits when it is computed again; %s", name,
                     tape_result_name(result), *plan ? plan : "no plan of a library");
}

int tape_comparison_report(const TapeComparison *c, TapePhase phase, Error *err)
{
    const size_t n = sums_of_run(c), n_operations = c->tape->n_operations;
    uint64_t *sums = memory_zeroed(RUNS * n, sizeof(*sums));
    device_download(c->tape->device, sums, c->sums, RUNS * n * sizeof(*sums));
    int r = device_synchronise(c->tape->device, err);
    for (size_t i = 0; r == 0 && i < n_operations; i++) {
        const size_t operation = phase == TAPE_FORWARD ? i : n_operations - 1 - i;
        for (TapeResult result = first_of(phase); r == 0 && result < end_of(phase); result++)
            if (sums[operation * N_RESULTS + result] != sums[n + operation * N_RESULTS + result])
                r = differs(c, operation, result, err);
    }
    free(sums);
    return r;
}
