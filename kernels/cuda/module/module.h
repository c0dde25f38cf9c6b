/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - the table of the CUDA backend.
 *
 * Folder:    defaults of the headers here: Units: none.
 * Ownership: static. Errors: none. Threads: any.
 */
#pragma once

#include "kernels/backend.h"

extern const KernelsBackend cuda_backend;
