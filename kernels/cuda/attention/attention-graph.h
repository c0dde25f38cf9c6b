/* SPDX-License-Identifier: Apache-2.0 */
/* attention-graph.h - an attention in cuDNN's terms: its two passes as graphs of cudnn-frontend, each with the
 * execution plan of one engine with chosen knobs.
 *
 * The graphs read q, k and v where the projections wrote them: their rows may be shared (merged q, k, v or k, v), and
 * nothing is copied. The types are bf16, and fp32 for sums and the saved log-sum-exp; the scale is 1 / sqrt(head_dim).
 * Backward is always the graph that cuDNN calls deterministic, whose workspace grows with n * heads * q_tokens *
 * kv_tokens.
 *
 * With a padding mask the graph reads how many tokens each image has. Every image has all of its tokens, so the mask
 * changes no result, but kernels that process tokens in tiles then mask the places behind the last token. Without the
 * mask, cuDNN's backward on sm_90 may use such a place as a score of 0, whose exponential is infinite where all scores
 * are far below zero (NVIDIA/cudnn-frontend#628, #1072).
 *
 * Ownership: attention_graph_new() gives the caller a graph with its plan; attention_graph_free() accepts NULL.
 * Units:     elements; workspace in bytes.
 * Errors:    0 or -errno; the text contains the operation's name and cuDNN's message. No C++ exception leaves a
 *            function.
 * Threads:   one at a time for each graph.
 */
#pragma once

#include "kernels/cuda/convolution/conv-graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum AttentionPass {
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    N_ATTENTION_PASSES
} AttentionPass;

/* All tensors of both passes. Forward reads q, k and v and writes out and the log-sum-exp, [n][heads][q_tokens] fp32;
 * backward reads these five and dout, and writes dq, dk and dv. A graph with a padding mask also reads the lengths: the
 * number of tokens of each image, int32. */
typedef enum AttentionTensor {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_SUMS,
    ATTENTION_DOUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_Q_LENGTHS,
    ATTENTION_KV_LENGTHS,
    N_ATTENTION_TENSORS
} AttentionTensor;

typedef struct AttentionTensors {
    /* NULL: the pass has no such tensor. Lengths may always be set. */
    void *of[N_ATTENTION_TENSORS];
} AttentionTensors;

/* The GPU that a plan is made for: the GPU of `handle`, or a GPU that is absent and described by `record`. Exactly one
 * of the two members is set. */
typedef struct AttentionTarget {
    cudnnHandle_t handle;
    const char *record; /* JSON text: cuDNN's own description of a GPU */
    int architecture;   /* the GPU's architecture: 90 means sm_90 */
} AttentionTarget;

/* The operation's name in a plan set: "attention bf16 n32 h5 d64 4096x77 s320,640 backward", where s is followed by the
 * strides of q and of k and v. The name of a causal attention is "... s3072,3072 causal forward". */
enum { ATTENTION_NAME_MAX = 128 };
void attention_pass_name(const AttentionShape *shape, AttentionPass pass,
                         char name[ATTENTION_NAME_MAX]);

typedef struct AttentionGraph AttentionGraph;

/* `choice` is the engine and its knobs. A caller that makes a plan set passes NULL and gets the first engine, in the
 * order of cuDNN's heuristics A and then fallback, that has no note of being nondeterministic and that makes a plan.
 * -EINVAL: cuDNN refuses the shape or the choice, or the engine is not deterministic. -ENOENT: no choice was given and
 * no such engine exists. */
int attention_graph_new(const AttentionTarget *target, const AttentionShape *shape,
                        AttentionPass pass, bool padding_mask, const ConvChoice *choice,
                        AttentionGraph **ret, Error *err);
AttentionGraph *attention_graph_free(AttentionGraph *graph);
DEFINE_CLEANUP(AttentionGraph, attention_graph_free)
const char *attention_graph_name(const AttentionGraph *graph);
int64_t attention_graph_workspace_bytes(const AttentionGraph *graph);
/* Reports whether the graph reads the lengths. */
bool attention_graph_has_mask(const AttentionGraph *graph);
/* For a caller that makes a plan set: replaces the graph's plan by the plan of another engine. `engine` counts from 0
 * the deterministic engines that make a plan, in the order of the heuristics. -ENOENT: no more engines. */
int attention_graph_select(AttentionGraph *graph, int engine, Error *err);
/* Returns the engine and the knobs of the graph's plan. */
int attention_graph_choice(const AttentionGraph *graph, ConvChoice *ret, Error *err);

/* Runs the graph on the handle's stream; tensors are 16-byte aligned device memory. */
int attention_graph_execute(AttentionGraph *graph, cudnnHandle_t handle,
                            const AttentionTensors *tensors, void *workspace, Error *err);

#ifdef __cplusplus
}
#endif
