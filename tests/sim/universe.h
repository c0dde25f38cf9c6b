/* SPDX-License-Identifier: Apache-2.0 */
/* universe.h - one schedule's whole world: options, models, checkers.
 *
 * Ownership: universe_new() gives the caller a Universe; it owns everything in it.
 * Units:     microseconds of virtual time.
 * Errors:    sim.failed says that an invariant broke.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/checker.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/node.h"
#include "tests/sim/store.h"
#include "tests/sim/swarm.h"
#include "tests/sim/trainer.h"

struct Universe {
    Sim sim;
    Options options;
    ModelEtcd etcd;
    struct ModelCall *calls;
    uint64_t etcd_slow_usec; /* the longest delay of a message to or from etcd */
    uint32_t lost_request_permille, lost_answer_permille;
    ModelStore store;
    Ring *rings;
    int64_t poisoned_step[JOBS_MAX]; /* not finite for ever; 0: none */
    bool taken_over[JOBS_MAX];       /* somebody else owns its checkpoint folder */
    ModelController *controllers;
    SimNode *nodes;
    Checker checker;
    Swarm swarm;
};

typedef struct ModelCall ModelCall;

/* As a rank says whose the folder is. */
#define UNIVERSE_OTHER_OWNER "the folder has another owner: job stranger, owner 7"

Universe *universe_new(uint64_t seed, int n_nodes, bool talk);
Universe *universe_free(Universe *u);

const char *universe_job_name(int job); /* "a", "b", ... */
int universe_job_index(const char *name);
