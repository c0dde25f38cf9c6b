/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - builds all parts of one rank for one generation, in the order in which they can be checked.
 *
 * session_open() makes the parts that need no peer: job, resume manifest, dataset, device, network,
 * state, canned grain. session_join() makes the rest: comms, the agreement of all ranks, checkpoint
 * writer, loader.
 *
 * Folder:    defaults of the headers here: Units: none. Threads: the training thread.
 * Ownership: session_open() gives the caller a Session, which owns all its parts; session_free()
 *            accepts NULL.
 * Units:     steps, bytes.
 * Errors:    -errno. The error's exit code (exit-code.h) shows the leader the cause; if none was set, another start may
 *            help: EXIT_RETRY.
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
    /* The message of a daemon. A run without a daemon makes this message itself, and draws a submission. */
    const ChannelAssign *assign;
    /* 0, allowed only with `alone`: the session chooses the generation after the highest in the folder */
    int64_t generation;
    /* A run without a daemon. It uses any GPU, and continues from the newest own checkpoint that verifies; if there is
     * none, it starts at step 0. */
    bool alone;
    CheckpointClaim claim;
    /* the world's secret, COMM_SECRET_BYTES, wiped by session_join(); NULL: none */
    uint8_t *secret;
} SessionAssignment;

typedef struct Session {
    DaemonLink *link;
    Job *job;
    int64_t generation;
    int rank, world_size;
    int64_t first_grain, n_grains; /* this rank's grains of each step */
    int64_t share;                 /* largest number of grains that any rank has in a step */

    Store *store;           /* the store of checkpoint.uri */
    CheckpointLocal *local; /* this node's copies of the store's checkpoints; NULL: none are kept */
    Manifest *resume;       /* manifest to continue from; NULL: step 0 of a new job */
    bool
        resumes_own; /* `resume` is in the folder where this job saves, even if the two paths differ */
    bool adopts; /* `resume` was named by an operator (job start --resume), and is not a commit */
    bool changes_plans; /* the job's plans differ from those of the adopted `resume` */
    char plan_changes[PLAN_CHANGES_TEXT_MAX]; /* plan changes of the history, for the manifests */
    /* the store that holds `resume`; its URI differs from that of `store` if `resume` is in another folder */
    Store *resume_store;
    CheckpointSearch *search; /* the search that found `resume`; NULL: its URI was assigned */
    /* how many checkpoints the search has passed over and the log has named */
    size_t n_left_aside;
    Dataset *dataset;
    Device *device;
    char *plans; /* plan set of the device; NULL: the device has none */
    UnetConfig config;
    MemoryPlan memory;
    Network *network;
    TrainState *state;
    GrainWork *work;
    CheckpointFacts facts;
    CheckpointClaim claim;
    int folder_lock; /* descriptor of the lock that a run without a cluster holds */

    uint8_t *secret;        /* borrowed; wiped by session_join() */
    Rendezvous *rendezvous; /* only on rank 0 of a world of several ranks */
    Comm *train, *reports;
    /* comm for sums and weights; NULL: the world has one rank, or a rank of a version without this comm */
    Comm *bulk;
    int unmet; /* 1 + the rank that this rank could not reach in session_join(); 0: none */
    /* LEAVING: the session ended in a search for values that are not finite; otherwise STARTING */
    TrainStage ended_in;
    Update *update;
    CheckpointWriter *writer;
    Loader *loader;
} Session;

int session_open(DaemonLink *link, const SessionAssignment *assignment, Session **ret, Error *err);
/* address: of rank 0's rendezvous store, from the daemon's `go`. */
int session_join(Session *session, const char *address, const char *bind_address, Error *err);
/* Returns whether `resume` is in the folder where this job saves, so that its history continues. */
bool session_resumes_own(const Session *session);
/* After the last save of a `sdtrainer run` without a lock: puts an object that shows that the run has ended. */
void session_close_folder(Session *session);
/* Passes on what the daemon has said of checkpoints that evaluations read. */
void session_hold(Session *session);
Session *session_free(Session *session);
DEFINE_CLEANUP(Session, session_free)
