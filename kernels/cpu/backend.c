/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - the table of the CPU's functions. */
#include "kernels/cpu/device.h"

#define CPU_MEMBER(name) .name = cpu_##name,

const KernelsBackend cpu_backend = {.interface = KERNELS_INTERFACE,
                                    .open = cpu_device_open,
                                    KERNELS_OPERATIONS(CPU_MEMBER)};
