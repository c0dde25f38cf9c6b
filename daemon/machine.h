/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - facts about this machine: its boot id and its memory.
 *
 * Ownership: none. Units: bytes. Errors: -errno with text. Threads: any.
 */
#pragma once

#include "base/error.h"

enum { MACHINE_BOOT_ID_BYTES = 37 };

int machine_read_boot_id(char ret[MACHINE_BOOT_ID_BYTES], Error *err);
/* Returns the bytes of memory and swap; 0: unknown. */
uint64_t machine_memory_bytes(void);
