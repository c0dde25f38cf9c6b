/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-log.c - see kernel-log.h. */
#include "health/kernel-log.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

void kernel_log_begin(KernelLog *log, const char *boot_id)
{
    if (strcmp(log->boot_id, boot_id) == 0)
        return;
    *log = (KernelLog){0};
    (void)snprintf(log->boot_id, sizeof(log->boot_id), "%s", boot_id);
}

static HealthLevel level_of(XidAction action)
{
    FaultCode fault;
    return xid_fault(action, &fault) ? fault_rule(fault)->level : HEALTH_OK;
}

static bool cure(KernelLog *log, const char *pci)
{
    size_t kept = 0, before = log->n_events;
    for (size_t i = 0; i < log->n_events; i++)
        if (strcmp(log->events[i].xid.pci, pci) != 0)
            log->events[kept++] = log->events[i];
    log->n_events = kept;
    return kept != before;
}

/* The same code on the same GPU is one event; when all places are taken the mildest goes. */
static bool keep(KernelLog *log, const XidEvent *xid, uint64_t seq, uint64_t now_usec)
{
    for (size_t i = 0; i < log->n_events; i++) {
        KernelEvent *e = &log->events[i];
        if (e->xid.code == xid->code && e->xid.is_switch == xid->is_switch &&
            strcmp(e->xid.pci, xid->pci) == 0) {
            bool worse = level_of(xid->action) > level_of(e->xid.action);
            if (worse)
                e->xid = *xid;
            e->last_seq = seq;
            e->count += e->count < INT32_MAX;
            return worse;
        }
    }
    size_t at = log->n_events;
    if (at == KERNEL_LOG_EVENTS_MAX) {
        at = 0;
        for (size_t i = 1; i < KERNEL_LOG_EVENTS_MAX; i++)
            if (level_of(log->events[i].xid.action) < level_of(log->events[at].xid.action))
                at = i;
        if (level_of(log->events[at].xid.action) >= level_of(xid->action))
            return false;
    } else {
        log->n_events++;
    }
    log->events[at] = (KernelEvent){
        .xid = *xid, .first_seq = seq, .last_seq = seq, .at_usec = now_usec, .count = 1};
    return true;
}

bool kernel_log_take(KernelLog *log, const char *line, size_t n, uint64_t now_usec)
{
    KernelRecord record;
    if (kernel_record_parse(line, n, &record) < 0 || record.seq < log->next_seq ||
        record.seq == UINT64_MAX)
        return false; /* a dictionary's line, or one that is known */
    bool news = false;
    if (log->next_seq > 0 && record.seq > log->next_seq) {
        log->lost += record.seq - log->next_seq;
        news = log->lost_is_news = true;
    }
    log->next_seq = record.seq + 1;
    XidEvent xid;
    if (xid_parse(record.text, record.n_text, &xid) < 0)
        return news;
    if (xid.action == XID_CURED)
        return cure(log, xid.pci) || news;
    if (level_of(xid.action) == HEALTH_OK) {
        log->noted += log->noted < INT32_MAX;
        return news;
    }
    return keep(log, &xid, record.seq, now_usec) || news;
}

static int slot_of(const char *pci, const char (*gpus)[PCI_ADDRESS_MAX], size_t n_gpus)
{
    for (size_t i = 0; i < n_gpus; i++)
        if (strcmp(gpus[i], pci) == 0)
            return (int)i;
    return -1;
}

void kernel_log_judge(const KernelLog *log, const char (*gpus)[PCI_ADDRESS_MAX], size_t n_gpus,
                      ProbeResult *ret)
{
    *ret = (ProbeResult){0};
    for (size_t i = 0; i < log->n_events; i++) {
        const KernelEvent *e = &log->events[i];
        FaultCode fault;
        if (!xid_fault(e->xid.action, &fault))
            continue;
        probe_find_fault(ret, fault, slot_of(e->xid.pci, gpus, n_gpus), "%s %d on %s: %s",
                         e->xid.is_switch ? "SXid" : "Xid", e->xid.code, e->xid.pci, e->xid.text);
    }
    if (*log->unread && log->is_needed)
        probe_find_fault(ret, FAULT_LOG_UNREADABLE, -1, "%s", log->unread);
    if (log->lost_is_news)
        probe_find_fault(ret, FAULT_LOG_OVERRUN, -1,
                         "%llu records of the kernel's log were overwritten before they were read",
                         (unsigned long long)log->lost);
    if (*log->unread)
        (void)snprintf(ret->note, sizeof(ret->note), "%s", log->unread);
    else
        (void)snprintf(ret->note, sizeof(ret->note),
                       "read up to record %llu, %zu open, %d that ask for nothing",
                       (unsigned long long)log->next_seq, log->n_events, log->noted);
}

void kernel_log_forget(KernelLog *log)
{
    log->n_events = 0;
    log->lost_is_news = false;
}

/* ---- between two lives of the daemon ---- */

int kernel_log_format(const KernelLog *log, char **ret)
{
    _cleanup_json_ json_t *root =
        json_pack("{ss,sI,sI,si,s[]}", "boot_id", log->boot_id, "next", (json_int_t)log->next_seq,
                  "lost", (json_int_t)log->lost, "noted", log->noted, "events");
    json_t *events = json_object_get(root, "events");
    for (size_t i = 0; i < log->n_events; i++) {
        const KernelEvent *e = &log->events[i];
        json_t *one = json_pack("{si,sb,ss,ss,sI,sI,sI,si}", "code", e->xid.code, "switch",
                                e->xid.is_switch, "pci", e->xid.pci, "text", e->xid.text, "first",
                                (json_int_t)e->first_seq, "last", (json_int_t)e->last_seq,
                                "at_usec", (json_int_t)e->at_usec, "count", e->count);
        if (!one || json_array_append_new(events, one) < 0)
            return -EINVAL;
    }
    *ret = root ? json_dumps(root, JSON_COMPACT) : NULL;
    return *ret ? 0 : -EINVAL;
}

static void read_event(JsonReader *r, KernelEvent *e)
{
    int64_t code = 0, first = 0, last = 0, at_usec = 0, count = 1;
    (void)json_get_int(r, "code", JSON_REQUIRED, 0, 99999, &code);
    (void)json_get_bool(r, "switch", JSON_REQUIRED, &e->xid.is_switch);
    (void)json_get_text(r, "pci", JSON_REQUIRED, e->xid.pci, sizeof(e->xid.pci));
    (void)json_get_text(r, "text", JSON_REQUIRED, e->xid.text, sizeof(e->xid.text));
    (void)json_get_int(r, "first", JSON_REQUIRED, 0, INT64_MAX, &first);
    (void)json_get_int(r, "last", JSON_REQUIRED, 0, INT64_MAX, &last);
    (void)json_get_int(r, "at_usec", JSON_REQUIRED, 0, INT64_MAX, &at_usec);
    (void)json_get_int(r, "count", JSON_REQUIRED, 1, INT32_MAX, &count);
    (void)json_close(r); /* its error is the parent's */
    e->xid.code = (int)code;
    e->xid.action = xid_judge(e->xid.code, e->xid.is_switch, e->xid.text);
    e->first_seq = (uint64_t)first;
    e->last_seq = (uint64_t)last;
    e->at_usec = (uint64_t)at_usec;
    e->count = (int)count;
}

int kernel_log_parse(const char *source, const char *text, size_t n_bytes, KernelLog *ret,
                     Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    KernelLog log = {0};
    if (json_parse(source, text, n_bytes, &root, err) < 0)
        return -EBADMSG;
    json_t *list = NULL;
    int64_t next = 0, lost = 0, noted = 0;
    JsonReader r = json_open(source, root, JSON_ANY_KEYS, err);
    (void)json_get_text(&r, "boot_id", JSON_REQUIRED, log.boot_id, sizeof(log.boot_id));
    (void)json_get_int(&r, "next", JSON_REQUIRED, 0, INT64_MAX, &next);
    (void)json_get_int(&r, "lost", JSON_OPTIONAL, 0, INT64_MAX, &lost);
    (void)json_get_int(&r, "noted", JSON_OPTIONAL, 0, INT32_MAX, &noted);
    (void)json_get_array(&r, "events", JSON_REQUIRED, KERNEL_LOG_EVENTS_MAX, &list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        JsonReader one = json_get_element(&r, "events", list, i);
        read_event(&one, &log.events[log.n_events++]);
    }
    if (json_close(&r) < 0)
        return -EBADMSG;
    log.next_seq = (uint64_t)next;
    log.lost = (uint64_t)lost;
    log.noted = (int)noted;
    *ret = log;
    return 0;
}
