/* SPDX-License-Identifier: Apache-2.0 */
/* job-exec.h - the key `exec` of a job file of kind "exec": the program that each rank runs.
 *
 * Ownership: job_exec_parse() fills a JobExec, a value; job_exec_clear() frees its parts. Lists of texts end with NULL.
 * Units:     seconds as named.
 * Errors:    the reader's, as in json.h: "<source>: exec.command: ...".
 * Threads:   immutable after parsing; any.
 * Source:    docs/reference/job-file.md.
 */
#pragma once

#include "base/json/json.h"
#include "protocol/exit-code.h"

enum {
    EXEC_WORDS_MAX = 512, /* arguments of a command; entries of env */
    EXEC_SECRETS_MAX = 32,
    EXEC_CODES_MAX = 64,
    EXEC_PATTERN_MAX = 200,
    EXEC_LEAVE_SEC = 60,
    EXEC_PROGRESS_SEC = 600,
    EXEC_NO_FENCE = -1,
};

typedef enum JobDevice { JOB_DEVICE_CPU, JOB_DEVICE_CUDA } JobDevice;

/* Exit code `code` of the program means `means`. */
typedef struct ExecCode {
    int code;
    ExitCode means;
} ExecCode;

typedef struct JobExec {
    /* Program and arguments. Texts hold ${NAME} and $$ (exec-variables.h). */
    char **command;
    char **setup; /* run once per node and submission, before the first command; NULL: none */
    char *dir;    /* absolute path: the working folder of command and setup */
    char **env;   /* "NAME=value", where value may hold ${NAME} and $$; NULL: none */
    JobDevice device;
    bool
        own_gpu; /* each rank sees only its own GPU; false: each rank sees those of all ranks of its node */
    bool notify;   /* the program runs once rank 0 has reported READY=1 or its first step */
    int64_t steps; /* the program's last step; 0: it names none */
    int leave_sec; /* time to save and end after the request to leave */
    int leave_signal;
    int silence_sec; /* longest time without output and without a report; 0: no limit */
    int fence_sec; /* time after the node's lease may have ended; EXEC_NO_FENCE: the node's own rule counts */
    /* Extended regular expressions with one group, which find the step and the loss in a line of output; NULL: none. */
    char *step_pattern, *loss_pattern;
    ExecCode codes[EXEC_CODES_MAX];
    size_t n_codes;
    char **secrets; /* names of variables whose values the node keeps; NULL: none */
} JobExec;

void job_exec_parse(JsonReader *root, JobExec *ret);
void job_exec_clear(JobExec *exec);
/* Finds what an exit code of the program means: the code itself if it is one of a trainer's, or the code to which
 * exit_codes maps it. Returns false if the code has no meaning. */
bool job_exec_find_code(const JobExec *exec, int code, ExitCode *ret);
