/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.h - the GPUs of this machine, as NVIDIA's driver lists them in /proc.
 *
 * Ownership: the caller's array. Units: none. Threads: any.
 * Errors:    -errno with a text; -ENOENT: the driver is not loaded.
 */
#pragma once

#include "base/error.h"

enum { EXEC_GPUS_MAX = 64, EXEC_UUID_MAX = 41 };

typedef struct ExecGpus {
    char uuid[EXEC_GPUS_MAX][EXEC_UUID_MAX]; /* in the order of PCI addresses */
    int n;
} ExecGpus;

/* Reads <folder>/<PCI address>/information of each GPU. folder: /proc/driver/nvidia/gpus. */
int exec_find_gpus(const char *folder, ExecGpus *ret, Error *err);
/* Writes the UUIDs of n GPUs from `first` on, separated by commas. ret has n * EXEC_UUID_MAX bytes. */
void exec_write_gpus(const ExecGpus *gpus, int first, int n, char *ret);
/* Writes the UUIDs of the GPUs of `list`, which has PCI addresses such as 0000:3b:00, or UUIDs, separated by commas.
 * only: the place of the one GPU that is wanted; -1: all of them. */
int exec_name_gpus(const char *folder, const char *list, int only, char *ret, size_t size,
                   Error *err);
