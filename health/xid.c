/* SPDX-License-Identifier: Apache-2.0 */
/* xid.c - see xid.h. */
#include "health/xid.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { XID_RECOVERY_ACTION = 154 };

/* ---- text ---- */

static bool take_number(const char **p, const char *end, uint64_t *ret)
{
    uint64_t value = 0;
    const char *at = *p;
    for (; at < end && isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    if (at == *p)
        return false;
    *p = at;
    *ret = value;
    return true;
}

static bool take_char(const char **p, const char *end, char c)
{
    if (*p == end || **p != c)
        return false;
    (*p)++;
    return true;
}

int kernel_record_parse(const char *line, size_t n, KernelRecord *ret)
{
    const char *p = line, *end = line + n;
    uint64_t priority;
    KernelRecord record = {0};
    if (!take_number(&p, end, &priority) || !take_char(&p, end, ',') ||
        !take_number(&p, end, &record.seq) || !take_char(&p, end, ',') ||
        !take_number(&p, end, &record.at_usec))
        return -EBADMSG;
    const char *text = memchr(p, ';', (size_t)(end - p));
    if (!text)
        return -EBADMSG;
    record.text = text + 1;
    record.n_text = (size_t)(end - record.text);
    *ret = record;
    return 0;
}

static bool take_hex(const char **p, const char *end, size_t digits_max, unsigned *ret)
{
    unsigned value = 0;
    const char *at = *p;
    for (; at < end && isxdigit((unsigned char)*at); at++) {
        if ((size_t)(at - *p) == digits_max)
            return false;
        int c = tolower((unsigned char)*at);
        value = value * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (at == *p)
        return false;
    *p = at;
    *ret = value;
    return true;
}

int pci_address_parse(const char *text, size_t n, char ret[PCI_ADDRESS_MAX])
{
    const char *p = text, *end = text + n;
    unsigned domain, bus, device;
    if (!take_hex(&p, end, 8, &domain) || domain > 0xffff || !take_char(&p, end, ':') ||
        !take_hex(&p, end, 2, &bus) || !take_char(&p, end, ':') || !take_hex(&p, end, 2, &device))
        return -EINVAL;
    (void)snprintf(ret, PCI_ADDRESS_MAX, "%04x:%02x:%02x", domain, bus, device);
    return 0;
}

static const char *find(const char *text, const char *end, const char *wanted)
{
    return text ? memmem(text, (size_t)(end - text), wanted, strlen(wanted)) : NULL;
}

/* Copies the text as printable ASCII. The kernel writes a line end inside a record as "\x0a"; the line end and the
 * padding of the next line become one blank. */
static void copy_printable(char *to, size_t size, const char *from, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n && k < size - 1; i++) {
        char c = (char)(from[i] >= ' ' && from[i] <= '~' ? from[i] : '?');
        if (n - i >= 4 && memcmp(from + i, "\\x0a", 4) == 0) {
            c = ' ';
            i += 3;
        }
        if (c != ' ' || k == 0 || to[k - 1] != ' ')
            to[k++] = c;
    }
    to[k] = '\0';
}

/* ---- the word that decides ---- */

static bool is_boundary(char c) { return strchr(" ,;:(=", c) != NULL; }

/* Returns the severity by the first of "Nonfatal", "Non-fatal", "Non-Fatal" and "Fatal" that stands as a word of its
 * own. A word after "name=" is a program's name. */
static XidWord severity(const char *text)
{
    static const char word[] = "fatal";
    for (const char *p = text; (p = strcasestr(p, word)); p += strlen(word)) {
        const char *begin = p;
        if (isalpha((unsigned char)p[strlen(word)]))
            continue;
        if (begin > text && (begin[-1] == '-' || begin[-1] == ' '))
            begin--;
        bool negated = begin - text >= 3 && strncasecmp(begin - 3, "non", 3) == 0;
        begin = negated ? begin - 3 : p;
        if (begin - text >= 5 && strncmp(begin - 5, "name=", 5) == 0)
            continue;
        if (begin == text || is_boundary(begin[-1]))
            return negated ? XID_WORD_NONFATAL : XID_WORD_FATAL;
    }
    return XID_WORD_NONE;
}

/* Parses "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)". */
static XidWord recovery(const char *text)
{
    const char *to = strstr(text, " to ");
    if (!to)
        to = text;
    if (strstr(to, "Node Reboot Required"))
        return XID_WORD_REBOOT;
    if (strstr(to, "GPU Reset Required") || strstr(to, "Drain and Reset") ||
        strstr(to, "Drain P2P"))
        return XID_WORD_RESET;
    return strstr(to, "(None)") ? XID_WORD_CURED : XID_WORD_NONE;
}

XidWord xid_word(XidKind kind, int code, const char *text)
{
    return kind == XID_GPU && code == XID_RECOVERY_ACTION ? recovery(text) : severity(text);
}

/* ---- records ---- */

/* Parses "Xid (PCI:0000:3b:00): 79, ..." from its parenthesis on; *ret_rest: the text after the code. */
static int parse_xid(const char *p, const char *end, XidEvent *event, const char **ret_rest)
{
    const char *close = memchr(p, ')', (size_t)(end - p));
    if (!close)
        return -ENOENT;
    p++;
    if (close - p > 4 && memcmp(p, "PCI:", 4) == 0)
        p += 4;
    if (pci_address_parse(p, (size_t)(close - p), event->pci) < 0)
        return -ENOENT;
    uint64_t code;
    for (p = close + 1; p < end && (*p == ':' || *p == ' ');)
        p++;
    if (!take_number(&p, end, &code) || code > XID_CODE_MAX)
        return -ENOENT;
    event->code = (int)code;
    *ret_rest = p;
    return 0;
}

/* Finds the first PCI address after "GPU". */
static bool find_gpu(const char *text, const char *end, char ret[PCI_ADDRESS_MAX])
{
    for (const char *p = text; (p = find(p, end, "GPU "));) {
        p += 4;
        if (end - p > 3 && memcmp(p, "at ", 3) == 0)
            p += 3;
        if (end - p > 4 && memcmp(p, "PCI:", 4) == 0)
            p += 4;
        if (pci_address_parse(p, (size_t)(end - p), ret) == 0)
            return true;
    }
    return false;
}

int xid_parse_gpu(const char *text, size_t n, char ret[PCI_ADDRESS_MAX])
{
    const char *end = text + n, *p = find(text, end, "NVRM: The NVIDIA GPU ");
    return p && find_gpu(p, end, ret) ? 0 : -ENOENT;
}

/* Returns whether `driver` wrote the text, as in "nvidia 0000:3b:00.0: ..."; *ret_rest: what follows the colon. */
static bool is_of_driver(const char *text, const char *end, const char *driver,
                         char ret_pci[PCI_ADDRESS_MAX], const char **ret_rest)
{
    size_t n = strlen(driver);
    const char *p = text + n;
    if ((size_t)(end - text) <= n || memcmp(text, driver, n) != 0)
        return false;
    while (p < end && isdigit((unsigned char)*p)) /* skips the number in "nvidia-nvswitch3" */
        p++;
    if (p == end || *p != ' ' || pci_address_parse(p + 1, (size_t)(end - p - 1), ret_pci) < 0)
        return false;
    const char *colon = find(p + 1, end, ": ");
    if (!colon)
        return false;
    *ret_rest = colon + 2;
    return true;
}

static int parse_device(const char *text, const char *end, XidEvent *event, const char **ret_rest)
{
    static const struct {
        const char *driver;
        XidKind kind;
    } drivers[] = {{"nvidia-nvswitch", XID_PCIE},
                   {"nvidia", XID_PCIE},
                   {"efa", XID_NIC},
                   {"mlx5_core", XID_NIC}};
    static const char bus[] = "PCIe Bus Error: severity=";
    for (size_t i = 0; i < ELEMENTSOF(drivers); i++) {
        const char *rest;
        if (!is_of_driver(text, end, drivers[i].driver, event->pci, &rest))
            continue;
        event->kind = drivers[i].kind;
        const char *said = find(rest, end, bus);
        if (!said && drivers[i].kind == XID_NIC)
            said = find(rest, end, "Health issue observed");
        if (!said && drivers[i].kind == XID_NIC)
            said = find(rest, end, "Fatal error ");
        *ret_rest = said ? said : rest;
        return said ? 0 : -ENOENT;
    }
    return -ENOENT;
}

/* Returns the severity of a NIC's message. mlx5 uses the levels of the kernel's log: 0 to 2 are emergency, alert and
 * critical. */
static XidWord severity_of_nic(const char *text)
{
    static const char level[] = "severity(";
    const char *p = strstr(text, level);
    if (!p)
        return severity(text);
    return p[strlen(level)] >= '0' && p[strlen(level)] <= '2' && p[strlen(level) + 1] == ')'
               ? XID_WORD_FATAL
               : XID_WORD_NONFATAL;
}

/* Returns the Xid named in "pid=7, name=python3, Ch 00000001 caused by previous Xid 149"; 0: none is named. */
static int cause_of(const char *text)
{
    static const char words[] = " caused by previous Xid ";
    const char *p = strstr(text, words);
    uint64_t code = 0;
    if (p)
        p += strlen(words);
    return p && take_number(&p, p + strlen(p), &code) && code <= XID_CODE_MAX ? (int)code : 0;
}

int xid_parse(const char *text, size_t n, XidEvent *ret)
{
    const char *end = text + n, *rest = NULL, *p = find(text, end, "SXid (");
    XidEvent event = {.kind = p ? XID_SWITCH : XID_GPU};
    if (!p)
        p = find(text, end, "Xid (");
    /* The deciding word may be beyond the text that is kept: Xid 154 has it at the end of a long line. */
    char all[1024];
    if (p) {
        int r = parse_xid(memchr(p, '(', (size_t)(end - p)), end, &event, &rest);
        if (r < 0)
            return r;
        copy_printable(all, sizeof(all), rest, (size_t)(end - rest));
        event.word = xid_word(event.kind, event.code, all);
        if (event.kind == XID_GPU && event.code == XID_PROGRAM_ENDED)
            event.cause = cause_of(all);
    } else if (find(text, end, "NVRM: ") && find(text, end, "fallen off the bus")) {
        event.code = XID_OFF_THE_BUS;
        if (!find_gpu(text, end, event.pci))
            event.pci[0] = '\0';
    } else if (parse_device(text, end, &event, &rest) == 0) {
        copy_printable(all, sizeof(all), rest, (size_t)(end - rest));
        event.word = event.kind == XID_NIC ? severity_of_nic(all) : severity(all);
    } else {
        return -ENOENT;
    }
    copy_printable(event.text, sizeof(event.text), text, n);
    *ret = event;
    return 0;
}

const char *xid_label(const XidEvent *event, char ret[XID_ROW_NAME_MAX])
{
    static const char *const words[XID_KINDS] = {"Xid", "SXid", "PCIe error", "NIC error"};
    const char *word = xid_word_name(event->word);
    bool has_code = event->kind <= XID_SWITCH,
         has_word = event->word == XID_WORD_FATAL || event->word == XID_WORD_NONFATAL;
    char code[16] = "";
    if (has_code)
        (void)snprintf(code, sizeof(code), " %d", event->code);
    (void)snprintf(ret, XID_ROW_NAME_MAX, "%s%s%s%s%s", words[event->kind], code,
                   has_word ? " (" : "", has_word ? word : "", has_word ? ")" : "");
    return ret;
}
