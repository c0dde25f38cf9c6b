/* replay.h - a journal (journal.h) through the present core: what it decided then, what it decides
 * now.
 *
 * The events are those that were recorded, so after a difference the core goes on with what
 * became of the old decision, not of its own.
 *
 * Ownership: a report belongs to rerun() and is valid until the handler returns.
 * Units:     real_usec is CLOCK_REALTIME of the controller that recorded.
 * Errors:    -errno with "FILE:LINE: <what is wrong>". A line that cannot be read is let pass where
 *            a writer died: at the end, or before a head. What the handler returns, unless it is
 *            0, ends it and is the result.
 * Threads:   one.
 */
#pragma once

#include "controller/journal/journal.h"

typedef enum RerunKind {
    RERUN_HEAD,     /* a controller started, or a new part begins */
    RERUN_EVENT,    /* something was fed */
    RERUN_DECISION, /* then, now, or both */
    RERUN_CUT,      /* the line was cut when its writer died */
} RerunKind;

typedef struct RerunReport {
    RerunKind kind;
    size_t line;
    uint64_t real_usec;
    const JournalHead *head; /* HEAD */
    const char *event;       /* EVENT: "nodes/n1 gone", "tick", "leading, term 7" */
    bool ignored;            /* EVENT: text says why the present version cannot read the record */
    const char *text;
    const char *job;    /* DECISION; empty: about the cluster */
    json_t *then, *now; /* DECISION: arrays of words; NULL: none */
    bool differs;
} RerunReport;

typedef int (*RerunHandler)(const RerunReport *report, void *userdata);

int rerun(const char *path, RerunHandler handler, void *userdata, Error *err);
