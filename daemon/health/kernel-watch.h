/* kernel-watch.h - follows the kernel's log, so that a GPU's fatal word is known at once and not at
 * the next round of probes.
 *
 * Reads without blocking, a bounded number of records a turn; under a storm of messages it rests
 * in between, and what the kernel overwrites meanwhile is said.
 *
 * Ownership: part of the Manager; kernel_watch_clear() accepts a zeroed one with fd -EBADF.
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
    uint64_t saved_seq; /* of what lies in state_dir */
    int fd;
    char carry[KMSG_RECORD_MAX]; /* the beginning of a line whose end is not there yet */
    size_t n_carry;
    sd_event_source *source;
    Timer rest;
} KernelWatch;

/* Reads what is remembered and what the log holds already. */
void kernel_watch_start(Probes *p);
void kernel_watch_clear(KernelWatch *watch);

/* Weighs what is open again: after a round, when slots may have become known. */
void kernel_watch_weigh(Probes *p);
/* A round of probes is over: what was lost can't hide a fault that still shows. */
void kernel_watch_note_round(Probes *p);
/* Somebody says that it is repaired. */
void kernel_watch_forget(Probes *p);
