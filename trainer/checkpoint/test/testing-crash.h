/* SPDX-License-Identifier: Apache-2.0 */
/* testing-crash.h - for tests: checks a job's checkpoints after lives that end by SIGKILL.
 *
 * A life is one generation of a job: it restores what the record names; then it twice saves, commits to the record
 * and retires. The record is a file, in place of the record in etcd. Life 1 runs undisturbed, life 2 dies at the n-th
 * visit of a fault point, life 3 runs undisturbed again. After life 2 the recorded checkpoint must be whole; after life
 * 3 nothing unfinished of life 2 may remain, and the metrics must have one line for each step.
 *
 * Ownership: crash_open() makes files that crash_close() removes.
 * Units:     visits of a fault point, ranks.
 * Errors:    those of cmocka; an error of a rank ends the rank's process.
 * Threads:   one.
 */
#pragma once

#include "trainer/checkpoint/test/testing-state.h"

/* uri: URI below which each case gets a store; NULL: stores are files, in memory if possible. */
void crash_open(const char *uri, FixtureSize size);
void crash_close(void);
/* Sets whether later saves write directly from the state. */
void crash_blocking(bool yes);

/* Kills rank `rank` of `size` in life 2. Returns false if life 2 ends before that many visits. ret_unfinished: how many
 * puts the kill left unfinished in the store; may be NULL. */
bool crash_case(const char *point, int visit, int rank, int size, size_t *ret_unfinished);
/* Calls crash_case() for visit 1, 1 + stride, ... of the fault point, until life 2 survives. */
void crash_everywhere(const char *point, int stride, int rank, int size);
/* Two generations continue from one checkpoint at the same time, and only the newer one may commit. */
void crash_two_generations(void);
