/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-log.c - see kernel-log.h. */
#include "health/kernel-log.h"

#include "base/json/json-build.h"
#include "base/json/json.h"

#include <stdio.h>
#include <string.h>

void kernel_log_begin(KernelLog *log, const char *boot_id)
{
    if (strcmp(log->boot_id, boot_id) == 0)
        return;
    *log = (KernelLog){0};
    (void)snprintf(log->boot_id, sizeof(log->boot_id), "%s", boot_id);
}

static XidAction action_of(const KernelScene *scene, const XidEvent *xid)
{
    return xid_action(&scene->overrides, xid->kind, xid->code, xid->word);
}

static HealthLevel level_of(const KernelScene *scene, const XidEvent *xid)
{
    FaultCode fault;
    return xid_fault(action_of(scene, xid), xid->kind, &fault) ? fault_rule(fault)->level
                                                               : HEALTH_OK;
}

static bool cure(KernelLog *log, const char *pci)
{
    size_t kept = 0, before = log->n_events + log->n_programs;
    for (size_t i = 0; i < log->n_events; i++)
        if (strcmp(log->events[i].xid.pci, pci) != 0)
            log->events[kept++] = log->events[i];
    log->n_events = kept;
    kept = 0;
    for (size_t i = 0; i < log->n_programs; i++)
        if (strcmp(log->programs[i].pci, pci) != 0)
            log->programs[kept++] = log->programs[i];
    log->n_programs = kept;
    return log->n_events + log->n_programs != before;
}

/* Adds an event. The same code on the same device is one event; when all places are taken, the mildest event is
 * replaced if it is milder than the new event. Returns whether the event is new or has become worse. */
static bool keep(KernelLog *log, const KernelScene *scene, const XidEvent *xid, uint64_t seq)
{
    for (size_t i = 0; i < log->n_events; i++) {
        KernelEvent *e = &log->events[i];
        if (e->xid.code == xid->code && e->xid.kind == xid->kind &&
            strcmp(e->xid.pci, xid->pci) == 0) {
            bool worse = level_of(scene, xid) > level_of(scene, &e->xid);
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
            if (level_of(scene, &log->events[i].xid) < level_of(scene, &log->events[at].xid))
                at = i;
        if (level_of(scene, &log->events[at].xid) >= level_of(scene, xid))
            return false;
    } else {
        log->n_events++;
    }
    log->events[at] = (KernelEvent){
        .xid = *xid, .first_seq = seq, .last_seq = seq, .at_usec = scene->now_usec, .count = 1};
    return true;
}

/* ---- faults of programs ---- */

static int slot_of(const KernelScene *scene, const char *pci)
{
    for (size_t i = 0; i < scene->n_gpus; i++)
        if (strcmp(scene->gpus[i], pci) == 0)
            return (int)i;
    return -1;
}

static uint64_t age_sec(const KernelScene *scene, const KernelProgram *p)
{
    return (scene->boot_usec - MIN(scene->boot_usec, p->boot_usec)) / USEC_PER_SEC;
}

typedef struct Repeats {
    int times, submissions, code;
} Repeats;

static Repeats count_repeats(const KernelLog *log, const KernelScene *scene, const char *pci)
{
    Repeats ret = {0};
    for (size_t i = 0; i < log->n_programs; i++) {
        const KernelProgram *p = &log->programs[i];
        if (strcmp(p->pci, pci) != 0 || age_sec(scene, p) >= XID_REPEATS_SEC)
            continue;
        bool is_new = true;
        for (size_t k = 0; k < i; k++)
            if (strcmp(log->programs[k].pci, pci) == 0 &&
                age_sec(scene, &log->programs[k]) < XID_REPEATS_SEC &&
                strcmp(log->programs[k].submission, p->submission) == 0)
                is_new = false;
        ret.times++;
        ret.submissions += is_new;
        ret.code = p->code;
    }
    return ret;
}

static bool is_suspect(Repeats repeats)
{
    return repeats.times >= XID_REPEATS && repeats.submissions >= XID_REPEATS_SUBMISSIONS;
}

/* Counts a fault of the program in the GPU's slot. A fault of an unknown program is not counted, since it may belong
 * to the program that ran there before. Returns whether the GPU has become suspect. */
static bool note_program(KernelLog *log, const KernelScene *scene, const XidEvent *xid)
{
    int slot = slot_of(scene, xid->pci);
    const char *submission =
        slot >= 0 && (size_t)slot < scene->n_submissions ? scene->submissions[slot] : "";
    if (!*submission)
        return false;
    for (size_t i = 0; i < log->n_programs; i++) {
        KernelProgram *p = &log->programs[i];
        if (strcmp(p->pci, xid->pci) == 0 && strcmp(p->submission, submission) == 0 &&
            age_sec(scene, p) < XID_BURST_SEC) {
            p->code = xid->code;
            return false;
        }
    }
    bool was = is_suspect(count_repeats(log, scene, xid->pci));
    if (log->n_programs == KERNEL_LOG_PROGRAMS_MAX)
        memmove(&log->programs[0], &log->programs[1], sizeof(log->programs[0]) * --log->n_programs);
    KernelProgram *p = &log->programs[log->n_programs++];
    *p = (KernelProgram){.code = xid->code, .boot_usec = scene->boot_usec};
    memcpy(p->pci, xid->pci, sizeof(p->pci));
    (void)snprintf(p->submission, sizeof(p->submission), "%s", submission);
    return !was && is_suspect(count_repeats(log, scene, xid->pci));
}

/* ---- records ---- */

static void note(KernelLog *log, const XidEvent *xid)
{
    char label[XID_ROW_NAME_MAX], cause[32] = "";
    if (xid->cause > 0)
        (void)snprintf(cause, sizeof(cause), ", caused by Xid %d", xid->cause);
    log->noted += log->noted < INT32_MAX;
    (void)snprintf(log->note, sizeof(log->note), "%s on %s%s", xid_label(xid, label), xid->pci,
                   cause);
}

/* Adds the GPU's address to an event that lacks it. The driver may report a lost GPU without an Xid, in three lines of
 * which only the first line has the address. */
static void complete(KernelLog *log, uint64_t seq, XidEvent *xid)
{
    enum { LINES = 3 };
    if (!*xid->pci && *log->pending && seq - log->pending_seq < LINES)
        memcpy(xid->pci, log->pending, sizeof(xid->pci));
}

bool kernel_log_take(KernelLog *log, const KernelScene *scene, const char *line, size_t n)
{
    KernelRecord record;
    if (kernel_record_parse(line, n, &record) < 0 || record.seq < log->next_seq ||
        record.seq == UINT64_MAX)
        return false; /* a line of a dictionary, or a known record */
    bool news = false;
    if (log->next_seq > 0 && record.seq > log->next_seq) {
        log->lost += record.seq - log->next_seq;
        news = log->lost_is_news = true;
    }
    log->next_seq = record.seq + 1;
    XidEvent xid;
    if (xid_parse_gpu(record.text, record.n_text, log->pending) == 0)
        log->pending_seq = record.seq;
    if (xid_parse(record.text, record.n_text, &xid) < 0)
        return news;
    complete(log, record.seq, &xid);
    const XidAction action = action_of(scene, &xid);
    if (action == XID_CURED)
        return cure(log, xid.pci) || news;
    if (level_of(scene, &xid) != HEALTH_OK)
        return keep(log, scene, &xid, record.seq) || news;
    note(log, &xid);
    return (action == XID_PROGRAM && note_program(log, scene, &xid)) || news;
}

/* ---- findings ---- */

static void judge_programs(const KernelLog *log, const KernelScene *scene, ProbeResult *ret)
{
    for (size_t i = 0; i < log->n_programs; i++) {
        const char *pci = log->programs[i].pci;
        bool is_first = true;
        for (size_t k = 0; k < i; k++)
            is_first = is_first && strcmp(log->programs[k].pci, pci) != 0;
        Repeats repeats = count_repeats(log, scene, pci);
        if (is_first && is_suspect(repeats))
            probe_find_fault(ret, FAULT_XID_REPEATED, slot_of(scene, pci),
                             "Xid %d on %s: programs failed %d times in 24 h, of %d submissions; "
                             "it may be the GPU",
                             repeats.code, pci, repeats.times, repeats.submissions);
    }
}

void kernel_log_judge(const KernelLog *log, const KernelScene *scene, ProbeResult *ret)
{
    *ret = (ProbeResult){0};
    for (size_t i = 0; i < log->n_events; i++) {
        const XidEvent *xid = &log->events[i].xid;
        FaultCode fault;
        char label[XID_ROW_NAME_MAX];
        if (xid_fault(action_of(scene, xid), xid->kind, &fault))
            probe_find_fault(ret, fault, slot_of(scene, xid->pci), "%s on %s: %s",
                             xid_label(xid, label), *xid->pci ? xid->pci : "a GPU", xid->text);
    }
    judge_programs(log, scene, ret);
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
                       "read up to record %llu, %zu open, %d that ask for nothing%s%s",
                       (unsigned long long)log->next_seq, log->n_events, log->noted,
                       *log->note ? ", the last: " : "", log->note);
}

void kernel_log_forget(KernelLog *log)
{
    log->n_events = log->n_programs = 0;
    log->lost_is_news = false;
}

/* ---- state between two lives of the daemon ---- */

static const char *const kind_names[XID_KINDS] = {"xid", "sxid", "pcie", "nic"};

static const char *const *word_names(void)
{
    static const char *names[XID_WORDS];
    for (int i = 0; i < XID_WORDS; i++)
        names[i] = xid_word_name((XidWord)i);
    return names;
}

static json_t *pack_event(const KernelEvent *e)
{
    JsonBuild b = json_build();
    json_add_int(&b, "code", e->xid.code);
    json_add_bool(&b, "switch", e->xid.kind == XID_SWITCH);
    json_add_text(&b, "kind", kind_names[e->xid.kind]);
    json_add_text(&b, "word", xid_word_name(e->xid.word));
    json_add_text(&b, "pci", e->xid.pci);
    json_add_text(&b, "text", e->xid.text);
    json_add_int(&b, "first", (int64_t)e->first_seq);
    json_add_int(&b, "last", (int64_t)e->last_seq);
    json_add_int(&b, "at_usec", (int64_t)e->at_usec);
    json_add_int(&b, "count", e->count);
    return json_build_end(&b);
}

int kernel_log_format(const KernelLog *log, char **ret)
{
    _cleanup_json_ json_t *root =
        json_pack("{ss,sI,sI,si,ss,s[],s[]}", "boot_id", log->boot_id, "next",
                  (json_int_t)log->next_seq, "lost", (json_int_t)log->lost, "noted", log->noted,
                  "note", log->note, "events", "programs");
    json_t *events = json_object_get(root, "events"), *programs = json_object_get(root, "programs");
    for (size_t i = 0; i < log->n_events; i++) {
        json_t *one = pack_event(&log->events[i]);
        if (!one || json_array_append_new(events, one) < 0)
            return -EINVAL;
    }
    for (size_t i = 0; i < log->n_programs; i++) {
        const KernelProgram *p = &log->programs[i];
        json_t *one = json_pack("{si,ss,ss,sI}", "code", p->code, "pci", p->pci, "submission",
                                p->submission, "boot_usec", (json_int_t)p->boot_usec);
        if (!one || json_array_append_new(programs, one) < 0)
            return -EINVAL;
    }
    *ret = root ? json_dumps(root, JSON_COMPACT) : NULL;
    return *ret ? 0 : -EINVAL;
}

static void read_event(JsonReader *r, KernelEvent *e)
{
    int64_t code = 0, first = 0, last = 0, at_usec = 0, count = 1;
    bool is_switch = false;
    (void)json_get_int(r, "code", JSON_REQUIRED, 0, XID_CODE_MAX, &code);
    (void)json_get_bool(r, "switch", JSON_REQUIRED, &is_switch);
    (void)json_get_text(r, "pci", JSON_REQUIRED, e->xid.pci, sizeof(e->xid.pci));
    (void)json_get_text(r, "text", JSON_REQUIRED, e->xid.text, sizeof(e->xid.text));
    (void)json_get_int(r, "first", JSON_REQUIRED, 0, INT64_MAX, &first);
    (void)json_get_int(r, "last", JSON_REQUIRED, 0, INT64_MAX, &last);
    (void)json_get_int(r, "at_usec", JSON_REQUIRED, 0, INT64_MAX, &at_usec);
    (void)json_get_int(r, "count", JSON_REQUIRED, 1, INT32_MAX, &count);
    /* The state of a daemon of an earlier version has neither `kind` nor `word`. */
    int kind = is_switch ? XID_SWITCH : XID_GPU;
    (void)json_get_choice(r, "kind", JSON_OPTIONAL, kind_names, XID_KINDS, &kind);
    e->xid.kind = (XidKind)kind;
    e->xid.code = (int)code;
    int word = (int)xid_word(e->xid.kind, e->xid.code, e->xid.text);
    (void)json_get_choice(r, "word", JSON_OPTIONAL, word_names(), XID_WORDS, &word);
    (void)json_close(r); /* passes an error on to the parent of this reader */
    e->xid.word = (XidWord)word;
    e->first_seq = (uint64_t)first;
    e->last_seq = (uint64_t)last;
    e->at_usec = (uint64_t)at_usec;
    e->count = (int)count;
}

static void read_program(JsonReader *r, KernelProgram *p)
{
    int64_t code = 0, boot_usec = 0;
    (void)json_get_int(r, "code", JSON_REQUIRED, 0, XID_CODE_MAX, &code);
    (void)json_get_text(r, "pci", JSON_REQUIRED, p->pci, sizeof(p->pci));
    (void)json_get_text(r, "submission", JSON_REQUIRED, p->submission, sizeof(p->submission));
    (void)json_get_int(r, "boot_usec", JSON_REQUIRED, 0, INT64_MAX, &boot_usec);
    (void)json_close(r); /* passes an error on to the parent of this reader */
    p->code = (int)code;
    p->boot_usec = (uint64_t)boot_usec;
}

int kernel_log_parse(const char *source, const char *text, size_t n_bytes, KernelLog *ret,
                     Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    KernelLog log = {0};
    if (json_parse(source, text, n_bytes, &root, err) < 0)
        return -EBADMSG;
    json_t *events = NULL, *programs = NULL;
    int64_t next = 0, lost = 0, noted = 0;
    JsonReader r = json_open(source, root, JSON_ANY_KEYS, err);
    (void)json_get_text(&r, "boot_id", JSON_REQUIRED, log.boot_id, sizeof(log.boot_id));
    (void)json_get_int(&r, "next", JSON_REQUIRED, 0, INT64_MAX, &next);
    (void)json_get_int(&r, "lost", JSON_OPTIONAL, 0, INT64_MAX, &lost);
    (void)json_get_int(&r, "noted", JSON_OPTIONAL, 0, INT32_MAX, &noted);
    (void)json_get_text(&r, "note", JSON_OPTIONAL, log.note, sizeof(log.note));
    (void)json_get_array(&r, "events", JSON_REQUIRED, KERNEL_LOG_EVENTS_MAX, &events);
    for (size_t i = 0; i < json_array_size(events); i++) {
        JsonReader one = json_get_element(&r, "events", events, i);
        read_event(&one, &log.events[log.n_events++]);
    }
    (void)json_get_array(&r, "programs", JSON_OPTIONAL, KERNEL_LOG_PROGRAMS_MAX, &programs);
    for (size_t i = 0; i < json_array_size(programs); i++) {
        JsonReader one = json_get_element(&r, "programs", programs, i);
        read_program(&one, &log.programs[log.n_programs++]);
    }
    if (json_close(&r) < 0)
        return -EBADMSG;
    log.next_seq = (uint64_t)next;
    log.lost = (uint64_t)lost;
    log.noted = (int)noted;
    *ret = log;
    return 0;
}
