/* SPDX-License-Identifier: Apache-2.0 */
/* xid-table.h - what each word of a driver asks for: a table of rows, and what the settings put in place of some.
 *
 * A row is named as the setting xid_actions names it: "79", "149 fatal", "sxid nonfatal", "pcie fatal".
 *
 * Ownership: values; rows are constants.
 * Units:     none.
 * Errors:    -EINVAL with text: no such row, or no such action.
 * Threads:   any; no I/O or clock.
 */
#pragma once

#include "base/error.h"
#include "health/fault.h"

#include <jansson.h>

enum { XID_CODE_MAX = 99999, XID_ANY = -1, XID_OVERRIDES_MAX = 64, XID_ROW_NAME_MAX = 40 };

/* The driver that speaks, and of which device. */
typedef enum XidKind {
    XID_GPU,    /* an Xid */
    XID_SWITCH, /* an SXid: of an NVSwitch */
    XID_PCIE,   /* the kernel's report of an error on the PCIe link of a GPU or an NVSwitch */
    XID_NIC,    /* the same of an EFA or mlx5 device, and what mlx5 says of its own health */
    XID_KINDS,
} XidKind;

/* The word in the text that decides. */
typedef enum XidWord {
    XID_WORD_NONE,
    XID_WORD_NONFATAL,
    XID_WORD_FATAL,
    XID_WORD_CURED, /* of 154: the recovery action is "None" now */
    XID_WORD_RESET,
    XID_WORD_REBOOT,
    XID_WORDS,
} XidWord;

typedef enum XidAction {
    XID_NOTE, /* counted and shown */
    XID_PROGRAM, /* a note, for it is a program's fault; of several programs on one GPU it is suspect */
    XID_SUSPECT, /* told; "contact support", and what is not in the table */
    XID_RESET,   /* drain at the next checkpoint, then reset the GPU */
    XID_REBOOT,  /* isolate, reboot */
    XID_ISOLATE, /* isolate the node */
    XID_ISOLATE_SLOT,
    XID_CURED, /* the driver says that the GPU was reset */
    XID_ACTIONS,
} XidAction;

typedef struct XidRow {
    XidKind kind;
    int first, last; /* codes; XID_ANY: all of the kind */
    int word;        /* an XidWord, or XID_ANY */
    XidAction action;
    const char *sources; /* whoever names it so; NULL: the settings */
} XidRow;

/* Rows that the settings put in place of the table's. A zeroed list changes nothing. */
typedef struct XidOverrides {
    XidRow rows[XID_OVERRIDES_MAX];
    size_t n;
} XidOverrides;

/* Reads {"ROW": "ACTION", ...}; NULL is an empty one. The text of an error begins with the row. */
int xid_overrides_read(const json_t *map, XidOverrides *ret, Error *err);
/* Takes the row that says most of those that fit: code and word, code, word. The settings' go before the table's. */
XidAction xid_action(const XidOverrides *overrides, XidKind kind, int code, XidWord word);
/* Gives the fault of an action; false: the action is not a fault. */
bool xid_fault(XidAction action, XidKind kind, FaultCode *ret);

const XidRow *xid_table(size_t *ret_n);
const char *xid_row_name(const XidRow *row, char ret[XID_ROW_NAME_MAX]);
const char *xid_action_name(XidAction action);
const char *xid_word_name(XidWord word); /* "": none */
