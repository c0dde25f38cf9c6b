/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - the table of the CUDA backend, and what the program lent it.
 *
 * Ownership: static.
 * Units:     none.
 * Errors:    none.
 * Threads:   any, after the module was entered.
 */
#pragma once

#include "kernels/backend.h"

extern const KernelsBackend cuda_backend;
extern KernelsHost cuda_host;
