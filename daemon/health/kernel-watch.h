/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-watch.h - follows the kernel's log, so that a GPU's fatal error is known at once and not only after the
 * next round of probes.
 *
 * A flood of messages must not block the loop. So at most 256 records are read in one turn, with a pause between two
 * turns, and the number of records that the kernel overwrites meanwhile is logged.
 *
 * Ownership: part of the Probes; kernel_watch_clear() accepts a zeroed KernelWatch with fd -EBADF.
 * Units:     none.
 * Errors:    a log that can't be read is a finding where GPUs are expected, else a note.
 */
#pragma once

#include "daemon/loop/timer.h"
#include "health/gpus.h"
#include "health/kernel-log.h"
#include "health/verdict.h"

#include <systemd/sd-event.h>

typedef struct Probes Probes;

typedef struct KernelWatch {
    KernelLog log;
    uint64_t saved_seq; /* number of the next record, as last saved in state_dir */
    int fd;
    char carry[KMSG_RECORD_MAX]; /* the beginning of a line whose end was not read yet */
    size_t n_carry;
    sd_event_source *source;
    Timer rest; /* pause before the next turn of reading */
} KernelWatch;

/* Loads the state saved in state_dir, reads the records that the kernel's log already holds, and begins to follow
 * the log. */
void kernel_watch_start(Probes *p);
void kernel_watch_clear(KernelWatch *watch);

/* Judges the open faults again. Called after a round of probes, when slots may have become known, and after
 * xid_actions has changed. */
void kernel_watch_weigh(Probes *p);
/* Called after a round of probes. From then on, log records lost before the round do not count as a possible fault,
 * since the probes would have shown the fault. */
void kernel_watch_note_round(Probes *p);
/* Forgets the faults that only a reset would cure. Called when an operator declares the node repaired. */
void kernel_watch_forget(Probes *p);
