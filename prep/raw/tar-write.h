/* SPDX-License-Identifier: Apache-2.0 */
/* tar-write.h - builds a tar in memory in the form of WebDataset: ustar, mode 0444, without times and owners.
 *
 * Ownership: a TarWriter starts zeroed, and tar_writer_clear() frees its memory; tar_writer_add() copies the data.
 * Units:     bytes.
 * Errors:    -EINVAL a name that ustar cannot hold; -EFBIG a member beyond 8 GiB; -ENOMEM.
 * Source:    POSIX.1-2017, pax, "ustar Interchange Format".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { TAR_NAME_MAX = 100 };

typedef struct TarWriter {
    char *data;
    size_t n_bytes, room;
} TarWriter;

int tar_writer_add(TarWriter *tar, const char *name, const void *data, size_t n_bytes);
/* Adds the two empty blocks that end a tar. */
int tar_writer_finish(TarWriter *tar);
/* Begins a new tar in the same memory. */
void tar_writer_reset(TarWriter *tar);
void tar_writer_clear(TarWriter *tar);
