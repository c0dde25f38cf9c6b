/* SPDX-License-Identifier: Apache-2.0 */
/* attention-tune.c - see attention-tune.h. */
#include "kernels/cuda/attention/attention-tune.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/attention/attention-check.h"
#include "kernels/cuda/attention/attention-tile.h"
#include "kernels/cuda/plans/tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MAX = 3, ENGINES_MAX = 3, TUNED_MAX = SIZES_MAX * ENGINES_MAX };

typedef struct AttentionTuning {
    CudaCompute *compute;
    const AttentionTarget *target;
    const AttentionShape *shape;
    AttentionPass pass;
    bool padding_mask;
    int64_t workspace_max_bytes;
    AttentionGraph *graphs[SIZES_MAX]; /* one graph for each number of images at once */
    int images[SIZES_MAX];
    int n_graphs;
    struct {
        int graph, engine;
    } of[TUNED_MAX];
    TuneCandidate candidates[TUNED_MAX];
    int n;
    AttentionTensors tensors;
    AttentionCheck *check; /* operands for the images of the largest group */
    void *workspace;
} AttentionTuning;

/* ---- candidates ---- */

/* Adds those engines of the newest graph whose workspaces fit. Returns the number of added engines, or -errno.
 * *least_bytes is the smallest workspace of all engines tried. */
static int add_engines(AttentionTuning *t, int64_t *least_bytes, Error *err)
{
    const int wanted = MIN(tune_candidates_max(t->compute), (int)ENGINES_MAX);
    int n = 0;
    for (int engine = 0; engine < wanted; engine++) {
        AttentionGraph *graph = t->graphs[t->n_graphs - 1];
        int r = attention_graph_select(graph, engine, err);
        if (r == -ENOENT && engine > 0)
            break;
        if (r < 0)
            return r;
        const int64_t bytes = attention_graph_workspace_bytes(graph);
        *least_bytes = engine == 0 ? bytes : MIN(*least_bytes, bytes);
        if (bytes > t->workspace_max_bytes)
            continue;
        t->of[t->n].graph = t->n_graphs - 1;
        t->of[t->n].engine = engine;
        t->candidates[t->n++].workspace_bytes = bytes;
        n++;
    }
    return n;
}

/* Tries several numbers of images only for backward, because only its workspace grows with the images. */
static int find_candidates(AttentionTuning *t, Error *err)
{
    const bool late = tune_candidates_max(t->compute) < TUNED_MAX;
    const int sizes = t->pass == ATTENTION_BACKWARD && !late ? SIZES_MAX : 1;
    int64_t bytes_of_image = 0; /* the workspace of one image; 0: not yet known */
    for (int images = t->shape->n; images >= 1 && t->n_graphs < sizes; images--) {
        AttentionShape part = *t->shape;
        int64_t bytes = 0;
        if (t->shape->n % images || bytes_of_image * images > t->workspace_max_bytes)
            continue;
        part.n = images;
        int r = attention_graph_new(t->target, &part, t->pass, t->padding_mask, NULL,
                                    &t->graphs[t->n_graphs], err);
        if (r < 0)
            return r;
        t->images[t->n_graphs++] = images;
        r = add_engines(t, &bytes, err);
        if (r < 0)
            return r;
        if (r == 0) {
            t->graphs[t->n_graphs - 1] = attention_graph_free(t->graphs[t->n_graphs - 1]);
            t->n_graphs--;
            bytes_of_image = bytes / images;
        }
    }
    if (t->n > 0)
        return 0;
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(t->shape, t->pass, name);
    return error_set(err, -ENOENT, "%s: one image needs more than %lld bytes of workspace", name,
                     (long long)t->workspace_max_bytes);
}

static int make_operands(AttentionTuning *t, Error *err)
{
    Device *device = t->compute->device;
    const AttentionTensor last = t->pass == ATTENTION_FORWARD ? ATTENTION_SUMS : ATTENTION_DV;
    AttentionShape part = *t->shape;
    int64_t workspace = 1;
    part.n = t->images[0]; /* the images of the largest group */
    int r = attention_check_new(device, &part, t->pass, &t->check, err);
    if (r == 0)
        r = attention_lengths_new(device, t->shape, &t->tensors, err);
    for (AttentionTensor i = 0; r == 0 && i <= last; i++)
        r = tune_operand(device, (size_t)t->shape->n * attention_image_bytes(t->shape, i),
                         &t->tensors.of[i], err);
    for (int i = 0; i < t->n; i++)
        workspace = MAX(workspace, t->candidates[i].workspace_bytes);
    return r < 0 ? r : device_allocate(device, (size_t)workspace, &t->workspace, err);
}

/* ---- results where all scores are far below zero ---- */

static void report_refused(const AttentionTuning *t, int candidate, const char *why)
{
    char name[ATTENTION_NAME_MAX], knobs[200] = "";
    ConvChoice choice = {.engine = -1};
    Error unknown = ERROR_INIT; /* ignored: the engine stays -1 */
    attention_pass_name(t->shape, t->pass, name);
    (void)attention_graph_choice(t->graphs[t->of[candidate].graph], &choice, &unknown);
    for (int i = 0; i < choice.n_knobs; i++) {
        const size_t n = strlen(knobs);
        (void)snprintf(knobs + n, sizeof(knobs) - n, "%s%d=%" PRId64, i > 0 ? "," : " with knobs ",
                       choice.knobs[i].type, choice.knobs[i].value);
    }
    log_warning("plan of %s: engine %" PRId64 "%s, %d images at once%s, is never taken: where all "
                "scores are near -128, %s",
                name, choice.engine, knobs, t->images[t->of[candidate].graph],
                t->padding_mask ? ", with a padding mask" : "", why);
}

static int is_finite(void *userdata, int candidate, Error *err)
{
    AttentionTuning *t = userdata;
    AttentionGraph *graph = t->graphs[t->of[candidate].graph];
    const int images = t->images[t->of[candidate].graph];
    char why[100];
    Error refused = ERROR_INIT;
    const AttentionTensors tensors = attention_check_begin(t->check, images);
    int r = attention_graph_select(graph, t->of[candidate].engine, &refused);
    (void)cuda_compute_stream(t->compute->device); /* makes the device's GPU current */
    if (r == 0)
        r = attention_graph_execute(graph, t->target->handle, &tensors, t->workspace, &refused);
    if (r < 0) {
        report_refused(t, candidate, refused.text);
        return 0;
    }
    r = attention_check_end(t->check, images, why, sizeof(why), err);
    if (r == 0)
        report_refused(t, candidate, why);
    return r;
}

/* ---- time ---- */

static bool start(void *userdata, int candidate)
{
    AttentionTuning *t = userdata;
    Error refused = ERROR_INIT; /* ignored: another candidate is chosen */
    AttentionGraph *graph = t->graphs[t->of[candidate].graph];
    int r = attention_graph_select(graph, t->of[candidate].engine, &refused);
    (void)cuda_compute_stream(t->compute->device); /* makes the device's GPU current */
    for (int first = 0; r == 0 && first < t->shape->n; first += t->images[t->of[candidate].graph]) {
        const AttentionTensors part = attention_images(t->shape, &t->tensors, first);
        r = attention_graph_execute(graph, t->target->handle, &part, t->workspace, &refused);
    }
    return r == 0;
}

static int choose(AttentionTuning *t, AttentionChoice *ret, AttentionGraph **ret_graph,
                  double *ret_usec, Error *err)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(t->shape, t->pass, name);
    const Tuning tuning = {t->compute, name, t->candidates, t->n, start, t, is_finite};
    const int best = tune_choose(&tuning, err);
    if (best < 0)
        return best;
    AttentionGraph **graph = &t->graphs[t->of[best].graph];
    AttentionChoice choice = {.images = t->images[t->of[best].graph],
                              .padding_mask = t->padding_mask};
    int r = attention_graph_select(*graph, t->of[best].engine, err);
    if (r == 0)
        r = attention_graph_choice(*graph, &choice.engine, err);
    if (r < 0)
        return r;
    *ret = choice;
    *ret_graph = TAKE_PTR(*graph);
    *ret_usec = t->candidates[best].usec;
    return 0;
}

static int tune(CudaCompute *compute, const AttentionTarget *target, const AttentionShape *shape,
                AttentionPass pass, bool padding_mask, int64_t workspace_max_bytes,
                AttentionChoice *ret, AttentionGraph **ret_graph, double *ret_usec, Error *err)
{
    AttentionTuning *t = memory_new(AttentionTuning);
    t->compute = compute;
    t->target = target;
    t->shape = shape;
    t->pass = pass;
    t->padding_mask = padding_mask;
    t->workspace_max_bytes = workspace_max_bytes;
    int r = find_candidates(t, err);
    if (r == 0)
        r = make_operands(t, err);
    if (r == 0)
        r = choose(t, ret, ret_graph, ret_usec, err);
    for (AttentionTensor i = ATTENTION_Q; i <= ATTENTION_DV; i++)
        device_release(compute->device, t->tensors.of[i]);
    attention_lengths_free(compute->device, &t->tensors);
    t->check = attention_check_free(t->check);
    device_release(compute->device, t->workspace);
    for (int i = 0; i < t->n_graphs; i++)
        (void)attention_graph_free(t->graphs[i]);
    free(t);
    return r;
}

int attention_tune(CudaCompute *compute, const AttentionTarget *target, const AttentionShape *shape,
                   AttentionPass pass, int64_t workspace_max_bytes, AttentionChoice *ret,
                   AttentionGraph **ret_graph, double *ret_usec, Error *err)
{
    const bool mask = attention_has_tail(shape);
    int r = tune(compute, target, shape, pass, mask, workspace_max_bytes, ret, ret_graph, ret_usec,
                 err);
    if (!mask || (r != -EINVAL && r != -ENOENT))
        return r;
    log_warning("it is tried without a padding mask: %s", err->text);
    return tune(compute, target, shape, pass, false, workspace_max_bytes, ret, ret_graph, ret_usec,
                err);
}

/* ---- our own kernels ---- */

typedef struct TileTuning {
    Device *device;
    const AttentionShape *shape;
    AttentionPass pass;
    AttentionTensors tensors;
} TileTuning;

static bool start_tile(void *userdata, int candidate)
{
    const TileTuning *t = userdata;
    void *const *of = t->tensors.of;
    (void)candidate; /* there is only one candidate */
    if (t->pass == ATTENTION_FORWARD)
        attention_tile_forward(t->device, t->shape, of[ATTENTION_Q], of[ATTENTION_K],
                               of[ATTENTION_V], of[ATTENTION_OUT], of[ATTENTION_SUMS]);
    else
        attention_tile_backward(t->device, t->shape, of[ATTENTION_Q], of[ATTENTION_K],
                                of[ATTENTION_V], of[ATTENTION_OUT], of[ATTENTION_SUMS],
                                of[ATTENTION_DOUT], of[ATTENTION_DQ], of[ATTENTION_DK],
                                of[ATTENTION_DV]);
    return true;
}

int attention_tune_tile(CudaCompute *compute, const AttentionShape *shape, AttentionPass pass,
                        double *ret_usec, Error *err)
{
    enum { NAME_MAX_HERE = ATTENTION_NAME_MAX + 32, SAVED = 2 };
    TileTuning t = {.device = compute->device, .shape = shape, .pass = pass};
    TuneCandidate candidate = {.workspace_bytes = 0};
    char name[ATTENTION_NAME_MAX], operation[NAME_MAX_HERE];
    int r = 0;
    attention_pass_name(shape, pass, name);
    (void)snprintf(operation, sizeof(operation), "%s by our own kernel", name);
    for (AttentionTensor i = ATTENTION_Q; r == 0 && i <= ATTENTION_DV; i++)
        r = tune_operand(compute->device,
                         (size_t)shape->n * attention_image_bytes(shape, i) *
                             (i == ATTENTION_SUMS ? SAVED : 1),
                         &t.tensors.of[i], err);
    const Tuning tuning = {compute, operation, &candidate, 1, start_tile, &t, NULL};
    if (r == 0)
        r = MIN(tune_choose(&tuning, err), 0);
    for (AttentionTensor i = ATTENTION_Q; i <= ATTENTION_DV; i++)
        device_release(compute->device, t.tensors.of[i]);
    if (r == 0)
        *ret_usec = candidate.usec;
    return r;
}
