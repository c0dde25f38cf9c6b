/* SPDX-License-Identifier: Apache-2.0 */
/* test-conv-plans.c - shows that the real cuDNN has a deterministic plan, on an H100 and an H200, for every convolution
 * of sd2-base and of its autoencoder's encoder, and that the committed plan sets contain these plans. No GPU is needed:
 * cuDNN plans for records of the GPUs (tests/golden/gpu).
 *
 * SDTRAIN_PLANS=write writes the convolutions' entries of the plan sets again; entries of other operations stay. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "kernels/cuda/convolution/conv-candidates.h"
#include "kernels/cuda/convolution/conv-entry.h"
#include "kernels/cuda/plans/plans.h"
#include "kernels/test/testing-plans.h"
#include "nn/test/testing-encoders.h"
#include "nn/test/testing-sd2.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKSPACE_MAX = 64 << 20,
    N_PLANS = 126 + 22 /* 126 of sd2-base in three passes, 22 of its encoder at two sizes */
};

static const CudaLibraries *libraries;

static ConvTarget target_of(const PlanGpu *gpu)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = gpu_record(gpu);
    ConvTarget target;
    if (conv_target_of_record(text, &target, &err) < 0)
        fail_msg("%s", err.text);
    return target;
}

/* ---- the convolutions of sd2-base, and of its encoder ---- */

typedef struct Visit {
    const PlanGpu *gpu;
    ConvTarget target;
    json_t *operations; /* the operations of the committed set */
    json_t *made;       /* entries by name, from the heuristics */
    int64_t workspace_max;
    bool add;         /* the graphs add to the old values */
    json_t *measured; /* entries measured on the GPU itself; NULL: none */
} Visit;

static void each_pass(Visit *v, const ConvShape *shape, int n_passes,
                      void (*look)(Visit *v, const ConvGraph *graph))
{
    const ConvPads pads = conv_pads_of(shape);
    for (ConvPass pass = 0; pass < (ConvPass)n_passes; pass++) {
        char name[CONV_NAME_MAX];
        Error err = ERROR_INIT;
        _cleanup_(conv_graph_freep) ConvGraph *graph = NULL;
        conv_pass_name(shape, pads, pass, name);
        if (json_object_get(v->made, name))
            continue;
        if (conv_graph_new(&v->target, shape, pads, pass, v->add, &graph, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(conv_graph_name(graph), name);
        look(v, graph);
    }
}

static void each_convolution(Visit *v, const Tape *tape, int n_passes,
                             void (*look)(Visit *v, const ConvGraph *graph))
{
    for (size_t i = 0; i < tape->n_operations; i++)
        if (strcmp(tape->operations[i].kind->name, "conv") == 0)
            each_pass(v, &tape->operations[i].shape.conv, n_passes, look);
}

/* Calls look() once for each pass of each shape. v->made contains the passes already visited. */
static void each_graph(Visit *v, void (*look)(Visit *v, const ConvGraph *graph))
{
    for (size_t size = 0; size < ELEMENTSOF(plan_sizes); size++) {
        _cleanup_(tape_freep) Tape *tape =
            sd2_tape_new(plan_sizes[size].side, plan_sizes[size].grain);
        each_convolution(v, tape, N_CONV_PASSES, look);
    }
    for (size_t size = 0; size < ELEMENTSOF(encoder_sizes); size++) {
        _cleanup_(tape_freep) Tape *tape =
            vae_encoder_tape_new(encoder_sizes[size].side, encoder_sizes[size].batch);
        each_convolution(v, tape, 1, look);
    }
}

static void choose(Visit *v, const ConvGraph *graph)
{
    Error err = ERROR_INIT;
    ConvChoice choice;
    int64_t workspace;
    if (conv_candidates_first(graph, WORKSPACE_MAX, &choice, &workspace, &err) < 0)
        fail_msg("%s: %s", v->gpu->record, err.text);
    v->workspace_max = MAX(v->workspace_max, workspace);
    assert_int_equal(json_object_set_new(v->made, conv_graph_name(graph),
                                         conv_entry_new(&choice, workspace)),
                     0);
}

/* ---- tests ---- */

/* Every convolution has a deterministic plan. The sets contain the plans that cuDNN proposes first, or those that were
 * fastest on the GPU itself. */
static void every_convolution_has_a_deterministic_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GPUS; i++) {
        _cleanup_json_ json_t *plans = plans_of(&plan_gpus[i]), *made = json_object();
        Visit v = {.gpu = &plan_gpus[i], .target = target_of(&plan_gpus[i]), .made = made};
        v.operations = json_object_get(plans, "operations");
        each_graph(&v, choose);
        conv_target_close(&v.target);
        assert_int_equal(json_object_size(made), N_PLANS);
        print_message("%s: %d plans, at most %" PRId64 " bytes of workspace\n", plan_gpus[i].record,
                      N_PLANS, v.workspace_max);

        if (getenv("SDTRAIN_PLANS")) {
            plans_rewrite(v.gpu, "conv ", v.made, libraries);
            continue;
        }
        if (!json_is_false(json_object_get(plans, "tuned")))
            continue;
        const char *name;
        json_t *entry;
        _cleanup_json_ json_t *measured = measured_operations(&plan_gpus[i]);
        json_object_foreach (made, name, entry)
            if (!json_equal(entry, json_object_get(v.operations, name)) &&
                !json_equal(json_object_get(measured, name), json_object_get(v.operations, name)))
                fail_msg("%s: %s is not what cuDNN proposes first; SDTRAIN_PLANS=write writes it",
                         plan_gpus[i].plans, name);
    }
}

static void replay(Visit *v, const ConvGraph *graph)
{
    const char *name = conv_graph_name(graph);
    const json_t *entry = json_object_get(v->operations, name);
    Error err = ERROR_INIT;
    ConvChoice choice;
    _cleanup_(conv_plan_freep) ConvPlan *plan = NULL;
    if (!entry)
        fail_msg("%s has none for %s", v->gpu->plans, name);
    if (conv_entry_read(name, entry, &choice, &err) < 0 ||
        conv_plan_new(graph, &choice, &plan, &err) < 0)
        fail_msg("%s: %s", v->gpu->plans, err.text);
    /* With a record cuDNN may need a few bytes more or fewer than with the handle used for tuning. */
    if (!v->add && !json_equal(entry, json_object_get(v->measured, name)))
        assert_int_equal(conv_plan_workspace_bytes(plan),
                         json_integer_value(json_object_get(entry, "workspace")));
    assert_true(conv_plan_workspace_bytes(plan) <= WORKSPACE_MAX);
    assert_int_equal(json_object_set_new(v->made, name, json_true()), 0);
}

static void the_committed_plans_are_replayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GPUS; i++) {
        _cleanup_json_ json_t *plans = plans_of(&plan_gpus[i]), *made = json_object();
        _cleanup_json_ json_t *measured = measured_operations(&plan_gpus[i]);
        Visit v = {.gpu = &plan_gpus[i], .target = target_of(&plan_gpus[i]), .made = made};
        v.operations = json_object_get(plans, "operations");
        v.measured = measured;
        each_graph(&v, replay);
        _cleanup_json_ json_t *added = json_object();
        v.made = added;
        v.add = true; /* the same engines must be able to add */
        each_graph(&v, replay);
        conv_target_close(&v.target);
        const char *name;
        json_t *entry;
        json_object_foreach (v.operations, name, entry)
            if (strncmp(name, "conv ", 5) == 0 && !json_object_get(made, name))
                fail_msg("%s: %s is not an operation of sd2-base or its encoder",
                         plan_gpus[i].plans, name);
    }
}

static void assert_refused(const ConvGraph *graph, const ConvChoice *choice, const char *text)
{
    Error err = ERROR_INIT;
    ConvPlan *plan = NULL;
    assert_int_equal(conv_plan_new(graph, choice, &plan, &err), -EINVAL);
    assert_null(plan);
    if (!strstr(err.text, conv_graph_name(graph)) || !strstr(err.text, text))
        fail_msg("no \"%s\" and no name in: %s", text, err.text);
}

static ConvGraph *graph_of(const ConvTarget *target, ConvShape shape, ConvPads pads, ConvPass pass)
{
    Error err = ERROR_INIT;
    ConvGraph *graph = NULL;
    if (conv_graph_new(target, &shape, pads, pass, false, &graph, &err) < 0)
        fail_msg("%s", err.text);
    return graph;
}

static const ConvShape first = {32, 64, 64, 320, 320, 3, 1};

/* An engine that does not fit is refused: a set may have been edited, or may be of another version, whose engines are
 * different. */
static void engines_that_do_not_serve_are_refused(void **state)
{
    (void)state;
    enum { ROOM = 3 * CONV_CANDIDATES_MAX };
    static ConvCandidate candidates[ROOM];
    ConvTarget target = target_of(&plan_gpus[1]);
    _cleanup_(conv_graph_freep) ConvGraph *graph =
        graph_of(&target, first, conv_pads_same(&first), CONV_BACKWARD_WEIGHT);
    Error err = ERROR_INIT;
    const int n = conv_candidates(graph, candidates, ROOM, &err);
    int n_refused = 0;
    for (int i = 0; i < n; i++)
        if (!candidates[i].is_deterministic && n_refused++ == 0)
            assert_refused(graph, &candidates[i].choice, "the same bits each time");
    assert_true(n > 40 && n_refused > 0); /* so the check above had cases */

    ConvChoice choice;
    int64_t workspace;
    assert_int_equal(conv_candidates_first(graph, WORKSPACE_MAX, &choice, &workspace, &err), 0);
    ConvChoice bad = choice;
    bad.engine = 4000;
    assert_refused(graph, &bad, "engine 4000");
    bad = choice;
    assert_true(bad.n_knobs > 0);
    bad.knobs[0].value = 123456;
    assert_refused(graph, &bad, "engine ");
    bad = choice;
    bad.knobs[0].type = 4000;
    assert_refused(graph, &bad, "engine ");
    assert_int_equal(conv_candidates_first(graph, -1, &choice, &workspace, &err), -ENOENT);
    assert_non_null(strstr(err.text, conv_graph_name(graph)));
    graph = conv_graph_free(graph);
    conv_target_close(&target);
}

static void bad_records_and_shapes_are_refused(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    ConvTarget target = {0};
    assert_int_equal(conv_target_of_record("{\"deviceName\":", &target, &err), -EINVAL);
    assert_non_null(strstr(err.text, "record"));
    assert_null(target.record);

    target = target_of(&plan_gpus[0]);
    static const struct {
        ConvShape shape;
        ConvPads pads;
    } bad[] = {{{1, 1, 1, 8, 8, 3, 1}, {0, 0}}, /* y has no pixel */
               {{0, 8, 8, 8, 8, 3, 1}, {1, 1}}};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        ConvGraph *graph = NULL;
        err = ERROR_INIT;
        assert_int_equal(conv_graph_new(&target, &bad[i].shape, bad[i].pads, CONV_FORWARD, false,
                                        &graph, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, "conv bf16 n"));
        assert_null(graph);
    }
    conv_target_close(&target);
}

/* Graphs with zeros on only two sides have plans, in all three passes. */
static void pads_may_differ(void **state)
{
    (void)state;
    const ConvShape shape = {4, 64, 64, 128, 128, 3, 2, .pad_end = true};
    ConvTarget target = target_of(&plan_gpus[1]);
    for (ConvPass pass = 0; pass < N_CONV_PASSES; pass++) {
        _cleanup_(conv_graph_freep) ConvGraph *graph =
            graph_of(&target, shape, conv_pads_of(&shape), pass);
        Error err = ERROR_INIT;
        ConvChoice choice;
        int64_t workspace;
        assert_non_null(strstr(conv_graph_name(graph), "k3 s2 p0,1 "));
        if (conv_candidates_first(graph, WORKSPACE_MAX, &choice, &workspace, &err) < 0)
            fail_msg("%s", err.text);
    }
    conv_target_close(&target);
}

static void entries_are_read_as_they_were_written(void **state)
{
    (void)state;
    const ConvChoice choice = {.engine = 67, .n_knobs = 2, .knobs = {{2, 4}, {27, -1}}};
    _cleanup_json_ json_t *entry = conv_entry_new(&choice, 131);
    _cleanup_free_ char *text = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"engine\":67,\"knobs\":{\"2\":4,\"27\":-1},\"workspace\":131}");
    ConvChoice again;
    Error err = ERROR_INIT;
    assert_int_equal(conv_entry_read("conv x", entry, &again, &err), 0);
    assert_int_equal(again.engine, 67);
    assert_int_equal(again.n_knobs, 2);
    assert_int_equal(again.knobs[1].type, 27);
    assert_int_equal(again.knobs[1].value, -1);

    static const char *const bad[][2] = {
        {"[]", "object"},
        {"{\"knobs\":{},\"workspace\":0}", "engine"},
        {"{\"engine\":-1,\"knobs\":{},\"workspace\":0}", "engine"},
        {"{\"engine\":1,\"workspace\":0}", "knobs"},
        {"{\"engine\":1,\"knobs\":{\"x\":1},\"workspace\":0}", "x"},
        {"{\"engine\":1,\"knobs\":{\"1\":1.5},\"workspace\":0}", "1"},
        {"{\"engine\":1,\"knobs\":{},\"workspace\":-1}", "workspace"},
        {"{\"engine\":1,\"knobs\":{},\"workspace\":0,\"fast\":1}", "fast"},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        _cleanup_json_ json_t *json = json_loads(bad[i][0], 0, NULL);
        assert_int_equal(conv_entry_read("conv x", json, &again, &err), -EINVAL);
        if (!strstr(err.text, "conv x") || !strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_convolution_has_a_deterministic_plan),
        cmocka_unit_test(the_committed_plans_are_replayed),
        cmocka_unit_test(engines_that_do_not_serve_are_refused),
        cmocka_unit_test(bad_records_and_shapes_are_refused),
        cmocka_unit_test(pads_may_differ),
        cmocka_unit_test(entries_are_read_as_they_were_written),
    };
    Error err = ERROR_INIT;
    if (cuda_libraries_open(&libraries, &err) < 0) {
        print_message("skipped: %s\n", err.text);
        return 0;
    }
    return plans_are_of_another_version(libraries) ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
