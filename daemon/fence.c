/* fence.c - see fence.h. */
#include "daemon/fence.h"

#include "base/log.h"
#include "base/message-id.h"
#include "daemon/manager.h"

void fence_check(Manager *m, uint64_t now_usec, uint64_t stood_still_usec)
{
    uint64_t fence_usec = (uint64_t)m->config.fence_sec * USEC_PER_SEC;
    if (m->fenced || !fence_is_due(now_usec, m->contact_usec, fence_usec, stood_still_usec))
        return;
    m->fenced = true;
    daemon_metrics_note_fence(m);
    log_event(LOG_LEVEL_ERROR, MESSAGE_FENCED,
              "no word from etcd for %lld s (fence_sec): stopping what runs here NODE=%s",
              (long long)m->config.fence_sec, m->config.node);
    workload_kill_all(&m->workload, "no word from etcd for fence_sec");
}
