/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-log.h - GPU faults that the kernel's log has told and nobody has cured yet.
 *
 * The daemon reads the log again after a restart. An event has the key (boot id, record's sequence),
 * so that none is counted twice and none is missed. A reboot ends an event, and so does the driver's
 * message that the GPU was reset (154 to "None"), or an operator; a restart of the daemon does not.
 *
 * Ownership: a value; kernel_log_format() gives the caller a string.
 * Units:     seq is the kernel's number of a record; at_usec is CLOCK_REALTIME microseconds.
 * Errors:    -EBADMSG: not a kernel log's state.
 * Threads:   loop thread only; no I/O.
 */
#pragma once

#include "health/probe.h"
#include "health/xid.h"

enum { KERNEL_LOG_EVENTS_MAX = 32 };

typedef struct KernelEvent {
    XidEvent xid;
    uint64_t first_seq, last_seq, at_usec;
    int count;
} KernelEvent;

typedef struct KernelLog {
    char boot_id[40];
    uint64_t next_seq; /* records before this number were read; 0: none was */
    KernelEvent events[KERNEL_LOG_EVENTS_MAX];
    size_t n_events;
    int noted;     /* number of events that ask for nothing (a program's fault, a monitored one) */
    uint64_t lost; /* number of records that were overwritten before they were read */
    char unread[128];  /* why the log cannot be read; empty: it can */
    bool is_needed;    /* a log that cannot be read is a fault */
    bool lost_is_news; /* records were lost since the last round of probes */
} KernelLog;

/* Forgets the events of every boot but this one. */
void kernel_log_begin(KernelLog *log, const char *boot_id);
/* Reads one record; returns true when an event is new or was cured. */
bool kernel_log_take(KernelLog *log, const char *line, size_t n, uint64_t now_usec);
/* Adds the open events to *ret as findings. gpus[i] is the PCI address of slot i. */
void kernel_log_judge(const KernelLog *log, const char (*gpus)[PCI_ADDRESS_MAX], size_t n_gpus,
                      ProbeResult *ret);
/* Forgets every event, since an operator says that the GPUs are repaired. */
void kernel_log_forget(KernelLog *log);

int kernel_log_format(const KernelLog *log, char **ret);
int kernel_log_parse(const char *source, const char *text, size_t n_bytes, KernelLog *ret,
                     Error *err);
