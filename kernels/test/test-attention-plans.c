/* SPDX-License-Identifier: Apache-2.0 */
/* test-attention-plans.c - shows that the real cuDNN has a forward and a deterministic backward plan, on an H100 and an
 * H200, for every attention of sd2-base, and a forward plan for those of its text encoder, and that the committed plan
 * sets contain these plans. No GPU is needed: cuDNN plans for records of the GPUs, and loads its kernels into a driver
 * that runs nothing (kernels/test/fake/driver.c). The results of the graphs are not tested.
 *
 * SDTRAIN_PLANS=write writes the attentions' entries of the plan sets again; entries of other operations stay. */
#include "kernels/cuda/attention/attention-choice.h"
#include "kernels/cuda/attention/attention-tile.h"
#include "kernels/cuda/attention/attention-unfused.h"
#include "kernels/cuda/plans/plans.h"
#include "kernels/test/testing-plans.h"
#include "nn/test/testing-encoders.h"
#include "nn/test/testing-sd2.h"

enum { ENTRIES = 32 + 2 }; /* 2 passes of 16 shapes, and the text encoder's forward for two sizes */
static const int64_t workspace_max = ATTENTION_WORKSPACE_MAX;

static const CudaLibraries *libraries;

/* ---- the attentions of sd2-base, and of its text encoder ---- */

typedef struct Visit {
    const PlanGpu *gpu;
    AttentionTarget target;
    json_t *operations; /* the operations of the committed set */
    json_t *made;       /* entries by name, from the heuristics; true: already visited */
} Visit;

typedef void Look(Visit *v, const AttentionShape *shape, AttentionPass pass, const char *name);

static void each_attention(Visit *v, const Tape *tape, int n_passes, Look *look)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        const AttentionShape *shape = &tape->operations[i].shape.attention;
        if (strcmp(tape->operations[i].kind->name, "attention") != 0)
            continue;
        for (AttentionPass pass = 0; pass < (AttentionPass)n_passes; pass++) {
            char name[ATTENTION_NAME_MAX];
            attention_pass_name(shape, pass, name);
            if (!json_object_get(v->made, name))
                look(v, shape, pass, name);
        }
    }
}

/* Calls look() once for each pass of each shape. */
static void each_pass(Visit *v, Look *look)
{
    for (size_t size = 0; size < ELEMENTSOF(plan_sizes); size++) {
        _cleanup_(tape_freep) Tape *tape =
            sd2_tape_new(plan_sizes[size].side, plan_sizes[size].grain);
        each_attention(v, tape, N_ATTENTION_PASSES, look);
    }
    for (size_t size = 0; size < ELEMENTSOF(encoder_sizes); size++) {
        _cleanup_(tape_freep) Tape *tape = clip_text_tape_new(encoder_sizes[size].batch);
        each_attention(v, tape, 1, look);
    }
}

/* Returns the bytes of workspace: for each query a row of scores' gradients in bf16, in tiles, and one sum in fp32.
 * Forward needs neither. */
static int64_t workspace_of(const AttentionShape *s, AttentionPass pass, int images)
{
    const int64_t queries = (s->q_tokens + 63) / 64 * 64, keys = (s->kv_tokens + 127) / 128 * 128;
    return pass == ATTENTION_FORWARD
               ? 0
               : (int64_t)images * s->heads * (queries * keys * 2 + s->q_tokens * 4);
}

static void assert_workspace(int64_t bytes, const AttentionShape *s, AttentionPass pass, int images)
{
    const int64_t wanted = workspace_of(s, pass, images);
    if (bytes < wanted || bytes > wanted + 4096 || bytes > workspace_max)
        fail_msg("%" PRId64 " bytes of workspace for %" PRId64, bytes, wanted);
}

static void choose(Visit *v, const AttentionShape *shape, AttentionPass pass, const char *name)
{
    Error err = ERROR_INIT;
    AttentionChoice choice;
    _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
    if (attention_choose(&v->target, shape, pass, workspace_max, &choice, &graph, &err) < 0)
        fail_msg("%s: %s", v->gpu->record, err.text);
    const int64_t bytes = attention_graph_workspace_bytes(graph);
    assert_workspace(bytes, shape, pass, choice.images);
    assert_int_equal(choice.padding_mask, shape->q_tokens % 128 || shape->kv_tokens % 128);
    assert_int_equal(attention_graph_has_mask(graph), choice.padding_mask);
    /* No larger group would fit. */
    for (int more = choice.images + 1; more <= shape->n; more++)
        assert_true(shape->n % more || workspace_of(shape, pass, more) > workspace_max);
    assert_int_equal(json_object_set_new(v->made, name, attention_choice_entry(&choice, bytes)), 0);
}

static void replay(Visit *v, const AttentionShape *shape, AttentionPass pass, const char *name)
{
    const json_t *entry = json_object_get(v->operations, name);
    Error err = ERROR_INIT;
    AttentionChoice choice;
    ConvChoice again;
    _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
    if (!entry)
        fail_msg("%s has none for %s", v->gpu->plans, name);
    if (attention_entry_is_own(entry)) { /* tuning found that our own kernels are faster */
        const Device device = {.type = DATA_BF16};
        assert_true(attention_tile_serves(&device, shape));
        assert_int_equal(json_object_set_new(v->made, name, json_true()), 0);
        return;
    }
    if (attention_choice_read(name, shape->n, entry, &choice, &err) < 0 ||
        attention_choice_graph(&v->target, shape, pass, &choice, &graph, &err) < 0 ||
        attention_graph_choice(graph, &again, &err) < 0)
        fail_msg("%s: %s", v->gpu->plans, err.text);
    assert_int_equal(again.engine, choice.engine.engine);
    assert_int_equal(again.n_knobs, choice.engine.n_knobs);
    assert_int_equal(attention_graph_has_mask(graph), choice.padding_mask);
    const int64_t bytes = attention_graph_workspace_bytes(graph);
    assert_int_equal(bytes, json_integer_value(json_object_get(entry, "workspace")));
    assert_workspace(bytes, shape, pass, choice.images);
    assert_int_equal(json_object_set_new(v->made, name, json_true()), 0);
}

static void visit(const PlanGpu *gpu, json_t *operations, json_t *made, Look *look)
{
    _cleanup_free_ char *record = gpu_record(gpu);
    Visit v = {.gpu = gpu,
               .target = {.record = record, .architecture = 90},
               .operations = operations,
               .made = made};
    each_pass(&v, look);
    assert_int_equal(json_object_size(made), ENTRIES);
}

/* ---- tests ---- */

/* Every attention has deterministic plans. The sets contain the plans that cuDNN proposes first, until the sets are
 * tuned. */
static void every_attention_has_deterministic_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GPUS; i++) {
        _cleanup_json_ json_t *plans = plans_of(&plan_gpus[i]), *made = json_object();
        json_t *operations = json_object_get(plans, "operations"), *entry;
        const char *name;
        if (i > 0 && !getenv("SDTRAIN_PLANS"))
            continue; /* this set has the same plans; making a graph takes a third of a second */
        visit(&plan_gpus[i], operations, made, choose);
        if (getenv("SDTRAIN_PLANS")) {
            plans_rewrite(&plan_gpus[i], "attention ", made, libraries);
            continue;
        }
        if (!json_is_false(json_object_get(plans, "tuned")))
            continue;
        json_object_foreach (made, name, entry)
            if (!json_equal(entry, json_object_get(operations, name)))
                fail_msg("%s: %s is not what cuDNN proposes first; SDTRAIN_PLANS=write writes it",
                         plan_gpus[i].plans, name);
    }
}

static void the_committed_plans_are_replayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GPUS; i++) {
        _cleanup_json_ json_t *plans = plans_of(&plan_gpus[i]), *seen = json_object();
        json_t *operations = json_object_get(plans, "operations"), *entry;
        const char *name;
        visit(&plan_gpus[i], operations, seen, replay);
        json_object_foreach (operations, name, entry)
            if (strncmp(name, "attention ", 10) == 0 && !json_object_get(seen, name))
                fail_msg("%s: %s is not an operation of sd2-base or its text encoder",
                         plan_gpus[i].plans, name);
    }
}

static const AttentionShape merged = {4, 5, 64, 256, 256, 960, 960};

/* Other shapes than sd2-base's have plans: heads of other sizes, q alone in its rows, k and v in shared rows, odd
 * lengths. */
static void other_shapes_have_plans(void **state)
{
    (void)state;
    static const AttentionShape shapes[] = {{1, 1, 8, 1, 2, 8, 16},
                                            {3, 2, 40, 129, 65, 80, 160},
                                            {2, 8, 80, 77, 200, 640, 1280},
                                            {1, 4, 128, 191, 1, 512, 512},
                                            {2, 3, 64, 77, 77, 192, 576, .causal = true},
                                            {1, 2, 8, 200, 200, 48, 48, .causal = true}};
    _cleanup_free_ char *record = gpu_record(&plan_gpus[0]);
    const AttentionTarget target = {.record = record, .architecture = 90};
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        for (AttentionPass pass = 0; pass < N_ATTENTION_PASSES; pass++) {
            Error err = ERROR_INIT;
            AttentionChoice choice;
            _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
            int r =
                attention_choose(&target, &shapes[i], pass, workspace_max, &choice, &graph, &err);
            print_message("%s\n", r < 0 ? err.text : attention_graph_name(graph));
            if (r < 0)
                fail_msg("%s", err.text);
            assert_int_equal(choice.images, shapes[i].n);
            assert_true(choice.padding_mask);
        }
}

/* cuDNN's attention is not used for the autoencoder's head of 512, which is too long. attention-unfused serves this
 * head at every size of a picture (test-attention-unfused). */
static void the_autoencoder_is_not_fused(void **state)
{
    (void)state;
    _cleanup_free_ char *record = gpu_record(&plan_gpus[1]);
    const AttentionTarget target = {.record = record, .architecture = 90};
    for (size_t size = 0; size < ELEMENTSOF(encoder_sizes); size++) {
        _cleanup_(tape_freep) Tape *tape =
            vae_encoder_tape_new(encoder_sizes[size].side, encoder_sizes[size].batch);
        int n = 0;
        for (size_t i = 0; i < tape->n_operations; i++) {
            AttentionShape shape = tape->operations[i].shape.attention;
            if (strcmp(tape->operations[i].kind->name, "attention") != 0)
                continue;
            Error err = ERROR_INIT;
            AttentionGraph *graph = NULL;
            assert_int_equal(shape.head_dim, 512);
            assert_int_equal(shape.q_tokens,
                             encoder_sizes[size].side * encoder_sizes[size].side / 64);
            assert_int_equal(attention_graph_new(&target, &shape, ATTENTION_FORWARD, false, NULL,
                                                 &graph, &err),
                             -EINVAL);
            shape.forward_only = true;
            assert_true(attention_unfused_serves(&shape));
            n++;
        }
        assert_int_equal(n, 1);
    }
}

/* Tuning tries several engines: each differs from the others, and the choice of each makes the same plan again. */
static void the_engines_that_are_tried_replay(void **state)
{
    (void)state;
    enum { ENGINES = 3 };
    _cleanup_free_ char *record = gpu_record(&plan_gpus[1]);
    const AttentionTarget target = {.record = record, .architecture = 90};
    const AttentionShape shape = {4, 10, 64, 1024, 1024, 1920, 1920};
    for (AttentionPass pass = 0; pass < N_ATTENTION_PASSES; pass++) {
        _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
        ConvChoice choices[ENGINES];
        Error err = ERROR_INIT;
        int r = attention_graph_new(&target, &shape, pass, false, NULL, &graph, &err), n = 0;
        for (; r == 0 && n < ENGINES; n++) {
            _cleanup_(attention_graph_freep) AttentionGraph *again = NULL;
            r = attention_graph_select(graph, n, &err);
            if (r == -ENOENT && n > 0)
                break;
            if (r < 0 || attention_graph_choice(graph, &choices[n], &err) < 0 ||
                attention_graph_new(&target, &shape, pass, false, &choices[n], &again, &err) < 0)
                fail_msg("%s", err.text);
            assert_int_equal(attention_graph_workspace_bytes(again),
                             attention_graph_workspace_bytes(graph));
            assert_int_equal(attention_graph_select(again, 1, &err), -ENOENT);
            for (int i = 0; i < n; i++)
                assert_true(memcmp(&choices[i], &choices[n], sizeof(choices[i])) != 0);
        }
        print_message("%s: %d engines\n", attention_graph_name(graph), n);
        assert_true(n > 0);
    }
}

static void assert_refused(const AttentionTarget *target, const AttentionShape *shape,
                           AttentionPass pass, const ConvChoice *choice, const char *text)
{
    char name[ATTENTION_NAME_MAX];
    Error err = ERROR_INIT;
    AttentionGraph *graph = NULL;
    attention_pass_name(shape, pass, name);
    assert_int_equal(attention_graph_new(target, shape, pass, false, choice, &graph, &err),
                     -EINVAL);
    assert_null(graph);
    if (!strstr(err.text, name) || !strstr(err.text, text))
        fail_msg("no \"%s\" and no name in: %s", text, err.text);
}

/* A plan that does not fit is refused: a set may have been edited, or may be of another version, whose engines are
 * different. */
static void what_does_not_serve_is_refused(void **state)
{
    (void)state;
    _cleanup_free_ char *record = gpu_record(&plan_gpus[1]);
    const AttentionTarget target = {.record = record, .architecture = 90};
    Error err = ERROR_INIT;
    AttentionChoice choice;
    _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
    if (attention_choose(&target, &merged, ATTENTION_BACKWARD, workspace_max, &choice, &graph,
                         &err) < 0)
        fail_msg("%s", err.text);
    ConvChoice bad = choice.engine;
    bad.engine = 4000;
    assert_refused(&target, &merged, ATTENTION_BACKWARD, &bad, "engine 4000");
    bad = choice.engine;
    assert_true(bad.n_knobs > 0);
    bad.knobs[0].value = 123456;
    assert_refused(&target, &merged, ATTENTION_BACKWARD, &bad, "engine ");
    bad = choice.engine;
    bad.knobs[0].type = 4000;
    assert_refused(&target, &merged, ATTENTION_BACKWARD, &bad, "no knob 4000");
    /* Forward refuses the engine of backward. */
    assert_refused(&target, &merged, ATTENTION_FORWARD, &choice.engine, "engine ");

    AttentionShape shape = merged;
    shape.head_dim = 60;
    assert_refused(&target, &shape, ATTENTION_FORWARD, NULL, "heads of 8, 16");
    shape = merged;
    shape.kv_stride = 962;
    assert_refused(&target, &shape, ATTENTION_FORWARD, NULL, "16 bytes");
    const AttentionTarget cut = {.record = "{\"deviceName\":", .architecture = 90};
    assert_refused(&cut, &merged, ATTENTION_FORWARD, NULL, "record");
}

/* The most images at once are those whose workspace fits the bound of the workspace that all operations share. */
static void images_at_once_are_as_many_as_the_workspace_takes(void **state)
{
    (void)state;
    _cleanup_free_ char *record = gpu_record(&plan_gpus[1]);
    const AttentionTarget target = {.record = record, .architecture = 90};
    const AttentionShape shape = {12, 2, 64, 128, 128, 128, 128};
    const int64_t of_image = workspace_of(&shape, ATTENTION_BACKWARD, 1);
    static const int divisors[] = {12, 6, 4, 3, 2, 1};
    for (size_t i = 0; i < ELEMENTSOF(divisors); i++) {
        Error err = ERROR_INIT;
        AttentionChoice choice;
        _cleanup_(attention_graph_freep) AttentionGraph *graph = NULL;
        if (attention_choose(&target, &shape, ATTENTION_BACKWARD, of_image * divisors[i] + 4096,
                             &choice, &graph, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(choice.images, divisors[i]);
    }
    Error err = ERROR_INIT;
    AttentionChoice choice;
    AttentionGraph *graph = NULL;
    assert_int_equal(attention_choose(&target, &shape, ATTENTION_BACKWARD, of_image / 2, &choice,
                                      &graph, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "attention bf16 n12 "));
}

/* attention_images() moves each tensor's pointer by whole images of that tensor, also where k and v are in q's rows. */
static void groups_of_images_follow_each_other(void **state)
{
    (void)state;
    static char memory[N_ATTENTION_TENSORS];
    const AttentionShape shape = {4, 5, 64, 4096, 77, 960, 640};
    AttentionTensors tensors, part;
    for (int i = 0; i < N_ATTENTION_TENSORS; i++)
        tensors.of[i] = &memory[i];
    tensors.of[ATTENTION_DV] = NULL;
    part = attention_images(&shape, &tensors, 3);
#define OFFSET(tensor) ((char *)part.of[tensor] - &memory[tensor])
    assert_int_equal(OFFSET(ATTENTION_Q), 3 * 4096 * 960 * 2);
    assert_int_equal(OFFSET(ATTENTION_DQ), 3 * 4096 * 960 * 2);
    assert_int_equal(OFFSET(ATTENTION_K), 3 * 77 * 640 * 2);
    assert_int_equal(OFFSET(ATTENTION_V), 3 * 77 * 640 * 2);
    assert_int_equal(OFFSET(ATTENTION_DK), 3 * 77 * 640 * 2);
    assert_int_equal(OFFSET(ATTENTION_OUT), 3 * 4096 * 320 * 2);
    assert_int_equal(OFFSET(ATTENTION_DOUT), 3 * 4096 * 320 * 2);
    assert_int_equal(OFFSET(ATTENTION_SUMS), 3 * 4096 * 5 * 4);
    assert_null(part.of[ATTENTION_DV]);
}

static void entries_are_read_as_they_were_written(void **state)
{
    (void)state;
    const AttentionChoice choice = {.engine = {.engine = 6, .n_knobs = 1, .knobs = {{24, 26}}},
                                    .images = 4};
    _cleanup_json_ json_t *entry = attention_choice_entry(&choice, 131);
    _cleanup_free_ char *text = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text,
                        "{\"engine\":6,\"images\":4,\"knobs\":{\"24\":26},\"workspace\":131}");
    AttentionChoice again, masked = choice;
    Error err = ERROR_INIT;
    assert_int_equal(attention_choice_read("attention x", 32, entry, &again, &err), 0);
    assert_int_equal(again.images, 4);
    assert_false(again.padding_mask);
    masked.padding_mask = true;
    _cleanup_json_ json_t *with = attention_choice_entry(&masked, 131);
    _cleanup_free_ char *more = json_dumps(with, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(more, "{\"engine\":6,\"images\":4,\"knobs\":{\"24\":26},"
                              "\"padding_mask\":true,\"workspace\":131}");
    assert_int_equal(attention_choice_read("attention x", 32, with, &again, &err), 0);
    assert_true(again.padding_mask);
    assert_int_equal(again.engine.engine, 6);
    assert_int_equal(again.engine.knobs[0].value, 26);

    static const char *const bad[][2] = {
        {"[]", "object"},
        {"{\"engine\":1,\"images\":3,\"knobs\":{},\"workspace\":0}", "divisor of 32"},
        {"{\"engine\":1,\"images\":0,\"knobs\":{},\"workspace\":0}", "divisor of 32"},
        {"{\"engine\":1,\"images\":64,\"knobs\":{},\"workspace\":0}", "divisor of 32"},
        {"{\"engine\":1,\"images\":\"2\",\"knobs\":{},\"workspace\":0}", "divisor of 32"},
        {"{\"images\":1,\"knobs\":{},\"workspace\":0}", "engine"},
        {"{\"engine\":1,\"knobs\":{},\"padding_mask\":false,\"workspace\":0}", "padding_mask"},
        {"{\"engine\":1,\"knobs\":{},\"padding_mask\":1,\"workspace\":0}", "padding_mask"},
        {"{\"engine\":1,\"images\":1,\"knobs\":{},\"workspace\":0,\"fast\":1}", "fast"},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        _cleanup_json_ json_t *json = json_loads(bad[i][0], 0, NULL);
        assert_int_equal(attention_choice_read("attention x", 32, json, &again, &err), -EINVAL);
        if (!strstr(err.text, "attention x") || !strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_attention_has_deterministic_plans),
        cmocka_unit_test(the_committed_plans_are_replayed),
        cmocka_unit_test(other_shapes_have_plans),
        cmocka_unit_test(the_autoencoder_is_not_fused),
        cmocka_unit_test(the_engines_that_are_tried_replay),
        cmocka_unit_test(what_does_not_serve_is_refused),
        cmocka_unit_test(images_at_once_are_as_many_as_the_workspace_takes),
        cmocka_unit_test(groups_of_images_follow_each_other),
        cmocka_unit_test(entries_are_read_as_they_were_written),
    };
    Error err = ERROR_INIT;
    if (cuda_libraries_open(&libraries, &err) < 0) {
        print_message("skipped: %s\n", err.text);
        return 0;
    }
    return plans_are_of_another_version(libraries) ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
