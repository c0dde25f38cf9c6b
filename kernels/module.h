/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - finds and opens the shared object that contains the CUDA backend.
 *
 * A node without a GPU needs no CUDA library: libsdtrain-cuda.so is opened together with the first CUDA device. It is
 * beside the program, in ../lib/sdtrain from there, or at the path in SDTRAIN_CUDA_MODULE. It is never closed, because
 * the memory that it has registered with the driver must not be unmapped.
 *
 * Units: none. Threads: one at a time.
 * Ownership: the table is the module's, and stays valid.
 * Errors:    -ENODEV with all names that were tried and the loader's reason for each; -EPROTO for a file that is not a
 *            backend, or is a backend of another version.
 */
#pragma once

#include "kernels/backend.h"

int kernels_module_open(const KernelsBackend **ret, Error *err);
