/* SPDX-License-Identifier: Apache-2.0 */
/* rights.c - see rights.h. */
#include "controller/rights/rights.h"

#include "base/log.h"

#include <string.h>

enum { TICKS_A_LOOK = 5 }; /* ticks of two seconds between two requests */

/* The features that a leader can do without. The other kinds depend on each other, and every role has had them since
 * the first version. A kind of a later version gets a line here, and execute() checks its right. */
static const char *const without[KEY_KINDS] = {
    [KEY_SECRETS] = "worlds get no secret, so that their ranks prove nothing to each other",
    [KEY_EVALS] = "results of evaluations stay when their job goes",
    [KEY_ALERTS] = "nobody is paged, since what was told could not be noted",
};

static bool is_written(int kind)
{
    switch (kind) {
    case KEY_NODES:
    case KEY_HEALTH:
    case KEY_ASKS: /* only sdctl and nodes write these keys */
    case KEY_LINES:
    case KEY_PROGRAMS:
        return false;
    default:
        return true;
    }
}

const char *rights_without(KeyKind kind) { return without[kind]; }

bool rights_leave_out(const Rights *rights, KeyKind kind)
{
    return rights && without[kind] && !rights->may[kind];
}

/* Lists the denied kinds in rights->lacks and notifies the Leader, so that a user of sdctl need not search the
 * leader's log. */
static void introduce(Rights *rights)
{
    size_t used = 0;
    rights->lacks[0] = '\0';
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        const char *name = key_kind_name((KeyKind)kind);
        if (!rights->denied[kind] || used + strlen(name) + 2 > sizeof(rights->lacks))
            continue;
        used += (size_t)snprintf(rights->lacks + used, sizeof(rights->lacks) - used, "%s%s",
                                 used ? " " : "", name);
    }
    rights->changed(rights->userdata);
}

static void on_answer(int r, const Error *err, _unused_ const EtcdTxnResult *result, void *userdata)
{
    const RightsQuestion *q = userdata;
    Rights *rights = q->rights;
    const KeyKind kind = q->kind;
    rights->questions[kind].call = NULL; /* the call frees itself */
    if (r < 0 && r != -EACCES)
        return; /* the right stays unknown and is requested again later */
    const bool before = rights->denied[kind], denied = r < 0;
    rights->may[kind] = !denied;
    rights->denied[kind] = denied;
    if (denied == before)
        return;
    const char *name = key_kind_name(kind);
    if (!denied)
        log_info("this controller may write %s from now on", name);
    else if (without[kind])
        log_warning("%s: this controller may not write %s (%s); /usr/share/sdtrain/etcd-roles "
                    "gives the right",
                    without[kind], name, err->text);
    else
        log_error("what writes %s fails: this controller may not (%s); "
                  "/usr/share/sdtrain/etcd-roles gives the "
                  "right",
                  name, err->text);
    introduce(rights);
}

static void request_rights(Rights *rights, bool again)
{
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        RightsQuestion *q = &rights->questions[kind];
        char key[KEY_MAX];
        if (q->call || (rights->may[kind] && !again) || !is_written(kind))
            continue;
        *q = (RightsQuestion){.rights = rights, .kind = (KeyKind)kind};
        (void)key_of(rights->cluster, q->kind, ".rights", key); /* no job has that name */
        /* A request that fails is made again later. */
        (void)etcd_request_rights(rights->etcd, key, on_answer, q, &q->call);
    }
}

void rights_open(Rights *rights, Etcd *etcd, const char *cluster, RightsChanged changed,
                 void *userdata)
{
    *rights = (Rights){.etcd = etcd, .cluster = cluster, .changed = changed, .userdata = userdata};
    request_rights(rights, false);
}

void rights_clear(Rights *rights)
{
    for (int kind = 0; kind < KEY_KINDS; kind++)
        rights->questions[kind].call = etcd_call_free(rights->questions[kind].call);
}

void rights_tick(Rights *rights)
{
    bool all = true;
    rights->asked = false;
    for (int kind = 0; kind < KEY_KINDS; kind++)
        all = all && (rights->may[kind] || !is_written(kind));
    if (!all && ++rights->ticks % TICKS_A_LOOK == 0)
        request_rights(rights, false);
}

void rights_denied(Rights *rights)
{
    if (rights->asked)
        return;
    rights->asked = true;
    request_rights(rights, true);
}
