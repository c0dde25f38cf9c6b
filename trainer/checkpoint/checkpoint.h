/* checkpoint.h - saving and restoring the training state through a Store; manifest last, verified
 * always.
 *
 * A checkpoint is a folder of immutable objects under the job's checkpoint URI:
 *   owner/<n>                  who writes here; the highest owns it: owner.h
 *   step-<step, 10 digits>-o<owner>-g<generation>-<attempt, 8 hex digits>/
 *     manifest.json            written last, put-if-absent
 *     unet/config.json, unet/diffusion_pytorch_model*.safetensors (+ index)   as diffusers loads it
 *     unet_ema/...             the same, once the EMA is active
 *     moments/c<chunk, 6 digits>.bin   m then v of one chunk, fp32 little-endian
 *   metrics/metrics-<first>-<last>-o<owner>-g<generation>-<attempt>.jsonl   listed in the manifest
 *                              of this and of later checkpoints of the history, until it is merged
 *                              with others
 *
 * Life of one save, the same on all ranks: checkpoint_begin() at the same step; the writer's thread
 * uploads, the reports are gathered, rank 0 writes the manifest and tells all; checkpoint_poll()
 * gives WRITTEN (same uri, hash, digest on every rank) or FAILED (on every rank: then there is no
 * manifest). After WRITTEN rank 0 asks its daemon to commit, and calls checkpoint_settle() with the
 * answer; committed starts retention in the writer's thread.
 *
 * Ownership: as each function says.
 * Units:     bytes, steps; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EBADMSG something does not verify (the text names object, expected and found hash);
 *            -ENOENT no such checkpoint; -EPROTONOSUPPORT a manifest of another version (nothing is
 *            wrong with it: don't strike it out); -ENOSPC and others from the store.
 * Threads:   the writer has one thread of its own and a comm of its own; the functions are the
 *            training thread's.
 */
#pragma once

#include "trainer/checkpoint/format/manifest.h"
#include "trainer/comm/comm.h"
#include "trainer/state/train-state.h"

#include <errno.h>

enum {
    CHECKPOINT_NOT_OWNER = ENOTUNIQ, /* -errno: the folder is another's, whom the text names */
};

/* From whom a writer may take the folder over. */
typedef enum OwnerTakes {
    OWNER_TAKES_NONE,  /* it is free, or this submission's */
    OWNER_TAKES_ONCE,  /* job start --resume: anybody's, unless this submission had it before */
    OWNER_TAKES_ALONE, /* that of a `sdtrainer run`, whose lock was free */
    OWNER_TAKES_ANY,   /* an operator says so: job recover (once: act), run --take-over */
} OwnerTakes;

typedef struct CheckpointClaim {
    OwnerTakes takes;
    bool alone; /* this is a `sdtrainer run` */
    /* NULL: none; else what it takes by, once: a claim that is made of it is not made again */
    const char *act;
} CheckpointClaim;

typedef struct CheckpointOwner CheckpointOwner;

/* Copies on a disk of this node: local.h. */
typedef struct CheckpointLocal CheckpointLocal;

/* Steps of a history that no object has metrics of; nothing else depends on them. */
typedef struct MetricsGap {
    int64_t n_steps;
    int64_t first, last; /* all of them lie between, if there are any */
} MetricsGap;

/* Folders that hold a manifest, newest step (then owner and generation) first. Caller frees with
 * store_list_clear; keys are folders, sizes and times the manifests'. */
int checkpoint_list(Store *store, StoreList *ret, Error *err);

/* Fills *state (all weights, own chunks, scalars), of any world size and ZeRO stage, from a
 * manifest that was read. Verifies every weight file, every own moment and the hash of every own
 * chunk; together the ranks verify all. What does not verify is read again before it is called
 * -EBADMSG. local, if not NULL, is read instead of the store where it has good copies; bad ones are
 * replaced. No rank waits for another. On failure *state is undefined. */
int checkpoint_restore(Store *store, const CheckpointLocal *local, const Manifest *manifest,
                       TrainState *state, Error *err);
/* Weights only (init from another run, sampling): unet or, when ema, unet_ema; flat, memory of the
 * device or, when that is NULL, the host's. */
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
    uint64_t blocked_usec;        /* what begin cost the training thread; all, when it blocks */
    uint64_t write_usec;
    uint64_t n_bytes; /* rank 0: of all ranks' objects */
} CheckpointResult;

typedef struct CheckpointOptions {
    Store *store;  /* borrowed; STORE_DEFER on it is the writer's from now on */
    Comm *reports; /* borrowed; the second, small comm, used by the writer's thread alone from now
                      on. Its timeout bounds how much longer the slowest rank may upload than the
                      fastest */
    const ParameterList *parameters; /* borrowed */
    const char *unet_config;         /* config.json's text (unet_config_format()); copied */
    CheckpointFacts facts;
    CheckpointClaim claim;
    int64_t keep_last;          /* committed checkpoints that stay, at least 2 */
    int64_t keep_every;         /* and those whose step it divides; 0: none */
    uint64_t weight_file_bytes; /* a weight file is cut before it grows larger; 0: 1 GiB */
    CheckpointLocal *local;     /* borrowed, the writer's from now on: what is put is kept there,
                                   too; NULL: nowhere */
    bool blocking; /* nothing is copied: what checkpoint_begin() is given stays as it is until that
                      save is over. (Memory that is not the host's is copied all the same.) */
} CheckpointOptions;

int checkpoint_writer_new(const CheckpointOptions *options, CheckpointWriter **ret, Error *err);
/* A save in progress is abandoned: its comm is aborted. Retention in progress is finished. */
CheckpointWriter *checkpoint_writer_free(CheckpointWriter *writer);
DEFINE_CLEANUP(CheckpointWriter, checkpoint_writer_free)

/* All ranks, at the same step. Copies this rank's part (unless the options say `blocking`) and
 * returns; the thread does the rest.
 * metrics (rank 0; NULL elsewhere): one line for each step in [metrics_first, metrics_last], those
 * since the last committed checkpoint; metrics_last = metrics_first - 1 and "" when there are none.
 * -EBUSY on rank 0 while the one before is written or not settled. Waits for retention, and on
 * other ranks for the end of the save before, which may come a message's time after rank 0's. */
int checkpoint_begin(CheckpointWriter *writer, const TrainState *state, const char *metrics,
                     int64_t metrics_first, int64_t metrics_last, Error *err);
/* A save is being written, waits for settle (rank 0), or old checkpoints are being removed: rank 0
 * asks this before it gives the word for a checkpoint that may as well be skipped. */
bool checkpoint_busy(CheckpointWriter *writer);
/* WRITTEN and FAILED are reported once; then IDLE. */
void checkpoint_poll(CheckpointWriter *writer, CheckpointResult *ret);
/* Waits until poll has WRITTEN or FAILED, or IDLE; -ETIMEDOUT. */
int checkpoint_wait(CheckpointWriter *writer, uint64_t timeout_usec, CheckpointResult *ret);
/* Readable when checkpoint_poll has news, so that a waiting loop can poll(2) it beside the channel.
 */
int checkpoint_writer_fd(const CheckpointWriter *writer);
/* Rank 0, after the daemon's answer to WRITTEN: committed makes the checkpoint and its metrics part
 * of the history, and starts retention; refused forgets them. */
void checkpoint_settle(CheckpointWriter *writer, bool committed);
/* Rank 0, before the first begin: the restored manifest and what was committed before it become the
 * beginning of this writer's history. (Not for a manifest of another job.) */
int checkpoint_adopt_history(CheckpointWriter *writer, const Manifest *manifest, Error *err);
/* Rank 0: which metrics of the history were missing when somebody last looked (after each commit). */
void checkpoint_gap(CheckpointWriter *writer, MetricsGap *ret);

/* Rank 0, while nothing is written, after checkpoint_adopt_history(): makes the folder this writer's
 * before its first save does, or, when it is, looks whether it still is. -CHECKPOINT_NOT_OWNER. *ret
 * stays the writer's; ret may be NULL. */
int checkpoint_claim(CheckpointWriter *writer, CheckpointOwner **ret, Error *err);
/* Rank 0 of a `sdtrainer run`, once nothing is written any more: the next run takes the folder over. */
int checkpoint_close(CheckpointWriter *writer, Error *err);

/* ---- retention; the writer does it by itself ---- */

typedef struct MetricsKept MetricsKept; /* metrics.h */

/* Removes what the history that ends with latest does not need; manifests before their objects.
 * Stays: the newest keep_last (at least 2) checkpoints of the history that are whole, every step
 * that keep_every divides, those beyond latest's step with their metrics, and all that belongs to a
 * newer generation or is not of the owner's history. Goes: the rest of the
 * history's checkpoints, those of older or this generation that are not in it (never committed, or
 * struck out), folders without a manifest, metrics that no manifest lists which stays. kept: what it
 * learnt the last time; may be NULL. Nothing goes when a newer generation has written anything. */
int checkpoint_retire(Store *store, CheckpointOwner *owner, const Manifest *latest,
                      int64_t keep_last, int64_t keep_every, MetricsKept *kept, size_t *ret_removed,
                      Error *err);

/* Removes what writers that died left unfinished (temporaries, multipart uploads), of this and older
 * generations of the owner's history. Nothing goes when a newer generation has written anything.
 * Nobody of this generation may be writing. */
int checkpoint_sweep(Store *store, CheckpointOwner *owner, int64_t generation, size_t *ret_removed,
                     Error *err);

/* All committed metrics of a manifest, one line per step, into `key` (metrics.jsonl), once, at the end.
 * Segments that are lost are a gap, unless the object that is there already has their lines. It is replaced
 * by what has all of its lines and ours; one of another history stays, and ours get a key of their own. */
int checkpoint_publish_metrics(Store *store, const Manifest *manifest, const char *key,
                               MetricsGap *ret_gap, Error *err);
