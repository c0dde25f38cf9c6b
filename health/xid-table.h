/* SPDX-License-Identifier: Apache-2.0 */
/* xid-table.h - the action for each message of a driver: a table of rows, some of which the settings may replace.
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

/* The driver that reports an event, and the kind of device. */
typedef enum XidKind {
    XID_GPU,    /* an Xid */
    XID_SWITCH, /* an SXid, of an NVSwitch */
    XID_PCIE,   /* the kernel's report of an error on the PCIe link of a GPU or an NVSwitch */
    XID_NIC,    /* a PCIe error of an EFA or mlx5 device, or mlx5's report of its own health */
    XID_KINDS,
} XidKind;

/* The word in the message that decides the action. */
typedef enum XidWord {
    XID_WORD_NONE,
    XID_WORD_NONFATAL,
    XID_WORD_FATAL,
    XID_WORD_CURED, /* for 154: the recovery action is "None" now */
    XID_WORD_RESET,
    XID_WORD_REBOOT,
    XID_WORDS,
} XidWord;

typedef enum XidAction {
    XID_NOTE,    /* counted and shown */
    XID_PROGRAM, /* a program's fault: noted; faults of several programs make the GPU suspect */
    XID_SUSPECT, /* makes the node suspect; for "contact support" and for unknown codes */
    XID_RESET,   /* drain at the next checkpoint, then reset the GPU */
    XID_REBOOT,  /* isolate the node, then reboot it */
    XID_ISOLATE, /* isolate the node */
    XID_ISOLATE_SLOT,
    XID_CURED, /* the driver reports that the GPU was reset */
    XID_ACTIONS,
} XidAction;

typedef struct XidRow {
    XidKind kind;
    int first, last; /* range of codes; XID_ANY: all codes of the kind */
    int word;        /* an XidWord, or XID_ANY */
    XidAction action;
    const char *sources; /* the sources of the action; NULL: the row is from the settings */
} XidRow;

/* Rows of the settings that replace rows of the table. A zeroed list changes nothing. */
typedef struct XidOverrides {
    XidRow rows[XID_OVERRIDES_MAX];
    size_t n;
} XidOverrides;

/* Reads {"ROW": "ACTION", ...}; NULL counts as an empty object. The text of an error begins with the row. */
int xid_overrides_read(const json_t *map, XidOverrides *ret, Error *err);
/* Returns the action of the most specific row that fits: by code and word, by code, or by word. Rows of the settings
 * take precedence over the table. */
XidAction xid_action(const XidOverrides *overrides, XidKind kind, int code, XidWord word);
/* Returns the fault of an action in *ret; false: the action is not a fault. */
bool xid_fault(XidAction action, XidKind kind, FaultCode *ret);

/* For the documents: returns the rows of the table. */
const XidRow *xid_table(size_t *ret_n);
/* For the documents: writes the name of a row, for example "sxid 12028". */
const char *xid_row_name(const XidRow *row, char ret[XID_ROW_NAME_MAX]);
/* For the documents: returns the name of an action. */
const char *xid_action_name(XidAction action);
const char *xid_word_name(XidWord word); /* "": no word */
