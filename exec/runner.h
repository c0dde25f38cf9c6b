/* SPDX-License-Identifier: Apache-2.0 */
/* runner.h - one rank of a job of kind "exec": hosts the job's program, and speaks to sdtraind for it as a trainer
 * does.
 *
 * A runner receives `assign`, checks folder, program and secrets, runs the setup, and reports `ready`. At `go` it
 * starts the program, so that two generations of a program never run at once where nodes can be reached. It passes
 * the program's output on and its reports to sdtraind, and sdtraind's requests to the program. When the program has
 * ended, the runner reports how, and exits. If the runner dies, the kernel ends the program.
 *
 * Ownership: none. Units: none.
 * Errors:    in the exit code (protocol/exit-code.h), and in `error` on the channel.
 * Threads:   one; blocks until the end.
 * Source:    docs/internals/exec.md.
 */
#pragma once

/* Runs a rank whose sdtraind is at the other end of the channel. Returns the process's exit code. */
int runner_run(int channel, char *const *environment);
