/* SPDX-License-Identifier: Apache-2.0 */
/* testing-program.h - a program of others for test-runner: each action is one way to behave. It runs in exec.dir.
 *
 * Ownership: none. Units: none. Threads: one.
 * Errors:    exit codes from 90 on: what the test expects did not happen.
 */
#pragma once

int testing_program(const char *action);
