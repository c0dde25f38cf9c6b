/* SPDX-License-Identifier: Apache-2.0 */
/* test-attention-library.c - tests which graphs an attention makes, and with which tensors it runs them: groups of
 * images, shared shapes, entries, failures; and which graphs are refused when plans are made. The graphs are test
 * doubles that record calls, and write the results that a case defines: real results need a GPU. */
#include "base/memory.h"
#include "base/test/testing.h"
#include "kernels/cuda/attention/attention-choice.h"
#include "kernels/cuda/attention/attention-library.h"
#include "kernels/test/emulator/emulated-stream.h"
#include "kernels/test/emulator/emulated.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- test doubles ---- */

struct AttentionGraph {
    AttentionShape shape;
    AttentionPass pass;
    ConvChoice choice;
    bool padding_mask;
    int engine;
    char name[ATTENTION_NAME_MAX];
};

static struct {
    int n_graphs, n_made, n_runs, fail_at;
    AttentionPass refused;     /* the pass that is refused; N_ATTENTION_PASSES: none */
    struct CUstream_st *clock; /* NULL: nothing takes time */
    double usec[2][2];         /* backward's times: [engine][0: groups of 2 images; 1: of 1] */
    bool has_run[2][2];
    struct {
        AttentionPass pass;    /* where all scores are far below zero, this pass gives a NaN */
        AttentionTensor wrong; /* the result that is not finite; 0: nothing is wrong */
        int engines;           /* a bit for each engine that has the bug */
        bool masked, unmasked; /* graphs with, and without, a mask have the bug */
        bool unwritten;        /* the bug writes no NaN, but leaves the element unwritten */
    } bug;
    int n_far; /* how many runs had scores far below zero */
    struct {
        AttentionPass pass;
        int images;
        bool padding_mask;
        AttentionTensors tensors;
    } runs[16];
} seen;

void attention_pass_name(const AttentionShape *s, AttentionPass pass, char name[ATTENTION_NAME_MAX])
{
    (void)snprintf(name, ATTENTION_NAME_MAX, "attention n%d h%d %" PRId64 "x%" PRId64 " %d", s->n,
                   s->heads, s->q_tokens, s->kv_tokens, (int)pass);
}

int attention_graph_new(const AttentionTarget *target, const AttentionShape *shape,
                        AttentionPass pass, bool padding_mask, const ConvChoice *choice,
                        AttentionGraph **ret, Error *err)
{
    assert_non_null(target->handle);
    if (pass == seen.refused)
        return error_set(err, -EINVAL, "refused");
    AttentionGraph *g = calloc(1, sizeof(*g));
    assert_non_null(g);
    g->shape = *shape;
    g->pass = pass;
    g->padding_mask = padding_mask;
    g->choice = choice ? *choice : (ConvChoice){.engine = pass == ATTENTION_FORWARD ? 9 : 6};
    attention_pass_name(shape, pass, g->name);
    seen.n_graphs++;
    seen.n_made++;
    *ret = g;
    return 0;
}

/* The test double has two engines, and the second one needs less workspace. */
int attention_graph_select(AttentionGraph *graph, int engine, Error *err)
{
    if (engine > 1)
        return error_set(err, -ENOENT, "no more");
    graph->engine = engine;
    graph->choice.engine = (graph->pass == ATTENTION_FORWARD ? 9 : 6) + engine;
    return 0;
}

AttentionGraph *attention_graph_free(AttentionGraph *graph)
{
    seen.n_graphs -= graph != NULL;
    free(graph);
    return NULL;
}

const char *attention_graph_name(const AttentionGraph *graph) { return graph->name; }

/* More than two images need a third of the workspace each: four are too many. The second engine needs a byte less. */
int64_t attention_graph_workspace_bytes(const AttentionGraph *graph)
{
    const int64_t each = graph->shape.n > 2 ? ATTENTION_WORKSPACE_MAX / 3 : 1024;
    return graph->pass == ATTENTION_FORWARD ? 256 : graph->shape.n * each - graph->engine;
}

bool attention_graph_has_mask(const AttentionGraph *graph) { return graph->padding_mask; }

int attention_graph_choice(const AttentionGraph *graph, ConvChoice *ret, Error *err)
{
    (void)err;
    *ret = graph->choice;
    return 0;
}

/* Is the last score near -128? A score is the first element of a head of q times that of k, divided by sqrt(length). */
static bool is_far_below_zero(const AttentionGraph *graph, const AttentionTensors *tensors)
{
    const AttentionShape *s = &graph->shape;
    const int head = s->heads - 1, image = s->n - 1; /* the last head of the last image */
    const uint16_t *q = tensors->of[ATTENTION_Q], *k = tensors->of[ATTENTION_K];
    const int64_t q_row = (image + 1) * s->q_tokens - 1, k_row = (image + 1) * s->kv_tokens - 1;
    const float score = widen(q[q_row * s->q_stride + head * s->head_dim]) *
                        widen(k[k_row * s->kv_stride + head * s->head_dim]) /
                        sqrtf((float)s->head_dim);
    if (score > -127 || score < -129)
        return false;
    for (int j = 1; j < s->head_dim; j++)
        assert_true(widen(q[q_row * s->q_stride + head * s->head_dim + j]) == 0);
    if (graph->pass == ATTENTION_BACKWARD) {
        const float *sums = tensors->of[ATTENTION_SUMS];
        const float want = score + logf((float)s->kv_tokens);
        assert_true(fabsf(sums[s->n * s->heads * s->q_tokens - 1] - want) < 1e-3f);
        const uint16_t *v = tensors->of[ATTENTION_V], *out = tensors->of[ATTENTION_OUT];
        assert_int_equal(v[k_row * s->kv_stride], out[q_row * s->heads * s->head_dim]);
    }
    return true;
}

/* Writes results as cuDNN does, and nothing behind them: finite values, except for the bug's value in one element. */
static void write_results(const AttentionGraph *graph, const AttentionTensors *tensors, bool far)
{
    const AttentionShape *s = &graph->shape;
    const bool back = graph->pass == ATTENTION_BACKWARD;
    const bool wrong = far && seen.bug.wrong && seen.bug.pass == graph->pass &&
                       (seen.bug.engines >> graph->engine & 1) &&
                       (graph->padding_mask ? seen.bug.masked : seen.bug.unmasked);
    for (AttentionTensor i = back ? ATTENTION_DQ : ATTENTION_OUT;
         i <= (back ? ATTENTION_DV : ATTENTION_SUMS); i++) {
        const int64_t rows =
            s->n * (i == ATTENTION_DK || i == ATTENTION_DV ? s->kv_tokens : s->q_tokens);
        const int width = i == ATTENTION_SUMS ? 2 * s->heads : s->heads * s->head_dim;
        const int stride = i == ATTENTION_DQ                        ? s->q_stride
                           : i == ATTENTION_DK || i == ATTENTION_DV ? s->kv_stride
                                                                    : width;
        const bool bad = wrong && seen.bug.wrong == i;
        uint16_t *to = tensors->of[i];
        for (int64_t row = 0; row < rows; row++)
            for (int j = 0; j < width; j++) {
                const bool last = row == rows - 1 && j == width - 1;
                if (!(bad && last && seen.bug.unwritten))
                    to[row * stride + j] = bad && last ? 0x7fc0 : 0x3f80; /* NaN or 1 */
            }
    }
}

static void assert_tensors(const AttentionGraph *graph, const AttentionTensors *tensors)
{
    for (int i = 0; i <= ATTENTION_DV; i++)
        assert_int_equal(tensors->of[i] != NULL,
                         graph->pass == ATTENTION_BACKWARD || i <= ATTENTION_SUMS);
    if (!graph->padding_mask)
        return;
    const int32_t *q = tensors->of[ATTENTION_Q_LENGTHS], *kv = tensors->of[ATTENTION_KV_LENGTHS];
    for (int i = 0; i < graph->shape.n; i++) {
        assert_int_equal(q[i], graph->shape.q_tokens);
        assert_int_equal(kv[i], graph->shape.kv_tokens);
    }
}

int attention_graph_execute(AttentionGraph *graph, cudnnHandle_t handle,
                            const AttentionTensors *tensors, void *workspace, Error *err)
{
    assert_non_null(handle);
    assert_non_null(workspace);
    assert_tensors(graph, tensors);
    if (seen.clock) {
        const int size = graph->shape.n == 1;
        const bool far = is_far_below_zero(graph, tensors);
        write_results(graph, tensors, far);
        seen.n_far += far;
        seen.has_run[graph->engine][size] = true;
        seen.clock->usec +=
            graph->pass == ATTENTION_FORWARD ? 5000 : seen.usec[graph->engine][size];
        return 0;
    }
    assert_true(seen.n_runs < (int)ELEMENTSOF(seen.runs));
    seen.runs[seen.n_runs].pass = graph->pass;
    seen.runs[seen.n_runs].images = graph->shape.n;
    seen.runs[seen.n_runs].padding_mask = graph->padding_mask;
    seen.runs[seen.n_runs].tensors = *tensors;
    return ++seen.n_runs == seen.fail_at ? error_set(err, -EIO, "it failed") : 0;
}

/* ---- tests ---- */

static const AttentionShape shape = {4, 2, 8, 16, 24, 48, 32};

static Device *open_device(bool tune, const char *plans)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .threads = 1,
                                   .type = DATA_BF16,
                                   .tune = tune};
    Device *device;
    Error err = ERROR_INIT;
    memset(&seen, 0, sizeof(seen));
    seen.refused = N_ATTENTION_PASSES;
    if (emulated_device_open(&options, &device, &err) < 0 ||
        (plans && device_use_plans(device, plans, &err) < 0))
        fail_msg("%s", err.text);
    assert_int_equal(cuda_compute_begin(cuda_compute(device), &err), 1);
    seen.clock = tune ? cuda_compute_stream(device) : NULL;
    return device;
}

static AttentionLibrary *library_of(Device *device)
{
    Error err = ERROR_INIT;
    AttentionLibrary *library = NULL;
    if (attention_library_new(device, &shape, &library, &err) < 0)
        fail_msg("%s", err.text);
    return library;
}

/* Returns the plans that a device makes if backward takes the times `usec`, which are indexed as in `seen`. */
static char *plans_of(const double usec[2][2])
{
    Device *device = open_device(true, NULL);
    memcpy(seen.usec, usec, sizeof(seen.usec));
    AttentionLibrary *library = library_of(device);
    char *plans = NULL;
    assert_int_equal(device_plans(device, &plans), 0);
    library = attention_library_free(library);
    assert_int_equal(seen.n_graphs, 0);
    device = device_free(device);
    return plans;
}

/* Returns plans that process 4 images at once in forward, and 2 in backward, because 3 is not a divisor of 4. */
static char *plans_made(void)
{
    static const double usec[2][2] = {{5000, 5000}, {6000, 5000}};
    char *plans = plans_of(usec);
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 0\":{\"engine\":9,\"images\":4,"));
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 1\":{\"engine\":6,\"images\":2,"));
    return plans;
}

/* Groups of 2 or 1 of 4 images: the fastest plan is chosen, or one with less workspace that is at most 1 % slower. */
static void the_fastest_group_and_engine_are_taken(void **state)
{
    (void)state;
    static const struct {
        double usec[2][2];
        const char *entry;
    } cases[] = {
        {{{5000, 5000}, {4000, 5000}}, "1\":{\"engine\":7,\"images\":2,"},
        {{{5000, 2600}, {5100, 2400}}, "1\":{\"engine\":7,\"images\":1,"},
        {{{5000, 2524}, {5060, 2530}}, "1\":{\"engine\":6,\"images\":1,"},
        {{{5000, 2530}, {5040, 2530}}, "1\":{\"engine\":7,\"images\":2,"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *plans = plans_of(cases[i].usec);
        if (!strstr(plans, cases[i].entry))
            fail_msg("%zu: %s", i, plans);
        assert_true(seen.has_run[0][0] && seen.has_run[0][1]);
        assert_true(seen.has_run[1][0] && seen.has_run[1][1]);
    }
}

/* When the time for tuning is over, only graphs that are used are made, because making a graph takes half a second. */
static void a_late_set_makes_one_graph_that_fits(void **state)
{
    (void)state;
    static const double usec[2][2] = {{5000, 5000}, {6000, 5000}};
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "0", 1), 0);
    _cleanup_free_ char *plans = plans_of(usec);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 1\":{\"engine\":6,\"images\":2,"));
    assert_int_equal(seen.n_made, 3); /* forward; backward of 4 images, too many; backward of 2 */
    assert_true(seen.has_run[0][0]);
    assert_false(seen.has_run[1][0]);
    assert_int_equal(seen.n_far, 2); /* the chosen graph of each pass is checked */
}

/* ---- results where scores are far below zero ---- */

/* Returns the plans that a device makes if the graphs have the bug. The second engine is faster in groups of 2, and the
 * first one in groups of 1, which are slower. */
static char *plans_with_bug(AttentionPass pass, AttentionTensor wrong, int engines, bool masked,
                            bool unmasked, bool unwritten)
{
    Device *device = open_device(true, NULL);
    static const double usec[2][2] = {{5000, 5000}, {4000, 6000}};
    memcpy(seen.usec, usec, sizeof(seen.usec));
    seen.bug.pass = pass;
    seen.bug.wrong = wrong;
    seen.bug.engines = engines;
    seen.bug.masked = masked;
    seen.bug.unmasked = unmasked;
    seen.bug.unwritten = unwritten;
    AttentionLibrary *library = NULL;
    Error err = ERROR_INIT;
    char *plans = NULL;
    if (attention_library_new(device, &shape, &library, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(device_plans(device, &plans), 0);
    library = attention_library_free(library);
    assert_int_equal(seen.n_graphs, 0);
    device = device_free(device);
    return plans;
}

/* The fastest engine is the second one. It is chosen, unless its results for scores far below zero are not finite. */
static void what_is_not_finite_far_below_zero_is_never_taken(void **state)
{
    (void)state;
    static const struct {
        AttentionPass pass;
        AttentionTensor wrong;
        int engines;
        bool unwritten;
        const char *entry;
    } cases[] = {
        {ATTENTION_BACKWARD, 0, 0, false, "1\":{\"engine\":7,\"images\":2,"},
        {ATTENTION_BACKWARD, ATTENTION_DQ, 2, false, "1\":{\"engine\":6,\"images\":2,"},
        {ATTENTION_BACKWARD, ATTENTION_DK, 2, false, "1\":{\"engine\":6,\"images\":2,"},
        {ATTENTION_BACKWARD, ATTENTION_DV, 2, false, "1\":{\"engine\":6,\"images\":2,"},
        {ATTENTION_BACKWARD, ATTENTION_DQ, 2, true, "1\":{\"engine\":6,\"images\":2,"},
        {ATTENTION_BACKWARD, ATTENTION_DV, 1, false, "1\":{\"engine\":7,\"images\":2,"},
        {ATTENTION_FORWARD, 0, 0, false, "0\":{\"engine\":9,\"images\":4,"},
        {ATTENTION_FORWARD, ATTENTION_OUT, 1, false, "0\":{\"engine\":10,\"images\":4,"},
        {ATTENTION_FORWARD, ATTENTION_SUMS, 1, false, "0\":{\"engine\":10,\"images\":4,"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *plans = plans_with_bug(cases[i].pass, cases[i].wrong, cases[i].engines,
                                                    true, true, cases[i].unwritten);
        if (!strstr(plans, cases[i].entry))
            fail_msg("%zu: no %s in %s", i, cases[i].entry, plans);
    }
}

/* When the time for tuning is over, engines are still checked with scores far below zero, but not timed. */
static void a_late_set_holds_no_such_engine_either(void **state)
{
    (void)state;
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "0", 1), 0);
    _cleanup_free_ char *plans =
        plans_with_bug(ATTENTION_BACKWARD, ATTENTION_DQ, 1, true, true, false);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 1\":{\"engine\":7,\"images\":2,"));
}

static void a_graph_without_a_mask_is_taken_if_none_serves_with_it(void **state)
{
    (void)state;
    _cleanup_free_ char *plans =
        plans_with_bug(ATTENTION_BACKWARD, ATTENTION_DQ, 3, true, false, false);
    const char *backward = strstr(plans, "\"attention n4 h2 16x24 1\":{\"engine\":7,");
    assert_non_null(backward);
    assert_null(strstr(backward, "padding_mask"));
    assert_non_null(strstr(plans, "padding_mask")); /* forward has a mask */
}

static void the_kernels_compute_what_no_engine_does_right(void **state)
{
    (void)state;
    _cleanup_free_ char *plans =
        plans_with_bug(ATTENTION_BACKWARD, ATTENTION_DQ, 3, true, true, false);
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 0\":{\"own_kernels\":true}"));
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 1\":{\"own_kernels\":true}"));
}

/* ---- our own kernels, where all keys are one tile ---- */

static const AttentionShape tile = {4, 2, 64, 16, 24, 128, 128};
static const AttentionShape tile_forward = {4, 2, 64, 16, 24, 128, 128, .forward_only = true};

/* Returns a device's plans if our kernels take launch_usec, cuDNN's forward 5000 us, and its backward 2000 us. */
static char *plans_of_tile(const AttentionShape *s, double launch_usec, const char *plans)
{
    Device *device = open_device(true, plans);
    Error err = ERROR_INIT;
    char *made = NULL;
    seen.usec[0][0] = seen.usec[1][0] = 1000;
    seen.usec[0][1] = seen.usec[1][1] = 5000;
    emulated_device_launch_usec(launch_usec);
    AttentionLibrary *library = NULL;
    if (attention_library_new(device, s, &library, &err) < 0)
        fail_msg("%s", err.text);
    emulated_device_launch_usec(0);
    assert_int_equal(device_plans(device, &made), 0);
    assert_int_equal(library == NULL, strstr(made, "own_kernels") != NULL);
    library = attention_library_free(library);
    assert_int_equal(seen.n_graphs, 0);
    device = device_free(device);
    return made;
}

/* Our own kernels are chosen if their two launches, one for each pass, take less time than cuDNN's passes: 7000 us. */
static void our_kernels_are_taken_where_they_are_quicker(void **state)
{
    (void)state;
    static const AttentionShape causal = {4, 2, 64, 16, 16, 128, 128, true};
    static const struct {
        const AttentionShape *shape;
        double launch_usec;
        bool own;
    } cases[] = {{&tile, 3400, true},          {&tile, 3600, false}, {&tile_forward, 4900, true},
                 {&tile_forward, 5100, false}, {&causal, 1, true},   {&shape, 1, false}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *plans = plans_of_tile(cases[i].shape, cases[i].launch_usec, NULL);
        assert_int_equal(strstr(plans, "own_kernels") != NULL, cases[i].own);
    }
    /* Our kernels are not measured when the time is over, or if an entry exists. */
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "0", 1), 0);
    _cleanup_free_ char *late = plans_of_tile(&tile, 1, NULL);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
    assert_null(strstr(late, "own_kernels"));
    _cleanup_free_ char *part = plans_of_tile(&tile_forward, 5100, NULL);
    _cleanup_free_ char *rest = plans_of_tile(&tile, 1, part);
    assert_null(strstr(rest, "own_kernels"));
    assert_non_null(strstr(rest, "\"attention n4 h2 16x24 1\":{\"engine\":"));
}

/* ---- running ---- */

static void images_are_taken_in_groups(void **state)
{
    (void)state;
    static char memory[64], workspace[1];
    _cleanup_free_ char *plans = plans_made();
    Device *device = open_device(false, plans);
    AttentionLibrary *library = library_of(device);
    assert_int_equal(seen.n_made, 2);
    assert_int_equal(attention_library_workspace_bytes(library), 2 * 1024);
    assert_int_equal(attention_library_saved_bytes(library), 4 * 2 * 16 * 4);
    attention_library_forward(library, memory, memory + 1, memory + 2, memory + 3, memory + 4,
                              workspace);
    assert_int_equal(seen.n_runs, 1);
    assert_int_equal(seen.runs[0].images, 4);
    static const int of_forward[] = {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_OUT,
                                     ATTENTION_SUMS};
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(seen.runs[0].tensors.of[of_forward[i]], memory + i);
    assert_null(seen.runs[0].tensors.of[ATTENTION_DQ]);

    attention_library_backward(library, memory, memory + 1, memory + 2, memory + 3, memory + 4,
                               memory + 5, memory + 6, memory + 7, memory + 8, workspace);
    assert_int_equal(seen.n_runs, 3);
    /* bytes of an image, for each tensor */
    static const ptrdiff_t image[] = {16 * 48 * 2, 24 * 32 * 2, 24 * 32 * 2,
                                      16 * 16 * 2, 2 * 16 * 4,  16 * 16 * 2,
                                      16 * 48 * 2, 24 * 32 * 2, 24 * 32 * 2};
    for (int group = 0; group < 2; group++)
        for (int i = 0; i <= ATTENTION_DV; i++) {
            assert_true(seen.runs[1 + group].padding_mask);
            assert_int_equal(seen.runs[1 + group].pass, ATTENTION_BACKWARD);
            assert_int_equal(seen.runs[1 + group].images, 2);
            assert_int_equal((char *)seen.runs[1 + group].tensors.of[i] - (memory + i),
                             group * 2 * image[i]);
        }
    library = attention_library_free(library);
    device = device_free(device);
}

/* An entry without the key "padding_mask" has no mask; older entries lack this key. */
static void only_an_entry_that_says_so_has_a_mask(void **state)
{
    (void)state;
    static char memory[1];
    static const char key[] = ",\"padding_mask\":true";
    _cleanup_free_ char *plans = plans_made();
    for (char *at; (at = strstr(plans, key));)
        memmove(at, at + strlen(key), strlen(at + strlen(key)) + 1);
    Device *device = open_device(false, plans);
    AttentionLibrary *library = library_of(device);
    attention_library_forward(library, memory, memory, memory, memory, memory, memory);
    attention_library_backward(library, memory, memory, memory, memory, memory, memory, memory,
                               memory, memory, memory);
    assert_int_equal(seen.n_runs, 3);
    for (int i = 0; i < seen.n_runs; i++) {
        assert_false(seen.runs[i].padding_mask);
        assert_null(seen.runs[i].tensors.of[ATTENTION_Q_LENGTHS]);
    }
    library = attention_library_free(library);
    device = device_free(device);
}

static void attentions_of_one_shape_share_their_graphs(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = plans_made();
    Device *device = open_device(false, plans);
    AttentionLibrary *first = library_of(device), *second = library_of(device);
    assert_ptr_equal(first, second);
    assert_int_equal(seen.n_made, 2);
    first = attention_library_free(first);
    assert_int_equal(seen.n_graphs, 2);
    second = attention_library_free(second);
    assert_int_equal(seen.n_graphs, 0);
    first = library_of(device); /* the graphs are made again */
    assert_int_equal(seen.n_made, 4);
    first = attention_library_free(first);
    device = device_free(device);
}

static void what_has_no_entry_is_an_error_that_says_what_to_do(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = plans_made();
    Device *device = open_device(false, plans);
    const AttentionShape other = {5, 2, 8, 16, 24, 48, 32};
    Error err = ERROR_INIT;
    AttentionLibrary *library = NULL;
    assert_int_equal(attention_library_new(device, &other, &library, &err), -ENOENT);
    assert_non_null(strstr(err.text, "attention n5 h2 16x24 0: sdtrainer plan --job FILE"));
    assert_null(library);

    seen.refused = ATTENTION_BACKWARD; /* an entry that cuDNN refuses is an error */
    assert_int_equal(attention_library_new(device, &shape, &library, &err), -EINVAL);
    assert_int_equal(seen.n_graphs, 0);
    device = device_free(device);
}

/* A refused shape gets entries for our own kernels. The device that makes plans tries graphs only once for any number
 * of objects; a device that replays the set makes no graphs. */
static void a_refused_shape_is_left_to_the_kernels_by_its_entries(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = NULL;
    Error err = ERROR_INIT;
    Device *device = open_device(true, NULL);
    seen.refused = ATTENTION_BACKWARD;
    AttentionLibrary *library = (AttentionLibrary *)&err;
    for (int i = 0, made = 0; i < 2; i++) {
        assert_int_equal(attention_library_new(device, &shape, &library, &err), 0);
        assert_null(library);
        assert_int_equal(seen.n_graphs, 0);
        assert_true(i == 0 ? seen.n_made > 0 : seen.n_made == made);
        made = seen.n_made;
    }
    assert_int_equal(device_plans(device, &plans), 0);
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 0\":{\"own_kernels\":true}"));
    assert_non_null(strstr(plans, "\"attention n4 h2 16x24 1\":{\"own_kernels\":true}"));
    device = device_free(device);

    device = open_device(false, plans);
    library = (AttentionLibrary *)&err;
    assert_int_equal(attention_library_new(device, &shape, &library, &err), 0);
    assert_null(library);
    assert_int_equal(seen.n_made, 0);
    device = device_free(device);

    _cleanup_free_ char *mixed = plans_made(), *changed = NULL;
    char *at = strstr(mixed, "{\"engine\":9,"),
         *end = strstr(mixed, ",\"attention n4 h2 16x24 1\"");
    assert_true(at && end);
    changed = memory_format("%.*s{\"own_kernels\":true}%s", (int)(at - mixed), mixed, end);
    device = open_device(false, changed);
    assert_int_equal(attention_library_new(device, &shape, &library, &err), -EINVAL);
    assert_non_null(strstr(err.text, "attention n4 h2 16x24 1: own_kernels: missing"));
    device = device_free(device);
}

/* A device that makes plans keeps existing entries; an entry that cuDNN refuses is an error on each device. */
static void known_entries_are_kept(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = plans_made(), *made = NULL, *kept = NULL, *part = NULL;
    Error err = ERROR_INIT;
    AttentionLibrary *library = NULL;
    char *forward = strstr(plans, "\"attention n4 h2 16x24 0\":{"),
         *backward = strstr(plans, "\"attention n4 h2 16x24 1\"");
    assert_true(forward && backward);
    char *images = strstr(forward, "\"images\":"), *after = images ? strchr(images, ',') : NULL;
    assert_true(images && after && images < backward);
    part = memory_format("%.*s%.*s", (int)(images - forward), forward,
                         (int)(backward - 1 - after - 1), after + 1);
    kept = memory_format("%.*s%s%s", (int)(forward - plans), plans, part,
                         strstr(backward, "},\"sms\""));
    Device *device = open_device(true, kept);
    const int before = seen.n_made;
    library = library_of(device);
    assert_true(seen.n_made > before + 1);
    assert_int_equal(device_plans(device, &made), 0);
    assert_non_null(strstr(made, part));
    assert_non_null(strstr(made, "\"attention n4 h2 16x24 1\":{\"engine\":"));
    library = attention_library_free(library);
    device = device_free(device);

    device = open_device(true, made);
    seen.refused = ATTENTION_BACKWARD;
    assert_int_equal(attention_library_new(device, &shape, &library, &err), -EINVAL);
    device = device_free(device);
}

static void a_pass_without_an_entry_is_an_error(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = plans_made();
    char *backward = strstr(plans, "16x24 1\"");
    assert_non_null(backward);
    backward[strlen("16x24 ")] = '2';
    Device *device = open_device(false, plans);
    Error err = ERROR_INIT;
    AttentionLibrary *library = NULL;
    assert_int_equal(attention_library_new(device, &shape, &library, &err), -ENOENT);
    assert_non_null(strstr(err.text, "attention n4 h2 16x24 1"));
    assert_int_equal(seen.n_graphs, 0);
    device = device_free(device);
}

/* A forward-only attention needs no backward entry, and does not share its graph with an attention that trains. */
static void a_forward_alone_has_one_graph(void **state)
{
    (void)state;
    _cleanup_free_ char *plans = plans_made();
    char *backward = strstr(plans, "16x24 1\"");
    assert_non_null(backward);
    backward[strlen("16x24 ")] = '2';
    Device *device = open_device(false, plans);
    AttentionShape alone = shape;
    alone.forward_only = true;
    Error err = ERROR_INIT;
    AttentionLibrary *library = NULL, *trained = NULL;
    if (attention_library_new(device, &alone, &library, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(seen.n_made, 1);
    assert_int_equal(attention_library_workspace_bytes(library), 256);
    assert_int_equal(attention_library_new(device, &shape, &trained, &err), -ENOENT);
    assert_null(trained);
    library = attention_library_free(library);
    device = device_free(device);

    device = open_device(true, NULL);
    _cleanup_free_ char *made = NULL;
    assert_int_equal(attention_library_new(device, &alone, &library, &err), 0);
    assert_int_equal(device_plans(device, &made), 0);
    assert_non_null(strstr(made, "\"attention n4 h2 16x24 0\""));
    assert_null(strstr(made, "16x24 1\""));
    library = attention_library_free(library);
    device = device_free(device);
}

static void a_failing_run_breaks_the_device(void **state)
{
    (void)state;
    static char memory[1];
    _cleanup_free_ char *plans = plans_made();
    Device *device = open_device(false, plans);
    AttentionLibrary *library = library_of(device);
    Error err = ERROR_INIT;
    seen.fail_at = 1;
    attention_library_backward(library, memory, memory, memory, memory, memory, memory, memory,
                               memory, memory, memory);
    assert_int_equal(seen.n_runs, 1); /* the second group does not run */
    assert_int_equal(device_synchronise(device, &err), -EIO);
    assert_non_null(strstr(err.text, "attention n2 h2 16x24 1: cuDNN: it failed"));
    library = attention_library_free(library);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_group_and_engine_are_taken),
        cmocka_unit_test(a_late_set_makes_one_graph_that_fits),
        cmocka_unit_test(what_is_not_finite_far_below_zero_is_never_taken),
        cmocka_unit_test(a_late_set_holds_no_such_engine_either),
        cmocka_unit_test(a_graph_without_a_mask_is_taken_if_none_serves_with_it),
        cmocka_unit_test(the_kernels_compute_what_no_engine_does_right),
        cmocka_unit_test(our_kernels_are_taken_where_they_are_quicker),
        cmocka_unit_test(images_are_taken_in_groups),
        cmocka_unit_test(only_an_entry_that_says_so_has_a_mask),
        cmocka_unit_test(attentions_of_one_shape_share_their_graphs),
        cmocka_unit_test(what_has_no_entry_is_an_error_that_says_what_to_do),
        cmocka_unit_test(a_refused_shape_is_left_to_the_kernels_by_its_entries),
        cmocka_unit_test(known_entries_are_kept),
        cmocka_unit_test(a_pass_without_an_entry_is_an_error),
        cmocka_unit_test(a_forward_alone_has_one_graph),
        cmocka_unit_test(a_failing_run_breaks_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
