/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - the fields of a CheckpointWriter, shared by the sources that save: the data that the training thread hands
 * over, and the results of the writer's thread.
 *
 * Ownership: as each field says. Errors: as checkpoint.h.
 * Units:     elements, bytes, steps; *_usec is CLOCK_BOOTTIME microseconds.
 * Threads:   fields belong to the training thread until `task` is set, and then to the writer's thread until `task` is
 *            TASK_NONE again. Both threads may use the fields that the lock guards while they hold the lock.
 */
#pragma once

#include "trainer/checkpoint/metrics.h"
#include "trainer/checkpoint/owner.h"

#include <pthread.h>

typedef enum WriterTask { TASK_NONE, TASK_SAVE, TASK_RETIRE, TASK_MEASURE, TASK_QUIT } WriterTask;

typedef enum SnapshotKind {
    SNAPSHOT_WEIGHTS,
    SNAPSHOT_MOMENTS_M,
    SNAPSHOT_MOMENTS_V,
    SNAPSHOT_EMA,
    SNAPSHOT_KINDS
} SnapshotKind;

typedef struct SnapshotPart {
    /* Owned, from device_host_allocate(): the chunks that this rank needs in any save, in chunk order without gaps.
     * NULL: not allocated, or no chunk is needed. */
    float *memory;
    int64_t *places; /* owned, [n_chunks]: where each chunk that this rank needs begins in memory */
    const float *
        *chunks; /* owned, [n_chunks]: the address of each chunk in this save, in memory or in the
                             state itself; NULL: not saved */
} SnapshotPart;

/* This rank's part of the state at one step (snapshot.c). */
typedef struct Snapshot {
    Device *device; /* borrowed from the first state that was saved; NULL: no state was saved */
    SnapshotPart parts[SNAPSHOT_KINDS];
    /* memory for gathered data that are not kept: one chunk, or the whole EMA if it is gathered at once */
    float *scratch;
    Fence copied;         /* reached when the copies have arrived */
    Error error;          /* code 0: the copies were started, and have not failed */
    TrainScalars scalars; /* owns maxima */
    bool ema_active;
    /* Each rank gets the whole EMA, not only the chunks that it writes. This value is the same on all ranks. */
    bool ema_at_once;
    /* Each rank already has the EMA ranges that it writes. This value is the same on all ranks. */
    bool ema_complete;
    char *metrics; /* used only on rank 0 */
    int64_t metrics_first, metrics_last;
    Divergence divergence; /* used only on rank 0 */
    StepTimes step_times;  /* used only on rank 0 */
} Snapshot;

/* An EMA of up to this size is gathered at once, a larger EMA chunk by chunk. Tests lower this size before they make a
 * writer. */
extern size_t snapshot_ema_at_once_bytes;
/* Timeout for all copies of a save; tests lower it. */
extern uint64_t snapshot_timeout_usec;

/* A rank's report to the other ranks about one object that it has written. */
typedef struct ObjectReport {
    uint64_t index; /* index in the table of objects */
    uint64_t n_bytes;
    Hash hash;
    Hash chunk;   /* only for moments: the hash of the state's whole chunk */
    Hash header;  /* only for a weight file: the hash of the header */
    uint64_t crc; /* CRC-32C */
} ObjectReport;

typedef struct WriterReport {
    int64_t step;
    int64_t n_objects;
    Error error; /* code 0: every object of the rank is written */
    ObjectReport objects[];
} WriterReport;

struct CheckpointWriter {
    CheckpointOptions options; /* unet_config is owned */
    int rank, size;
    ChunkLayout layout;
    ObjectTable tables[2]; /* [0]: without the EMA; [1]: with the EMA */
    size_t objects_max;    /* the most objects that any rank writes */
    size_t report_bytes;   /* size of one WriterReport, the same on all ranks */
    WriterReport *reports; /* [size] reports, of report_bytes each */
    Snapshot snapshot;
    /* rank 0: the store has answered, and leftovers of dead writers are removed */
    bool asked;
    bool said_absent; /* rank 0: the log already says that the store lacks put-if-absent */
    char **texts;     /* [texts_max], owned; deferred puts point to them until the flush */
    size_t n_texts, texts_max;
    CheckpointOwner *owner; /* rank 0: NULL until the folder is claimed */
    bool claimed;           /* rank 0: the folder was claimed, and nothing was retired since then */
    /* rank 0: steps of checkpoints that evaluations read; changed only while the thread has no task */
    int64_t held[CHECKPOINT_HELD_MAX];
    size_t n_held;
    Manifest *written; /* rank 0: the manifest that waits for checkpoint_settle() */
    /* rank 0: the newest committed manifest; the next manifest continues its history */
    Manifest *latest;
    MetricsKept *kept;     /* used only on rank 0 */
    MetricsMissed *missed; /* used only on rank 0 */
    Divergence divergence; /* used only on rank 0: divergence as of the newest step */
    StepTimes step_times;  /* used only on rank 0: times up to the newest step */

    pthread_t thread;
    bool thread_runs;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    WriterTask task;         /* the lock guards this field */
    CheckpointResult result; /* the lock guards this field */
    MetricsGap gap;          /* the lock guards this field */
    CheckpointRoom room;     /* the lock guards this field */
    uint64_t measured_usec;  /* when room was last measured; the lock guards this field */
    uint64_t begun_usec;
};

const ObjectTable *writer_table(const CheckpointWriter *writer);
static inline WriterReport *writer_report(CheckpointWriter *writer, int rank)
{
    return (WriterReport *)((char *)writer->reports + (size_t)rank * writer->report_bytes);
}

/* Rank 0: claims the folder or, if it is claimed already, checks that no other owner has taken it over. */
int writer_own(CheckpointWriter *writer, Error *err);

/* Rank 0, in the writer's thread: removes committed checkpoints beyond keep_last. Nothing is removed before the folder
 * is claimed, or while this history has no commit. */
int writer_retire(CheckpointWriter *writer, Error *err);
/* Returns whether r, the error of a save, means that the store has no space. */
bool room_is_short(int r);
/* Rank 0, after a save that failed for lack of space has removed its objects: removes old checkpoints, and prefixes
 * *err with how much space is missing, where, and what would free it. */
void room_make(CheckpointWriter *writer, Error *err);
/* Returns about how many bytes the next save writes, and how many bytes the store has free. */
CheckpointRoom room_measure(const CheckpointWriter *writer);

/* Returns 0 or -ENOMEM. */
int snapshot_new(CheckpointWriter *writer);
void snapshot_clear(CheckpointWriter *writer);
/* Allocates the host memory for the copies of a state with the layout of `state`. Later calls allocate nothing. */
int snapshot_allocate(CheckpointWriter *writer, const TrainState *state, Error *err);
/* Starts the copies on LANE_OUT; a failure is stored in snapshot.error. */
void snapshot_take(CheckpointWriter *writer, const TrainState *state);
/* In the writer's thread: waits until the copies have arrived. */
int snapshot_await(CheckpointWriter *writer, Error *err);
/* Gives this rank the EMA that it writes. All ranks gather a small EMA at once (25 chunks by 25 broadcasts took 50 ms
 * on three ranks). A large EMA is broadcast one chunk at a time, and ranks that do not write a chunk drop it. */
int snapshot_gather_ema(CheckpointWriter *writer, Error *err);
/* Returns the address of [first, first + count) of the flat buffer. */
const float *snapshot_range(const CheckpointWriter *writer, SnapshotKind kind, int64_t first,
                            int64_t count);

/* Runs in the writer's thread: uploads the snapshot, gathers the ranks' reports, and writes the manifest. Fills the
 * fields uri, hash, digest and n_bytes of *result, or only its error. */
void checkpoint_save(CheckpointWriter *writer, CheckpointResult *result);
