/* SPDX-License-Identifier: Apache-2.0 */
/* tenant.c - see tenant.h. */
#include "daemon/node/tenant.h"

Tenant tenant_judge(const TenantFacts *facts)
{
    const bool holds = facts->own_lease != 0 && facts->held_lease == facts->own_lease;
    const bool is_on_ours = facts->own_lease != 0 && facts->lease == facts->own_lease;
    if (is_on_ours && facts->has_our_words)
        return TENANT_OURS;
    if (holds)
        return TENANT_STRANGER;
    /* A record on our new lease is of somebody who has no lease; one on a lease that we have lost is about to go. */
    if (facts->lease == 0 || is_on_ours || facts->lease == facts->held_lease)
        return TENANT_NOBODY;
    if (facts->lease == facts->last_lease)
        return TENANT_LAST_LIFE;
    return TENANT_HOLDER;
}
