/* SPDX-License-Identifier: Apache-2.0 */
/* xid-table.c - see xid-table.h. docs/reference/xids.md is made from the table. */
#include "health/xid-table.h"

#include "base/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

/* Sources: "catalogue" is NVIDIA's list of Xids with its bucket of actions; "EKS" what the EKS node monitoring agent
 *          calls fatal; "AzNHC" what azurehpc-health-checks does; "gpud", "NVSentinel" and "kernel" are the source
 *          code of these. */
/* clang-format off */
static const XidRow table[] = {
    /* Usually a program's fault. */
    {XID_GPU, 13, 13, XID_ANY, XID_PROGRAM, "catalogue: application; NVSentinel: repeated, diagnostics"},
    {XID_GPU, 31, 31, XID_ANY, XID_PROGRAM, "catalogue: application; NVSentinel: repeated, diagnostics"},
    {XID_GPU, 43, 43, XID_ANY, XID_PROGRAM, "catalogue: ignore, a program's"},
    /* A program was ended: the text names the Xid that caused it. */
    {XID_GPU, 45, 45, XID_ANY, XID_NOTE, "catalogue: ignore, see the Xid that caused it"},
    {XID_GPU, 46, 46, XID_ANY, XID_RESET, "EKS"},
    /* 48 and 95 spoil the data in that GPU's memory. */
    {XID_GPU, 48, 48, XID_ANY, XID_ISOLATE_SLOT, "catalogue: reset; EKS; AzNHC"},
    {XID_GPU, 54, 54, XID_ANY, XID_ISOLATE, "catalogue: power cables; EKS"},
    {XID_GPU, 62, 62, XID_ANY, XID_RESET, "EKS; AzNHC"},
    /* A memory row was remapped, or will be; NVML shows which of the two. */
    {XID_GPU, 63, 63, XID_ANY, XID_NOTE, "catalogue: ignore; fatal for EKS and AzNHC"},
    {XID_GPU, 64, 64, XID_ANY, XID_RESET, "catalogue: reset; EKS; AzNHC"},
    {XID_GPU, 68, 69, XID_ANY, XID_NOTE, "catalogue: application; fatal for AzNHC"},
    /* An error of the NVLink fabric; if an SXid is reported with it, an error of the switch. */
    {XID_GPU, 74, 74, XID_ANY, XID_ISOLATE, "catalogue: reset; EKS; AzNHC"},
    {XID_GPU, 79, 79, XID_ANY, XID_REBOOT, "catalogue: reboot; EKS; AzNHC"},
    {XID_GPU, 81, 81, XID_ANY, XID_SUSPECT, "catalogue: contact support; fatal for AzNHC"},
    {XID_GPU, 92, 92, XID_ANY, XID_NOTE, "catalogue: ignore; fatal for AzNHC"},
    /* The fault of Xid 95, but contained in one program. */
    {XID_GPU, 94, 94, XID_ANY, XID_NOTE, "catalogue: application"},
    {XID_GPU, 95, 95, XID_ANY, XID_ISOLATE_SLOT, "catalogue: reset; EKS"},
    {XID_GPU, 109, 110, XID_ANY, XID_RESET, "catalogue: reset; EKS"},
    {XID_GPU, 119, 120, XID_ANY, XID_RESET, "catalogue: reset; EKS; AzNHC"},
    {XID_GPU, 121, 121, XID_ANY, XID_NOTE, "catalogue: ignore"},
    {XID_GPU, 125, 125, XID_ANY, XID_SUSPECT, "catalogue: contact support"},
    {XID_GPU, 126, 126, XID_ANY, XID_NOTE, "catalogue: application"},
    {XID_GPU, 136, 136, XID_ANY, XID_RESET, "catalogue: reset; EKS"},
    {XID_GPU, 140, 140, XID_ANY, XID_ISOLATE_SLOT, "catalogue: reset; EKS"},
    {XID_GPU, 142, 142, XID_ANY, XID_RESET, "EKS"},
    {XID_GPU, 143, 143, XID_ANY, XID_RESET, "catalogue: reset; EKS"},
    /* NVLink, from Blackwell on: the same code is either routine or a dead link. The catalogue has an action for
     * each subcode, and all subcodes of severity Fatal need a reset. gpud once treated Nonfatal as Fatal, which was
     * an error. */
    {XID_GPU, 144, 150, XID_WORD_FATAL, XID_RESET, "catalogue: reset, by severity; gpud"},
    {XID_GPU, 144, 150, XID_WORD_NONFATAL, XID_NOTE, "catalogue: ignore, by severity; gpud"},
    {XID_GPU, 144, 150, XID_ANY, XID_NOTE, "catalogue: by severity; no word, no severity"},
    {XID_GPU, 151, 151, XID_ANY, XID_REBOOT, "catalogue: reboot; EKS"},
    {XID_GPU, 154, 154, XID_WORD_CURED, XID_CURED, "catalogue: \"None\""},
    {XID_GPU, 154, 154, XID_WORD_RESET, XID_RESET, "catalogue: \"GPU Reset Required\", \"Drain ...\""},
    {XID_GPU, 154, 154, XID_WORD_REBOOT, XID_REBOOT, "catalogue: \"Node Reboot Required\"; EKS"},
    {XID_GPU, 155, 156, XID_ANY, XID_RESET, "catalogue: reset; EKS"},
    {XID_GPU, 157, 157, XID_ANY, XID_SUSPECT, "catalogue: contact support"},
    {XID_GPU, 158, 158, XID_ANY, XID_RESET, "catalogue: reset; EKS"},
    {XID_GPU, 162, 165, XID_ANY, XID_NOTE, "catalogue: power smoothing"},
    {XID_GPU, 168, 168, XID_ANY, XID_REBOOT, "catalogue: reboot"},

    {XID_SWITCH, XID_ANY, XID_ANY, XID_WORD_FATAL, XID_ISOLATE, "NVIDIA's fabric manager: fatal SXids stop the fabric"},
    {XID_SWITCH, XID_ANY, XID_ANY, XID_WORD_NONFATAL, XID_NOTE, "NVIDIA's fabric manager: non-fatal SXids are logged"},

    /* The kernel resets a link after a fatal error, and transfers on the link are lost. Corrected errors are normal. */
    {XID_PCIE, XID_ANY, XID_ANY, XID_WORD_FATAL, XID_RESET, "kernel: PCIe AER, severity=Uncorrected (Fatal)"},
    {XID_PCIE, XID_ANY, XID_ANY, XID_ANY, XID_NOTE, "kernel: PCIe AER, Uncorrected (Non-Fatal), Corrected"},
    /* A NIC's driver recovers by itself, and reports Fatal even when a virtual function is merely taken away. A port
     * that stays down drains the node through the probe rdma. */
    {XID_NIC, XID_ANY, XID_ANY, XID_WORD_FATAL, XID_SUSPECT, "kernel: mlx5's health, PCIe AER of efa and mlx5_core"},
    {XID_NIC, XID_ANY, XID_ANY, XID_ANY, XID_NOTE, "kernel: the same, of a lower severity"},
};
/* clang-format on */

const XidRow *xid_table(size_t *ret_n)
{
    *ret_n = ELEMENTSOF(table);
    return table;
}

/* ---- names ---- */

static const char *const kind_names[XID_KINDS] = {"", "sxid", "pcie", "nic"};
static const char *const word_names[XID_WORDS] = {"",     "nonfatal", "fatal",
                                                  "none", "reset",    "reboot"};
static const char *const action_names[XID_ACTIONS] = {"note",   "program", "suspect",      "reset",
                                                      "reboot", "isolate", "isolate-slot", "cured"};

const char *xid_action_name(XidAction action)
{
    assert(action < XID_ACTIONS);
    return action_names[action];
}

const char *xid_word_name(XidWord word)
{
    assert(word < XID_WORDS);
    return word_names[word];
}

const char *xid_row_name(const XidRow *row, char ret[XID_ROW_NAME_MAX])
{
    char codes[24] = "";
    if (row->first != XID_ANY && row->first == row->last)
        (void)snprintf(codes, sizeof(codes), " %d", row->first);
    else if (row->first != XID_ANY)
        (void)snprintf(codes, sizeof(codes), " %d to %d", row->first, row->last);
    const char *word = row->word == XID_ANY ? "" : word_names[row->word];
    (void)snprintf(ret, XID_ROW_NAME_MAX, "%s%s%s%s", kind_names[row->kind], codes,
                   *word ? " " : "", word);
    if (*ret == ' ')
        memmove(ret, ret + 1, strlen(ret));
    return ret;
}

/* ---- actions ---- */

/* Returns how well the row fits: a higher number if the row names more of kind, code and word; 0: it does not fit. */
static int fit(const XidRow *row, XidKind kind, int code, XidWord word)
{
    bool has_code = row->first != XID_ANY, has_word = row->word != XID_ANY;
    if (row->kind != kind || (has_code && (code < row->first || code > row->last)) ||
        (has_word && row->word != (int)word))
        return 0;
    return 1 + 2 * has_code + has_word;
}

static const XidRow *best_of(const XidRow *rows, size_t n, XidKind kind, int code, XidWord word)
{
    const XidRow *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (fit(&rows[i], kind, code, word) > (best ? fit(best, kind, code, word) : 0))
            best = &rows[i];
    return best;
}

XidAction xid_action(const XidOverrides *overrides, XidKind kind, int code, XidWord word)
{
    const XidRow *row = best_of(table, ELEMENTSOF(table), kind, code, word);
    if (row && row->action == XID_CURED)
        return XID_CURED; /* no setting can replace this action */
    const XidRow *own = best_of(overrides->rows, overrides->n, kind, code, word);
    return own ? own->action : row ? row->action : XID_SUSPECT;
}

bool xid_fault(XidAction action, XidKind kind, FaultCode *ret)
{
    switch (action) {
    case XID_SUSPECT:
        *ret = kind == XID_NIC ? FAULT_NIC_FATAL : FAULT_XID_SUSPECT;
        return true;
    case XID_RESET:
        *ret = FAULT_XID_RESET;
        return true;
    case XID_REBOOT:
        *ret = FAULT_XID_REBOOT;
        return true;
    case XID_ISOLATE:
        *ret = FAULT_XID_ISOLATE;
        return true;
    case XID_ISOLATE_SLOT:
        *ret = FAULT_XID_SLOT;
        return true;
    default:
        return false;
    }
}

/* ---- rows of the settings ---- */

/* Returns the length of the next word of a row's name. One blank separates two words. */
static size_t next_word(const char **p, const char **ret)
{
    *ret = *p;
    size_t n = strcspn(*p, " ");
    *p += n;
    if (**p == ' ' && (*p)[1] && (*p)[1] != ' ')
        (*p)++;
    return n;
}

static int find(const char *const *names, int first, int n, const char *word, size_t n_word)
{
    for (int i = first; i < n; i++)
        if (strlen(names[i]) == n_word && memcmp(names[i], word, n_word) == 0)
            return i;
    return -1;
}

static bool read_code(const char *word, size_t n, int *ret)
{
    int code = 0;
    if (n == 0 || (n > 1 && *word == '0'))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        code = code * 10 + (word[i] - '0');
        if (code > XID_CODE_MAX)
            return false;
    }
    *ret = code;
    return true;
}

/* Parses the name of a row: "79", "149 fatal", "154 reset", "sxid", "sxid 12028", "sxid 12028 fatal", "pcie fatal",
 * "nic". */
static bool read_row(const char *name, XidRow *ret)
{
    const char *p = name, *word;
    XidRow row = {.kind = XID_GPU, .first = XID_ANY, .last = XID_ANY, .word = XID_ANY};
    size_t n = next_word(&p, &word);
    int kind = find(kind_names, XID_GPU + 1, XID_KINDS, word, n);
    if (kind > 0) {
        row.kind = (XidKind)kind;
        n = next_word(&p, &word);
    }
    if (row.kind <= XID_SWITCH && read_code(word, n, &row.first)) {
        row.last = row.first;
        n = next_word(&p, &word);
    }
    if (n > 0) {
        row.word = find(word_names, XID_WORD_NONFATAL, XID_WORDS, word, n);
        n = next_word(&p, &word);
        if (row.word < 0 || row.word == XID_WORD_CURED ||
            (row.word > XID_WORD_CURED && (row.kind != XID_GPU || row.first != 154)))
            return false;
    }
    if (n > 0 || *p || (row.kind == XID_GPU && row.first == XID_ANY))
        return false;
    *ret = row;
    return true;
}

static int read_override(const char *name, const json_t *value, XidRow *ret, Error *err)
{
    const char *action = json_string_value(value);
    if (!read_row(name, ret))
        return error_set(
            err, -EINVAL,
            "\"%.60s\" is not a row; rows are CODE, CODE fatal, CODE nonfatal, 154 reset, 154 "
            "reboot, "
            "sxid [CODE] [fatal|nonfatal], pcie [fatal|nonfatal], nic [fatal|nonfatal]",
            name);
    int found = action ? find(action_names, 0, XID_CURED, action, strlen(action)) : -1;
    if (found < 0 || (found == XID_PROGRAM && ret->kind != XID_GPU))
        return error_set(
            err, -EINVAL,
            "\"%s\": \"%.60s\" is none of note, suspect, reset, reboot, isolate, isolate-slot%s",
            name, action ? action : "", ret->kind == XID_GPU ? ", program" : "");
    ret->action = (XidAction)found;
    return 0;
}

int xid_overrides_read(const json_t *map, XidOverrides *ret, Error *err)
{
    XidOverrides overrides = {0};
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)map, name, value) {
        if (overrides.n == XID_OVERRIDES_MAX)
            return error_set(err, -EINVAL, "there are more than %d rows", XID_OVERRIDES_MAX);
        int r = read_override(name, value, &overrides.rows[overrides.n], err);
        if (r < 0)
            return r;
        overrides.n++;
    }
    *ret = overrides;
    return 0;
}
