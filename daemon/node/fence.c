/* SPDX-License-Identifier: Apache-2.0 */
/* fence.c - see fence.h. */
#include "daemon/node/fence.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message-id.h"
#include "daemon/node/manager.h"
#include "daemon/world/fence-rule.h"

void fence_note_contact(Fence *fence)
{
    fence->contact_usec = clock_boottime_usec();
    fence->fenced = false;
}

void fence_check(Manager *m, uint64_t now_usec, uint64_t stood_still_usec)
{
    uint64_t fence_usec = (uint64_t)m->needs.config->fence_sec * USEC_PER_SEC;
    if (m->fence.fenced ||
        !fence_is_due(now_usec, m->fence.contact_usec, fence_usec, stood_still_usec))
        return;
    m->fence.fenced = true;
    m->events.fenced(m->events.userdata);
    log_event(LOG_LEVEL_ERROR, MESSAGE_FENCED,
              "no word from etcd for %lld s (fence_sec): stopping what runs here NODE=%s",
              (long long)m->needs.config->fence_sec, m->needs.config->node);
    workload_kill_all(&m->workload, "no word from etcd for fence_sec");
}
