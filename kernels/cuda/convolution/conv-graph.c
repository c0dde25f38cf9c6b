/* SPDX-License-Identifier: Apache-2.0 */
/* conv-graph.c - see conv-graph.h. */
#include "kernels/cuda/convolution/conv-graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The unique IDs of the tensors in a variant pack. */
enum { UID_X = 1, UID_W, UID_Y };
enum { ALIGNMENT = 16 }; /* the alignment of tensors, in bytes; the fast engines need 16 */

typedef cudnnBackendDescriptor_t Descriptor;

static void descriptor_freep(Descriptor *d)
{
    if (*d)
        (void)cudnnBackendDestroyDescriptor(*d); /* a failure is ignored */
}
#define _cleanup_descriptor_ _cleanup_(descriptor_freep)

struct ConvGraph {
    ConvTarget target;
    char name[CONV_NAME_MAX];
    /* cuDNN does not document whether a descriptor keeps the descriptors that it was made from, so the graph keeps them
     * all. */
    Descriptor x, w, y, convolution, operation, graph;
};

struct ConvPlan {
    const ConvGraph *graph;
    Descriptor engine, knobs[CONV_KNOBS_MAX], config, plan;
    int64_t workspace_bytes;
};

/* ---- names and errors ---- */

void conv_pass_name(const ConvShape *s, ConvPads pads, ConvPass pass, char name[CONV_NAME_MAX])
{
    static const char *const passes[] = {"forward", "backward_data", "backward_weight"};
    const ConvPads same = conv_pads_same(s);
    char padding[32] = "";
    assert((size_t)pass < ELEMENTSOF(passes));
    if (pads.before != same.before || pads.after != same.after)
        (void)snprintf(padding, sizeof(padding), " p%d,%d", pads.before, pads.after);
    (void)snprintf(name, CONV_NAME_MAX, "conv bf16 n%d %dx%d %d->%d k%d s%d%s %s", s->n, s->h, s->w,
                   s->c_in, s->c_out, s->kernel, s->stride, padding, passes[pass]);
}

/* Returns 0, or -errno with cuDNN's message about `what`. */
static int checked(cudnnStatus_t status, const char *operation, const char *what, Error *err)
{
    char said[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    cudnnGetLastErrorString(said, sizeof(said));
    said[sizeof(said) - 1] = '\0';
    int r = status == CUDNN_STATUS_ALLOC_FAILED ? -ENOMEM : -EINVAL;
    return error_set(err, r, "%s: cuDNN: %s: %s%s%.200s", operation, what,
                     cudnnGetErrorString(status), *said ? ": " : "", said);
}

/* ---- descriptors ---- */

typedef struct Attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *values;
} Attribute;

static int descriptor_set(Descriptor d, const Attribute *a, size_t n, const char *operation,
                          const char *what, Error *err)
{
    for (size_t i = 0; i < n; i++) {
        int r = checked(cudnnBackendSetAttribute(d, a[i].name, a[i].type, a[i].n, a[i].values),
                        operation, what, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Makes a descriptor with these attributes and finalises it. */
static int descriptor_new(cudnnBackendDescriptorType_t type, const Attribute *attributes, size_t n,
                          const char *operation, const char *what, Descriptor *ret, Error *err)
{
    _cleanup_descriptor_ Descriptor d = NULL;
    int r = checked(cudnnBackendCreateDescriptor(type, &d), operation, what, err);
    if (r < 0)
        return r;
    r = descriptor_set(d, attributes, n, operation, what, err);
    if (r < 0)
        return r;
    r = checked(cudnnBackendFinalize(d), operation, what, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(d);
    return 0;
}

int conv_target_of_record(const char *record, ConvTarget *ret, Error *err)
{
    const Attribute attributes[] = {{CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     (int64_t)strlen(record) + 1, record}};
    ConvTarget target = {0};
    int r = descriptor_new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, attributes, 1, "a device's record",
                           "reading it", &target.record, err);
    if (r >= 0)
        *ret = target;
    return r;
}

void conv_target_close(ConvTarget *target)
{
    descriptor_freep(&target->record);
    *target = (ConvTarget){0};
}

/* Returns the attribute that says for which GPU a descriptor is made. Its name depends on the kind of descriptor. */
static Attribute target_attribute(const ConvTarget *target, cudnnBackendAttributeName_t handle,
                                  cudnnBackendAttributeName_t record)
{
    assert(!target->handle != !target->record);
    if (target->handle)
        return (Attribute){handle, CUDNN_TYPE_HANDLE, 1, &target->handle};
    return (Attribute){record, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->record};
}

/* ---- the graph ---- */

typedef struct Extents {
    int64_t n, c, h, w;
} Extents;

/* Makes a bf16 tensor whose channels are contiguous. */
static int tensor_new(int64_t uid, Extents e, const char *operation, const char *what,
                      Descriptor *ret, Error *err)
{
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
    const int64_t alignment = ALIGNMENT, dimensions[] = {e.n, e.c, e.h, e.w};
    const int64_t strides[] = {e.h * e.w * e.c, 1, e.w * e.c, e.c};
    const Attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
    };
    return descriptor_new(CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, ELEMENTSOF(attributes),
                          operation, what, ret, err);
}

static int make_tensors(ConvGraph *g, const ConvShape *s, ConvPads pads, Error *err)
{
    const int around = pads.before + pads.after - s->kernel;
    const Extents x = {s->n, s->c_in, s->h, s->w};
    const Extents w = {s->c_out, s->c_in, s->kernel, s->kernel};
    const Extents y = {s->n, s->c_out, (s->h + around) / s->stride + 1,
                       (s->w + around) / s->stride + 1};
    int r = tensor_new(UID_X, x, g->name, "x", &g->x, err);
    if (r >= 0)
        r = tensor_new(UID_W, w, g->name, "the weight", &g->w, err);
    if (r >= 0)
        r = tensor_new(UID_Y, y, g->name, "y", &g->y, err);
    return r;
}

static int make_convolution(ConvGraph *g, const ConvShape *s, ConvPads pads, Error *err)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n = 2, before[] = {pads.before, pads.before}, after[] = {pads.after, pads.after};
    const int64_t strides[] = {s->stride, s->stride}, dilations[] = {1, 1};
    const Attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations},
    };
    return descriptor_new(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes, ELEMENTSOF(attributes),
                          g->name, "the convolution", &g->convolution, err);
}

/* cuDNN names the same parts of an operation differently for each pass. */
static const struct PassNames {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
} pass_names[] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONV_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONV_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static int make_graph(ConvGraph *g, ConvPass pass, bool add, Error *err)
{
    const struct PassNames *names = &pass_names[pass];
    /* cuDNN also accepts doubles for alpha and beta. An engine that computes in fp32 then reads only their first four
     * bytes, which are 0 for the double 1: cuDNN 9.19 wrote zeros for this reason on an H100. */
    const float alpha = 1, beta = add ? 1 : 0;
    const Attribute parts[] = {
        {names->convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->convolution},
        {names->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->x},
        {names->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->w},
        {names->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->y},
        {names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha},
        {names->beta, CUDNN_TYPE_FLOAT, 1, &beta},
    };
    int r = descriptor_new(names->type, parts, ELEMENTSOF(parts), g->name, "the operation",
                           &g->operation, err);
    if (r < 0)
        return r;
    /* Without a handle the graph is not made for a particular GPU. */
    const Attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->operation},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->target.handle},
    };
    return descriptor_new(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes,
                          g->target.handle ? 2 : 1, g->name, "the graph", &g->graph, err);
}

int conv_graph_new(const ConvTarget *target, const ConvShape *shape, ConvPads pads, ConvPass pass,
                   bool add, ConvGraph **ret, Error *err)
{
    _cleanup_(conv_graph_freep) ConvGraph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return error_set(err, -ENOMEM, "no memory for a convolution");
    graph->target = *target;
    conv_pass_name(shape, pads, pass, graph->name);
    int r = make_tensors(graph, shape, pads, err);
    if (r >= 0)
        r = make_convolution(graph, shape, pads, err);
    if (r >= 0)
        r = make_graph(graph, pass, add, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(graph);
    return 0;
}

ConvGraph *conv_graph_free(ConvGraph *graph)
{
    if (!graph)
        return NULL;
    descriptor_freep(&graph->graph);
    descriptor_freep(&graph->operation);
    descriptor_freep(&graph->convolution);
    descriptor_freep(&graph->y);
    descriptor_freep(&graph->w);
    descriptor_freep(&graph->x);
    free(graph);
    return NULL;
}

const char *conv_graph_name(const ConvGraph *graph) { return graph->name; }

const ConvTarget *conv_graph_target(const ConvGraph *graph) { return &graph->target; }

cudnnBackendDescriptor_t conv_graph_descriptor(const ConvGraph *graph) { return graph->graph; }

/* ---- the plan ---- */

int conv_engine_is_deterministic(const ConvGraph *g, Descriptor engine, Error *err)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    int r =
        checked(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, ELEMENTSOF(notes), &n, notes),
                g->name, "the engine's notes", err);
    if (r < 0)
        return r;
    for (int64_t i = 0; i < MIN(n, (int64_t)ELEMENTSOF(notes)); i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return 0;
    return 1;
}

static int make_engine(ConvPlan *plan, int64_t index, Error *err)
{
    const ConvGraph *g = plan->graph;
    char what[64];
    (void)snprintf(what, sizeof(what), "engine %" PRId64, index);
    const Attribute attributes[] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index},
        {CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->target.record},
    };
    int r = descriptor_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR, attributes, g->target.record ? 3 : 2,
                           g->name, what, &plan->engine, err);
    if (r < 0)
        return r;
    r = conv_engine_is_deterministic(g, plan->engine, err);
    if (r == 0)
        return error_set(err, -EINVAL,
                         "%s: engine %" PRId64 " does not give the same bits each time, as cuDNN "
                         "itself says",
                         g->name, index);
    return r < 0 ? r : 0;
}

static int make_knobs(ConvPlan *plan, const ConvChoice *choice, Error *err)
{
    for (int i = 0; i < choice->n_knobs; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knobs[i].type;
        const int64_t value = choice->knobs[i].value;
        char what[64];
        (void)snprintf(what, sizeof(what), "knob %d = %" PRId64, (int)type, value);
        const Attribute attributes[] = {
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type},
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value},
        };
        int r =
            descriptor_new(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, attributes, ELEMENTSOF(attributes),
                           plan->graph->name, what, &plan->knobs[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int make_plan(ConvPlan *plan, const ConvChoice *choice, Error *err)
{
    const ConvGraph *g = plan->graph;
    char what[64];
    (void)snprintf(what, sizeof(what), "engine %" PRId64 " with %d knobs", choice->engine,
                   choice->n_knobs);
    const Attribute config[] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &plan->engine},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->n_knobs,
         plan->knobs},
    };
    int r = descriptor_new(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config, choice->n_knobs ? 2 : 1,
                           g->name, what, &plan->config, err);
    if (r < 0)
        return r;
    const Attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &plan->config},
        target_attribute(&g->target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                         CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP),
    };
    r = descriptor_new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, ELEMENTSOF(attributes),
                       g->name, what, &plan->plan, err);
    if (r < 0)
        return r;
    int64_t n = 0;
    r = checked(cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &n, &plan->workspace_bytes),
                g->name, "the plan's workspace", err);
    if (r >= 0 && plan->workspace_bytes < 0)
        r = error_set(err, -EINVAL, "%s: cuDNN wants %" PRId64 " bytes of workspace", g->name,
                      plan->workspace_bytes);
    return r;
}

int conv_plan_new(const ConvGraph *graph, const ConvChoice *choice, ConvPlan **ret, Error *err)
{
    assert(choice->n_knobs >= 0 && choice->n_knobs <= CONV_KNOBS_MAX);
    _cleanup_(conv_plan_freep) ConvPlan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return error_set(err, -ENOMEM, "%s: no memory for its plan", graph->name);
    plan->graph = graph;
    int r = make_engine(plan, choice->engine, err);
    if (r >= 0)
        r = make_knobs(plan, choice, err);
    if (r >= 0)
        r = make_plan(plan, choice, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(plan);
    return 0;
}

ConvPlan *conv_plan_free(ConvPlan *plan)
{
    if (!plan)
        return NULL;
    descriptor_freep(&plan->plan);
    descriptor_freep(&plan->config);
    for (int i = 0; i < CONV_KNOBS_MAX; i++)
        descriptor_freep(&plan->knobs[i]);
    descriptor_freep(&plan->engine);
    free(plan);
    return NULL;
}

int64_t conv_plan_workspace_bytes(const ConvPlan *plan) { return plan->workspace_bytes; }

int conv_plan_execute(const ConvPlan *plan, const void *x, const void *w, const void *y,
                      void *workspace, Error *err)
{
    const ConvGraph *g = plan->graph;
    const int64_t uids[] = {UID_X, UID_W, UID_Y};
    const void *const data[] = {x, w, y};
    const Attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, (const void *)data},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, (const void *)&workspace},
    };
    _cleanup_descriptor_ Descriptor pack = NULL;
    assert(g->target.handle);
    int r = descriptor_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes,
                           ELEMENTSOF(attributes), g->name, "the tensors' addresses", &pack, err);
    if (r < 0)
        return r;
    return checked(cudnnBackendExecute(g->target.handle, plan->plan, pack), g->name, "running it",
                   err);
}
