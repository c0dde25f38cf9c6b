/* checkpoint.h - saving and restoring the training state through a Store; manifest last, verified
 * always.
 *
 * A checkpoint is a folder of immutable objects under the job's checkpoint URI:
 *   step-<step, 10 digits>-g<generation>-<attempt>/
 *     manifest.json                                       written last, put-if-absent
 *     unet/config.json, unet/diffusion_pytorch_model*.safetensors (+ index)      what diffusers
 * loads unet_ema/...                                        once the EMA is active moments/c<chunk,
 * 6 digits>.bin                      m then v of one chunk, fp32 little-endian
 *   metrics/metrics-<first>-<last>-g<generation>-<attempt>.jsonl    listed in the manifest, never
 * removed with it
 *
 * Ownership: as each function says; borrows Store, Comm and Job.
 * Units:     bytes, steps.
 * Errors:    -EBADMSG something does not verify (the text names object, expected and found hash);
 * -ENOENT no such checkpoint; -ENOSPC and others from the store. A failed save leaves no manifest.
 * Threads:   the writer has one thread of its own and a comm of its own; the rest is the training
 * thread's.
 */
#pragma once

#include "store/store.h"
#include "trainer/api/job.h"
#include "trainer/comm/comm.h"
#include "trainer/state/train_state.h"

enum { CHECKPOINT_URI_MAX = 512, CHECKPOINT_NUMERICS_MAX = 1024 };

/* What a manifest records besides the state; the same on all ranks. */
typedef struct CheckpointFacts {
    char job[64];
    Hash job_identity;
    Hash dataset_digest;
    int64_t generation;
    char numerics[CHECKPOINT_NUMERICS_MAX]; /* canonical JSON */
    Hash canned_grain; /* hash of the canned grain's result under these numerics */
} CheckpointFacts;

typedef struct Manifest Manifest; /* parsed manifest.json */

/* Reads <store>/<key>/manifest.json or a manifest URI, checks its own hash when expected is not
 * NULL, and its form. */
int manifest_read(Store *store, const char *folder, const Hash *expected, Manifest **ret,
                  Error *err);
Manifest *manifest_free(Manifest *manifest);
DEFINE_CLEANUP(Manifest, manifest_free)
const CheckpointFacts *manifest_facts(const Manifest *manifest);
int64_t manifest_step(const Manifest *manifest);
Hash manifest_digest(const Manifest *manifest);
Hash manifest_hash(const Manifest *manifest);

/* Folders that hold a manifest, newest step first. Caller frees with store_list_clear (keys are
 * folders). */
int checkpoint_list(Store *store, StoreList *ret, Error *err);

/* Fills *state (all weights, own chunks, scalars) from a manifest that was read; verifies every
 * hash and the state digest (with comm: each rank hashes its chunks, gathered). */
int checkpoint_restore(Store *store, const Manifest *manifest, Comm *comm, TrainState *state,
                       Error *err);
/* Weights only (init from another run, sampling): unet or, when ema, unet_ema; flat host memory. */
int checkpoint_restore_weights(Store *store, const Manifest *manifest, bool ema,
                               const ParameterList *parameters, float *flat, Error *err);
bool manifest_has_ema(const Manifest *manifest);

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
    uint64_t blocked_usec;        /* what begin cost the training thread */
    uint64_t write_usec;
} CheckpointResult;

/* reports: the second, small comm, used by the writer's thread alone from now on. */
int checkpoint_writer_new(Store *store, Comm *reports, const UnetConfig *config,
                          const ParameterList *parameters, const ChunkLayout *layout,
                          const CheckpointFacts *facts, CheckpointWriter **ret, Error *err);
CheckpointWriter *checkpoint_writer_free(CheckpointWriter *writer);
DEFINE_CLEANUP(CheckpointWriter, checkpoint_writer_free)

/* All ranks, at the same step, while the writer is idle. Copies this rank's part and returns; the
 * thread does the rest. metrics: rank 0's lines since the last committed checkpoint (copied);
 * earlier: segment keys that a reader concatenates before it, kept by the writer from one commit to
 * the next (restored from the manifest). */
int checkpoint_begin(CheckpointWriter *writer, const TrainState *state, const char *metrics,
                     int64_t metrics_first, int64_t metrics_last, Error *err);
/* Rank 0 learns WRITTEN when the manifest is there; other ranks when their own part of the work is
 * over. WRITTEN and FAILED are reported once; then IDLE. */
void checkpoint_poll(CheckpointWriter *writer, CheckpointResult *ret);
int checkpoint_wait(CheckpointWriter *writer, uint64_t timeout_usec,
                    CheckpointResult *ret); /* -ETIMEDOUT */
/* Readable when checkpoint_poll has news, so that a waiting loop can poll(2) it beside the channel.
 */
int checkpoint_writer_fd(const CheckpointWriter *writer);
/* Rank 0, after the daemon's answer: committed makes the metrics segment part of the history;
 * refused forgets it. */
void checkpoint_settle(CheckpointWriter *writer, bool committed);
/* Segments of a restored manifest become the beginning of this writer's history. */
int checkpoint_adopt_history(CheckpointWriter *writer, const Manifest *manifest, Error *err);

/* Rank 0 after a commit: keeps the newest keep_last and every step that keep_every divides; removes
 * manifests first, then their objects, then folders without a manifest of older generations; at
 * least two verified checkpoints always remain. committed: steps' folders that the record in etcd
 * names, never removed while listed among the last two. */
int checkpoint_retire(Store *store, int64_t keep_last, int64_t keep_every, int64_t generation,
                      Error *err);

/* All committed metrics of a manifest, one line per step, into `key` (metrics.jsonl), once, at the
 * end. */
int checkpoint_publish_metrics(Store *store, const Manifest *manifest, Error *err);
