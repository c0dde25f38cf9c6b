/* SPDX-License-Identifier: Apache-2.0 */
/* requester.c - see requester.h. */
#include "ctl/requester.h"

#include "base/text/printable.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the user's name; for a user who became root by sudo, the name before sudo. */
static const char *user_name(void)
{
    const char *before = geteuid() == 0 ? getenv("SUDO_USER") : NULL;
    const struct passwd *entry = before && *before ? NULL : getpwuid(geteuid());
    return before && *before ? before : entry ? entry->pw_name : "?";
}

const char *requester_text(char ret[RECORD_BY_MAX + 1])
{
    char host[HOST_NAME_MAX + 1] = "?";
    const char *etcd = getenv("SDTRAIN_ETCD_USER");
    if (gethostname(host, sizeof(host)) < 0)
        (void)snprintf(host, sizeof(host), "?");
    host[sizeof(host) - 1] = '\0';
    int n = snprintf(ret, RECORD_BY_MAX + 1, "%.31s@%.31s", user_name(), host);
    if (etcd && *etcd)
        (void)snprintf(ret + n, (size_t)(RECORD_BY_MAX + 1 - n), ", etcd user %.18s", etcd);
    printable_make(ret);
    return ret;
}
