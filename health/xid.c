/* SPDX-License-Identifier: Apache-2.0 */
/* xid.c - see xid.h. */
#include "health/xid.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

typedef struct XidRule {
    int code;
    XidAction action;
} XidRule;

/* One action a code. 48 and 95 spoil what lies in that GPU's memory; 74 is the fabric and with an
 * SXid the switch; 79 is off the bus. 63 is not fatal here: what it records (a row remapped, or
 * pending) is read through NVML. 94 is 95 contained in one program. */
static const XidRule rules[] = {
    {13, XID_APPLICATION},  {31, XID_APPLICATION},  {43, XID_IGNORE},        {45, XID_IGNORE},
    {46, XID_RESET},        {48, XID_ISOLATE_SLOT}, {54, XID_ISOLATE},       {62, XID_RESET},
    {63, XID_MONITOR},      {64, XID_RESET},        {68, XID_APPLICATION},   {69, XID_APPLICATION},
    {74, XID_ISOLATE},      {79, XID_REBOOT},       {81, XID_SUSPECT},       {92, XID_MONITOR},
    {94, XID_APPLICATION},  {95, XID_ISOLATE_SLOT}, {109, XID_RESET},        {110, XID_RESET},
    {119, XID_RESET},       {120, XID_RESET},       {121, XID_IGNORE},       {125, XID_SUSPECT},
    {126, XID_APPLICATION}, {136, XID_RESET},       {140, XID_ISOLATE_SLOT}, {142, XID_RESET},
    {143, XID_RESET},       {144, XID_MONITOR},     {145, XID_MONITOR},      {146, XID_MONITOR},
    {147, XID_MONITOR},     {148, XID_MONITOR},     {149, XID_MONITOR},      {150, XID_MONITOR},
    {151, XID_REBOOT},      {155, XID_RESET},       {156, XID_RESET},        {157, XID_SUSPECT},
    {158, XID_RESET},       {162, XID_MONITOR},     {163, XID_MONITOR},      {164, XID_MONITOR},
    {165, XID_MONITOR},     {168, XID_REBOOT},
};

enum { XID_RECOVERY_ACTION = 154 };

/* "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)" */
static XidAction judge_recovery(const char *text)
{
    const char *to = strstr(text, " to ");
    if (!to)
        to = text;
    if (strstr(to, "Node Reboot Required"))
        return XID_REBOOT;
    if (strstr(to, "GPU Reset Required") || strstr(to, "Drain and Reset") ||
        strstr(to, "Drain P2P"))
        return XID_RESET;
    return strstr(to, "(None)") ? XID_CURED : XID_SUSPECT;
}

XidAction xid_judge(int code, bool is_switch, const char *text)
{
    if (is_switch)
        return strstr(text, "Non-fatal") || strstr(text, "Non-Fatal") ? XID_MONITOR
               : strstr(text, "Fatal")                                ? XID_ISOLATE
                                                                      : XID_SUSPECT;
    if (code == XID_RECOVERY_ACTION)
        return judge_recovery(text);
    for (size_t i = 0; i < ELEMENTSOF(rules); i++)
        if (rules[i].code == code)
            return rules[i].action;
    return XID_SUSPECT;
}

bool xid_fault(XidAction action, FaultCode *ret)
{
    switch (action) {
    case XID_SUSPECT:
        *ret = FAULT_XID_SUSPECT;
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

static void copy_printable(char *to, size_t size, const char *from, size_t n)
{
    size_t k = 0;
    for (; k < n && k < size - 1; k++)
        to[k] = (char)(from[k] >= ' ' && from[k] <= '~' ? from[k] : '?');
    to[k] = '\0';
}

int xid_parse(const char *text, size_t n, XidEvent *ret)
{
    const char *end = text + n;
    XidEvent event = {0};
    const char *p = find(text, end, "SXid (");
    event.is_switch = p != NULL;
    if (!p)
        p = find(text, end, "Xid (");
    if (!p)
        return -ENOENT;
    p = memchr(p, '(', (size_t)(end - p)) + 1;
    const char *close = memchr(p, ')', (size_t)(end - p));
    if (!close)
        return -ENOENT;
    if (close - p > 4 && memcmp(p, "PCI:", 4) == 0)
        p += 4;
    if (pci_address_parse(p, (size_t)(close - p), event.pci) < 0)
        return -ENOENT;

    uint64_t code;
    for (p = close + 1; p < end && (*p == ':' || *p == ' ');)
        p++;
    if (!take_number(&p, end, &code) || code > 99999)
        return -ENOENT;
    event.code = (int)code;
    copy_printable(event.text, sizeof(event.text), text, n);
    /* what decides may stand beyond what is kept: 154's words, at the end of a long line */
    char all[1024];
    copy_printable(all, sizeof(all), p, (size_t)(end - p));
    event.action = xid_judge(event.code, event.is_switch, all);
    *ret = event;
    return 0;
}
