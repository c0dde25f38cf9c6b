/* SPDX-License-Identifier: Apache-2.0 */
/* attention-library.h - an attention in bf16, computed by cuDNN with the engines that the device's plans name.
 *
 * Ownership: attention_library_new() gives the caller a share of the object for the shape, which
 *            attention_library_free() releases; attention_library_free() accepts NULL. The object borrows its device.
 * Units:     bytes.
 * Errors:    see attention_library_new(). A call that fails while it runs breaks the device.
 */
#pragma once

#include "kernels/cuda/module/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttentionLibrary AttentionLibrary;

/* *ret is NULL where the plans leave the shape to our own kernels, because cuDNN refused the shape when the plans were
 * made or was slower than attention-tile.h. Call the function only where cuda_compute_begin() has returned 1. -ENOENT:
 * the plans have no entry for a pass. -EINVAL: cuDNN refuses the entry, its engine is not deterministic, or the plans
 * leave only one of the two passes to our own kernels. All texts name the operation. A device that makes plans adds the
 * missing entries instead, including those for our own kernels. */
int attention_library_new(Device *device, const AttentionShape *shape, AttentionLibrary **ret,
                          Error *err);
AttentionLibrary *attention_library_free(AttentionLibrary *library);
size_t attention_library_workspace_bytes(const AttentionLibrary *library);
size_t attention_library_saved_bytes(const AttentionLibrary *library);
/* As attention_plan_text() of kernels.h. */
void attention_library_plan_text(const AttentionLibrary *library, KernelPass pass, char *text,
                                 size_t size);
/* As attention_forward() and attention_backward() of kernels.h. */
void attention_library_forward(AttentionLibrary *library, const void *q, const void *k,
                               const void *v, void *out, void *saved, void *workspace);
void attention_library_backward(AttentionLibrary *library, const void *q, const void *k,
                                const void *v, const void *out, const void *saved, const void *dout,
                                void *dq, void *dk, void *dv, void *workspace);

#ifdef __cplusplus
}
#endif
