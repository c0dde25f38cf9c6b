/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn-engines.c - what the fake cuDNN accepts (sizes that fit, three engines with their notes and knobs, plans), and
 * how it runs a plan. */
#include "kernels/test/fake/fake-cudnn.h"
#include "kernels/test/fake/fake-environment.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnStatus_t Status;

/* ---- engines ---- */

enum { KNOB_VALUES = 4 }; /* a knob has the values 0 to 3 */

static const struct Engine {
    int64_t index, workspace_bytes; /* workspace_bytes: odd, and a run overwrites all of them */
    bool is_deterministic, has_tile;
    double usec; /* so long that measuring needs few runs; FAKE_CUDNN_USEC overrides it */
} engines[] = {
    {3, 0, false, false, 1000}, /* the heuristics' first choice, and the fastest */
    {2, 4099, true, true, 3000},
    {1, 0, true, true, 4500},
};
enum { N_ENGINES = sizeof(engines) / sizeof(engines[0]) };

static const struct Engine *engine_of(int64_t index)
{
    for (int i = 0; i < N_ENGINES; i++)
        if (engines[i].index == index)
            return &engines[i];
    return NULL;
}

/* ---- tensors and operations ---- */

static Status check_tensor(const FakeDescriptor *d)
{
    const int64_t n = fake_attribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->n;
    const int64_t alignment = fake_int64(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (n != fake_attribute(d, CUDNN_ATTR_TENSOR_STRIDES)->n)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor of %lld dimensions has other strides",
                           (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (fake_int64(d, CUDNN_ATTR_TENSOR_DIMENSIONS, i) < 1 ||
            fake_int64(d, CUDNN_ATTR_TENSOR_STRIDES, i) < 1)
            return fake_refuse(CUDNN_STATUS_BAD_PARAM, "dimension or stride %lld is not positive",
                               (long long)i);
    if (alignment < 1 || (alignment & (alignment - 1)) != 0)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "an alignment of %lld", (long long)alignment);
    return CUDNN_STATUS_SUCCESS;
}

static Status check_convolution(const FakeDescriptor *d)
{
    if (fake_int64(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) != 2)
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "not two axes");
    for (int64_t i = 0; i < 2; i++)
        if (fake_int64(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) < 0 ||
            fake_int64(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i) < 0 ||
            fake_int64(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) < 1 ||
            fake_int64(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, i) < 1)
            return fake_refuse(CUDNN_STATUS_BAD_PARAM, "pads, strides or dilations of axis %lld",
                               (long long)i);
    return CUDNN_STATUS_SUCCESS;
}

/* The names of an operation's parts, which differ between the passes. */
typedef struct Parts {
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
} Parts;

static Parts parts_of(const FakeDescriptor *operation)
{
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return (Parts){CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return (Parts){CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return (Parts){CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

static int64_t size_of(const FakeDescriptor *tensor, int64_t i)
{
    return fake_int64(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
}

static Status check_operation(const FakeDescriptor *d)
{
    const Parts parts = parts_of(d);
    const FakeDescriptor *convolution = fake_child(d, parts.convolution, 0);
    const FakeDescriptor *x = fake_child(d, parts.x, 0), *w = fake_child(d, parts.w, 0),
                         *y = fake_child(d, parts.y, 0);
    const FakeDescriptor *const tensors[] = {x, w, y};
    if (convolution->type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no convolution");
    for (int i = 0; i < 3; i++)
        if (tensors[i]->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
            fake_attribute(tensors[i], CUDNN_ATTR_TENSOR_DIMENSIONS)->n != 4)
            return fake_refuse(CUDNN_STATUS_BAD_PARAM, "no tensor of four dimensions");
    if (size_of(x, 0) != size_of(y, 0) || size_of(x, 1) != size_of(w, 1) ||
        size_of(y, 1) != size_of(w, 0))
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "images or channels differ");
    for (int64_t i = 0; i < 2; i++) {
        const int64_t reach =
            (size_of(w, 2 + i) - 1) * fake_int64(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, i) +
            1;
        const int64_t room =
            size_of(x, 2 + i) + fake_int64(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) +
            fake_int64(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i) - reach;
        if (room < 0 ||
            room / fake_int64(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 !=
                size_of(y, 2 + i))
            return fake_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "y has %lld on axis %lld",
                               (long long)size_of(y, 2 + i), (long long)i);
    }
    const int64_t uids[] = {fake_int64(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                            fake_int64(w, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                            fake_int64(y, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0)};
    if (uids[0] == uids[1] || uids[0] == uids[2] || uids[1] == uids[2])
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors of one number");
    return CUDNN_STATUS_SUCCESS;
}

/* ---- graphs, engines, plans ---- */

static const FakeDescriptor *operation_of(const FakeDescriptor *graph)
{
    return fake_child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, 0);
}

static Status check_graph(const FakeDescriptor *d)
{
    const FakeDescriptor *operation = operation_of(d);
    if (fake_attribute(d, CUDNN_ATTR_OPERATIONGRAPH_OPS)->n != 1 ||
        (operation->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
         operation->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR &&
         operation->type != CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR))
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "not one convolution");
    return CUDNN_STATUS_SUCCESS;
}

/* Checks that an engine, or heuristics, has a graph, and knows the GPU: from the graph's handle or from a record. */
static Status check_for(const FakeDescriptor *d, cudnnBackendAttributeName_t graph,
                        cudnnBackendAttributeName_t record)
{
    const FakeDescriptor *g = fake_child(d, graph, 0);
    if (g->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no graph");
    if (!fake_attribute(g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) && !fake_attribute(d, record))
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "neither a handle nor a device's record");
    return CUDNN_STATUS_SUCCESS;
}

/* Accepts only what cuDNN's fast engines accept: bf16, also for the gradient of a weight. */
static Status check_engine(const FakeDescriptor *d)
{
    Status status = check_for(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_DEVICEPROP);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    const int64_t index = fake_int64(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
    if (!engine_of(index))
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "there is no engine %lld", (long long)index);
    const FakeDescriptor *operation =
        operation_of(fake_child(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0));
    const Parts parts = parts_of(operation);
    const FakeDescriptor *convolution = fake_child(operation, parts.convolution, 0);
    const cudnnBackendAttributeName_t names[] = {parts.x, parts.w, parts.y};
    for (int i = 0; i < 3; i++)
        if (fake_int64(fake_child(operation, names[i], 0), CUDNN_ATTR_TENSOR_DATA_TYPE, 0) !=
            CUDNN_DATA_BFLOAT16)
            return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "a tensor is not bf16");
    if (fake_int64(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0) != CUDNN_DATA_FLOAT)
        return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "sums are not fp32");
    return CUDNN_STATUS_SUCCESS;
}

static Status check_config(const FakeDescriptor *d)
{
    const FakeDescriptor *engine = fake_child(d, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    const FakeAttribute *knobs = fake_attribute(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    if (engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no engine");
    const bool has_tile =
        engine_of(fake_int64(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0))->has_tile;
    for (int64_t i = 0; knobs && i < knobs->n; i++) {
        const FakeDescriptor *knob = fake_child(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        if (knob->type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
            return fake_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no knob");
        const int64_t type = fake_int64(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 0);
        const int64_t value = fake_int64(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0);
        if (type != CUDNN_KNOB_TYPE_TILE_SIZE || !has_tile || i > 0)
            return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no knob %lld",
                               (long long)type);
        if (value < 0 || value >= KNOB_VALUES)
            return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "knob %lld cannot be %lld",
                               (long long)type, (long long)value);
    }
    return CUDNN_STATUS_SUCCESS;
}

static Status check_plan(const FakeDescriptor *d)
{
    const bool has_handle = fake_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != NULL;
    const bool has_record = fake_attribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) != NULL;
    if (fake_child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0)->type !=
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "no engine with knobs");
    if (has_handle == has_record)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "not one of a handle and a device's record");
    return CUDNN_STATUS_SUCCESS;
}

static Status check_pack(const FakeDescriptor *d)
{
    const FakeAttribute *uids = fake_attribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (uids->n != fake_attribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "not as many addresses as numbers");
    return CUDNN_STATUS_SUCCESS;
}

Status fake_check(const FakeDescriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_convolution(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return check_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return check_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return check_for(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                         CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return check_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return check_config(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(d);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- attributes that are found, not set ---- */

/* Turns the caller's empty descriptor into one with the attributes of another descriptor. */
static Status become(FakeDescriptor *to, const FakeDescriptor *from)
{
    if (!to || to->type != from->type || to->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "a result is not an empty descriptor of type %d",
                           (int)from->type);
    for (int i = 0; i < from->n_attributes; i++) {
        const FakeAttribute *a = &from->attributes[i];
        Status status = fake_set(to, a->name, a->type, a->n, a->values);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    to->is_finalised = true;
    return CUDNN_STATUS_SUCCESS;
}

static void must(Status status)
{
    assert(status == CUDNN_STATUS_SUCCESS);
    (void)status;
}

static FakeDescriptor *empty(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    must(cudnnBackendCreateDescriptor(type, &d));
    return d;
}

/* Gives `part` to `to`, which then has the only reference to `part`. */
static void give(FakeDescriptor *to, cudnnBackendAttributeName_t name, FakeDescriptor *part)
{
    const cudnnBackendDescriptor_t value = part;
    must(fake_set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value));
    fake_drop(part);
}

/* Proposes engine number i of the list, with its tile set to 1, for the graph of the heuristics. */
static Status propose(const FakeDescriptor *heuristics, int i, FakeDescriptor *to)
{
    const FakeAttribute *graph = fake_attribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const FakeAttribute *record = fake_attribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    const cudnnBackendKnobType_t tile = CUDNN_KNOB_TYPE_TILE_SIZE;
    const int64_t one = 1;
    if (!to || to->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || to->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "a result is not an empty configuration");
    FakeDescriptor *engine = empty(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    must(fake_set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->type, 1, graph->values));
    must(fake_set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engines[i].index));
    if (record)
        must(fake_set(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, record->type, 1, record->values));
    must(cudnnBackendFinalize(engine));
    give(to, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (engines[i].has_tile) {
        FakeDescriptor *knob = empty(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        must(fake_set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &tile));
        must(fake_set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one));
        must(cudnnBackendFinalize(knob));
        give(to, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knob);
    }
    to->is_finalised = true;
    return CUDNN_STATUS_SUCCESS;
}

static Status get_results(const FakeDescriptor *d, int64_t room, int64_t *n, void *values)
{
    const bool all = fake_int64(d, CUDNN_ATTR_ENGINEHEUR_MODE, 0) == CUDNN_HEUR_MODE_A;
    const int first = all ? 0 : N_ENGINES - 1;
    Status status = CUDNN_STATUS_SUCCESS;
    int64_t given = 0;
    for (int i = first; values && i < N_ENGINES && given < room && status == CUDNN_STATUS_SUCCESS;
         i++)
        status = propose(d, i, ((FakeDescriptor *const *)values)[given++]);
    *n = values ? given : N_ENGINES - first;
    return status;
}

static Status get_notes(const FakeDescriptor *d, int64_t room, int64_t *n, void *values)
{
    const struct Engine *engine = engine_of(fake_int64(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0));
    const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    *n = engine->is_deterministic ? 0 : 1;
    if (values && room > 0 && *n == 1)
        memcpy(values, &note, sizeof(note));
    return CUDNN_STATUS_SUCCESS;
}

static Status get_children(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t room,
                           int64_t *n, void *values)
{
    const FakeAttribute *a = fake_attribute(d, name);
    Status status = CUDNN_STATUS_SUCCESS;
    *n = a ? a->n : 0;
    for (int64_t i = 0; values && i < *n && i < room && status == CUDNN_STATUS_SUCCESS; i++)
        status = become(((FakeDescriptor *const *)values)[i], fake_child(d, name, i));
    return status;
}

static const struct Engine *engine_of_plan(const FakeDescriptor *plan)
{
    const FakeDescriptor *config = fake_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const FakeDescriptor *engine = fake_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    return engine_of(fake_int64(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0));
}

Status fake_get_found(const FakeDescriptor *d, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
    int64_t ignored;
    n = n ? n : &ignored;
    if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_results(d, room, n, values);
    if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return get_notes(d, room, n, values);
    if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
        (name == CUDNN_ATTR_ENGINECFG_ENGINE || name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
        return get_children(d, name, room, n, values);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && room == 1) {
        *n = 1;
        memcpy(values, &engine_of_plan(d)->workspace_bytes, sizeof(int64_t));
        return CUDNN_STATUS_SUCCESS;
    }
    return fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptor %d has no attribute %d of type %d",
                       (int)d->type, (int)name, (int)type);
}

/* ---- running ---- */

static Status find_data(const FakeDescriptor *tensor, const FakeDescriptor *pack, FakeTensor *ret)
{
    const FakeAttribute *uids = fake_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const FakeAttribute *data = fake_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const int64_t uid = fake_int64(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    const int64_t alignment = fake_int64(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    for (int i = 0; i < 4; i++) {
        ret->dimensions[i] = fake_int64(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        ret->strides[i] = fake_int64(tensor, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    ret->data = NULL;
    for (int64_t i = 0; i < uids->n; i++)
        if (((const int64_t *)uids->values)[i] == uid)
            ret->data = ((void *const *)data->values)[i];
    if (!ret->data)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "tensor %lld has no address",
                           (long long)uid);
    if ((uintptr_t)ret->data % (uintptr_t)alignment != 0)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                           "tensor %lld is not aligned to %lld bytes", (long long)uid,
                           (long long)alignment);
    return CUDNN_STATUS_SUCCESS;
}

static Status read_operation(const FakeDescriptor *operation, const FakeDescriptor *pack,
                             FakeConvolution *ret)
{
    const Parts parts = parts_of(operation);
    const FakeDescriptor *c = fake_child(operation, parts.convolution, 0);
    ret->pass = operation->type;
    for (int i = 0; i < 2; i++) {
        ret->pads[i] = fake_int64(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        ret->strides[i] = fake_int64(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        ret->dilations[i] = fake_int64(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    }
    ret->is_flipped = fake_int64(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0) != CUDNN_CROSS_CORRELATION;
    ret->alpha = fake_real(operation, parts.alpha);
    ret->beta = fake_real(operation, parts.beta);
    Status status = find_data(fake_child(operation, parts.x, 0), pack, &ret->x);
    if (status == CUDNN_STATUS_SUCCESS)
        status = find_data(fake_child(operation, parts.w, 0), pack, &ret->w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = find_data(fake_child(operation, parts.y, 0), pack, &ret->y);
    return status;
}

/* Reports whether all parts of the plan still exist. */
static bool is_whole(const FakeDescriptor *d)
{
    if (d->is_destroyed)
        return false;
    for (int i = 0; i < d->n_attributes; i++) {
        const FakeAttribute *a = &d->attributes[i];
        for (int64_t j = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < a->n; j++)
            if (!is_whole(((FakeDescriptor *const *)a->values)[j]))
                return false;
    }
    return true;
}

/* Reports whether this execution is the N-th one, which must fail because of FAKE_CUDNN_FAIL=N. */
static bool fails(void)
{
    static long executions;
    const char *failing = getenv("FAKE_CUDNN_FAIL");
    return failing && ++executions == strtol(failing, NULL, 10);
}

/* Reports whether `variable` names the plan with this number of this pass. */
static bool names_plan(const char *variable, cudnnBackendDescriptorType_t pass, int number)
{
    static const struct {
        const char *name;
        cudnnBackendDescriptorType_t pass;
    } passes[] = {{"forward:", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
                  {"data:", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR},
                  {"weight:", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR}};
    const char *wanted = getenv(variable);
    for (size_t i = 0; wanted && i < sizeof(passes) / sizeof(passes[0]); i++) {
        const size_t n = strlen(passes[i].name);
        if (pass == passes[i].pass && strncmp(wanted, passes[i].name, n) == 0)
            return number == strtol(wanted + n, NULL, 10);
    }
    return false;
}

/* Changes the result as FAKE_CUDNN_WAVER and FAKE_CUDNN_NAN require. */
static void spoil(const FakeDescriptor *plan, const FakeConvolution *convolution)
{
    const FakeRun run = {.of = {plan}, .group = (int)convolution->pass};
    const FakeTensor *to = fake_result(convolution);
    int number;
    int64_t last = 0;
    if (!getenv("FAKE_CUDNN_WAVER") && !getenv("FAKE_CUDNN_NAN"))
        return;
    const int runs = fake_count(&run, &number);
    for (int axis = 0; axis < 4; axis++)
        last += (to->dimensions[axis] - 1) * to->strides[axis];
    if (runs > 1 && names_plan("FAKE_CUDNN_WAVER", convolution->pass, number))
        to->data[last] ^= 1;
    if (names_plan("FAKE_CUDNN_NAN", convolution->pass, number))
        to->data[last] = 0x7fc0;
}

Status cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
                           cudnnBackendDescriptor_t pack_)
{
    const FakeDescriptor *plan = plan_, *pack = pack_;
    if (!handle || !plan || !pack || !is_whole(plan) || !is_whole(pack) ||
        plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !plan->is_finalised ||
        pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR || !pack->is_finalised)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "no plan and its addresses");
    const FakeAttribute *made_for = fake_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    if (!made_for || *(const cudnnHandle_t *)made_for->values != handle)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM, "the plan is not for this handle");
    if (fails())
        return fake_refuse(CUDNN_STATUS_EXECUTION_FAILED, "as FAKE_CUDNN_FAIL wants it");

    const struct Engine *engine = engine_of_plan(plan);
    const FakeDescriptor *config = fake_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const FakeDescriptor *graph = fake_child(fake_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0),
                                             CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0);
    void *workspace =
        *(void *const *)fake_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values;
    if (engine->workspace_bytes > 0 && !workspace)
        return fake_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
    if (engine->workspace_bytes > 0)
        memset(workspace, 0xff,
               (size_t)engine->workspace_bytes); /* NaN: no caller may keep data in the workspace */

    FakeConvolution convolution;
    Status status = read_operation(operation_of(graph), pack, &convolution);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    const FakeAttribute *knobs = fake_attribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    static int64_t runs; /* how many times nondeterministic engines have run */
    const int64_t tile = knobs
                             ? fake_int64(fake_child(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 0),
                                          CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0)
                         : engine->is_deterministic ? 0
                                                    : runs++ % KNOB_VALUES;
    convolution.block = INT64_C(1) << (2 + 2 * tile);
    fake_convolve(&convolution);
    cudaStream_t stream = NULL;
    (void)cudnnGetStream(handle, &stream); /* stream stays NULL if none was set */
    spoil(plan, &convolution);
    const double usec = fake_told("FAKE_CUDNN_USEC", (long)engine->index, engine->usec);
    fake_spend(stream, convolution.beta != 0 ? "FAKE_CUDNN_ADDING_USEC" : "", (long)engine->index,
               usec);
    return CUDNN_STATUS_SUCCESS;
}
