/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - what `sdctl job start` checks, submits and prints of jobs of kind "exec" and "eval".
 *
 * Ownership: program_encode() gives the caller a string to free().
 * Units:     none. Threads: any; no state.
 * Errors:    -EINVAL, with the file and the key; -ENOSPC.
 */
#pragma once

#include "ctl/model.h"
#include "protocol/job.h"

/* Checks the parts of the job file that this machine can check. resume is the value of --resume, or NULL. */
int program_check(const char *source, const Job *job, const char *resume, Error *err);
/* Refuses a job whose ranks may take longer to leave than the leader waits for: its world would go on, and be killed in
 * mid-save. */
int program_check_leave(const char *source, const Job *job, const Model *model, Error *err);
/* Refuses an evaluation of what cannot be evaluated: another evaluation, or a job whose checkpoints lie elsewhere. */
int program_check_followed(const char *source, const Job *job, const Model *model, Error *err);
/* Returns the record programs/<job>. */
char *program_encode(const char *text, const SpecRecord *spec);
/* Returns how many ranks of the job the node can host: the program's shares are whole. */
int program_slots_of(const NodeRecord *node, const Job *job);
/* Refuses a job that the known nodes, with `slots` for it, can never start. */
int program_check_slots(const char *source, const Job *job, int slots, Error *err);
/* Adds which right is needed if etcd has refused the record of the program. */
int program_explain(const char *source, int r, Error *err);
void program_print(const Job *job, const char *how);
/* Prints what rank 0 of a world of world.max ranks would run, and its environment. A value that only its node
 * knows is a description in <>. */
void program_print_environment(const Job *job);
