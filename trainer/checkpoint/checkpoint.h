/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - saves and restores the training state through a Store. The manifest is written
 * last, and everything is verified when it is read.
 *
 * A checkpoint is a folder of immutable objects under the job's checkpoint URI:
 *   owner/<n>                  claims of this folder; the highest <n> owns it (owner.h)
 *   step-<step, 10 digits>-o<owner>-g<generation>-<attempt, 8 hex digits>/
 *     manifest.json            written last, put-if-absent
 *     unet/config.json, unet/diffusion_pytorch_model*.safetensors (+ index)   as diffusers loads it
 *     unet_ema/...             the same, once the EMA is active
 *     moments/c<chunk, 6 digits>.bin   m then v of one chunk, fp32 little-endian
 *     plans.json               the device's plan set, if it has plans
 *   plans/auto-<submission>-*.json   until the first commit: the ranks' plans (plan-set.h)
 *   metrics/metrics-<first>-<last>-o<owner>-g<generation>-<attempt>.jsonl   one line a step; this
 *                              checkpoint's manifest lists it, and so do later manifests of the
 *                              history until it is merged with its neighbours
 *
 * Life of one save: all ranks call checkpoint_begin() at the same step. The writer's thread uploads, gathers the ranks'
 * reports, and on rank 0 writes the manifest and sends the result to all ranks. checkpoint_poll() then gives WRITTEN
 * (the same uri, hash, digest on every rank) or FAILED (on every rank; there is no manifest). After WRITTEN rank 0 asks
 * its daemon to commit, and calls checkpoint_settle() with the answer; a commit starts retention in the writer's
 * thread. A claim starts retention, too, and so does, on rank 0, a save that failed for lack of space: its error then
 * says how much space is missing, and what would free it.
 *
 * Ownership: as each function says.
 * Units:     bytes, steps; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    those of manifest.h; -EBADMSG: an object does not verify (the text names it, with the
 *            expected and the found hash); -ENOSPC and others from the store.
 * Threads:   the training thread's. A writer has a thread and a comm of its own.
 */
#pragma once

#include "manifest/manifest.h"
#include "trainer/comm/comm.h"
#include "trainer/state/train-state.h"

#include <errno.h>

enum {
    /* returned as a negative number: another submission owns the folder; the error's text names it */
    CHECKPOINT_NOT_OWNER = ENOTUNIQ,
};

/* Prefix of the keys of plan sets that submissions make before their first commit (plan-set.h). */
#define CHECKPOINT_PLAN_SETS "plans/auto-"

/* Which owners a writer may take the folder over from. */
typedef enum OwnerTakes {
    OWNER_TAKES_NONE, /* none: the folder must be free, or belong to this submission */
    /* any owner, unless this submission has owned the folder before: job start --resume */
    OWNER_TAKES_ONCE,
    /* only an owner that is a `sdtrainer run` whose free lock shows that the run has ended */
    OWNER_TAKES_ALONE,
    /* any owner, on an operator's order: job recover (once per request), run --take-over */
    OWNER_TAKES_ANY,
} OwnerTakes;

typedef struct CheckpointClaim {
    OwnerTakes takes;
    bool alone; /* this process is a `sdtrainer run`, without a cluster */
    /* id of the operator's request, which may take a folder over only once; NULL: no request */
    const char *act;
} CheckpointClaim;

typedef struct CheckpointOwner CheckpointOwner;

/* Copies of checkpoints on a disk of this node (local.h). */
typedef struct CheckpointLocal CheckpointLocal;

/* Steps of a history whose metrics are in no object any more. Only the curves need these metrics. */
typedef struct MetricsGap {
    int64_t n_steps;
    int64_t first, last; /* all steps of the gap are in [first, last]; no meaning if n_steps is 0 */
} MetricsGap;

/* The space that the next save needs, and the free space. */
typedef struct CheckpointRoom {
    uint64_t next_bytes; /* estimate of the bytes that the next save writes; 0: not known */
    uint64_t free_bytes; /* free bytes of the store, as of the last measurement */
} CheckpointRoom;

/* Lists the folders that hold a manifest, sorted by newest step, then owner, then generation. Keys are the folders;
 * sizes and times are those of the manifests. The caller frees *ret with store_list_clear(). */
int checkpoint_list(Store *store, StoreList *ret, Error *err);

/* Fills *state (all weights, this rank's chunks, scalars) from the checkpoint of a manifest, whatever the world size
 * and the ZeRO stage of *state.
 * Verifies every weight file, every own moment and the hash of every own chunk, so that together the ranks verify
 * everything. Bytes that do not verify are read again before the error is -EBADMSG. If local (may be NULL) has good
 * copies, they are read instead of the store's objects; bad copies are replaced. No rank waits for another. On failure
 * *state is undefined. */
int checkpoint_restore(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                       TrainState *state, Error *err);
/* Reads the plan set of the device that wrote the checkpoint (device_plans()), and verifies it like every object. *ret:
 * the set's text, which the caller frees; NULL: the manifest names none. local: as for checkpoint_restore(). */
int checkpoint_restore_plans(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                             char **ret, Error *err);
/* Reads only the weights, for a start from another run or for sampling: those of unet/ or, with ema, those of
 * unet_ema/. flat is memory of the device or, if device is NULL, of the host. */
int checkpoint_restore_weights(Store *store, const Manifest *manifest, bool ema,
                               const ParameterList *parameters, Device *device, float *flat,
                               Error *err);

/* ---- writer ---- */

typedef struct CheckpointWriter CheckpointWriter;

typedef enum CheckpointPhase {
    CHECKPOINT_IDLE,
    CHECKPOINT_WRITING,
    CHECKPOINT_WRITTEN,
    CHECKPOINT_FAILED
} CheckpointPhase;

typedef struct CheckpointResult {
    CheckpointPhase phase;
    int64_t step;
    char uri[CHECKPOINT_URI_MAX]; /* URI of manifest.json */
    Hash hash;                    /* hash of manifest.json */
    Hash digest;                  /* digest of the state */
    Error error;                  /* set if CHECKPOINT_FAILED */
    /* How long checkpoint_begin() took or, in a blocking save, the whole save. The time that the state's next write
     * waited in addition is train_state_waited_usec(). */
    uint64_t blocked_usec;
    uint64_t write_usec; /* how long the writer's thread took to write */
    uint64_t n_bytes;    /* on rank 0: bytes of all ranks' objects */
} CheckpointResult;

typedef struct CheckpointOptions {
    Store *store; /* borrowed; only the writer may put with STORE_DEFER while the writer exists */
    /* Borrowed; the second comm of the world, used only by the writer's thread. Its timeout bounds how much longer the
     * slowest rank may upload than the fastest rank. */
    Comm *reports;
    const ParameterList *parameters; /* borrowed */
    const char *unet_config;         /* text of config.json (unet_config_format()); copied */
    /* the device's plan set (device_plans()); borrowed; NULL: the device has none */
    const char *plans;
    const char *plan_changes; /* plan changes of the history (manifest_plan_changes()); borrowed */
    CheckpointFacts facts;
    CheckpointClaim claim;
    /* how many of the newest committed checkpoints are kept, 2 or more */
    int64_t keep_last;
    /* checkpoints whose step is a multiple of keep_every are kept, too; 0: none */
    int64_t keep_every;
    uint64_t weight_file_bytes; /* upper bound of a weight file's size; 0: 1 GiB */
    /* Borrowed; only the writer uses it, and writes a copy of each object into it. NULL: no copies. */
    CheckpointLocal *local;
    /* The writer reads the state itself, not a copy, so the caller must not change the state until the save is over.
     * (Memory that the host cannot read is still copied.) */
    bool blocking;
} CheckpointOptions;

enum { CHECKPOINT_HELD_MAX = 16 };

int checkpoint_writer_new(const CheckpointOptions *options, CheckpointWriter **ret, Error *err);
/* Abandons a save in progress by aborting its comm, and waits for the end of a retention in progress. */
CheckpointWriter *checkpoint_writer_free(CheckpointWriter *writer);
DEFINE_CLEANUP(CheckpointWriter, checkpoint_writer_free)

/* Allocates the host memory for copies of the given state before the first save, which otherwise allocates it. If this
 * fails, the next save tries again, and fails if there is no memory. Borrows the state's device as long as the writer
 * exists. */
int checkpoint_prepare(CheckpointWriter *writer, const TrainState *state, Error *err);
/* All ranks call it at the same step. Starts the copies of this rank's part of the state (unless the option `blocking`
 * is set) and returns; the writer's thread does the rest. The caller may change the state after
 * train_state_before_write(). If copies fail, or there is no memory for them, the save fails.
 * metrics (rank 0; NULL on other ranks): one line for each step in [metrics_first, metrics_last], the steps since the
 * last committed checkpoint; "" with metrics_last = metrics_first - 1 if there are none.
 * Returns -EBUSY on rank 0 while the previous save is being written or is not settled. Waits for retention and, on
 * other ranks, for the end of the previous save, of which they may be notified one message later than rank 0. */
int checkpoint_begin(CheckpointWriter *writer, const TrainState *state, const char *metrics,
                     int64_t metrics_first, int64_t metrics_last, Error *err);
/* Rank 0 calls it before checkpoint_begin(), with the facts about the steps so far that the manifest records. Before
 * the first call these facts are {0}. */
void checkpoint_note_steps(CheckpointWriter *writer, const Divergence *divergence,
                           const StepTimes *times);
/* Reports whether a save is being written, a save waits for checkpoint_settle() (rank 0), or old checkpoints are being
 * removed. Rank 0 calls it before it decides on a save that may be skipped. */
bool checkpoint_busy(CheckpointWriter *writer);
/* Reports WRITTEN or FAILED once, and IDLE afterwards. */
void checkpoint_poll(CheckpointWriter *writer, CheckpointResult *ret);
/* Polls until the phase is no longer WRITING. Returns -ETIMEDOUT after timeout_usec. */
int checkpoint_wait(CheckpointWriter *writer, uint64_t timeout_usec, CheckpointResult *ret);
/* Rank 0 calls it before checkpoint_claim() and checkpoint_settle(): from now on the checkpoints of these steps, which
 * evaluations read, are kept, unless a save has no room. */
void checkpoint_hold(CheckpointWriter *writer, const int64_t *steps, size_t n);
/* Rank 0 passes on the daemon's answer after WRITTEN. A commit makes the checkpoint and its metrics part of the history
 * and starts retention; after a refusal the writer forgets the checkpoint and its metrics. */
void checkpoint_settle(CheckpointWriter *writer, bool committed);
/* Rank 0 calls it before the first checkpoint_begin(): this writer's history then begins with the restored manifest and
 * the checkpoints committed before it. The manifest must be one of this job's manifests. */
int checkpoint_adopt_history(CheckpointWriter *writer, const Manifest *manifest, Error *err);
/* Rank 0: *ret gets the steps of the history whose metrics were missing in the store at the last check. The writer
 * checks after each commit. */
void checkpoint_gap(CheckpointWriter *writer, MetricsGap *ret);
/* Rank 0: *ret gets the space as of the last check, which is at most some seconds old while no save is being written;
 * {0} before the first check, and if the store does not report its space. Starts the next check, in the writer's
 * thread. */
void checkpoint_room(CheckpointWriter *writer, CheckpointRoom *ret);

/* Rank 0, while no save is being written, after checkpoint_adopt_history(): claims the folder for this writer; without
 * this call the first save claims it. If the folder is already claimed, checks that no other owner has taken it over
 * (-CHECKPOINT_NOT_OWNER). A new claim starts retention, by the adopted manifest, in the writer's thread: objects that
 * the previous generation did not remove are removed before the first save. *ret still belongs to the writer, whose
 * thread uses it while checkpoint_busy(); ret may be NULL. */
int checkpoint_claim(CheckpointWriter *writer, CheckpointOwner **ret, Error *err);
/* Rank 0, while no save is being written: puts metrics again that the store refused although it accepted their
 * checkpoints; without this call the next save puts them. *ret_missed: how many committed steps still lack their
 * lines. */
int checkpoint_put_missed(CheckpointWriter *writer, int64_t *ret_missed, Error *err);
/* Rank 0 of a `sdtrainer run` calls it after the last save: the next run may then take the folder over. */
int checkpoint_close(CheckpointWriter *writer, Error *err);

/* ---- retention: the writer calls these by itself ---- */

typedef struct MetricsKept MetricsKept; /* see metrics.h */

/* Which checkpoints of a history are kept. */
typedef struct Retention {
    int64_t keep_last, keep_every; /* as in CheckpointOptions */
    const int64_t *held;           /* steps that are kept, too */
    size_t n_held;
} Retention;

/* Removes the objects that the history ending with `latest` does not need, manifests before their objects.
 * Kept:      the newest keep_last (at least 2) whole checkpoints of the history, every step that is a multiple of
 *            keep_every or is held, checkpoints beyond latest's step with their metrics, and everything that belongs to
 *            a newer generation or is not of the owner's history.
 * Removed:   the history's other checkpoints, checkpoints of this or an older generation that are not in the history
 *            (never committed, or invalidated), folders without a manifest, metrics that no remaining manifest lists,
 *            and plan sets from before the first commit.
 * Once a newer generation has written anything, nothing is removed. kept: remembers manifests from call to call; may be
 * NULL. */
int checkpoint_retire(Store *store, CheckpointOwner *owner, const Manifest *latest,
                      const Retention *retention, MetricsKept *kept, size_t *ret_removed,
                      Error *err);

/* Removes temporary objects and multipart uploads that dead writers of this and older generations of the owner's
 * history left unfinished. Once a newer generation has written anything, nothing is removed. No rank of this generation
 * may be writing. */
int checkpoint_sweep(Store *store, CheckpointOwner *owner, int64_t generation, size_t *ret_removed,
                     Error *err);

/* At the end of a job, writes all committed metrics of a manifest, one line per step, into `key` (metrics.jsonl). If
 * `key` already has an object with metrics of this history, an object with all old and new lines replaces it, which may
 * fill a gap. If `key` has metrics of another history, that object stays, and the metrics get another key. *ret_gap:
 * the steps whose lines are lost. */
int checkpoint_publish_metrics(Store *store, const Manifest *manifest, const char *key,
                               MetricsGap *ret_gap, Error *err);
