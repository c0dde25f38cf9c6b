/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.h - the GPUs of this machine, and the slot of each.
 *
 * Slot i is the i-th GPU in order of PCI address, among all GPUs that were seen since the boot. So a GPU that falls
 * off the bus does not change the slots of the other GPUs.
 *
 * Ownership: values. Units: none. Threads: any.
 * Errors:    none: a GPU that cannot be read counts as absent.
 */
#pragma once

#include "health/probe.h"
#include "health/xid.h"

typedef struct Gpu {
    char pci[PCI_ADDRESS_MAX], uuid[64], serial[32];
} Gpu;

typedef struct Gpus {
    Gpu gpus[PROBE_SLOTS_MAX]; /* sorted by PCI address */
    size_t n;
} Gpus;

/* Lists NVIDIA's display controllers in <sysfs>/bus/pci/devices, without touching the hardware. */
size_t gpus_list_pci(const char *sysfs, char ret[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX]);

/* Returns the index of the GPU with that address, and adds the GPU if it is new; -1: no room. */
int gpus_place(Gpus *gpus, const char *pci);
int gpus_find(const Gpus *gpus, const char *pci); /* -1: unknown */

json_t *gpus_format(const Gpus *gpus); /* NULL: out of memory */
void gpus_parse(const json_t *list, Gpus *ret);
