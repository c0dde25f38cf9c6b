/* verdict.h - what the last answers of all probes mean for the node.
 *
 * Ownership: values.
 * Units:     counts.
 * Errors:    none; total.
 * Threads:   any; pure: no I/O, clock, memory or log.
 */
#pragma once

#include "health/probe.h"

enum { VERDICT_HANGS_ISOLATE = 2 };

typedef struct ProbeAnswer { /* the latest of one probe */
    HealthLevel level;       /* worst of its findings */
    unsigned hangs;          /* in a row: it did not answer in its time */
    unsigned failures;       /* in a row: it could not find out */
} ProbeAnswer;

/* A probe that hangs once is suspect, twice in a row isolates the node: a device that blocks its
 * own diagnosis is broken. A probe that cannot find out is suspect. The node is as bad as its worst
 * probe; ret_worst is the index of that one (undefined when the answer is HEALTH_OK). */
HealthLevel verdict_judge(const ProbeAnswer *answers, size_t n, size_t *ret_worst);
