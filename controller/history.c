/* SPDX-License-Identifier: Apache-2.0 */
/* history.c - see history.h. */
#include "controller/history.h"

#include "base/log.h"
#include "base/message-id.h"

static void on_controller_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    log_event(LOG_LEVEL_ERROR, MESSAGE_HISTORY,
              "etcd has another history: revision %lld after %lld, cluster %llx after %llx; it was "
              "restored from a snapshot, or is another one. This controller begins anew",
              (long long)now->revision, (long long)was->revision, (unsigned long long)now->cluster,
              (unsigned long long)was->cluster);
    (void)sd_event_exit(userdata, -ERESTART); /* fails only when it is exiting already */
}

void begin_anew_with_another_history(Etcd *etcd, sd_event *event)
{
    etcd_set_history(etcd, (EtcdHistory){0}, on_controller_history, event);
}
