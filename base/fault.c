/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - see fault.h. */
#include "base/fault.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAULTS_MAX = 16, SLOW_MSEC = 100 };

typedef enum FaultAction {
    FAULT_KILL,
    FAULT_STOP,
    FAULT_STALL,
    FAULT_SLOW,
    FAULT_ENOSPC,
    FAULT_EIO,
    FAULT_ENOMEM,
    FAULT_EFAULT,
    FAULT_EAGAIN
} FaultAction;

static const char *const action_name[] = {"kill", "stop",   "stall",  "slow",  "enospc",
                                          "eio",  "enomem", "efault", "eagain"};

typedef struct Fault {
    char point[64];
    FaultAction action;
    unsigned visit; /* the visit, counted from 1, at which the fault strikes; 0: every visit */
    atomic_uint visits;
} Fault;

static Fault faults[FAULTS_MAX];
static size_t n_faults;
static int (*lent_to)(const char *point);

void fault_lend(int (*visit)(const char *point)) { lent_to = visit; }

static int fault_parse(char *text, Fault *ret, Error *err)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof(ret->point))
        return error_set(err, -EINVAL, "SDTRAIN_FAULT: %s: expected point=action[@n]", text);
    *equals = '\0';

    unsigned visit = 1;
    char *at = strchr(equals + 1, '@');
    if (at) {
        *at = '\0';
        char *end = NULL;
        visit = strcmp(at + 1, "*") == 0 ? 0 : (unsigned)strtoul(at + 1, &end, 10);
        if (end && (*end != '\0' || visit == 0))
            return error_set(err, -EINVAL, "SDTRAIN_FAULT: %s: visit %s is not a count", text,
                             at + 1);
    }

    for (size_t i = 0; i < ELEMENTSOF(action_name); i++)
        if (strcmp(equals + 1, action_name[i]) == 0) {
            (void)snprintf(ret->point, sizeof(ret->point), "%s", text);
            ret->action = (FaultAction)i;
            ret->visit = visit;
            return 0;
        }
    return error_set(err, -EINVAL, "SDTRAIN_FAULT: %s: unknown action %s", text, equals + 1);
}

int fault_open(Error *err)
{
    const char *setting = getenv("SDTRAIN_FAULT");
    if (!setting || !*setting)
        return 0;

    _cleanup_free_ char *copy = memory_text(setting);

    size_t n = 0;
    char *save = NULL;
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        if (n == FAULTS_MAX)
            return error_set(err, -E2BIG, "SDTRAIN_FAULT: more than %d points", FAULTS_MAX);
        int r = fault_parse(one, &faults[n], err);
        if (r < 0)
            return r;
        n++;
    }
    n_faults = n;
    return 0;
}

static int fault_strike(const Fault *f)
{
    if (f->action != FAULT_SLOW) /* FAULT_SLOW is not logged: it may strike often */
        log_warning("fault point %s strikes: %s", f->point, action_name[f->action]);

    switch (f->action) {
    case FAULT_KILL:
        (void)kill(getpid(), SIGKILL); /* a process may always signal itself */
        return -EIO;
    case FAULT_STOP:
        (void)raise(SIGSTOP); /* a process may always signal itself */
        return 0;
    case FAULT_STALL:
        (void)sleep(3600); /* the stall is the purpose; an early return does no harm */
        return 0;
    case FAULT_SLOW:
        (void)usleep(SLOW_MSEC * 1000); /* a signal may shorten the sleep */
        return 0;
    case FAULT_ENOSPC:
        return -ENOSPC;
    case FAULT_EIO:
        return -EIO;
    case FAULT_ENOMEM:
        return -ENOMEM;
    case FAULT_EFAULT:
        return -EFAULT;
    case FAULT_EAGAIN:
        return -EAGAIN;
    }
    return 0;
}

int fault(const char *point)
{
    if (lent_to)
        return lent_to(point);
    for (size_t i = 0; i < n_faults; i++) {
        Fault *f = &faults[i];
        if (strcmp(f->point, point) != 0)
            continue;
        unsigned visit = atomic_fetch_add(&f->visits, 1) + 1;
        if (f->visit == 0 || f->visit == visit)
            return fault_strike(f);
    }
    return 0;
}
