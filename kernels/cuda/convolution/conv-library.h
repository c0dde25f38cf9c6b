/* SPDX-License-Identifier: Apache-2.0 */
/* conv-library.h - a convolution in bf16, computed by cuDNN with the engines that the device's plans name.
 *
 * The same engine computes a pass whether the pass overwrites its result or adds to it: one entry of the plans serves
 * both.
 *
 * Units: workspace in bytes. Threads: LANE_COMPUTE's.
 * Ownership: conv_library_new() gives the caller the object, conv_library_free() accepts NULL. The object borrows its
 *            device.
 * Errors:    see conv_library_new(). A call that fails while it runs breaks the device.
 */
#pragma once

#include "kernels/cuda/convolution/conv-graph.h"
#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ConvLibrary ConvLibrary;

/* -ENOENT: the plans have no entry for a pass; -EINVAL: cuDNN refuses the entry, or its engine is not deterministic;
 * both texts name the operation. A device that makes plans adds a missing entry instead. */
int conv_library_new(Device *device, const ConvShape *shape, ConvLibrary **ret, Error *err);
ConvLibrary *conv_library_free(ConvLibrary *library);
size_t conv_library_workspace_bytes(const ConvLibrary *library);
/* Returns the pass' name in the plans, or NULL if the plans leave the pass to our own kernels, which the caller then
 * calls. */
const char *conv_library_operation(const ConvLibrary *library, ConvPass pass);
/* x, w and y are those of conv_plan_execute(). add: the result is added to the old values of the result tensor. */
void conv_library_run(const ConvLibrary *library, ConvPass pass, bool add, const void *x,
                      const void *w, const void *y, void *workspace);

#ifdef __cplusplus
}
#endif
