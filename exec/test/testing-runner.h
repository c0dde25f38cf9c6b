/* SPDX-License-Identifier: Apache-2.0 */
/* testing-runner.h - for tests of a runner: the test is the daemon at the other end of the channel, and, started as
 * "TEST program ACTION", the program (testing-program.h).
 *
 * Ownership: `run` is the only runner. spec() returns text that assign_rank() and go() free.
 * Errors:    fail the test.
 * Units:     none. Threads: one.
 */
#pragma once

#include "base/test/testing.h"

#include "protocol/channel.h"

#include <limits.h>
#include <sys/types.h>

enum { WAIT_MSEC = 30000 };

typedef struct TestedRunner {
    pid_t pid;
    int channel, output;
    char printed[1 << 16];
    size_t n_printed;
    int64_t generation;
} TestedRunner;

extern TestedRunner run;
extern char folder[];       /* exec.dir */
extern char self[PATH_MAX]; /* this program */

/* Prepares and removes the folder. */
int runner_tests_begin(void);
void runner_tests_end(void);

/* A runner that is started from now on has this file as its stderr, and so much room in its end of the channel;
 * negative: as this process. */
extern int runner_log, runner_room;

/* A rank that is assigned from now on goes on from this checkpoint, of step 7; empty: from none. */
extern const char *runner_checkpoint;
extern ChannelHeld runner_held; /* with `go` */

void start_runner(int slot);
/* Receives the next message that is not a stage. */
void next(ChannelMessage *m);
/* Receives it too; it must have this type. */
void expect(ChannelType type, ChannelMessage *m);
void tell(ChannelMessage *m);
/* Writes a job file with these keys of exec, and of the whole. */
char *spec(const char *action, const char *more, const char *keys);
/* Writes a job file of kind "eval", whose evaluations have 5 steps. */
char *eval_spec(const char *action);
void assign_rank(char *text, int rank, const char *submission);
/* Starts a rank and lets it go. */
void go(char *text, int rank);
/* Waits for the runner's end, and returns its exit code, or the negative number of its signal. */
int reap(void);
void expect_error(int code, const char *text);
void expect_done(const char *end);

bool exists(const char *name);
void await_file(const char *name);
/* Waits until the runner has read all that it was told. */
void await_read(void);
void forget_file(const char *name);
