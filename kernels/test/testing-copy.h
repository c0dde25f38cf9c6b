/* SPDX-License-Identifier: Apache-2.0 */
/* testing-copy.h - for tests: copies device memory to the host, and changes it.
 *
 * Units: bytes. Threads: LANE_COMPUTE's.
 * Ownership: device_copy_of() gives the caller memory to free().
 * Errors:    without memory the process ends.
 */
#pragma once

#include "base/memory.h"
#include "kernels/kernels.h"

/* Returns a copy of device memory after all work queued on LANE_COMPUTE. */
static inline void *device_copy_of(Device *device, const void *from, size_t n_bytes)
{
    void *copy = memory_given(malloc(MAX(n_bytes, (size_t)1)));
    device_download(device, copy, from, n_bytes);
    return copy;
}

/* Changes one bit of a word in device memory. */
static inline void device_flip(Device *device, uint32_t *word)
{
    uint32_t value;
    device_download(device, &value, word, sizeof(value));
    value ^= 1;
    device_upload(device, word, &value, sizeof(value));
}
