/* SPDX-License-Identifier: Apache-2.0 */
/* testing-crash.h - for tests: a job's checkpoints through lives that end by SIGKILL.
 *
 * A life is one generation of a job: it restores what the record names, then saves, commits to the
 * record and retires twice. The record (a file) stands in for the one in etcd. Life 1 runs
 * undisturbed, life 2 dies at the n-th visit of a fault point, life 3 runs undisturbed again. After
 * the death the recorded checkpoint must be whole; after life 3 nothing of the dead one may be left
 * and the metrics must have one line for each step.
 *
 * Ownership: crash_open() makes what crash_close() removes.
 * Units:     visits of a fault point, ranks.
 * Errors:    as cmocka's; a rank's end its process.
 * Threads:   one.
 */
#pragma once

#include "trainer/checkpoint/test/testing-state.h"

/* uri: where stores are made; NULL: files, in memory where there is some. */
void crash_open(const char *uri, FixtureSize size);
void crash_close(void);
/* Whether what follows saves from the state itself. */
void crash_blocking(bool yes);

/* Kills rank `rank` of `size`; false when life 2 outlives that many visits. ret_unfinished: puts that
 * the death left unfinished in the store; may be NULL. */
bool crash_case(const char *point, int visit, int rank, int size, size_t *ret_unfinished);
/* Visits 1, 1 + stride, ... until the life survives. */
void crash_everywhere(const char *point, int stride, int rank, int size);
/* Two generations go on from one checkpoint at the same time, and only the newer one may commit. */
void crash_two_generations(void);
