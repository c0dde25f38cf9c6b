/* SPDX-License-Identifier: Apache-2.0 */
/* testing-state.h - for tests: training states in which every number is a function of (step, index).
 *
 * Units: elements, steps. Threads: one.
 * Ownership: fixture_open() fills a Fixture that fixture_close() empties.
 * Errors:    world_check() ends the process.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/test/testing-world.h"

typedef struct Fixture {
    Device *device;
    ParameterList *parameters;
} Fixture;

typedef enum FixtureSize {
    FIXTURE_SMALL,  /* 10,692 elements: 3 chunks, the last one short */
    FIXTURE_MEDIUM, /* 41,043 elements: 11 chunks, the last one short */
    FIXTURE_LARGE,  /* 2,700,592 elements, 10.8 MB: uploaded in parts when a part is 5 MiB */
} FixtureSize;

void fixture_open(FixtureSize size, Fixture *ret);
void fixture_close(Fixture *fixture);

/* Makes the state of that step, as rank `rank` of `world_size` holds it. */
TrainState *testing_state(const Fixture *fixture, int64_t step, int rank, int world_size,
                          int zero_stage, bool ema_active);
/* Ends the process unless every number is the number of the step. */
void testing_state_check(const TrainState *state, int64_t step, bool ema_active);
/* Returns the digest of the step's state, computed on one rank. */
Hash testing_digest(const Fixture *fixture, int64_t step, bool ema_active);

CheckpointFacts testing_facts(int64_t generation);
extern const char testing_config[]; /* a config.json */

/* Returns the lines "step 5 of generation 2\n" of the steps [first, last]. The caller frees them. */
char *testing_metrics(int64_t generation, int64_t first, int64_t last);

/* Makes a writer of that generation, with keep_last 2 and keep_every 100. SDTRAIN_TEST_PLANS, if set, has the device's
 * plans. */
CheckpointWriter *testing_writer(const Fixture *fixture, Store *store, Comm *reports,
                                 int64_t generation, uint64_t weight_file_bytes);
/* Begins a save and waits for its end, without settling it. metrics_first > step: there are no metrics. */
CheckpointResult testing_save(CheckpointWriter *writer, const TrainState *state, int64_t generation,
                              int64_t metrics_first);
