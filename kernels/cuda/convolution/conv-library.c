/* SPDX-License-Identifier: Apache-2.0 */
/* conv-library.c - see conv-library.h. */
#include "kernels/cuda/convolution/conv-library.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/convolution/conv-entry.h"
#include "kernels/cuda/convolution/conv-tune.h"
#include "kernels/cuda/plans/plans.h"

#include <stdlib.h>

struct ConvLibrary {
    Device *device;
    struct {
        ConvGraph *graph;
        ConvPlan *plan;
        CudaWork work;
    } passes
        [N_CONV_PASSES]
        [2]; /* [0] overwrites the result, [1] adds. [1] is empty for the weight's gradient. plan NULL: own kernels */
    size_t workspace_bytes;
};

/* Counts the bytes and the operations of a pass. x, weight and y are bf16. */
static CudaWork work_of(const ConvLibrary *l, const ConvShape *s, ConvPass pass, bool add)
{
    const double taps = (double)(s->kernel * s->kernel), weight = taps * s->c_in * s->c_out;
    const double x = (double)s->n * s->h * s->w * s->c_in;
    const double pixels =
        (double)s->n * DIV_ROUND_UP(s->h, s->stride) * DIV_ROUND_UP(s->w, s->stride);
    const double added = !add ? 0 : pass == CONV_FORWARD ? pixels * s->c_out : x;
    return (CudaWork){.name = cuda_compute_name(cuda_compute(l->device),
                                                conv_graph_name(l->passes[pass][0].graph)),
                      .bytes = 2 * (x + weight + pixels * s->c_out + added),
                      .flop = 2 * pixels * weight};
}

/* Makes both graphs before any plan, because conv_tune() looks for an engine that serves both graphs. */
static int make_pass(ConvLibrary *l, const ConvTarget *target, const ConvShape *shape,
                     ConvPass pass, Error *err)
{
    CudaCompute *compute = cuda_compute(l->device);
    ConvGraph *graphs[2] = {NULL, NULL};
    const json_t *entry;
    ConvChoice choice;
    const int n = pass == CONV_BACKWARD_WEIGHT ? 1 : 2;
    int r = 0;
    for (int add = 0; r == 0 && add < n; add++) {
        r = conv_graph_new(target, shape, conv_pads_of(shape), pass, add == 1, &graphs[add], err);
        l->passes[pass][add].graph = graphs[add];
    }
    if (r == 0 && compute->tune)
        r = conv_tune(compute, shape, pass, graphs, err);
    if (r == 0)
        r = cuda_plans_take(compute->plans, conv_graph_name(graphs[0]), &entry, err);
    if (r == 0 && json_is_true(json_object_get(entry, "own_kernels"))) {
        log_warning("our own kernels, which are slow, compute %s: the plans leave it to them",
                    conv_graph_name(graphs[0]));
        return 0;
    }
    if (r == 0)
        r = conv_entry_read(conv_graph_name(graphs[0]), entry, &choice, err);
    for (int add = 0; r == 0 && add < n; add++) {
        r = conv_plan_new(graphs[add], &choice, &l->passes[pass][add].plan, err);
        if (r < 0)
            return r;
        const size_t bytes = (size_t)conv_plan_workspace_bytes(l->passes[pass][add].plan);
        l->workspace_bytes = MAX(l->workspace_bytes, bytes);
        l->passes[pass][add].work = work_of(l, shape, pass, add == 1);
    }
    return r;
}

int conv_library_new(Device *device, const ConvShape *shape, ConvLibrary **ret, Error *err)
{
    ConvTarget target = {0};
    int r = cuda_compute_cudnn(cuda_compute(device), &target.handle, err);
    if (r < 0)
        return r;
    ConvLibrary *l = memory_new(ConvLibrary);
    l->device = device;
    for (ConvPass pass = 0; r == 0 && pass < (shape->forward_only ? 1 : N_CONV_PASSES); pass++)
        r = make_pass(l, &target, shape, pass, err);
    if (r < 0) {
        (void)conv_library_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

ConvLibrary *conv_library_free(ConvLibrary *l)
{
    if (!l)
        return NULL;
    for (int pass = 0; pass < N_CONV_PASSES; pass++)
        for (int add = 0; add < 2; add++) {
            (void)conv_plan_free(l->passes[pass][add].plan);
            (void)conv_graph_free(l->passes[pass][add].graph);
        }
    free(l);
    return NULL;
}

size_t conv_library_workspace_bytes(const ConvLibrary *l) { return l->workspace_bytes; }

const char *conv_library_operation(const ConvLibrary *l, ConvPass pass)
{
    return l->passes[pass][0].plan ? conv_graph_name(l->passes[pass][0].graph) : NULL;
}

void conv_library_run(const ConvLibrary *l, ConvPass pass, bool add, const void *x, const void *w,
                      const void *y, void *workspace)
{
    Error err = ERROR_INIT;
    assert(pass != CONV_BACKWARD_WEIGHT || !add);
    (void)cuda_compute_stream(l->device); /* makes the device's GPU current */
    if (conv_plan_execute(l->passes[pass][add].plan, x, w, y, workspace, &err) < 0) {
        (void)error_prefix(&err, -EIO, "GPU %s", cuda_compute(l->device)->machine->device);
        cuda_device_break(l->device, err.text);
    }
    cuda_launched(l->device, &l->passes[pass][add].work);
}
