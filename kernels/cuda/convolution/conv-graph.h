/* SPDX-License-Identifier: Apache-2.0 */
/* conv-graph.h - a convolution in the terms of cuDNN's backend: its three passes as operation graphs, and the execution
 * plan that one engine with chosen knobs makes of a graph.
 *
 * Tensors are bf16 in the layouts of kernels.h: activations NHWC, the packed weight and its gradient
 * [c_out][k][k][c_in]. cuDNN lists dimensions in the order n, c, h, w for any layout; the strides describe the layout.
 * Sums are fp32.
 *
 * Ownership: conv_graph_new() and conv_plan_new() give objects to conv_graph_free() and conv_plan_free(), which accept
 *            NULL. A plan borrows its graph; both borrow the target.
 * Units:     elements; workspace in bytes.
 * Errors:    0 or -errno; the text contains the operation's name and cuDNN's message.
 * Threads:   one at a time for each object.
 */
#pragma once

#include "kernels/kernels.h"

#include <stdbool.h> /* cudnn.h needs this header and does not include it */

#include <cudnn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ConvPass {
    CONV_FORWARD,
    CONV_BACKWARD_DATA,
    CONV_BACKWARD_WEIGHT,
    N_CONV_PASSES
} ConvPass;

/* Rows and columns of zeros around x: `before` are above and on the left of x, `after` below and on the right. */
typedef struct ConvPads {
    int before, after;
} ConvPads;

static inline ConvPads conv_pads_same(const ConvShape *shape)
{
    return (ConvPads){shape->kernel / 2, shape->kernel / 2};
}

static inline ConvPads conv_pads_of(const ConvShape *shape)
{
    return shape->pad_end ? (ConvPads){0, 1} : conv_pads_same(shape);
}

/* The operation's name in a plan set: "conv bf16 n32 64x64 320->320 k3 s1 backward_data". Pads other than
 * conv_pads_same() appear behind the stride, as in " p0,1". */
enum { CONV_NAME_MAX = 160 };
void conv_pass_name(const ConvShape *shape, ConvPads pads, ConvPass pass, char name[CONV_NAME_MAX]);

/* The GPU that plans are made for: the GPU of `handle`, or a GPU that is absent and described by `record`. Exactly one
 * of the two members is set. */
typedef struct ConvTarget {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t record;
} ConvTarget;

/* For tests, which make plans without a GPU: makes a target from a record: JSON text in which cuDNN describes a GPU.
 * -EINVAL: cuDNN refuses the record. */
int conv_target_of_record(const char *record, ConvTarget *ret, Error *err);
/* For tests: destroys the target's record. The handle stays the caller's. */
void conv_target_close(ConvTarget *target);

typedef struct ConvGraph ConvGraph;

/* add: the old values of the result tensor are added to the sums before the sums are rounded. -EINVAL: cuDNN has no
 * graph for the shape. */
int conv_graph_new(const ConvTarget *target, const ConvShape *shape, ConvPads pads, ConvPass pass,
                   bool add, ConvGraph **ret, Error *err);
ConvGraph *conv_graph_free(ConvGraph *graph);
DEFINE_CLEANUP(ConvGraph, conv_graph_free)
const char *conv_graph_name(const ConvGraph *graph);
const ConvTarget *conv_graph_target(const ConvGraph *graph);
cudnnBackendDescriptor_t conv_graph_descriptor(const ConvGraph *graph);

enum { CONV_KNOBS_MAX = 64 };

/* The engine and the knobs that a plan set contains for an operation. */
typedef struct ConvChoice {
    int64_t engine;
    int n_knobs;
    struct {
        int type; /* cudnnBackendKnobType_t */
        int64_t value;
    } knobs[CONV_KNOBS_MAX];
} ConvChoice;

typedef struct ConvPlan ConvPlan;

/* Returns 1 if the engine is deterministic according to cuDNN's notes on its descriptor, 0 if its results may differ
 * between runs, or -errno. */
int conv_engine_is_deterministic(const ConvGraph *graph, cudnnBackendDescriptor_t engine,
                                 Error *err);

/* -EINVAL: cuDNN refuses the engine or a knob, or the engine is not deterministic according to cuDNN's notes. */
int conv_plan_new(const ConvGraph *graph, const ConvChoice *choice, ConvPlan **ret, Error *err);
ConvPlan *conv_plan_free(ConvPlan *plan);
DEFINE_CLEANUP(ConvPlan, conv_plan_free)
int64_t conv_plan_workspace_bytes(const ConvPlan *plan);

/* Runs the plan on the handle's stream. x, w and y are the input, the weight and the output of the convolution, or
 * their gradients; the pass writes the one of the three that it computes. */
int conv_plan_execute(const ConvPlan *plan, const void *x, const void *w, const void *y,
                      void *workspace, Error *err);

#ifdef __cplusplus
}
#endif
