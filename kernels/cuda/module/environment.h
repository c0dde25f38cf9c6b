/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - removes the variables by which a shell would change bits or the choice of a GPU.
 *
 * NVIDIA's driver and libraries read variables: with NVIDIA_TF32_OVERRIDE they compute fp32 products in 10 bits of
 * mantissa, with NVRTC_APPEND_FLAGS they compile cuDNN's engines with other flags, and CUDA_VISIBLE_DEVICES and
 * CUDA_DEVICE_ORDER renumber the GPUs. One node with such a variable would train with other bits than its peers. A job
 * needs none of them: its own file contains its settings.
 *
 * Variables that make a fault easier to find and change no bit are kept: CUDA_LAUNCH_BLOCKING, CUDA_COREDUMP_*,
 * CUDA_CACHE_PATH, and the variables of cuDNN's and cuBLASLt's logs.
 *
 * Ownership: none. Errors: none.
 * Threads:   one, before the first call of the driver and before the first library is opened. A thread that calls
 *            getenv() at that moment may miss a variable, but reads no freed memory; of the trainer's threads only the
 *            S3 client's call getenv(), for proxies.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Removes the variables, and logs a warning with the name and the value of each. Also logs a warning for each variable
 * of a library's log, which is kept. Each variable is logged only once. */
void cuda_environment_clear(void);

#ifdef __cplusplus
}
#endif
