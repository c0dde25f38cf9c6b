/* SPDX-License-Identifier: Apache-2.0 */
/* testing-orphans.h - for the tests of orphans.c: real processes with and without marks, and a fake clock, cgroup,
 * poll() and SIGKILL.
 *
 * A program that links testing-orphans.c wraps clock_boottime_usec(), nanosleep(), open(), poll(), cgroup_destroy(),
 * syscall() and kill(). No wrapper ends a process that the test has not started: the program ends first.
 *
 * Units: microseconds. Threads: main thread only.
 * Ownership: finish() and expect_killed() reap the processes that begin() has started.
 * Errors:    none: a failure ends the test.
 */
#pragma once

#include "base/test/testing.h"
#include "daemon/process/orphans.h"

/* The state of the fakes that stand between the code and the system; shared with children. */
typedef struct Fake {
    uint64_t late_usec;    /* how far the clock is ahead */
    uint64_t destroy_usec; /* duration of each cgroup_destroy() */
    int destroys[64];      /* results of the calls of cgroup_destroy() */
    int n_destroys;
    bool nobody_dies; /* SIGKILL has no effect yet, and poll() sees no end */
    int n_kills;
    int n_polls;       /* polls for the end of killed processes */
    int seen_environs; /* from this read on an environment is empty, as in an exec; 0: never */
    int ends_at_pause; /* at this pause the child `ends` gets SIGKILL */
    pid_t ends;
    int n_pauses;
    pid_t test;
} Fake;

extern Fake *fake;
extern char run_dir[64], other_dir[64]; /* the name of other_dir begins with that of run_dir */
extern const CgroupBase no_cgroups;

/* Must be called first. test: the process whose descendants may be killed. */
void orphans_begin(pid_t test);
int orphans_set_up(void **state);
int orphans_tear_down(void **state);

/* Starts a shell with that mark ("": none), which waits for input from the test; uid 0: as this user. */
pid_t begin(const char *mark, bool own_session, uid_t uid);
pid_t begin_marked(const char *of, int slot);
bool lives(pid_t pid);
/* Checks that the process was killed by SIGKILL, and reaps it. */
void expect_killed(pid_t pid);
/* Kills and reaps a process, which must still live. */
void finish(pid_t pid);

/* Captures standard error until end_log(), which returns how often the captured text contains `text`. */
void begin_log(void);
int end_log(const char *text);
/* Returns how often the text that was captured last contains `text`. */
int n_in_log(const char *text);
