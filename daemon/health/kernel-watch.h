/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-watch.h - follows the kernel's log, so that a GPU's fatal word is known at once and not at
 * the next round of probes.
 *
 * A storm of messages must not keep the loop from everything else. So 256 records a turn are read, with a rest in
 * between, and the number of records that the kernel overwrites meanwhile is logged.
 *
 * Ownership: part of the Probes; kernel_watch_clear() accepts a zeroed one with fd -EBADF.
 * Units:     none.
 * Errors:    a log that can't be read is a finding where GPUs are expected, else a note.
 * Threads:   loop thread only.
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
    uint64_t saved_seq; /* number of the next record, as the file in state_dir has it */
    int fd;
    char carry[KMSG_RECORD_MAX]; /* the beginning of a line whose end was not read yet */
    size_t n_carry;
    sd_event_source *source;
    Timer rest; /* until the log is read on */
} KernelWatch;

/* Reads the file in state_dir, and what the log holds already. */
void kernel_watch_start(Probes *p);
void kernel_watch_clear(KernelWatch *watch);

/* Judges the open faults again: after a round, when slots may have become known, and when xid_actions has changed. */
void kernel_watch_weigh(Probes *p);
/* A round of probes is over: records lost before it hide no fault, since the probes would show it. */
void kernel_watch_note_round(Probes *p);
/* An operator says that the node is repaired: forgets the faults that only a reset would cure. */
void kernel_watch_forget(Probes *p);
