/* SPDX-License-Identifier: Apache-2.0 */
/* xid.h - the kernel's messages about NVIDIA GPUs and switches: records of /dev/kmsg, Xid and SXid
 * in them, and what each code asks for.
 *
 * Ownership: values; texts are copied.
 * Units:     seq is the kernel's number of the record; at_usec is the kernel's CLOCK_MONOTONIC.
 * Errors:    -EBADMSG: not a record; -ENOENT: nothing about a GPU.
 * Threads:   any; no I/O, clock or memory.
 */
#pragma once

#include "health/fault.h"

enum { KMSG_RECORD_MAX = 8192, XID_TEXT_MAX = 160, PCI_ADDRESS_MAX = 16 };

typedef struct KernelRecord {
    uint64_t seq, at_usec;
    const char *text; /* borrowed, without a NUL */
    size_t n_text;
} KernelRecord;

/* Parses a line "priority,sequence,usec,flags[,...];text", without its newline. */
int kernel_record_parse(const char *line, size_t n, KernelRecord *ret);

typedef enum XidAction {
    XID_IGNORE,
    XID_APPLICATION, /* the program's own fault, or one that stays in the program */
    XID_MONITOR,     /* counted and shown */
    XID_SUSPECT,     /* not in the table, or "contact support" */
    XID_RESET,       /* drain at the next checkpoint, then reset the GPU */
    XID_REBOOT,      /* isolate, reboot */
    XID_ISOLATE,     /* isolate the node */
    XID_ISOLATE_SLOT,
    XID_CURED, /* 154 to "None": the driver says that it was reset */
} XidAction;

typedef struct XidEvent {
    int code;
    bool is_switch;            /* an SXid */
    char pci[PCI_ADDRESS_MAX]; /* "0000:3b:00" */
    XidAction action;
    char text[XID_TEXT_MAX]; /* the kernel's words, printable ASCII */
} XidEvent;

/* Finds "NVRM: Xid (PCI:0000:3b:00): 79, ..." or "... SXid (PCI:0000:c1:00.0): 12028, Fatal, ...". */
int xid_parse(const char *text, size_t n, XidEvent *ret);
/* Looks the code up in the table of actions; 154 and SXids go by their text. Unknown codes are suspect. */
XidAction xid_judge(int code, bool is_switch, const char *text);
/* Gives the fault of an action; false: the action is no fault. */
bool xid_fault(XidAction action, FaultCode *ret);

/* Reads "00000000:3B:00.0", "0000:3b:00.0" or "0000:3b:00" as "0000:3b:00"; -EINVAL. */
int pci_address_parse(const char *text, size_t n, char ret[PCI_ADDRESS_MAX]);
