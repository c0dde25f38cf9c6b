/* SPDX-License-Identifier: Apache-2.0 */
/* attention-graph.cc - see attention-graph.h. This is the module's only C++ file besides its kernels: an attention is
 * about twenty operations of cuDNN's backend, which cudnn-frontend, a library of C++ headers, assembles. */

/* cudnn-frontend calls cuDNN through the functions of forward.c; these macros switch off its exceptions, log and
 * JSON. */
#define NV_CUDNN_DISABLE_EXCEPTION
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "kernels/cuda/attention/attention-graph.h"

#include <cinttypes>
#include <cmath>
#include <new>

/* Another version of the frontend may build a different graph for a shape, which gives other bits with the same
 * engine. */
static_assert(CUDNN_FRONTEND_VERSION == 13200, "ops/packages gpu gets the version that is wanted");

/* cudnn-frontend contains its own engines for other operations, which it compiles at run time with NVRTC. This module
 * never selects these engines, so stubs that fail replace the NVRTC library. */
#define REFUSED                                                                                    \
    {                                                                                              \
        return NVRTC_ERROR_INTERNAL_ERROR;                                                         \
    }
nvrtcResult nvrtcCreateProgram(nvrtcProgram *, const char *, const char *, int, const char *const *,
                               const char *const *) REFUSED nvrtcResult
    nvrtcCompileProgram(nvrtcProgram, int, const char *const *) REFUSED nvrtcResult
    nvrtcDestroyProgram(nvrtcProgram *) REFUSED nvrtcResult
    nvrtcGetCUBINSize(nvrtcProgram, size_t *) REFUSED nvrtcResult
    nvrtcGetCUBIN(nvrtcProgram, char *) REFUSED nvrtcResult
    nvrtcGetProgramLogSize(nvrtcProgram, size_t *) REFUSED nvrtcResult
    nvrtcGetProgramLog(nvrtcProgram, char *) REFUSED

    namespace fe = cudnn_frontend;
typedef std::shared_ptr<fe::graph::Tensor_attributes> Tensor;
typedef std::unordered_map<fe::KnobType_t, int64_t> Knobs;

struct AttentionGraph {
    fe::graph::Graph graph;
    char name[ATTENTION_NAME_MAX];
    AttentionPass pass;
    bool padding_mask;            /* the caller requested a mask */
    bool has_lengths;             /* the graph reads the lengths */
    int64_t plan;                 /* the index of the plan in graph */
    std::vector<int64_t> engines; /* the indices of the plans that were built */
    int64_t next, n;              /* the first index not yet tried; the number of plans */
};

enum { HEAD_MAX = 128, ALIGNMENT = 16 /* bytes */ };

void attention_pass_name(const AttentionShape *s, AttentionPass pass, char name[ATTENTION_NAME_MAX])
{
    static const char *const passes[] = {"forward", "backward"};
    assert((size_t)pass < ELEMENTSOF(passes));
    (void)snprintf(name, ATTENTION_NAME_MAX,
                   "attention bf16 n%d h%d d%d %" PRId64 "x%" PRId64 " s%d,%d %s%s", s->n, s->heads,
                   s->head_dim, s->q_tokens, s->kv_tokens, s->q_stride, s->kv_stride,
                   s->causal ? "causal " : "", passes[pass]);
}

static int refuse(const char *name, const char *what, fe::error_t status, Error *err)
{
    return error_set(err, -EINVAL, "%s: cuDNN: %s: %.280s", name, what,
                     status.get_message().c_str());
}

/* ---- the graph ---- */

/* Adds the input `which` to the graph, with its place in AttentionTensor as its identifier. */
static Tensor tensor_of(fe::graph::Graph *graph, AttentionTensor which, const AttentionShape &s)
{
    const bool of_keys = which == ATTENTION_K || which == ATTENTION_V;
    const int64_t tokens = of_keys ? s.kv_tokens : s.q_tokens;
    const int64_t stride = of_keys                ? s.kv_stride
                           : which == ATTENTION_Q ? s.q_stride
                                                  : (int64_t)s.heads * s.head_dim;
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_uid(which + 1);
    if (which == ATTENTION_SUMS)
        attributes.set_dim({s.n, s.heads, tokens, 1})
            .set_stride({s.heads * tokens, tokens, 1, 1})
            .set_data_type(fe::DataType_t::FLOAT);
    else
        attributes.set_dim({s.n, s.heads, tokens, s.head_dim})
            .set_stride({tokens * stride, s.head_dim, stride, 1});
    return graph->tensor(attributes);
}

/* Marks the tensor as a result of the graph, with the place of `which` in AttentionTensor as its identifier. */
static void put_out(const Tensor &tensor, AttentionTensor which, int64_t heads, int64_t tokens,
                    int64_t d, int64_t n, int64_t stride)
{
    tensor->set_output(true)
        .set_uid(which + 1)
        .set_dim({n, heads, tokens, d})
        .set_stride({tokens * stride, d, stride, 1});
}

static Tensor lengths_of(fe::graph::Graph *graph, AttentionTensor which, const AttentionShape &s)
{
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_uid(which + 1).set_data_type(fe::DataType_t::INT32);
    attributes.set_dim({s.n, 1, 1, 1}).set_stride({1, 1, 1, 1});
    return graph->tensor(attributes);
}

/* Sets the masks of a pass. The causal mask keeps columns 0 to i of row i of the scores. */
template <typename Attributes>
static void mask(AttentionGraph *g, Attributes *attributes, const AttentionShape &s)
{
    if (g->padding_mask)
        attributes->set_padding_mask(true)
            .set_seq_len_q(lengths_of(&g->graph, ATTENTION_Q_LENGTHS, s))
            .set_seq_len_kv(lengths_of(&g->graph, ATTENTION_KV_LENGTHS, s));
    if (s.causal)
        attributes->set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
            .set_diagonal_band_right_bound(0);
}

static void emit_forward(AttentionGraph *g, const AttentionShape &s)
{
    fe::graph::Graph *graph = &g->graph;
    auto attributes = fe::graph::SDPA_attributes();
    attributes.set_name("attention").set_generate_stats(true);
    attributes.set_attn_scale((float)(1.0 / sqrt((double)s.head_dim)));
    mask(g, &attributes, s);
    auto [out, sums] =
        graph->sdpa(tensor_of(graph, ATTENTION_Q, s), tensor_of(graph, ATTENTION_K, s),
                    tensor_of(graph, ATTENTION_V, s), attributes);
    put_out(out, ATTENTION_OUT, s.heads, s.q_tokens, s.head_dim, s.n,
            (int64_t)s.heads * s.head_dim);
    sums->set_output(true).set_uid(ATTENTION_SUMS + 1).set_data_type(fe::DataType_t::FLOAT);
    sums->set_dim({s.n, s.heads, s.q_tokens, 1})
        .set_stride({s.heads * s.q_tokens, s.q_tokens, 1, 1});
}

static void emit_backward(AttentionGraph *g, const AttentionShape &s)
{
    fe::graph::Graph *graph = &g->graph;
    auto attributes = fe::graph::SDPA_backward_attributes();
    attributes.set_name("attention").set_deterministic_algorithm(true);
    attributes.set_attn_scale((float)(1.0 / sqrt((double)s.head_dim)));
    mask(g, &attributes, s);
    auto [dq, dk, dv] =
        graph->sdpa_backward(tensor_of(graph, ATTENTION_Q, s), tensor_of(graph, ATTENTION_K, s),
                             tensor_of(graph, ATTENTION_V, s), tensor_of(graph, ATTENTION_OUT, s),
                             tensor_of(graph, ATTENTION_DOUT, s),
                             tensor_of(graph, ATTENTION_SUMS, s), attributes);
    put_out(dq, ATTENTION_DQ, s.heads, s.q_tokens, s.head_dim, s.n, s.q_stride);
    put_out(dk, ATTENTION_DK, s.heads, s.kv_tokens, s.head_dim, s.n, s.kv_stride);
    put_out(dv, ATTENTION_DV, s.heads, s.kv_tokens, s.head_dim, s.n, s.kv_stride);
}

static int build_graph(AttentionGraph *g, const AttentionTarget &target, const AttentionShape &s,
                       Error *err)
{
    g->graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(target.architecture); /* else cuDNN asks the runtime for the version */
    if (target.record) {
        auto properties = std::make_shared<fe::DeviceProperties>();
        auto status = properties->deserialize(
            std::vector<uint8_t>(target.record, target.record + strlen(target.record) + 1));
        if (status.is_bad())
            return refuse(g->name, "the record of a GPU", status, err);
        g->graph.set_device_properties(properties);
    }
    if (g->pass == ATTENTION_FORWARD)
        emit_forward(g, s);
    else
        emit_backward(g, s);
    fe::graph::Tensor_attributes lengths;
    g->has_lengths =
        g->graph.query_tensor_attributes_of_uid(ATTENTION_Q_LENGTHS + 1, lengths).is_good() &&
        g->graph.query_tensor_attributes_of_uid(ATTENTION_KV_LENGTHS + 1, lengths).is_good();
    auto status = g->graph.validate();
    if (status.is_good())
        status = target.record ? g->graph.build_operation_graph()
                               : g->graph.build_operation_graph(target.handle);
    return status.is_good() ? 0 : refuse(g->name, "its graph", status, err);
}

/* ---- plans ---- */

/* Builds the next of the plans that cuDNN proposed; skips plans that cannot be built. -ENOENT: no more plans. */
static int build_next(AttentionGraph *g, Error *err)
{
    fe::error_t status;
    while (g->next < g->n) {
        const int64_t index = g->next++;
        status = g->graph.build_plan_at_index(index);
        if (status.is_good()) {
            g->engines.push_back(index);
            return 0;
        }
    }
    return error_set(err, -ENOENT,
                     "%s: cuDNN has no more than %zu deterministic plans among %" PRId64 ": %.200s",
                     g->name, g->engines.size(), g->n, status.get_message().c_str());
}

static int select_plan(AttentionGraph *g, int engine, Error *err)
{
    while ((int64_t)g->engines.size() <= engine) {
        int r = build_next(g, err);
        if (r < 0)
            return r;
    }
    g->plan = g->engines[(size_t)engine];
    return 0;
}

static int choose_plan(AttentionGraph *g, Error *err)
{
    auto status = g->graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (status.is_bad())
        return refuse(g->name, "its heuristics", status, err);
    g->graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    g->n = g->graph.get_execution_plan_count();
    return select_plan(g, 0, err);
}

int attention_graph_select(AttentionGraph *graph, int engine, Error *err)
{
    try {
        return select_plan(graph, engine, err);
    } catch (...) {
        return error_set(err, -ENOMEM, "%s: no memory for a plan", graph->name);
    }
}

static int replay_plan(AttentionGraph *g, const ConvChoice &choice, Error *err)
{
    Knobs knobs;
    for (int i = 0; i < choice.n_knobs; i++) {
        auto type =
            fe::convert_from_backend_knob_type((cudnnBackendKnobType_t)choice.knobs[i].type);
        if (type == fe::KnobType_t::NOT_SET)
            return error_set(err, -EINVAL, "%s: engine %" PRId64 " has no knob %d", g->name,
                             choice.engine, choice.knobs[i].type);
        knobs[type] = choice.knobs[i].value;
    }
    char engine[32];
    (void)snprintf(engine, sizeof(engine), "engine %" PRId64, choice.engine);
    auto status = g->graph.create_execution_plan(choice.engine, knobs);
    if (status.is_good()) {
        g->graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
        status = g->graph.build_plan_at_index(0);
    }
    if (status.is_bad())
        return refuse(g->name, engine, status, err);
    g->engines.push_back(0);
    g->plan = 0;
    return 0;
}

static int check_shape(const AttentionShape &s, const char *name, Error *err)
{
    const int64_t width = (int64_t)s.heads * s.head_dim;
    const int elements = ALIGNMENT / 2;
    if (s.n < 1 || s.heads < 1 || s.q_tokens < 1 || s.kv_tokens < 1 || s.q_tokens > INT32_MAX ||
        s.kv_tokens > INT32_MAX || s.head_dim < elements || s.head_dim > HEAD_MAX ||
        s.head_dim % elements || s.q_stride < width || s.kv_stride < width ||
        s.q_stride % elements || s.kv_stride % elements)
        return error_set(err, -EINVAL,
                         "%s: cuDNN takes heads of 8, 16, ... %d elements in rows of 16 bytes' "
                         "multiples",
                         name, HEAD_MAX);
    return 0;
}

int attention_graph_new(const AttentionTarget *target, const AttentionShape *shape,
                        AttentionPass pass, bool padding_mask, const ConvChoice *choice,
                        AttentionGraph **ret, Error *err)
{
    char name[ATTENTION_NAME_MAX];
    attention_pass_name(shape, pass, name);
    int r = check_shape(*shape, name, err);
    if (r < 0)
        return r;
    try {
        auto g = std::make_unique<AttentionGraph>();
        memcpy(g->name, name, sizeof(name));
        g->pass = pass;
        g->padding_mask = padding_mask;
        r = build_graph(g.get(), *target, *shape, err);
        if (r == 0)
            r = choice ? replay_plan(g.get(), *choice, err) : choose_plan(g.get(), err);
        if (r == 0)
            *ret = g.release();
        return r;
    } catch (const std::bad_alloc &) {
        return error_set(err, -ENOMEM, "%s: no memory for its graph", name);
    } catch (...) {
        return error_set(err, -EINVAL, "%s: cuDNN's frontend failed", name);
    }
}

AttentionGraph *attention_graph_free(AttentionGraph *graph)
{
    delete graph;
    return NULL;
}

const char *attention_graph_name(const AttentionGraph *graph) { return graph->name; }

int64_t attention_graph_workspace_bytes(const AttentionGraph *graph)
{
    return graph->graph.get_workspace_size_plan_at_index(graph->plan);
}

bool attention_graph_has_mask(const AttentionGraph *graph) { return graph->has_lengths; }

int attention_graph_choice(const AttentionGraph *graph, ConvChoice *ret, Error *err)
{
    try {
        ConvChoice choice = {};
        Knobs knobs;
        auto status = graph->graph.get_engine_and_knobs_at_index(graph->plan, choice.engine, knobs);
        if (status.is_bad())
            return refuse(graph->name, "its engine", status, err);
        for (const auto &knob : knobs) {
            cudnnBackendKnobType_t type;
            if (choice.n_knobs == CONV_KNOBS_MAX ||
                fe::convert_to_backend_knob_type(knob.first, type) != CUDNN_STATUS_SUCCESS)
                return error_set(err, -EINVAL, "%s: engine %" PRId64 " has a knob of a later cuDNN",
                                 graph->name, choice.engine);
            choice.knobs[choice.n_knobs].type = (int)type;
            choice.knobs[choice.n_knobs++].value = knob.second;
        }
        *ret = choice;
        return 0;
    } catch (...) {
        return error_set(err, -ENOMEM, "%s: no memory for its engine", graph->name);
    }
}

int attention_graph_execute(AttentionGraph *graph, cudnnHandle_t handle,
                            const AttentionTensors *tensors, void *workspace, Error *err)
{
    try {
        std::unordered_map<int64_t, void *> pointers;
        const int n = graph->has_lengths ? N_ATTENTION_TENSORS : ATTENTION_Q_LENGTHS;
        for (int i = 0; i < n; i++)
            if (tensors->of[i])
                pointers[i + 1] = tensors->of[i];
        auto status = graph->graph.execute_plan_at_index(handle, pointers, workspace, graph->plan);
        return status.is_good() ? 0 : error_set(err, -EIO, "%.300s", status.get_message().c_str());
    } catch (...) {
        return error_set(err, -ENOMEM, "no memory to run it");
    }
}
