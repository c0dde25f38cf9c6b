/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - the level of a node's health, from the findings of its probes.
 *
 * Ownership: values; names and texts are the answer's own.
 * Units:     counts; *_usec are the caller's, as each field says.
 * Errors:    none; total.
 * Threads:   any; pure: no I/O, clock, memory or log.
 */
#pragma once

#include "health/probe.h"

enum { VERDICT_HANGS_ISOLATE = 2 };

/* The latest answer of one probe: metrics, records and people read it. */
typedef struct ProbeAnswer {
    const char *name;
    HealthLevel level;         /* the node's level by this probe, hangs and failures included */
    uint64_t bad_slots;        /* bit i: this probe takes slot i away */
    char text[PROBE_TEXT_MAX]; /* the worst finding; the probe's note when there is none */
    FaultCure cure;            /* of the worst finding */
    int n_findings;
    unsigned hangs;       /* runs in a row that did not answer in their time */
    unsigned failures;    /* runs in a row that could not find out */
    uint64_t at_usec;     /* boottime of the answer; 0: none yet */
    uint64_t since_usec;  /* realtime at which level or text changed last */
    uint64_t took_usec;   /* duration of the last run */
    HealthLevel findings; /* the worst level of the last findings, hangs and failures apart */
} ProbeAnswer;

/* Sets level, bad slots, text and cure from the findings. A fault of one GPU that isolates costs its
 * slot only, unless the node has no other slot left. */
void verdict_weigh(const ProbeFinding *findings, size_t n, int n_slots, ProbeAnswer *answer);

/* A probe that hangs once makes the node suspect; twice in a row isolates it, since a device that
 * blocks its own diagnosis is broken. A probe that cannot find out makes the node suspect. Both keep
 * the findings of the last answer. */
void verdict_note_hang(ProbeAnswer *answer);
void verdict_note_failure(ProbeAnswer *answer);

typedef struct Verdict {
    HealthLevel level;
    uint64_t bad_slots;
    int worst; /* index of the probe to quote; -1: nothing is wrong */
} Verdict;

/* The node is as bad as its worst probe. */
Verdict verdict_judge(const ProbeAnswer *answers, size_t n, int n_slots);
