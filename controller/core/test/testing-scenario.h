/* SPDX-License-Identifier: Apache-2.0 */
/* testing-scenario.h - a golden trace while it runs: shared by test-cluster.c and the files that print its answers.
 *
 * Units: none. Threads: one.
 * Ownership: test-cluster.c owns the Scenario.
 * Errors:    anything that must not happen fails the test.
 */
#pragma once

#include "base/test/testing.h"
#include "controller/core/test/trace-runner.h"

enum { WORDS_MAX = 32, ANSWERS_BYTES = 1 << 16 };

typedef struct Scenario {
    TraceRunner *runner;
    ClusterConfig config;
    ClusterLimits limits;
    char answers[ANSWERS_BYTES]; /* the core's answers since the last command */
    size_t used;
    char *words[WORDS_MAX];
    int n_words;
    const char *file;
    int line;
} Scenario;

/* Appends to the answers. */
void say(Scenario *s, const char *format, ...) _printf_(2, 3);
void begin_line(Scenario *s);
/* A TraceWatcher that appends each decision to the answers; userdata is the Scenario. */
void say_decision(TraceRunner *runner, const Decision *d, void *userdata);
/* changed: index of the cause that the decision is about; -1: a cause has ended. */
void log_cordon(Scenario *s, const CordonRecord *record, int changed);
/* Appends `lead` and the figures of the cost meter, unless there are no prices. */
void say_cost(Scenario *s, const char *lead, const CostMeter *cost);
/* Appends the shares of goodput and of saves, as far as they are known. */
void say_shares(Scenario *s, const PhaseRecord *phase);
/* Appends the figures that metrics would show. */
void survey(Scenario *s);
/* Appends the fields of the store's records that the lines of decisions do not show. */
void show(Scenario *s);
