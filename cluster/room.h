/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - whether a job's next checkpoint has room where it goes, in the same words wherever it is shown.
 *
 * Rank 0 measures it, and its node writes it into progress/<job>. A file system tells; S3 does not.
 *
 * Ownership: texts go into the caller's; an advice is a text of the program.
 * Units:     bytes; 1 MB is 10^6, as `df -H` counts.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

enum { ROOM_TEXT_BYTES = 96 };

/* true: there is too little, and *ret_advice says what makes room. Else it is NULL, and the text "" if nobody told. */
bool room_describe(const ProgressRecord *progress, char ret[ROOM_TEXT_BYTES],
                   const char **ret_advice);
