/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - finds and opens the shared object that holds the CUDA backend.
 *
 * A node without a GPU needs no CUDA library: libsdtrain-cuda.so is opened when the first CUDA device is.
 * It lies beside the program, in ../lib/sdtrain from there, or where SDTRAIN_CUDA_MODULE says. Once it is
 * open it stays: what it registered with the driver must not be unmapped.
 *
 * Ownership: the table is the module's, and stays valid.
 * Units:     none.
 * Errors:    -ENODEV with all names that were tried and the loader's reason for each; -EPROTO for a file
 *            that is not a backend, or one of another version.
 * Threads:   one at a time.
 */
#pragma once

#include "kernels/backend.h"

int kernels_module_open(const KernelsBackend **ret, Error *err);
