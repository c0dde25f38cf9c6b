/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - what this machine says of itself.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    -errno with text.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

enum { MACHINE_BOOT_ID_BYTES = 37 };

int machine_read_boot_id(char ret[MACHINE_BOOT_ID_BYTES], Error *err);
/* Memory and swap. 0: nobody knows. */
uint64_t machine_memory_bytes(void);
