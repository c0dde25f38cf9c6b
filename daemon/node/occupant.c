/* SPDX-License-Identifier: Apache-2.0 */
/* occupant.c - see occupant.h. */
#include "daemon/node/occupant.h"

Occupant occupant_judge(const OccupantFacts *facts)
{
    const bool holds = facts->own_lease != 0 && facts->held_lease == facts->own_lease;
    const bool is_on_ours = facts->own_lease != 0 && facts->lease == facts->own_lease;
    if (is_on_ours && facts->has_our_words)
        return OCCUPANT_OURS;
    if (holds)
        return OCCUPANT_STRANGER;
    /* A record on our new lease, which we have not put, is from a client that keeps no lease alive. A record on a
     * lease that we have lost will expire soon. */
    if (facts->lease == 0 || is_on_ours || facts->lease == facts->held_lease)
        return OCCUPANT_NOBODY;
    if (facts->lease == facts->last_lease)
        return OCCUPANT_LAST_LIFE;
    return OCCUPANT_HOLDER;
}
