/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - builds everything that one rank holds for one generation, in the order in which it can
 * be checked.
 *
 * session_open() makes the parts that need no peer: job, resume manifest, dataset, device, network,
 * state, canned grain. session_join() makes the rest: comms, the agreement of all ranks, checkpoint
 * writer, loader.
 *
 * Ownership: session_open() gives the caller a Session, which owns all its parts; session_free()
 *            accepts NULL.
 * Units:     steps, bytes.
 * Errors:    -errno. The error's exit code (exit-code.h) tells the leader what is to blame; where none
 *            was set, starting again may help: EXIT_RETRY.
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/checkpoint/local.h"
#include "trainer/checkpoint/search.h"
#include "trainer/link/daemon-link.h"
#include "trainer/plan/memory-plan.h"
#include "trainer/session/grain.h"
#include "trainer/state/update.h"

typedef struct SessionAssignment {
    const char *job_source; /* names the job's text in errors */
    /* As a daemon sends it. A run without a daemon makes its own, and draws a submission. */
    const ChannelAssign *assign;
    int64_t generation; /* 0, with `alone`: the next one after those in the folder */
    /* Without a daemon any GPU will do, and the newest own checkpoint that verifies goes on; without any, step 0. */
    bool alone;
    CheckpointClaim claim;
    uint8_t *secret; /* the world's, COMM_SECRET_BYTES, wiped by session_join(); NULL: none */
} SessionAssignment;

typedef struct Session {
    DaemonLink *link;
    Job *job;
    int64_t generation;
    int rank, world_size;
    int64_t first_grain, n_grains; /* this rank's grains of each step */
    int64_t share;                 /* the most grains of any rank */

    Store *store;           /* of checkpoint.uri */
    CheckpointLocal *local; /* this node's copies of the store's checkpoints; NULL: none are kept */
    Manifest *resume;       /* NULL: step 0 of a fresh job */
    bool resumes_own;       /* `resume` lies where this job saves, by whatever path */
    bool adopts; /* `resume` was named by an operator (job start --resume), and is not a commit */
    bool changes_plans; /* the job's plans are others than those of the adopted `resume` */
    char plan_changes[PLAN_CHANGES_TEXT_MAX]; /* of the history, for the manifests */
    Store *resume_store;      /* holds `resume`; not `store` when a moved history is adopted */
    CheckpointSearch *search; /* found `resume`; NULL: its URI was assigned */
    size_t n_left_aside;      /* checkpoints that the search passed over and the log names */
    Dataset *dataset;
    Device *device;
    char *plans; /* in use by the device; NULL: it has none */
    UnetConfig config;
    MemoryPlan memory;
    Network *network;
    TrainState *state;
    GrainWork *work;
    CheckpointFacts facts;
    CheckpointClaim claim;
    int folder_lock; /* descriptor; a run without a cluster holds it */

    uint8_t *secret;        /* borrowed; wiped by session_join() */
    Rendezvous *rendezvous; /* rank 0 of a world of several */
    Comm *train, *reports;
    Comm *bulk;          /* NULL: the world has one rank, or one of a version without it */
    int unmet;           /* 1 + the rank that could not be reached when joining; 0: none */
    TrainStage ended_in; /* LEAVING: it looked for what is not finite; else STARTING */
    Update *update;
    CheckpointWriter *writer;
    Loader *loader;
} Session;

int session_open(DaemonLink *link, const SessionAssignment *assignment, Session **ret, Error *err);
/* address: of rank 0's rendezvous store, from the daemon's `go`. */
int session_join(Session *session, const char *address, const char *bind_address, Error *err);
/* Tells whether `resume` lies where this job saves, so that its history goes on. */
bool session_resumes_own(const Session *session);
/* After the last save of a `sdtrainer run`: where no lock shows that it has ended, an object says so. */
void session_close_folder(Session *session);
Session *session_free(Session *session);
DEFINE_CLEANUP(Session, session_free)
