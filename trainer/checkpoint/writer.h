/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - the inside of a CheckpointWriter, shared by the sources that save: what the training
 * thread hands over, and what the writer's thread makes of it.
 *
 * Ownership: as each field says.
 * Units:     elements, bytes, steps; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    as checkpoint.h.
 * Threads:   fields are the training thread's until `task` is set and the writer thread's until it
 *            is TASK_NONE again; those marked "lock" may be read by either, under it.
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
    float *memory;   /* owned, from device_host_allocate(): the chunks that this rank ever needs, in
                             chunk order without gaps; NULL: not had, or none needed */
    int64_t *places; /* owned, [n_chunks]: where a chunk that this rank needs begins in memory */
    const float *
        *chunks; /* owned, [n_chunks]: where a chunk is read in this save, in memory or in the
                             state itself; NULL: nowhere */
} SnapshotPart;

/* This rank's part of the state at one step (snapshot.c). */
typedef struct Snapshot {
    Device *device; /* borrowed from the first state that was saved; NULL: none was */
    SnapshotPart parts[SNAPSHOT_KINDS];
    float *
        scratch; /* one chunk, or the whole EMA if it is gathered at once: what is gathered and not kept */
    Fence copied;         /* the copies have arrived */
    Error error;          /* code 0: the copies were put on their way, and did not fail */
    TrainScalars scalars; /* owns maxima */
    bool ema_active;
    bool
        ema_at_once; /* on all ranks alike: each gets the whole EMA, not the chunks that it writes */
    bool ema_complete; /* on all ranks alike: each has the EMA ranges that it writes already */
    char *metrics;     /* rank 0 */
    int64_t metrics_first, metrics_last;
    Divergence divergence; /* rank 0 */
    StepTimes step_times;  /* rank 0 */
} Snapshot;

/* A larger EMA is gathered chunk by chunk; tests lower it before they make a writer. */
extern size_t snapshot_ema_at_once_bytes;
/* How long all copies of a save may take; tests lower it. */
extern uint64_t snapshot_timeout_usec;

/* A rank's report to the others about one object that it wrote. */
typedef struct ObjectReport {
    uint64_t index; /* in the table of objects */
    uint64_t n_bytes;
    Hash hash;
    Hash chunk;   /* of moments: the hash of the state's whole chunk */
    Hash header;  /* of a weight file: the hash of its header */
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
    ObjectTable tables[2]; /* [0] without EMA, [1] with it */
    size_t objects_max;    /* the most objects that any rank writes */
    size_t report_bytes;   /* size of one WriterReport, the same on all ranks */
    WriterReport *reports; /* [size] of report_bytes each */
    Snapshot snapshot;
    bool asked;       /* rank 0: the store has answered, leftovers of dead writers are gone */
    bool said_absent; /* rank 0: the log says already that the store lacks put-if-absent */
    char **texts;     /* [texts_max], owned; deferred puts point to them until the flush */
    size_t n_texts, texts_max;
    CheckpointOwner *owner; /* rank 0: NULL until the folder is claimed */
    bool claimed;           /* rank 0: the folder was claimed, and nothing was retired since */
    Manifest *written;      /* rank 0: waits for checkpoint_settle() */
    Manifest *latest;       /* rank 0: the newest committed one; its history goes on */
    MetricsKept *kept;      /* rank 0 */
    MetricsMissed *missed;  /* rank 0 */
    Divergence divergence;  /* rank 0: of the newest step */
    StepTimes step_times;   /* rank 0: up to it */

    pthread_t thread;
    bool thread_runs;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    WriterTask task;         /* lock */
    CheckpointResult result; /* lock */
    MetricsGap gap;          /* lock */
    CheckpointRoom room;     /* lock */
    uint64_t measured_usec;  /* lock: when room was asked for */
    uint64_t begun_usec;
};

const ObjectTable *writer_table(const CheckpointWriter *writer);
static inline WriterReport *writer_report(CheckpointWriter *writer, int rank)
{
    return (WriterReport *)((char *)writer->reports + (size_t)rank * writer->report_bytes);
}

/* Rank 0: claims the folder or, once claimed, checks that no other has taken it over. */
int writer_own(CheckpointWriter *writer, Error *err);

/* Rank 0, in the writer's thread: removes what lies beyond keep_last of what is committed. Nothing goes before the
 * folder is claimed, or while this history has no commit. */
int writer_retire(CheckpointWriter *writer, Error *err);
/* A save failed since its store has no room. */
bool room_is_short(int r);
/* Rank 0, after such a save has taken its objects back: old checkpoints go, and *err tells in front of what the store
 * said how much is missing, where, and what makes room. */
void room_make(CheckpointWriter *writer, Error *err);
/* About how many bytes the next save writes, and how many its store has. */
CheckpointRoom room_measure(const CheckpointWriter *writer);

/* -ENOMEM. */
int snapshot_new(CheckpointWriter *writer);
void snapshot_clear(CheckpointWriter *writer);
/* Gets the host memory of all copies of such a state, once. */
int snapshot_allocate(CheckpointWriter *writer, const TrainState *state, Error *err);
/* Puts the copies on LANE_OUT; a failure is snapshot.error. */
void snapshot_take(CheckpointWriter *writer, const TrainState *state);
/* In the writer's thread: waits until the copies have arrived. */
int snapshot_await(CheckpointWriter *writer, Error *err);
/* Brings the EMA that this rank writes to this rank. A small one goes to all ranks at once (25 chunks by 25
 * broadcasts took 50 ms on three ranks); of a large one each chunk does, one at a time, and ranks that do not write
 * it drop it. */
int snapshot_gather_ema(CheckpointWriter *writer, Error *err);
/* Where [first, first + count) of the flat buffer is read. */
const float *snapshot_range(const CheckpointWriter *writer, SnapshotKind kind, int64_t first,
                            int64_t count);

/* Runs in the writer's thread: uploads the snapshot, gathers, writes the manifest. Fills
 * result->uri, hash, digest, or error. */
void checkpoint_save(CheckpointWriter *writer, CheckpointResult *result);
