/* SPDX-License-Identifier: Apache-2.0 */
/* conv-tune.c - see conv-tune.h. */
#include "kernels/cuda/convolution/conv-tune.h"

#include "base/memory.h"
#include "kernels/cuda/convolution/conv-candidates.h"
#include "kernels/cuda/convolution/conv-entry.h"
#include "kernels/cuda/plans/plans.h"
#include "kernels/cuda/plans/tune.h"

#include <stdlib.h>

enum {
    PROPOSED_MAX = 3 * CONV_CANDIDATES_MAX,
    TUNED_MAX = 16, /* the most candidates; few, because making a plan may compile an engine */
    WORKSPACE_MAX = 64 << 20 /* the largest workspace, in bytes; all operations share it */
};

typedef struct ConvTuning {
    CudaCompute *compute;
    ConvGraph *const *graphs;
    ConvChoice choices[TUNED_MAX];
    /* plans[candidate][0] overwrites the result, and [1] adds to the result. [1] is NULL for the weight's gradient. */
    ConvPlan *plans[TUNED_MAX][2];
    TuneCandidate candidates[TUNED_MAX];
    int n;
    void *x, *w, *y, *workspace;
} ConvTuning;

static bool same_choice(const ConvChoice *a, const ConvChoice *b)
{
    if (a->engine != b->engine || a->n_knobs != b->n_knobs)
        return false;
    for (int i = 0; i < a->n_knobs; i++)
        if (a->knobs[i].type != b->knobs[i].type || a->knobs[i].value != b->knobs[i].value)
            return false;
    return true;
}

/* Reports whether the choice is a candidate already: heuristics B and fallback often propose the same choices as
 * heuristics A. */
static bool is_known(const ConvTuning *t, const ConvChoice *choice)
{
    for (int i = 0; i < t->n; i++)
        if (same_choice(&t->choices[i], choice))
            return true;
    return false;
}

/* Makes the plans of a candidate. A choice that cuDNN refuses for either graph is not a candidate. */
static void add_candidate(ConvTuning *t, const ConvChoice *choice)
{
    _cleanup_(conv_plan_freep) ConvPlan *plan = NULL, *adding = NULL;
    Error refused = ERROR_INIT;
    if (conv_plan_new(t->graphs[0], choice, &plan, &refused) < 0 ||
        (t->graphs[1] && conv_plan_new(t->graphs[1], choice, &adding, &refused) < 0))
        return;
    const int64_t bytes = MAX(conv_plan_workspace_bytes(plan),
                              adding ? conv_plan_workspace_bytes(adding) : INT64_C(0));
    if (bytes > WORKSPACE_MAX)
        return;
    t->choices[t->n] = *choice;
    t->candidates[t->n].workspace_bytes = bytes;
    t->plans[t->n][0] = TAKE_PTR(plan);
    t->plans[t->n++][1] = TAKE_PTR(adding);
}

static int find_candidates(ConvTuning *t, Error *err)
{
    _cleanup_free_ ConvCandidate *proposed = memory_zeroed(PROPOSED_MAX, sizeof(*proposed));
    const int n = conv_candidates(t->graphs[0], proposed, PROPOSED_MAX, err);
    const int wanted = MIN(tune_candidates_max(t->compute), (int)TUNED_MAX);
    for (int i = 0; i < n && t->n < wanted; i++)
        if (proposed[i].is_deterministic && !is_known(t, &proposed[i].choice))
            add_candidate(t, &proposed[i].choice);
    if (n >= 0 && t->n == 0)
        return error_set(err, -EINVAL,
                         "%s: of %d engines that cuDNN proposes none is deterministic with at most "
                         "%d bytes of workspace",
                         conv_graph_name(t->graphs[0]), n, WORKSPACE_MAX);
    return MIN(n, 0);
}

static int make_operands(ConvTuning *t, const ConvShape *s, Error *err)
{
    Device *device = t->compute->device;
    const int64_t pixels = (int64_t)s->n * s->h * s->w;
    const int64_t out_pixels =
        (int64_t)s->n * DIV_ROUND_UP(s->h, s->stride) * DIV_ROUND_UP(s->w, s->stride);
    const int64_t weights = (int64_t)s->c_out * s->c_in * s->kernel * s->kernel;
    int r = tune_operand(device, (size_t)(pixels * s->c_in) * 2, &t->x, err);
    if (r == 0)
        r = tune_operand(device, (size_t)weights * 2, &t->w, err);
    if (r == 0)
        r = tune_operand(device, (size_t)(out_pixels * s->c_out) * 2, &t->y, err);
    if (r == 0)
        r = device_allocate(device, WORKSPACE_MAX, &t->workspace, err);
    return r < 0 ? error_prefix(err, r, "%s", conv_graph_name(t->graphs[0])) : 0;
}

/* Runs the candidate once overwriting and once adding, because networks with residuals and skips do both about equally
 * often. */
static bool start(void *userdata, int candidate)
{
    const ConvTuning *t = userdata;
    Error refused = ERROR_INIT; /* ignored: another candidate is chosen */
    bool runs = true;
    (void)cuda_compute_stream(t->compute->device); /* makes the device's GPU current */
    for (int add = 0; runs && add < 2 && t->plans[candidate][add]; add++)
        runs = conv_plan_execute(t->plans[candidate][add], t->x, t->w, t->y, t->workspace,
                                 &refused) == 0;
    return runs;
}

static void give_entry(const ConvTuning *t, ConvPass pass, int best)
{
    json_t *entry = conv_entry_new(&t->choices[best], t->candidates[best].workspace_bytes);
    int r = json_object_set_new(entry, "variant", json_string(CUDA_PLAN_VARIANT));
    if (r == 0 && pass == CONV_BACKWARD_WEIGHT)
        r = json_object_set_new(entry, "dw", json_string("bf16"));
    assert(r == 0);
    cuda_plans_give(t->compute->plans, conv_graph_name(t->graphs[0]), entry);
}

int conv_tune(CudaCompute *compute, const ConvShape *shape, ConvPass pass,
              ConvGraph *const graphs[2], Error *err)
{
    const json_t *known;
    if (cuda_plans_take(compute->plans, conv_graph_name(graphs[0]), &known, NULL) == 0)
        return 0; /* the plans have an entry for this operation */
    ConvTuning *t = memory_new(ConvTuning);
    t->compute = compute;
    t->graphs = graphs;
    int r = find_candidates(t, err);
    if (r == 0)
        r = make_operands(t, shape, err);
    if (r == 0) {
        const Tuning tuning = {compute, conv_graph_name(graphs[0]), t->candidates, t->n, start, t};
        r = tune_choose(&tuning, err);
    }
    if (r >= 0)
        give_entry(t, pass, r);
    void *memory[] = {t->x, t->w, t->y, t->workspace};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(compute->device, memory[i]);
    for (int i = 0; i < t->n; i++)
        for (int add = 0; add < 2; add++)
            (void)conv_plan_free(t->plans[i][add]);
    free(t);
    return MIN(r, 0);
}
