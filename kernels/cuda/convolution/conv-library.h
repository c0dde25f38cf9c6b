/* SPDX-License-Identifier: Apache-2.0 */
/* conv-library.h - a convolution in bf16 by cuDNN, by the engines that the device's plans name.
 *
 * The same engine computes a pass whether it overwrites or adds to what lies there: an entry of the plans serves both.
 *
 * Ownership: conv_library_new() gives the caller the object, conv_library_free() accepts NULL. It borrows its device.
 * Units:     workspace in bytes.
 * Errors:    see conv_library_new(). A call that fails while it runs breaks the device.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

#include "kernels/cuda/convolution/conv-graph.h"
#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ConvLibrary ConvLibrary;

/* -ENOENT: the plans have no entry for a pass; -EINVAL: cuDNN refuses the entry, or it is not deterministic; both name
 * the operation. A device that makes plans gets an entry for each pass instead. */
int conv_library_new(Device *device, const ConvShape *shape, ConvLibrary **ret, Error *err);
ConvLibrary *conv_library_free(ConvLibrary *library);
size_t conv_library_workspace_bytes(const ConvLibrary *library);
/* The pass' name in the plans; NULL: they leave it to our own kernels, which the caller then calls. */
const char *conv_library_operation(const ConvLibrary *library, ConvPass pass);
/* x, w and y as conv_plan_execute() has them; add: the result is added to what lies there. */
void conv_library_run(const ConvLibrary *library, ConvPass pass, bool add, const void *x,
                      const void *w, const void *y, void *workspace);

#ifdef __cplusplus
}
#endif
