/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - progress/<job>, written by rank 0's node at most once a second.
 *
 * The first step of a world is written at once, and so is the job's last.
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
    ProgressRecord record; /* what rank 0 said last; generation 0: nothing yet */
    uint64_t sent_usec;    /* when it was last given to the writer, CLOCK_BOOTTIME; 0: never */
    Timer timer;           /* runs until the second is over and there is something to write */
} Progress;

void progress_init(Progress *progress, LocalWorld *local);
void progress_clear(Progress *progress);
/* Rank 0 has finished a step. */
void progress_note(Progress *progress, const ChannelMessage *step);
/* From this length a wait for data or for a save is written; the next step ends it. */
enum { PROGRESS_WAIT_SEC = 20 };
/* Rank 0 waits for at least PROGRESS_WAIT_SEC. */
void progress_note_wait(Progress *progress, const ChannelMessage *stage);
