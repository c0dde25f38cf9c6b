/* SPDX-License-Identifier: Apache-2.0 */
/* first-cudnn.c - case "cudnn": three convolutions of sd2-base in their three passes, each overwriting and adding, by
 * the engine of the installed plan set and by the first engine that the heuristics propose. */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/cuda/convolution/conv-candidates.h"
#include "kernels/cuda/convolution/conv-entry.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/test/first/first.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { PROPOSED = 4, CHOICES_MAX = PROPOSED + 1, CANDIDATES_MAX = 3 * CONV_CANDIDATES_MAX };

#define WORKSPACE_BYTES ((int64_t)256 << 20)

static const ConvShape shapes[] = {
    {32, 64, 64, 320, 320, 3, 1},
    {32, 64, 64, 4, 320, 3, 1},
    {32, 64, 64, 320, 320, 3, 2},
};
static const ConvShape emulated_shapes[] = {{2, 8, 8, 16, 16, 3, 1}, {2, 8, 8, 16, 8, 3, 2}};

typedef struct Choice {
    ConvChoice choice;
    const char *from; /* "plans" or "heuristics" */
} Choice;

typedef struct Look {
    Device *device;
    ConvTarget target;
    json_t *operations; /* the operations of the installed plan set; NULL: no set */
    ConvShape shape;
    ConvPass pass;
    bool add;
    FirstOperand of[3]; /* x, w, y; also the values that results are added to */
    void *result, *workspace;
    const ConvPlan *plan;
} Look;

/* ---- the installed plans ---- */

/* Reads the set of the GPU for whose record the plans were made. The library versions in the set do not matter here. */
static json_t *read_plans(void)
{
    char self[PATH_MAX] = "", paths[4][PATH_MAX + 64];
    const char *named = getenv("SDTRAIN_CUDA_PLANS"), *file = "NVIDIA-H100-80GB-HBM3.json";
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    const char *folder = n > 0 ? dirname(self) : ".";
    (void)snprintf(paths[0], sizeof(paths[0]), "%s/%s", named ? named : "", file);
    (void)snprintf(paths[1], sizeof(paths[1]), "%s/../lib/plans/%s", folder, file);
    (void)snprintf(paths[2], sizeof(paths[2]), "%s/../lib/sdtrain/plans/%s", folder, file);
    (void)snprintf(paths[3], sizeof(paths[3]), "%s/../../../kernels/cuda/plans/%s", folder, file);
    for (size_t i = 0; i < ELEMENTSOF(paths); i++) {
        json_t *set = json_load_file(paths[i], 0, NULL);
        json_t *operations = json_incref(json_object_get(set, "operations"));
        json_decref(set);
        if (operations) {
            first_line(json_pack("{s:o,s:i}", "plans", first_text(paths[i]), "operations",
                                 (int)json_object_size(operations)));
            return operations;
        }
    }
    first_failed("the installed plans", -ENOENT, "no file of them beside the program");
    return NULL;
}

/* ---- the right results ---- */

static void take(FirstSum *e, double a, double b)
{
    e->sum += a * b;
    e->sizes += a * b < 0 ? -a * b : a * b;
}

static size_t x_at(const ConvShape *s, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return (size_t)(((n * s->h + h) * s->w + w) * s->c_in + c);
}

static size_t y_at(const ConvShape *s, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return (size_t)(((n * conv_output_side(s, s->h) + h) * conv_output_side(s, s->w) + w) *
                        s->c_out +
                    c);
}

static size_t w_at(const ConvShape *s, int64_t out, int64_t row, int64_t column, int64_t in)
{
    return (size_t)(((out * s->kernel + row) * s->kernel + column) * s->c_in + in);
}

static FirstSum expected_forward(const Look *l, size_t at)
{
    const ConvShape *s = &l->shape;
    const int64_t c = (int64_t)at % s->c_out, columns = conv_output_side(s, s->w);
    const int64_t pixel = (int64_t)at / s->c_out, rows = conv_output_side(s, s->h);
    const int64_t w = pixel % columns, h = pixel / columns % rows, n = pixel / columns / rows;
    FirstSum e = {0};
    for (int row = 0; row < s->kernel; row++)
        for (int column = 0; column < s->kernel; column++) {
            const int64_t from_h = h * s->stride + row - s->kernel / 2;
            const int64_t from_w = w * s->stride + column - s->kernel / 2;
            if (from_h < 0 || from_h >= s->h || from_w < 0 || from_w >= s->w)
                continue;
            for (int i = 0; i < s->c_in; i++)
                take(&e, first_value(&l->of[0], x_at(s, n, from_h, from_w, i)),
                     first_value(&l->of[1], w_at(s, c, row, column, i)));
        }
    return e;
}

static FirstSum expected_data(const Look *l, size_t at)
{
    const ConvShape *s = &l->shape;
    const int64_t c = (int64_t)at % s->c_in, pixel = (int64_t)at / s->c_in;
    const int64_t w = pixel % s->w, h = pixel / s->w % s->h, n = pixel / s->w / s->h;
    FirstSum e = {0};
    for (int row = 0; row < s->kernel; row++)
        for (int column = 0; column < s->kernel; column++) {
            const int64_t to_h = h + s->kernel / 2 - row, to_w = w + s->kernel / 2 - column;
            if (to_h < 0 || to_w < 0 || to_h % s->stride || to_w % s->stride ||
                to_h / s->stride >= conv_output_side(s, s->h) ||
                to_w / s->stride >= conv_output_side(s, s->w))
                continue;
            for (int o = 0; o < s->c_out; o++)
                take(&e, first_value(&l->of[2], y_at(s, n, to_h / s->stride, to_w / s->stride, o)),
                     first_value(&l->of[1], w_at(s, o, row, column, c)));
        }
    return e;
}

static FirstSum expected_weight(const Look *l, size_t at)
{
    const ConvShape *s = &l->shape;
    const int64_t in = (int64_t)at % s->c_in, tap = (int64_t)at / s->c_in;
    const int64_t column = tap % s->kernel, row = tap / s->kernel % s->kernel;
    const int64_t out = tap / s->kernel / s->kernel;
    FirstSum e = {0};
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t h = 0; h < conv_output_side(s, s->h); h++)
            for (int64_t w = 0; w < conv_output_side(s, s->w); w++) {
                const int64_t from_h = h * s->stride + row - s->kernel / 2;
                const int64_t from_w = w * s->stride + column - s->kernel / 2;
                if (from_h >= 0 && from_h < s->h && from_w >= 0 && from_w < s->w)
                    take(&e, first_value(&l->of[0], x_at(s, n, from_h, from_w, in)),
                         first_value(&l->of[2], y_at(s, n, h, w, out)));
            }
    return e;
}

/* Returns which of x, w and y the pass computes. */
static int result_of(ConvPass pass)
{
    return pass == CONV_FORWARD ? 2 : pass == CONV_BACKWARD_DATA ? 0 : 1;
}

static FirstSum expected(const void *userdata, size_t at)
{
    const Look *l = userdata;
    FirstSum e = l->pass == CONV_FORWARD         ? expected_forward(l, at)
                 : l->pass == CONV_BACKWARD_DATA ? expected_data(l, at)
                                                 : expected_weight(l, at);
    if (l->add) {
        /* Engines with a separate reduction round this sum to bf16, and then add the result's old value. */
        e.between = e.sum;
        take(&e, first_value(&l->of[result_of(l->pass)], at), 1);
    }
    return e;
}

/* ---- runs ---- */

static int execute(const Look *l, Error *err)
{
    const void *tensors[3];
    for (int i = 0; i < 3; i++)
        tensors[i] = i == result_of(l->pass) ? l->result : l->of[i].memory;
    return conv_plan_execute(l->plan, tensors[0], tensors[1], tensors[2], l->workspace, err);
}

static bool execute_again(void *userdata)
{
    Error refused = ERROR_INIT;
    return execute(userdata, &refused) == 0;
}

/* Runs the plan once on a copy of the operand's values. Returns 0 if it does not run; the line contains the reason. */
static uint64_t run(const Look *l, json_t *line)
{
    const FirstOperand *result = &l->of[result_of(l->pass)];
    Error err = ERROR_INIT;
    device_copy(l->device, l->result, result->memory, result->n * 2);
    first_wait(l->device, "a copy before a convolution");
    int r = execute(l, &err);
    if (r < 0)
        json_object_set_new(line, "refused", first_text(err.text));
    return r < 0 ? 0 : first_hash(l->device, l->result, result->n * 2);
}

static json_t *knobs_of(const ConvChoice *choice)
{
    json_t *entry = conv_entry_new(choice, 0),
           *knobs = json_incref(json_object_get(entry, "knobs"));
    json_decref(entry);
    return knobs;
}

static void look_at_choice(Look *l, const ConvGraph *graph, const Choice *choice)
{
    _cleanup_(conv_plan_freep) ConvPlan *plan = NULL;
    Error err = ERROR_INIT;
    const uint64_t began = clock_monotonic_usec();
    int r = conv_plan_new(graph, &choice->choice, &plan, &err);
    json_t *line = json_pack("{s:s,s:b,s:s,s:I,s:o,s:f}", "operation", conv_graph_name(graph),
                             "add", (int)l->add, "from", choice->from, "engine",
                             (json_int_t)choice->choice.engine, "knobs", knobs_of(&choice->choice),
                             "plan_sec", (double)(clock_monotonic_usec() - began) * 1e-6);
    if (r < 0 || conv_plan_workspace_bytes(plan) > WORKSPACE_BYTES) {
        json_object_set_new(line, "no_plan",
                            first_text(r < 0 ? err.text : "its workspace is too large"));
        first_line(line);
        return;
    }
    json_object_set_new(line, "workspace", json_integer(conv_plan_workspace_bytes(plan)));
    l->plan = plan;
    const uint64_t first = run(l, line);
    if (first) {
        first_compare(l->device, l->result, DATA_BF16, l->of[result_of(l->pass)].n, expected, l,
                      line);
        json_object_set_new(line, "repeats", json_boolean(run(l, line) == first));
        json_object_set_new(line, "usec", first_number(first_usec(l->device, execute_again, l)));
    }
    first_line(line);
}

/* ---- operations ---- */

static bool is_known(const Choice *choices, int n, const ConvChoice *choice)
{
    for (int i = 0; i < n; i++) {
        json_t *known = knobs_of(&choices[i].choice), *knobs = knobs_of(choice);
        const bool same = choices[i].choice.engine == choice->engine && json_equal(known, knobs);
        json_decref(known);
        json_decref(knobs);
        if (same)
            return true;
    }
    return false;
}

static int find_choices(const Look *l, const ConvGraph *graph, Choice *ret)
{
    int n = 0;
    Error err = ERROR_INIT;
    const json_t *entry = json_object_get(l->operations, conv_graph_name(graph));
    if (!entry)
        first_line(
            json_pack("{s:s,s:s}", "operation", conv_graph_name(graph), "plans", "no entry"));
    else if (conv_entry_read(conv_graph_name(graph), entry, &ret[0].choice, &err) < 0)
        first_failed("conv_entry_read", -EINVAL, err.text);
    else
        ret[n++].from = "plans";
    _cleanup_free_ ConvCandidate *all = memory_zeroed(CANDIDATES_MAX, sizeof(*all));
    const uint64_t began = clock_monotonic_usec();
    const int proposed = conv_candidates(graph, all, CANDIDATES_MAX, &err);
    if (proposed < 0)
        first_failed("conv_candidates", proposed, err.text);
    int deterministic = 0;
    for (int i = 0; i < proposed; i++) {
        deterministic += all[i].is_deterministic;
        if (all[i].is_deterministic && n < CHOICES_MAX && !is_known(ret, n, &all[i].choice))
            ret[n++] = (Choice){all[i].choice, "heuristics"};
    }
    first_line(json_pack("{s:s,s:i,s:i,s:f}", "operation", conv_graph_name(graph), "proposed",
                         MAX(proposed, 0), "deterministic", deterministic, "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6));
    return n;
}

static void look_at_pass(Look *l)
{
    ConvGraph *graphs[2] = {NULL, NULL};
    Choice choices[CHOICES_MAX];
    memset(choices, 0, sizeof(choices));
    for (int add = 0; add < 2; add++) {
        Error err = ERROR_INIT;
        int r = conv_graph_new(&l->target, &l->shape, conv_pads_of(&l->shape), l->pass, add == 1,
                               &graphs[add], &err);
        if (r < 0)
            first_failed("conv_graph_new", r, err.text);
    }
    const int n = graphs[0] ? find_choices(l, graphs[0], choices) : 0;
    for (int i = 0; i < n; i++)
        for (int add = 0; add < 2 && graphs[add] && first_left_sec() > 1; add++) {
            l->add = add == 1;
            look_at_choice(l, graphs[add], &choices[i]);
        }
    for (int add = 0; add < 2; add++)
        (void)conv_graph_free(graphs[add]);
}

static void look_at_shape(Look *l)
{
    const ConvShape *s = &l->shape;
    const size_t pixels = (size_t)s->n * (size_t)s->h * (size_t)s->w;
    const size_t out_pixels =
        (size_t)s->n * (size_t)conv_output_side(s, s->h) * (size_t)conv_output_side(s, s->w);
    const size_t n[] = {pixels * (size_t)s->c_in,
                        (size_t)(s->c_out * s->c_in * s->kernel * s->kernel),
                        out_pixels * (size_t)s->c_out};
    for (int i = 0; i < 3; i++)
        first_operand(l->device, n[i], (uint64_t)i + 11, 1, &l->of[i]);
    l->result = first_memory(l->device, MAX(MAX(n[0], n[1]), n[2]) * 2);
    for (ConvPass pass = 0; pass < N_CONV_PASSES; pass++) {
        l->pass = pass;
        if (first_left_sec() > 2)
            look_at_pass(l);
        else
            first_line(json_pack("{s:i,s:i,s:i,s:s}", "c_in", s->c_in, "stride", s->stride, "pass",
                                 (int)pass, "not_run", "no time left"));
    }
    device_release(l->device, l->result);
    for (int i = 0; i < 3; i++)
        first_operand_free(l->device, &l->of[i]);
}

/* Called before the library is opened and again before a handle is made, because the library may read the variables at
 * either moment. */
static void log_errors(void)
{
    first_log("CUDNN_LOGLEVEL_DBG", "1");
    first_log("CUDNN_LOGDEST_DBG", "stderr");
}

int first_cudnn(void)
{
    const CudaLibraries *libraries;
    Error err = ERROR_INIT;
    char said[512] = "";
    Look look = {.operations = NULL};
    log_errors();
    int r = cuda_libraries_open(&libraries, &err);
    if (r < 0) {
        first_failed("cuda_libraries_open", r, err.text);
        return 0;
    }
    look.device = first_device(DATA_BF16);
    log_errors();
    const uint64_t began = clock_monotonic_usec();
    const cudnnStatus_t status = cudnnCreate(&look.target.handle);
    cudnnGetLastErrorString(said, sizeof(said) - 1);
    first_line(json_pack("{s:s,s:i,s:s,s:o,s:f,s:i,s:s}", "api", "cudnnCreate", "code", (int)status,
                         "status", cudnnGetErrorString(status), "text", first_text(said), "seconds",
                         (double)(clock_monotonic_usec() - began) * 1e-6, "version",
                         libraries->cudnn_version, "folder", libraries->cudnn_folder));
    if (status != CUDNN_STATUS_SUCCESS)
        return 0;
    look.operations = read_plans();
    look.workspace = first_memory(look.device, (size_t)WORKSPACE_BYTES);
    const ConvShape *all = first_emulated() ? emulated_shapes : shapes;
    const size_t n = first_emulated() ? ELEMENTSOF(emulated_shapes) : ELEMENTSOF(shapes);
    for (size_t i = 0; i < n; i++) {
        look.shape = all[i];
        look_at_shape(&look);
    }
    json_decref(look.operations);
    return 0;
}
