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
 *     plans.json               of a device that has plans: which
 *   plans/auto-<submission>-*.json   until the first commit: what ranks compute by (plan-set.h)
 *   metrics/metrics-<first>-<last>-o<owner>-g<generation>-<attempt>.jsonl   one line a step; this
 *                              checkpoint's manifest lists it, and so do later ones of the history
 *                              until it is merged with its neighbours
 *
 * Life of one save, the same on all ranks: all call checkpoint_begin() at the same step. The
 * writer's thread uploads, gathers the ranks' reports, and on rank 0 writes the manifest and tells
 * all. checkpoint_poll() then gives WRITTEN (the same uri, hash, digest on every rank) or FAILED (on
 * every rank; there is no manifest). After WRITTEN rank 0 asks its daemon to commit, and calls
 * checkpoint_settle() with the answer; a commit starts retention in the writer's thread. So do a claim, and on rank 0
 * a save that failed for want of room: its error says then how much is missing, and what makes room.
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
    CHECKPOINT_NOT_OWNER = ENOTUNIQ, /* negative: another owns the folder; the text names it */
};

/* Begins the keys of plan sets that submissions made before their first commit (plan-set.h). */
#define CHECKPOINT_PLAN_SETS "plans/auto-"

/* Which owner a writer may take the folder over from. */
typedef enum OwnerTakes {
    OWNER_TAKES_NONE,  /* none: the folder must be free or this submission's */
    OWNER_TAKES_ONCE,  /* any, unless this submission has owned it before: job start --resume */
    OWNER_TAKES_ALONE, /* a `sdtrainer run` that has ended: its lock was free */
    OWNER_TAKES_ANY,   /* any, by an operator's word: job recover (once an act), run --take-over */
} OwnerTakes;

typedef struct CheckpointClaim {
    OwnerTakes takes;
    bool alone;      /* this process is a `sdtrainer run`, without a cluster */
    const char *act; /* the id of the operator's request, which takes a folder over once at most;
                        NULL: there is none */
} CheckpointClaim;

typedef struct CheckpointOwner CheckpointOwner;

/* Copies of checkpoints on a disk of this node (local.h). */
typedef struct CheckpointLocal CheckpointLocal;

/* Steps of a history whose metrics are in no object any more. Only the curves need them. */
typedef struct MetricsGap {
    int64_t n_steps;
    int64_t first, last; /* the range that the n_steps lie in; meaningless without any */
} MetricsGap;

/* The room that the next save needs, and has. */
typedef struct CheckpointRoom {
    uint64_t next_bytes; /* about how many bytes it writes; 0: not known */
    uint64_t free_bytes; /* how many bytes the store has; the save before may have filled it */
} CheckpointRoom;

/* Lists the folders that hold a manifest, newest step (then owner and generation) first. Keys are
 * folders, sizes and times the manifests'; the caller frees *ret with store_list_clear(). */
int checkpoint_list(Store *store, StoreList *ret, Error *err);

/* Fills *state (all weights, own chunks, scalars), of any world size and ZeRO stage, from the
 * checkpoint of a manifest. Verifies every weight file, every own moment and the hash of every own
 * chunk, so that together the ranks verify everything. Bytes that do not verify are read again
 * before the error is -EBADMSG. local (may be NULL) is read instead of the store where it has good
 * copies; bad ones are replaced. No rank waits for another. On failure *state is undefined. */
int checkpoint_restore(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                       TrainState *state, Error *err);
/* Reads the plan set of the device that wrote the checkpoint (device_plans()), and verifies it like every object.
 * *ret: its text, which the caller frees; NULL: the manifest names none. local: as checkpoint_restore(). */
int checkpoint_restore_plans(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                             char **ret, Error *err);
/* Reads the weights only (for a start from another run, or sampling): those of unet/ or, with ema,
 * of unet_ema/. flat is memory of the device or, when device is NULL, of the host. */
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
    char uri[CHECKPOINT_URI_MAX]; /* of manifest.json */
    Hash hash;                    /* of manifest.json */
    Hash digest;                  /* of the state */
    Error error;                  /* CHECKPOINT_FAILED */
    uint64_t blocked_usec; /* how long checkpoint_begin() or, in a save that blocks, the whole
                                     took; what the state's next write waited besides is
                                     train_state_waited_usec() */
    uint64_t write_usec;   /* how long the writer's thread took */
    uint64_t n_bytes;      /* rank 0: of all ranks' objects */
} CheckpointResult;

typedef struct CheckpointOptions {
    Store *store;  /* borrowed; nobody else may put with STORE_DEFER while the writer lives */
    Comm *reports; /* borrowed; the second comm of the world, which only the writer's thread uses.
                      Its timeout bounds how much longer the slowest rank may upload than the
                      fastest */
    const ParameterList *parameters; /* borrowed */
    const char *unet_config;         /* config.json's text (unet_config_format()); copied */
    const char *plans; /* the device's, as device_plans() gives them; borrowed; NULL: it has none */
    const char *plan_changes; /* of the history, as manifest_plan_changes() has them; borrowed */
    CheckpointFacts facts;
    CheckpointClaim claim;
    int64_t keep_last;          /* how many of the newest committed checkpoints stay, 2 or more */
    int64_t keep_every;         /* checkpoints whose step it divides stay, too; 0: none */
    uint64_t weight_file_bytes; /* a weight file ends before it would be larger; 0: 1 GiB */
    CheckpointLocal *local;     /* borrowed, used only by the writer: gets a copy of each object
                                   that is put; NULL: no copies */
    bool blocking; /* the state is not copied: the caller leaves it as it is until the save is over.
                      (Memory that the host cannot read is copied all the same.) */
} CheckpointOptions;

int checkpoint_writer_new(const CheckpointOptions *options, CheckpointWriter **ret, Error *err);
/* Abandons a save in progress by aborting its comm; finishes a retention in progress. */
CheckpointWriter *checkpoint_writer_free(CheckpointWriter *writer);
DEFINE_CLEANUP(CheckpointWriter, checkpoint_writer_free)

/* Allocates the host memory for copies of such a state before the first save, which otherwise allocates it. A save that
 * follows a failure tries again, and fails if there is no memory. Borrows the state's device for as long as the
 * writer lives. */
int checkpoint_prepare(CheckpointWriter *writer, const TrainState *state, Error *err);
/* All ranks call it at the same step. Puts the copies of this rank's part on their way (unless the options
 * have `blocking`) and returns; the thread does the rest. The state may be changed after
 * train_state_before_write(). Copies that fail, or that there is no memory for, fail the save.
 * metrics (rank 0; NULL elsewhere): one line for each step in [metrics_first, metrics_last], the
 * steps since the last committed checkpoint; "" with metrics_last = metrics_first - 1 when there are
 * none. -EBUSY on rank 0 while the save before is being written or is not settled. Waits for
 * retention, and on other ranks for the end of the save before, which may come one message later
 * than on rank 0. */
int checkpoint_begin(CheckpointWriter *writer, const TrainState *state, const char *metrics,
                     int64_t metrics_first, int64_t metrics_last, Error *err);
/* Rank 0, before checkpoint_begin(): what the manifest keeps of the steps so far; {0} at first. */
void checkpoint_note_steps(CheckpointWriter *writer, const Divergence *divergence,
                           const StepTimes *times);
/* Reports whether a save is being written, a save waits for checkpoint_settle() (rank 0), or old checkpoints
 * are being removed. Rank 0 checks it before it decides on a save that may be skipped. */
bool checkpoint_busy(CheckpointWriter *writer);
/* Reports WRITTEN or FAILED once, then IDLE. */
void checkpoint_poll(CheckpointWriter *writer, CheckpointResult *ret);
/* Polls until the phase is not WRITING any more; -ETIMEDOUT. */
int checkpoint_wait(CheckpointWriter *writer, uint64_t timeout_usec, CheckpointResult *ret);
/* Rank 0 hands over the daemon's answer to WRITTEN. A commit makes the checkpoint and its metrics
 * part of the history and starts retention; after a refusal both are forgotten. */
void checkpoint_settle(CheckpointWriter *writer, bool committed);
/* Rank 0, before the first checkpoint_begin(): this writer's history begins with the restored
 * manifest and the checkpoints committed before it. (Not for a manifest of another job.) */
int checkpoint_adopt_history(CheckpointWriter *writer, const Manifest *manifest, Error *err);
/* Rank 0: returns the metrics of the history that were missing at the newest look; there is a look after each
 * commit. */
void checkpoint_gap(CheckpointWriter *writer, MetricsGap *ret);
/* Rank 0: returns the room at the newest look, at most some seconds old while no save is written; {0} before the first
 * look and where the store does not report it. Begins the next look, in the writer's thread. */
void checkpoint_room(CheckpointWriter *writer, CheckpointRoom *ret);

/* Rank 0, while no save is written, after checkpoint_adopt_history(): claims the folder for this writer, which
 * otherwise its first save does; once claimed, checks that no other has taken it over (-CHECKPOINT_NOT_OWNER). A new
 * claim begins retention, by the adopted manifest, in the writer's thread: objects that the generation before did not
 * remove go before the first save. *ret stays the writer's, whose thread uses it while checkpoint_busy(); ret may be
 * NULL. */
int checkpoint_claim(CheckpointWriter *writer, CheckpointOwner **ret, Error *err);
/* Rank 0, while no save is written: puts metrics that the store refused while it took their checkpoints; otherwise the
 * next save puts them. *ret_missed: how many committed steps still lack their lines. */
int checkpoint_put_missed(CheckpointWriter *writer, int64_t *ret_missed, Error *err);
/* Rank 0 of a `sdtrainer run`, after its last save: lets the next run take the folder over. */
int checkpoint_close(CheckpointWriter *writer, Error *err);

/* ---- retention: the writer calls these by itself ---- */

typedef struct MetricsKept MetricsKept; /* metrics.h */

/* Removes the objects that the history ending with latest does not need, manifests before their
 * objects. These stay: the newest keep_last (at least 2) whole checkpoints of the history, every
 * step that keep_every divides, checkpoints beyond latest's step with their metrics, and all that
 * belongs to a newer generation or is not of the owner's history. These go: the history's other
 * checkpoints, those of this or an older generation that are not in it (never committed, or
 * invalidated), folders without a manifest, metrics that no remaining manifest lists, and plan sets from
 * before the first commit. Once a newer generation has written anything, nothing goes. kept: remembers
 * manifests from call to call; may be NULL. */
int checkpoint_retire(Store *store, CheckpointOwner *owner, const Manifest *latest,
                      int64_t keep_last, int64_t keep_every, MetricsKept *kept, size_t *ret_removed,
                      Error *err);

/* Removes what dead writers of this and older generations of the owner's history left unfinished:
 * temporaries and multipart uploads. Once a newer generation has written anything, nothing goes. No
 * rank of this generation may be writing. */
int checkpoint_sweep(Store *store, CheckpointOwner *owner, int64_t generation, size_t *ret_removed,
                     Error *err);

/* Writes all committed metrics of a manifest, one line a step, into `key` (metrics.jsonl), at the
 * end of a job. An object that is there already is replaced by one with its lines and ours, and so
 * may fill a gap; an object of another history stays, and ours gets a key of its own. Segments
 * that are lost and that no object fills are the gap. */
int checkpoint_publish_metrics(Store *store, const Manifest *manifest, const char *key,
                               MetricsGap *ret_gap, Error *err);
