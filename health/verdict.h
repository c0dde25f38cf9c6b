/* verdict.h - what the findings of a probe mean for the node, and what all probes together do.
 *
 * Ownership: values; names and texts are the answer's own.
 * Units:     counts; *_usec as the caller counts.
 * Errors:    none; total.
 * Threads:   any; pure: no I/O, clock, memory or log.
 */
#pragma once

#include "health/probe.h"

enum { VERDICT_HANGS_ISOLATE = 2 };

/* The latest of one probe: what metrics, records and people read. */
typedef struct ProbeAnswer {
    const char *name;
    HealthLevel level;         /* of the node, by this probe; with hangs and failures */
    uint64_t bad_slots;        /* slots that this probe takes away */
    char text[PROBE_TEXT_MAX]; /* the worst finding, or what the probe has to say */
    FaultCure cure;            /* of the worst finding */
    int n_findings;
    unsigned hangs;       /* in a row: it did not answer in its time */
    unsigned failures;    /* in a row: it could not find out */
    uint64_t at_usec;     /* boottime of the answer; 0: none yet */
    uint64_t since_usec;  /* realtime: when level or text became what they are */
    uint64_t took_usec;   /* of the last run */
    HealthLevel findings; /* the worst of what it found last, without hangs and failures */
} ProbeAnswer;

/* Takes over level, bad slots and the worst text of the findings. A fault of one GPU that isolates
 * loses its slot alone, unless the node has no other left. */
void verdict_weigh(const ProbeFinding *findings, size_t n, int n_slots, ProbeAnswer *answer);

/* A probe that hangs once is suspect, twice in a row isolates the node: a device that blocks its
 * own diagnosis is broken. A probe that cannot find out is suspect. Either keeps what it found
 * before. */
void verdict_note_hang(ProbeAnswer *answer);
void verdict_note_failure(ProbeAnswer *answer);

typedef struct Verdict {
    HealthLevel level;
    uint64_t bad_slots;
    int worst; /* index of the probe to quote; -1: nothing is wrong */
} Verdict;

/* The node is as bad as its worst probe. */
Verdict verdict_judge(const ProbeAnswer *answers, size_t n, int n_slots);
