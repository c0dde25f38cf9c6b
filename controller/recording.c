/* SPDX-License-Identifier: Apache-2.0 */
/* recording.c - see recording.h. */
#include "controller/recording.h"

#include "base/log.h"

#include <stdio.h>

int recording_open(const ControllerConfig *config, const ClusterLimits *limits,
                   const ClusterConfig *core, Journal **ret, Error *err)
{
    char path[CONFIG_PATH_MAX + 16];
    if (!config_record(config, path, sizeof(path)))
        return 0;
    JournalHead head = {.config = *core, .limits = *limits};
    (void)snprintf(head.cluster, sizeof(head.cluster), "%s", config->cluster);
    (void)snprintf(head.version, sizeof(head.version), "%s", SDTRAIN_VERSION);
    int r = journal_new(path, (uint64_t)config->record_mib << 20, &head, ret, err);
    if (r == 0 || config->record[0])
        return r;
    log_warning("%s; events are not recorded", err->text); /* the settings do not name a journal */
    return 0;
}
