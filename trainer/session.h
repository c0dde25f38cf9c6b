/* session.h - everything one rank holds for one generation, built in the order in which it can be
 * checked.
 *
 * open: job, resume manifest, dataset, device, network, state, canned grain: all that needs no
 * peer. join: comms, agreement of all ranks, checkpoint writer, loader.
 *
 * Ownership: session_open() gives the caller a Session, which owns all its parts; session_free()
 *            accepts NULL.
 * Units:     steps, bytes.
 * Errors:    -errno, and *ret_exit gets the exit code that says who or what is to blame
 *            (exit-code.h).
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/exit-code.h"
#include "trainer/checkpoint/local.h"
#include "trainer/checkpoint/search.h"
#include "trainer/daemon-link.h"
#include "trainer/grain.h"
#include "trainer/plan/memory-plan.h"
#include "trainer/state/update.h"

typedef struct SessionAssignment {
    const char *job_source; /* names the job's text in errors */
    const char *job_text;
    const char *submission; /* the job's; of a run without a cluster: one of its own */
    const char *sources;    /* what its data were when it was submitted; "": not told */
    CheckpointClaim claim;
    int64_t generation; /* 0: the next one after those that the folder shows; with find_resume */
    int rank, world_size;
    const char *resume_uri;  /* manifest; empty: step 0 */
    const Hash *resume_hash; /* NULL: not checked */
    bool find_resume; /* nobody knows it: the newest own checkpoint that verifies; none: step 0 */
    int find; /* FIND_ANY, FIND_MUST: what lies there is told to the daemon first; 0: nothing is */
    const char *bind_address;
    uint8_t *secret; /* COMM_SECRET_BYTES of the world's; wiped once all are joined; NULL: none */
} SessionAssignment;

typedef struct Session {
    DaemonLink *link;
    Job *job;
    int64_t generation;
    int rank, world_size;
    int64_t first_grain, n_grains, share; /* of each step */

    Store *store;             /* of checkpoint.uri */
    CheckpointLocal *local;   /* this node's copies of what lies there; NULL: none are kept */
    Manifest *resume;         /* NULL: step 0 of a fresh job */
    bool resumes_own;         /* it lies where this job saves, by whatever path */
    Store *resume_store;      /* where it lies; another one when a moved history is adopted */
    CheckpointSearch *search; /* that found it; NULL: it was told */
    size_t n_left_aside;      /* by the search, and said */
    Dataset *dataset;
    Device *device;
    UnetConfig config;
    MemoryPlan memory;
    Network *network;
    TrainState *state;
    GrainWork *work;
    float *gradients;
    CheckpointFacts facts;
    CheckpointClaim claim;
    int folder_lock; /* of a run without a cluster */

    uint8_t *secret;        /* borrowed; wiped by session_join() */
    Rendezvous *rendezvous; /* rank 0 of several */
    Comm *train, *reports;
    int unmet; /* 1 + the rank that joining did not meet; 0: none */
    Update *update;
    CheckpointWriter *writer;
    Loader *loader;
} Session;

int session_open(DaemonLink *link, const SessionAssignment *assignment, Session **ret,
                 ExitCode *ret_exit, Error *err);
/* address: rank 0's rendezvous store, as the daemon's go gave it. */
int session_join(Session *session, const char *address, const char *bind_address,
                 ExitCode *ret_exit, Error *err);
/* resume lies where this job saves, so that its history goes on. */
bool session_resumes_own(const Session *session);
/* The last save is made and nothing follows. Where no lock tells that a `sdtrainer run` is over, it says so. */
void session_close_folder(Session *session);
Session *session_free(Session *session);
DEFINE_CLEANUP(Session, session_free)
