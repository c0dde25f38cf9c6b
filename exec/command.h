/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - one command of a job file as a child process, in a process group of its own.
 *
 * Ownership: command_start() fills a Command, a value; command_clear() accepts one that never ran.
 * Folder:    the default of its headers is Threads: one thread per program.
 * Units:     none.
 * Errors:    -errno of finding, or of starting the program.
 * Threads:   main thread only, as in spawn.h.
 */
#pragma once

#include "exec/evidence.h"
#include "protocol/exec-variables.h"

#include <sys/types.h>

typedef struct Command {
    pid_t pid; /* 0: no process runs */
    int pidfd;
    ExecEnd end; /* how the last process ended */
} Command;

#define COMMAND_NONE                                                                               \
    {                                                                                              \
        .pidfd = -EBADF                                                                            \
    }

/* Starts the command (a list that ends with NULL, with ${NAME} to be filled in). *ret_output is the end of a pipe, not
 * blocking, that gets its standard output and error. */
int command_start(Command *c, char *const *command, const char *folder, const ExecValues *values,
                  char *const *environment, int *ret_output, Error *err);
/* Kills the command's process group. */
void command_kill(const Command *c);
/* Returns true once the command has ended; what it started in its group has then got SIGKILL. */
bool command_reap(Command *c);
void command_clear(Command *c);
