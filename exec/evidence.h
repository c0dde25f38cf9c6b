/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.h - what the end of a program means, by the last lines of its output.
 *
 * Ownership: the caller's buffers. Units: exit codes of protocol/exit-code.h; a signal is negative.
 * Errors:    none. Threads: any.
 * Source:    each row of the table names its own.
 */
#pragma once

#include "protocol/job-exec.h"

enum { EXEC_TEXT_MAX = 512, EXEC_FRAME_MAX = 120 };

typedef struct ExecVerdict {
    int code; /* EXIT_DONE: the program ended with 0 */
    char text[EXEC_TEXT_MAX];
} ExecVerdict;

/* How a process ended: as si_code and si_status of siginfo_t. */
typedef struct ExecEnd {
    int code, status;
} ExecEnd;

/* Finds the innermost frame in stacks that Python's faulthandler has printed: "step (train.py:33)". Among several
 * threads the one counts that got the signal, among several prints the last one. Returns false if there is none. */
bool exec_find_frame(const char *tail, char ret[EXEC_FRAME_MAX]);
/* Judges the end of a program. tail: its last output; error_file: path of the file that TORCHELASTIC_ERROR_FILE names,
 * which need not exist. */
void exec_judge(const JobExec *exec, ExecEnd end, const char *tail, const char *error_file,
                ExecVerdict *ret);
