/* SPDX-License-Identifier: Apache-2.0 */
/* testing-orphans.h - real processes with and without marks for the tests of orphans.c, and a clock, a cgroup, a poll
 * and a SIGKILL that do what the test says.
 *
 * A program that links testing-orphans.c wraps clock_boottime_usec(), nanosleep(), open(), poll(), cgroup_destroy(),
 * syscall() and kill(). None of them ends a process that the test has not begun: the program ends first.
 *
 * Ownership: finish() and expect_killed() reap what begin() has begun.
 * Units:     microseconds.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "base/test/testing.h"
#include "daemon/process/orphans.h"

/* The state of the fakes that stand between the code and the system; shared with children. */
typedef struct Fake {
    uint64_t late_usec;    /* the clock is ahead */
    uint64_t destroy_usec; /* the end of the cgroups takes so long */
    int destroys[64];      /* what each end of the cgroups says */
    int n_destroys;
    bool nobody_dies; /* SIGKILL is late, and no poll sees an end */
    int n_kills;
    int n_polls;       /* for the end of what was killed */
    int seen_environs; /* so often an environment is seen before it is empty, as in an exec; 0: ever */
    int ends_at_pause; /* at that pause the child `ends` gets SIGKILL */
    pid_t ends;
    int n_pauses;
    pid_t test;
} Fake;

extern Fake *fake;
extern char run_dir[64], other_dir[64]; /* the second begins as the first */
extern const CgroupBase no_cgroups;

/* To be called first; `test` is the process below which anything may be ended. */
void orphans_begin(pid_t test);
int orphans_set_up(void **state);
int orphans_tear_down(void **state);

/* Begins a shell that waits for its input, which the test holds, with that mark ("": none); uid 0: of this user. */
pid_t begin(const char *mark, bool own_session, uid_t uid);
pid_t begin_marked(const char *of, int slot);
bool lives(pid_t pid);
/* It was killed; and is reaped. */
void expect_killed(pid_t pid);
/* Ends what lives. */
void finish(pid_t pid);

/* Keeps what is written on standard error, until end_log(), which says how often it has that text. */
void begin_log(void);
int end_log(const char *text);
/* How often the log that ended last has it. */
int n_in_log(const char *text);
