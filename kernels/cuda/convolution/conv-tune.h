/* SPDX-License-Identifier: Apache-2.0 */
/* conv-tune.h - the fastest of the deterministic engines that cuDNN proposes for a pass of a convolution.
 *
 * Ownership: borrows everything. Units: workspace in bytes. Threads: LANE_COMPUTE's.
 * Errors:    as tune.h. -EINVAL: no engine serves.
 */
#pragma once

#include "kernels/cuda/convolution/conv-graph.h"
#include "kernels/cuda/module/compute.h"

/* An entry serves the graph that overwrites, graphs[0], and the graph that adds, graphs[1], unless graphs[1] is
 * NULL. So a candidate makes plans of both graphs, and its time is that of both plans together. Adds an entry of the
 * operation to the plans, unless the plans have one. */
int conv_tune(CudaCompute *compute, const ConvShape *shape, ConvPass pass,
              ConvGraph *const graphs[2], Error *err);
