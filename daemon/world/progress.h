/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - progress/<job>, written by rank 0's node at most once a second.
 *
 * The first step of a world is written at once, and so is the job's last step.
 *
 * Ownership: part of a LocalWorld.
 * Units:     steps, samples, seconds.
 * Errors:    as record-writer.h.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/world/record-writer.h"
#include "protocol/channel.h"

typedef struct Progress {
    RecordWriter writer;
    ProgressRecord record; /* rank 0's last progress; generation 0: none yet */
    uint64_t sent_usec; /* when the record was last given to the writer, CLOCK_BOOTTIME; 0: never */
    Timer timer;        /* runs until a second after the last write, if new progress waits */
} Progress;

void progress_init(Progress *progress, LocalWorld *local);
void progress_clear(Progress *progress);
/* Notes a step that rank 0 has finished. */
void progress_note(Progress *progress, const ChannelMessage *step);
/* Seconds after which a wait for data or for a save is written; the next step ends the wait. */
enum { PROGRESS_WAIT_SEC = 20 };
/* Notes that rank 0 has waited for at least PROGRESS_WAIT_SEC. */
void progress_note_wait(Progress *progress, const ChannelMessage *stage);
