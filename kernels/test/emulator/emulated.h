/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.h - a device whose operations are the CUDA kernels, run by the emulator (emulate.h); its memory and lanes
 * are the CPU's. For tests.
 *
 * Ownership: as kernels.h. Units: as kernels.h. Errors: as kernels.h.
 * Threads:   one device at a time in a process.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/test/emulator/mma-model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* options->type: DATA_F32 or DATA_BF16. */
int emulated_device_open(const DeviceOptions *options, Device **ret, Error *err);
/* The table whose open() is emulated_device_open(). */
const KernelsBackend *emulated_backend(void);
/* Sets the seed for the order of threads and blocks from now on: emulate::set_seed(). */
void emulated_device_seed(uint64_t seed);
/* Sets how long each launch of a kernel takes from now on, for a device that tunes. At first it is 0. */
void emulated_device_launch_usec(double usec);
/* Sets the model by which each mma rounds from now on. At first it is mma_model_card. */
void emulated_mma_model(const MmaModel *model);

#ifdef __cplusplus
}
#endif
