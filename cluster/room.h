/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - whether the file system has room for a job's next checkpoint, as one text that all programs show.
 *
 * Rank 0 measures the free space, and its node writes the value into progress/<job>. For S3 there is no such value.
 *
 * Ownership: texts are written into the caller's buffer; an advice is a static string.
 * Units:     bytes; 1 MB is 10^6, as `df -H` counts.
 */
#pragma once

#include "cluster/records.h"

enum { ROOM_TEXT_BYTES = 96 };

/* Returns true if there is too little room; *ret_advice then tells how to make room. Otherwise *ret_advice is NULL, and
 * the text is "" if the free space is unknown. */
bool room_describe(const ProgressRecord *progress, char ret[ROOM_TEXT_BYTES],
                   const char **ret_advice);
