/* writer.h - the writer's inside: what the training thread hands over and the thread
 * that saves.
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

typedef enum WriterTask { TASK_NONE, TASK_SAVE, TASK_RETIRE, TASK_QUIT } WriterTask;

/* [n_elements] each, reserved; touched only where this rank needs them, so they cost what is copied. Kept
 * from save to save. */
typedef struct SnapshotCopies {
    float *weights, *m, *v, *ema;
} SnapshotCopies;

/* This rank's part of the state at one step, in host memory: copies, or, when the save blocks, what
 * can be written from the state itself. */
typedef struct Snapshot {
    SnapshotCopies copies;
    const float *weights; /* as the flat parameter buffer */
    const float *m, *v;   /* chunk c is the (c / n_shards)-th */
    int n_shards;
    float *ema;           /* as the flat parameter buffer; what is gathered goes to the copies */
    TrainScalars scalars; /* owns maxima */
    bool ema_active;
    bool ema_complete; /* the EMA ranges this rank writes are here already, on all ranks alike */
    char *metrics;     /* rank 0 */
    int64_t metrics_first, metrics_last;
} Snapshot;

/* What one rank tells the others about one object it wrote. */
typedef struct ObjectReport {
    uint64_t index; /* in the table */
    uint64_t n_bytes;
    Hash hash;
    Hash chunk;  /* of the state's chunk, with its moments */
    Hash header; /* of a weight file's header */
    uint64_t crc;
} ObjectReport;

typedef struct WriterReport {
    int64_t step;
    int64_t n_objects;
    Error error; /* code 0: all are written */
    ObjectReport objects[];
} WriterReport;

struct CheckpointWriter {
    CheckpointOptions options; /* unet_config is owned */
    int rank, size;
    ChunkLayout layout;
    ObjectTable tables[2]; /* without and with EMA */
    size_t objects_max;    /* that any rank writes */
    size_t report_bytes;   /* of one WriterReport, the same on all ranks */
    WriterReport *reports; /* [size] of report_bytes each */
    Snapshot snapshot;
    float *scratch;           /* one chunk, for what passes by */
    size_t ema_at_once_bytes; /* a larger EMA is gathered chunk by chunk; tests set it to 0 */
    bool asked;               /* rank 0: the store answers; leftovers of dead writers are gone */
    bool said_absent;         /* rank 0: that it cannot put if absent */
    char **texts;             /* [texts_max], owned: what deferred puts point to */
    size_t n_texts, texts_max;
    CheckpointOwner *owner; /* rank 0: NULL until the folder is claimed */
    Manifest *written;      /* rank 0: waits for settle */
    Manifest *latest;       /* rank 0: the newest committed one: the history */
    MetricsKept *kept;

    pthread_t thread;
    bool thread_runs;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    WriterTask task;         /* lock */
    CheckpointResult result; /* lock */
    MetricsGap gap;          /* lock */
    uint64_t begun_usec;
};

const ObjectTable *writer_table(const CheckpointWriter *writer);
static inline WriterReport *writer_report(CheckpointWriter *writer, int rank)
{
    return (WriterReport *)((char *)writer->reports + (size_t)rank * writer->report_bytes);
}

/* Rank 0: claims the folder, or looks whether it is this writer's still. */
int writer_own(CheckpointWriter *writer, Error *err);

/* Runs in the writer's thread: uploads the snapshot, gathers, writes the manifest. Fills
 * result->uri, hash, digest, or error. */
void checkpoint_save(CheckpointWriter *writer, CheckpointResult *result);
