/* SPDX-License-Identifier: Apache-2.0 */
/* conv-candidates.c - see conv-candidates.h. */
#include "kernels/cuda/convolution/conv-candidates.h"

#include <inttypes.h>
#include <stdlib.h>

typedef cudnnBackendDescriptor_t Descriptor;

typedef struct Descriptors {
    Descriptor items[CONV_CANDIDATES_MAX];
    int n;
} Descriptors;

static void descriptors_clear(Descriptors *d)
{
    while (d->n > 0)
        (void)cudnnBackendDestroyDescriptor(d->items[--d->n]); /* a failure is ignored */
}

static int failed(const ConvGraph *graph, const char *what, cudnnStatus_t status, Error *err)
{
    char said[256] = "";
    cudnnGetLastErrorString(said, sizeof(said));
    said[sizeof(said) - 1] = '\0';
    return error_set(err, -EINVAL, "%s: cuDNN: %s: %s: %.200s", conv_graph_name(graph), what,
                     cudnnGetErrorString(status), said);
}

/* Appends n empty descriptors, into which results are read. */
static cudnnStatus_t descriptors_add(Descriptors *d, cudnnBackendDescriptorType_t type, int n)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    assert(n >= 0 && d->n + n <= CONV_CANDIDATES_MAX);
    for (int i = 0; i < n && status == CUDNN_STATUS_SUCCESS; i++) {
        status = cudnnBackendCreateDescriptor(type, &d->items[d->n]);
        d->n += status == CUDNN_STATUS_SUCCESS;
    }
    return status;
}

/* ---- one candidate ---- */

static cudnnStatus_t read_engine(const ConvGraph *graph, Descriptor config, ConvCandidate *ret)
{
    _cleanup_(descriptors_clear) Descriptors engine = {0};
    int64_t n = 0;
    Error ignored = ERROR_INIT; /* an engine without notes does not count as deterministic */
    cudnnStatus_t status = descriptors_add(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, engine.items);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(engine.items[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                          CUDNN_TYPE_INT64, 1, &n, &ret->choice.engine);
    if (status == CUDNN_STATUS_SUCCESS)
        ret->is_deterministic = conv_engine_is_deterministic(graph, engine.items[0], &ignored) == 1;
    return status;
}

static cudnnStatus_t read_knobs(Descriptor config, ConvChoice *ret)
{
    _cleanup_(descriptors_clear) Descriptors knobs = {0};
    int64_t n = 0, one = 0;
    cudnnStatus_t status =
        descriptors_add(&knobs, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CONV_KNOBS_MAX);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs.n, &n, knobs.items);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    ret->n_knobs = (int)MIN(n, (int64_t)knobs.n);
    for (int i = 0; i < ret->n_knobs && status == CUDNN_STATUS_SUCCESS; i++) {
        cudnnBackendKnobType_t type = 0;
        status = cudnnBackendGetAttribute(knobs.items[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                          CUDNN_TYPE_KNOB_TYPE, 1, &one, &type);
        ret->knobs[i].type = (int)type;
        if (status == CUDNN_STATUS_SUCCESS)
            status = cudnnBackendGetAttribute(knobs.items[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                              CUDNN_TYPE_INT64, 1, &one, &ret->knobs[i].value);
    }
    return status;
}

/* ---- all candidates ---- */

static cudnnStatus_t heuristics_query(const ConvGraph *graph, cudnnBackendHeurMode_t mode,
                                      Descriptor heuristics)
{
    const ConvTarget *target = conv_graph_target(graph);
    const Descriptor descriptor = conv_graph_descriptor(graph);
    cudnnStatus_t status =
        cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                          CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == CUDNN_STATUS_SUCCESS && target->record)
        status = cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->record);
    return status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(heuristics) : status;
}

/* Stores the proposals of one mode of the heuristics in ret. Returns their number, or -errno. */
static int candidates_of_mode(const ConvGraph *graph, cudnnBackendHeurMode_t mode,
                              ConvCandidate *ret, int room, Error *err)
{
    _cleanup_(descriptors_clear) Descriptors heuristics = {0}, configs = {0};
    int64_t n = 0;
    cudnnStatus_t status = descriptors_add(&heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 1);
    if (status != CUDNN_STATUS_SUCCESS)
        return failed(graph, "asking its heuristics", status, err);
    if (heuristics_query(graph, mode, heuristics.items[0]) != CUDNN_STATUS_SUCCESS)
        return 0; /* this mode has no proposal for the graph; another mode may have one */
    status = descriptors_add(&configs, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                             MIN(room, (int)CONV_CANDIDATES_MAX));
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            cudnnBackendGetAttribute(heuristics.items[0], CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, configs.n, &n, configs.items);
    const int found = (int)MIN(n, (int64_t)configs.n);
    for (int i = 0; i < found && status == CUDNN_STATUS_SUCCESS; i++) {
        ret[i] = (ConvCandidate){0};
        status = read_engine(graph, configs.items[i], &ret[i]);
        if (status == CUDNN_STATUS_SUCCESS)
            status = read_knobs(configs.items[i], &ret[i].choice);
    }
    if (status != CUDNN_STATUS_SUCCESS)
        return failed(graph, "what its heuristics propose", status, err);
    return found;
}

int conv_candidates(const ConvGraph *graph, ConvCandidate *ret, int room, Error *err)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    int found = 0;
    for (size_t i = 0; i < ELEMENTSOF(modes) && found < room; i++) {
        int n = candidates_of_mode(graph, modes[i], ret + found, room - found, err);
        if (n < 0)
            return n;
        found += n;
    }
    return found;
}

int conv_candidates_first(const ConvGraph *graph, int64_t workspace_max_bytes, ConvChoice *ret,
                          int64_t *ret_workspace_bytes, Error *err)
{
    enum { ROOM = 3 * CONV_CANDIDATES_MAX };
    _cleanup_free_ ConvCandidate *candidates = calloc(ROOM, sizeof(*candidates));
    if (!candidates)
        return error_set(err, -ENOMEM, "%s: no memory for candidates", conv_graph_name(graph));
    const int n = conv_candidates(graph, candidates, ROOM, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        _cleanup_(conv_plan_freep) ConvPlan *plan = NULL;
        Error refused = ERROR_INIT; /* ignored: the next candidate is tried */
        if (!candidates[i].is_deterministic ||
            conv_plan_new(graph, &candidates[i].choice, &plan, &refused) < 0 ||
            conv_plan_workspace_bytes(plan) > workspace_max_bytes)
            continue;
        *ret = candidates[i].choice;
        *ret_workspace_bytes = conv_plan_workspace_bytes(plan);
        return 0;
    }
    return error_set(err, -ENOENT,
                     "%s: of %d engines that cuDNN proposes none is deterministic with at most "
                     "%" PRId64 " bytes of workspace",
                     conv_graph_name(graph), n, workspace_max_bytes);
}
