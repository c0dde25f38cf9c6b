/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-environment.c - see trainer-environment.h. */
#include "daemon/world/trainer-environment.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "daemon/process/orphans.h"
#include "protocol/channel.h"

#include <string.h>

/* The number of entries that every trainer gets: mark, slot, channel, OMP, paths read, paths written, end of the
 * list. */
enum { OWN_MAX = 7 };

static char *paths_variable(const char *name, json_t *prefixes)
{
    _cleanup_free_ char *text = json_dumps(prefixes, JSON_COMPACT);
    assert(text); /* valid: the configuration's own JSON */
    return memory_format("%s=%s", name, text);
}

static bool begins_as_one(const char *variable, const char *const *list)
{
    for (; *list; list++)
        if (strncmp(variable, *list, strlen(*list)) == 0)
            return true;
    return false;
}

char **trainer_environment_new(char *const *ours, const DaemonConfig *config, int slot)
{
    static const char *const dropped[] = {"SDTRAIN_", "NOTIFY_SOCKET=",  "WATCHDOG_",
                                          "LISTEN_",  "JOURNAL_STREAM=", "INVOCATION_ID=",
                                          "MAINPID=", "OMP_DYNAMIC=",    "CREDENTIALS_DIRECTORY=",
                                          NULL};
    static const char *const kept[] = {"SDTRAIN_LOG=", "SDTRAIN_S3_", NULL};
    size_t n_ours = 0, n = 0;
    while (ours[n_ours])
        n_ours++;
    char **list = memory_zeroed(n_ours + CONFIG_ENVIRONMENT_MAX + OWN_MAX, sizeof(*list));
    for (char *const *one = ours; *one; one++)
        if (!begins_as_one(*one, dropped) || begins_as_one(*one, kept))
            list[n++] = memory_text(*one);
    if (slot >= 0) {
        char mark[600];
        orphans_owner_tag(mark, sizeof(mark), config->run_dir, slot);
        list[n++] = memory_text(mark);
        list[n++] = memory_format("SDTRAIN_SLOT=%d", slot);
        list[n++] = memory_text("SDTRAIN_CHANNEL=3");
    }
    list[n++] = memory_text("OMP_DYNAMIC=false");
    if (config->paths_read)
        list[n++] = paths_variable(PATHS_READ_VARIABLE, config->paths_read);
    if (config->paths_write)
        list[n++] = paths_variable(PATHS_WRITE_VARIABLE, config->paths_write);
    size_t i;
    json_t *extra;
    json_array_foreach (config->trainer_environment, i, extra)
        list[n++] = memory_text(json_string_value(extra));
    return list;
}

void trainer_environment_freep(char ***list)
{
    for (char **one = *list; *one; one++)
        free(*one);
    free(*list);
}
