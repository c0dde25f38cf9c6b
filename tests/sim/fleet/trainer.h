/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a model of trainer processes: they join the ring of their world, step with it, save, and end.
 *
 * Ownership: trainers_open() makes the loop that they run on; trainers_close() frees what is left.
 * Units:     steps; *_usec is virtual time.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/seams/machine.h"

void trainers_open(void);
void trainers_close(void);

/* The program of a machine: it is handed to machine_new(). */
TaskProgram trainers_program(void);
/* From now on a job of that name has so many steps, and saves each save_steps. */
void trainers_plan(const char *job, int64_t steps, int64_t save_steps);
