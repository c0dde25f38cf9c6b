/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-log.h - faults of devices that the kernel's log has reported and that are not cured yet.
 *
 * The daemon reads the log again after a restart. The key of an event is (boot id, number of the record), so that no
 * event is counted twice or missed. An event ends at a reboot, at the driver's message that the GPU was reset (154
 * to "None"), or by an operator; a restart of the daemon does not end it.
 *
 * A program's fault (Xid 13, 31, 43) needs no action, since programs have bugs. XID_REPEATS of them in a day on one
 * GPU, in programs of XID_REPEATS_SUBMISSIONS submissions at least, make that GPU suspect. Faults of the program of
 * one submission within XID_BURST_SEC count once: a crash has many lines, and a 13 is followed by a 43. NVSentinel
 * counts Xids 13 and 31 in a similar way.
 *
 * Ownership: a value; kernel_log_format() gives the caller a string.
 * Units:     seq is the kernel's number of a record; at_usec is CLOCK_REALTIME microseconds, boot_usec
 *            CLOCK_BOOTTIME.
 * Errors:    -EBADMSG: not a kernel log's state.
 * Threads:   loop thread only; no I/O.
 */
#pragma once

#include "health/probe.h"
#include "health/xid.h"

enum {
    KERNEL_LOG_EVENTS_MAX = 32,
    KERNEL_LOG_PROGRAMS_MAX = 64,
    KERNEL_LOG_SUBMISSION_MAX = 32,
    XID_REPEATS = 3,
    XID_REPEATS_SUBMISSIONS = 2,
    XID_REPEATS_SEC = 24 * 3600,
    XID_BURST_SEC = 180,
};

typedef char PciAddress[PCI_ADDRESS_MAX];
typedef char SubmissionId[KERNEL_LOG_SUBMISSION_MAX + 1];

/* The facts about the machine that the log is judged with. */
typedef struct KernelScene {
    uint64_t now_usec;  /* CLOCK_REALTIME */
    uint64_t boot_usec; /* CLOCK_BOOTTIME */
    XidOverrides overrides;
    const PciAddress *gpus; /* the GPU of slot i */
    size_t n_gpus;
    const SubmissionId *submissions; /* submission of slot i's present or last rank; empty: none */
    size_t n_submissions;
} KernelScene;

/* A program's fault. */
typedef struct KernelProgram {
    int code; /* code of the last record */
    PciAddress pci;
    SubmissionId submission;
    uint64_t boot_usec; /* time of the first record */
} KernelProgram;

typedef struct KernelEvent {
    XidEvent xid;
    uint64_t first_seq, last_seq, at_usec;
    int count;
} KernelEvent;

typedef struct KernelLog {
    char boot_id[40];
    uint64_t next_seq; /* number of the next record to read; 0: no record was read */
    KernelEvent events[KERNEL_LOG_EVENTS_MAX];
    size_t n_events;
    KernelProgram programs[KERNEL_LOG_PROGRAMS_MAX]; /* the oldest first */
    size_t n_programs;
    int noted; /* number of events that need no action */
    /* the last event that needs no action: "Xid 45 on 0000:dc:00, caused by Xid 149" */
    char note[XID_TEXT_MAX];
    PciAddress pending; /* the GPU of a message that may go on in the next records */
    uint64_t pending_seq;
    uint64_t lost;     /* number of records that were overwritten before they were read */
    char unread[128];  /* why the log cannot be read; empty: it can */
    bool is_needed;    /* whether a log that cannot be read is a fault */
    bool lost_is_news; /* records were lost since the last round of probes */
} KernelLog;

/* Forgets all events if they are of another boot. */
void kernel_log_begin(KernelLog *log, const char *boot_id);
/* Processes one record. Returns whether an event is new, has become worse, or was cured. */
bool kernel_log_take(KernelLog *log, const KernelScene *scene, const char *line, size_t n);
/* Adds the open events to *ret as findings. */
void kernel_log_judge(const KernelLog *log, const KernelScene *scene, ProbeResult *ret);
/* Forgets all events. Called when an operator declares the GPUs repaired. */
void kernel_log_forget(KernelLog *log);

int kernel_log_format(const KernelLog *log, char **ret);
int kernel_log_parse(const char *source, const char *text, size_t n_bytes, KernelLog *ret,
                     Error *err);
