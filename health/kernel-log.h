/* kernel-log.h - what the kernel's log has said about GPUs and nobody has cured yet.
 *
 * Each event has the key (boot id, record's sequence), so that reading the log again after a
 * restart of the daemon neither counts one twice nor misses those that came meanwhile. An event
 * goes by a reboot, by the driver's word that the GPU was reset (154 to "None"), or by an
 * operator's; never by a restart.
 *
 * Ownership: a value; kernel_log_format() gives the caller a string.
 * Units:     seq is the kernel's; at_usec is CLOCK_REALTIME microseconds.
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
    uint64_t next_seq; /* records before it are known; 0: none */
    KernelEvent events[KERNEL_LOG_EVENTS_MAX];
    size_t n_events;
    int noted;         /* events that ask for nothing: of programs, monitored */
    uint64_t lost;     /* records that were overwritten before they were read */
    char unread[128];  /* why the log can't be read; empty: it can */
    bool is_needed;    /* not to be read is a fault */
    bool lost_is_news; /* until the next round of probes is over */
} KernelLog;

/* Forgets what was before that boot. */
void kernel_log_begin(KernelLog *log, const char *boot_id);
/* One record. True when something is wrong that was not before, or has been cured. */
bool kernel_log_take(KernelLog *log, const char *line, size_t n, uint64_t now_usec);
/* What is open, as findings; slot by PCI address (gpus[i] is that of slot i). */
void kernel_log_judge(const KernelLog *log, const char (*gpus)[PCI_ADDRESS_MAX], size_t n_gpus,
                      ProbeResult *ret);
/* Somebody says that it is repaired. */
void kernel_log_forget(KernelLog *log);

int kernel_log_format(const KernelLog *log, char **ret);
int kernel_log_parse(const char *source, const char *text, size_t n_bytes, KernelLog *ret,
                     Error *err);
