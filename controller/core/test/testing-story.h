/* SPDX-License-Identifier: Apache-2.0 */
/* testing-story.h - a golden trace while it is told: test-cluster.c and the words that it is long in.
 *
 * Ownership: test-cluster.c owns the Story.
 * Units:     none.
 * Errors:    what cannot be fails the test.
 * Threads:   one.
 */
#pragma once

#include "base/test/testing.h"
#include "controller/core/test/trace-runner.h"

enum { WORDS_MAX = 32, ANSWERS_BYTES = 1 << 16 };

typedef struct Story {
    TraceRunner *runner;
    ClusterConfig config;
    ClusterLimits limits;
    char answers[ANSWERS_BYTES]; /* since the last command */
    size_t used;
    char *words[WORDS_MAX];
    int n_words;
    const char *file;
    int line;
} Story;

/* Adds to the answers. */
void say(Story *s, const char *format, ...) _printf_(2, 3);
void begin_line(Story *s);
/* The TraceWatcher of a Story (userdata). */
void say_decision(TraceRunner *runner, const Decision *d, void *userdata);
/* changed: index of the cause that the decision is about; -1: one that has ended. */
void say_cordon(Story *s, const CordonRecord *record, int changed);
/* Adds the lead and the meter, unless there are no prices. */
void say_cost(Story *s, const char *lead, const CostMeter *cost);
/* Adds those of its goodput and of saves that are known. */
void say_shares(Story *s, const PhaseRecord *phase);
/* Adds the figures that metrics would show. */
void survey(Story *s);
/* Adds the fields of the store's records that the line of no decision tells. */
void show(Story *s);
