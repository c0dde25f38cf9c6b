/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-environment.c - see trainer-environment.h. */
#include "daemon/world/trainer-environment.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "daemon/process/orphans.h"
#include "protocol/channel.h"
#include "protocol/exec-variables.h"

#include <string.h>

/* The number of entries that every rank gets at most: mark, slot, channel, OMP, paths read, paths written, end of the
 * list. */
enum { OWN_MAX = 7 };

static char *paths_variable(const char *name, json_t *prefixes)
{
    _cleanup_free_ char *text = json_dumps(prefixes, JSON_COMPACT);
    assert(text); /* the configuration was parsed as JSON, so this cannot fail */
    return memory_format("%s=%s", name, text);
}

static bool begins_as_one(const char *variable, const char *const *list)
{
    for (; *list; list++)
        if (strncmp(variable, *list, strlen(*list)) == 0)
            return true;
    return false;
}

static size_t count(char *const *list)
{
    size_t n = 0;
    while (list[n])
        n++;
    return n;
}

static void add_slot(char **list, size_t *n, const DaemonConfig *config, int slot)
{
    char mark[600];
    orphans_owner_tag(mark, sizeof(mark), config->run_dir, slot);
    list[(*n)++] = memory_text(mark);
    list[(*n)++] = memory_format("SDTRAIN_SLOT=%d", slot);
    list[(*n)++] = memory_text("SDTRAIN_CHANNEL=3");
}

static void add_extra(char **list, size_t *n, const DaemonConfig *config)
{
    size_t i;
    json_t *extra;
    json_array_foreach (config->trainer_environment, i, extra)
        list[(*n)++] = memory_text(json_string_value(extra));
}

char **runner_environment_new(char *const *ours, const DaemonConfig *config, int slot)
{
    static const char *const kept[] = {"SDTRAIN_LOG=", NULL};
    size_t n = 0;
    char **list = memory_zeroed(count(ours) + CONFIG_ENVIRONMENT_MAX + OWN_MAX, sizeof(*list));
    for (char *const *one = ours; *one; one++)
        if (begins_as_one(*one, kept))
            list[n++] = memory_text(*one);
    add_slot(list, &n, config, slot);
    list[n++] = memory_format("%s=%s/exec", EXEC_DIR_VARIABLE, config->state_dir);
    list[n++] = memory_format("%s=%s", EXEC_SECRETS_VARIABLE, config->exec_secrets);
    add_extra(list, &n, config);
    return list;
}

char **trainer_environment_new(char *const *ours, const DaemonConfig *config, int slot)
{
    static const char *const dropped[] = {"SDTRAIN_", "NOTIFY_SOCKET=",  "WATCHDOG_",
                                          "LISTEN_",  "JOURNAL_STREAM=", "INVOCATION_ID=",
                                          "MAINPID=", "OMP_DYNAMIC=",    "CREDENTIALS_DIRECTORY=",
                                          NULL};
    static const char *const kept[] = {"SDTRAIN_LOG=", "SDTRAIN_S3_", NULL};
    size_t n = 0;
    char **list = memory_zeroed(count(ours) + CONFIG_ENVIRONMENT_MAX + OWN_MAX, sizeof(*list));
    for (char *const *one = ours; *one; one++)
        if (!begins_as_one(*one, dropped) || begins_as_one(*one, kept))
            list[n++] = memory_text(*one);
    if (slot >= 0)
        add_slot(list, &n, config, slot);
    list[n++] = memory_text("OMP_DYNAMIC=false");
    if (config->paths_read)
        list[n++] = paths_variable(PATHS_READ_VARIABLE, config->paths_read);
    if (config->paths_write)
        list[n++] = paths_variable(PATHS_WRITE_VARIABLE, config->paths_write);
    add_extra(list, &n, config);
    return list;
}

void trainer_environment_freep(char ***list)
{
    for (char **one = *list; *one; one++)
        free(*one);
    free(*list);
}
