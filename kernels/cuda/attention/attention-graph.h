/* SPDX-License-Identifier: Apache-2.0 */
/* attention-graph.h - an attention in the terms of cuDNN: its two passes as graphs of cudnn-frontend, each with the
 * execution plan of one engine with chosen knobs.
 *
 * q, k and v lie where the projections left them: their rows may be shared (merged q, k, v or k, v), and nothing is
 * copied. bf16, sums and the saved log-sum-exp in fp32, scale 1 / sqrt(head_dim). Backward is always the
 * graph that cuDNN calls deterministic, whose workspace grows with n * heads * q_tokens * kv_tokens.
 *
 * With a padding mask the graph reads how many tokens each image has. Every image has all of its tokens: the mask
 * changes no result, and kernels that take tokens in tiles then mask what lies behind the last one. Without it cuDNN's
 * backward on sm_90 may let such a place in as a score of 0, whose exponential is infinite where all scores are far
 * below zero (NVIDIA/cudnn-frontend#628, #1072).
 *
 * Ownership: attention_graph_new() gives the caller a graph with its plan; attention_graph_free() accepts NULL.
 * Units:     elements; workspace in bytes.
 * Errors:    0 or -errno; the text names the operation and what cuDNN said. No C++ exception leaves a function.
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

/* All tensors of both passes. Forward reads q, k and v and writes out and the log-sum-exp, [n][heads][q_tokens]
 * fp32; backward reads those and dout and writes dq, dk and dv. A graph with a padding mask reads the lengths, too: for
 * each image its tokens, int32. */
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
    void *
        of[N_ATTENTION_TENSORS]; /* NULL: the pass does not have it. Lengths may be there always. */
} AttentionTensors;

/* The GPU that a plan is made for: that of a handle, or one that is not there and that a record describes. One of the
 * two is set. */
typedef struct AttentionTarget {
    cudnnHandle_t handle;
    const char *record; /* JSON text, as cuDNN itself gives it of a GPU */
    int architecture;   /* 90: sm_90 */
} AttentionTarget;

/* The operation's name in a plan set: "attention bf16 n32 h5 d64 4096x77 s320,640 backward"; s: the strides of q
 * and of k and v. A causal one is "... s3072,3072 causal forward". */
enum { ATTENTION_NAME_MAX = 128 };
void attention_pass_name(const AttentionShape *shape, AttentionPass pass,
                         char name[ATTENTION_NAME_MAX]);

typedef struct AttentionGraph AttentionGraph;

/* choice: the engine and its knobs. NULL, for a caller that makes a plan set: the first engine that cuDNN's heuristics
 * A, then fallback, propose, that is deterministic by its notes and that makes a plan. -EINVAL: cuDNN refuses the shape
 * or the choice, or the engine is not deterministic. -ENOENT: no choice was given and there is no such engine. */
int attention_graph_new(const AttentionTarget *target, const AttentionShape *shape,
                        AttentionPass pass, bool padding_mask, const ConvChoice *choice,
                        AttentionGraph **ret, Error *err);
AttentionGraph *attention_graph_free(AttentionGraph *graph);
DEFINE_CLEANUP(AttentionGraph, attention_graph_free)
const char *attention_graph_name(const AttentionGraph *graph);
int64_t attention_graph_workspace_bytes(const AttentionGraph *graph);
/* Reports whether the graph reads the lengths. */
bool attention_graph_has_mask(const AttentionGraph *graph);
/* For a caller that makes a plan set: makes the graph's plan that of another engine, counted from 0 among the
 * deterministic ones that make a plan, in the order of the heuristics. -ENOENT: there are no more. */
int attention_graph_select(AttentionGraph *graph, int engine, Error *err);
/* Returns the engine and the knobs of the graph's plan. */
int attention_graph_choice(const AttentionGraph *graph, ConvChoice *ret, Error *err);

/* Runs the graph on the handle's stream; tensors are 16-byte aligned device memory. */
int attention_graph_execute(AttentionGraph *graph, cudnnHandle_t handle,
                            const AttentionTensors *tensors, void *workspace, Error *err);

#ifdef __cplusplus
}
#endif
