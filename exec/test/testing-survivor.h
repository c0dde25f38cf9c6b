/* SPDX-License-Identifier: Apache-2.0 */
/* testing-survivor.h - for tests: a program that SIGKILL does not end, such as one that waits for a driver. A test that
 * uses it is linked with --wrap=kill and --wrap=clock_boottime_usec.
 *
 * Ownership: none. Units: none. Errors: none. Threads: one.
 */
#pragma once

#include <stdbool.h>

/* While this is set, this process and those that it forks then send no SIGKILL. A process that would have sent one has
 * a clock that is ahead by a minute from then on. */
void spare_program(bool spares);
