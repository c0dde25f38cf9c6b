/* SPDX-License-Identifier: Apache-2.0 */
/* shared-memory.h - removes what killed programs have left in /dev/shm.
 *
 * A program that is killed cannot unlink its segments and semaphores: their memory stays in use, and the next start
 * fails where a library creates them under the same names ("File exists"). A file there is a leftover if it belongs
 * to this user, was made after the last start in this slot, and no living process has it open or mapped.
 *
 * Ownership: none. Units: files.
 * Errors:    -errno with a text.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

/* Removes the leftovers in `folder` (/dev/shm) since shared_memory_note() wrote the list. Returns their number; 0
 * also if there is no list. */
int shared_memory_clear(const char *folder, const char *list, Error *err);
/* Writes the names of all files in `folder` to the file `list`. */
int shared_memory_note(const char *folder, const char *list, Error *err);
