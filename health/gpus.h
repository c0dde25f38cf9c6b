/* gpus.h - which GPUs this machine has, and which slot each one is.
 *
 * Slot i is the i-th GPU in order of PCI address, among all that were seen since the boot: one that
 * falls off the bus does not move the others' slots.
 *
 * Ownership: values.
 * Units:     none.
 * Errors:    none: what can't be read is not there.
 * Threads:   any.
 */
#pragma once

#include "health/probe.h"
#include "health/xid.h"

typedef struct Gpu {
    char pci[PCI_ADDRESS_MAX], uuid[64], serial[32];
} Gpu;

typedef struct Gpus {
    Gpu gpus[PROBE_SLOTS_MAX]; /* by PCI address */
    size_t n;
} Gpus;

/* NVIDIA's display controllers in <sysfs>/bus/pci/devices; nothing touches the hardware. */
size_t gpus_list_pci(const char *sysfs, char ret[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX]);

/* The place of that address, made when it is new; -1 when there is no room. */
int gpus_place(Gpus *gpus, const char *pci);
int gpus_find(const Gpus *gpus, const char *pci); /* -1: unknown */

json_t *gpus_format(const Gpus *gpus); /* NULL: out of memory */
void gpus_parse(const json_t *list, Gpus *ret);
