/* progress.h - progress/<job>, written by rank 0's node at most once a second.
 *
 * The first step of a world goes out at once, and so does the job's last.
 *
 * Ownership: part of a LocalWorld.
 * Units:     steps, samples, seconds.
 * Errors:    as record-writer.h.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/world/record-writer.h"
#include "protocol/channel.h"

typedef struct Progress {
    RecordWriter writer;
    ProgressRecord record;
    uint64_t sent_usec; /* boottime; 0: never */
    Timer timer;
} Progress;

void progress_init(Progress *progress, LocalWorld *local);
void progress_clear(Progress *progress);
void progress_note(Progress *progress, const ChannelMessage *step);
/* A wait for data, or for a save, is worth a record when it is that long; the next step ends it. */
enum { PROGRESS_WAIT_SEC = 20 };
void progress_note_wait(Progress *progress, const ChannelMessage *stage);
