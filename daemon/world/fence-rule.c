/* SPDX-License-Identifier: Apache-2.0 */
/* fence-rule.c - see fence-rule.h. */
#include "daemon/world/fence-rule.h"

bool fence_is_due(uint64_t now_usec, uint64_t contact_usec, uint64_t fence_usec,
                  uint64_t stood_still_usec)
{
    return stood_still_usec == 0 && now_usec > contact_usec && now_usec - contact_usec > fence_usec;
}
