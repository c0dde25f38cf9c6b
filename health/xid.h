/* SPDX-License-Identifier: Apache-2.0 */
/* xid.h - parses drivers' messages about devices in the kernel's log: records of /dev/kmsg, and in them NVIDIA's
 * Xids and SXids, GPUs that fell off the bus, errors of PCIe links, and the health of NICs.
 *
 * Ownership: values; texts are copied.
 * Units:     seq is the kernel's number of the record; at_usec is the kernel's CLOCK_MONOTONIC.
 * Errors:    -EBADMSG: not a record; -ENOENT: nothing about a device.
 * Threads:   any; no I/O, clock or memory.
 */
#pragma once

#include "health/xid-table.h"

enum {
    KMSG_RECORD_MAX = 8192,
    XID_TEXT_MAX = 160,
    PCI_ADDRESS_MAX = 16,
    XID_OFF_THE_BUS = 79,
    XID_PROGRAM_ENDED = 45,
};

typedef struct KernelRecord {
    uint64_t seq, at_usec;
    const char *text; /* borrowed, without a NUL */
    size_t n_text;
} KernelRecord;

/* Parses a line "priority,sequence,usec,flags[,...];text", without its newline. */
int kernel_record_parse(const char *line, size_t n, KernelRecord *ret);

typedef struct XidEvent {
    XidKind kind;
    int code; /* 0 for XID_PCIE and XID_NIC, which have no codes */
    XidWord word;
    char pci[PCI_ADDRESS_MAX]; /* "0000:3b:00"; empty: the record names none */
    int cause;                 /* for Xid 45: the Xid that ended the program; 0: no Xid is named */
    char text[XID_TEXT_MAX];   /* the kernel's text, in printable ASCII */
} XidEvent;

/* Recognises "NVRM: Xid (PCI:0000:3b:00): 79, ...", "... SXid (PCI:0000:c1:00.0): 12028, Fatal, ...", NVRM's
 * messages about a GPU that has "fallen off the bus" (as Xid 79), "nvidia 0000:3b:00.0: PCIe Bus Error:
 * severity=Uncorrected (Fatal), ...", and mlx5_core's reports of its health. */
int xid_parse(const char *text, size_t n, XidEvent *ret);
/* The driver reports a lost GPU in three lines, which may come as three records. Finds the address in the first
 * line, "NVRM: The NVIDIA GPU 0000:3b:00.0"; the third line has none. */
int xid_parse_gpu(const char *text, size_t n, char ret[PCI_ADDRESS_MAX]);
/* Returns the word in the text that decides the action. */
XidWord xid_word(XidKind kind, int code, const char *text);
/* Writes a label into ret: "Xid 79", "SXid 20034 (fatal)", "PCIe error (fatal)", "NIC error (fatal)". */
const char *xid_label(const XidEvent *event, char ret[XID_ROW_NAME_MAX]);

/* Converts "00000000:3B:00.0", "0000:3b:00.0" or "0000:3b:00" to "0000:3b:00"; else returns -EINVAL. */
int pci_address_parse(const char *text, size_t n, char ret[PCI_ADDRESS_MAX]);
