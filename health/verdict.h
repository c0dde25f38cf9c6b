/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - judges the level of a node's health from the findings of its probes.
 *
 * Ownership: values; names and texts are the answer's own.
 * Units:     counts; *_usec are the caller's, as each field says.
 * Errors:    none.
 * Threads:   any; pure: no I/O, clock, memory or log.
 */
#pragma once

#include "health/probe.h"

enum { VERDICT_HANGS_ISOLATE = 2 };

/* The latest answer of one probe, for metrics, records and people. */
typedef struct ProbeAnswer {
    const char *name;
    HealthLevel level;         /* the node's level by this probe, hangs and failures included */
    uint64_t bad_slots;        /* bit i: this probe makes slot i unusable */
    char text[PROBE_TEXT_MAX]; /* the worst finding; the probe's note when there is none */
    FaultCure cure;            /* cure for the worst finding */
    int n_findings;
    unsigned hangs;       /* runs in a row that exceeded their timeout */
    unsigned failures;    /* runs in a row that could not do the check */
    uint64_t at_usec;     /* boottime of the answer; 0: none yet */
    uint64_t since_usec;  /* realtime at which level or bad_slots changed last */
    uint64_t took_usec;   /* duration of the last run */
    HealthLevel findings; /* the worst level of the last findings, without hangs and failures */
} ProbeAnswer;

/* Sets level, bad slots, text and cure from the findings. A fault that isolates one GPU makes only the GPU's slot
 * unusable, unless the node has no other slot left. */
void verdict_weigh(const ProbeFinding *findings, size_t n, int n_slots, ProbeAnswer *answer);

/* A probe that hangs once makes the node suspect; a second hang in a row isolates the node, since a device that
 * blocks its own diagnosis is broken. A probe that cannot do its check makes the node suspect. Both functions keep
 * the findings of the last answer. */
void verdict_note_hang(ProbeAnswer *answer);
void verdict_note_failure(ProbeAnswer *answer);

typedef struct Verdict {
    HealthLevel level;
    uint64_t bad_slots;
    int worst; /* index of the probe to quote; -1: nothing is wrong */
} Verdict;

/* Judges the node, which is as bad as its worst probe. */
Verdict verdict_judge(const ProbeAnswer *answers, size_t n, int n_slots);
