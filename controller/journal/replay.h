/* SPDX-License-Identifier: Apache-2.0 */
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

typedef enum ReplayKind {
    REPLAY_HEAD,     /* a controller started, or a new part begins */
    REPLAY_EVENT,    /* something was fed */
    REPLAY_DECISION, /* then, now, or both */
    REPLAY_CUT,      /* the line was cut when its writer died */
} ReplayKind;

typedef struct ReplayReport {
    ReplayKind kind;
    size_t line;
    uint64_t real_usec;
    const JournalHead *head; /* HEAD */
    const char *event;       /* EVENT: "nodes/n1 gone", "tick", "leading, term 7" */
    bool ignored;            /* EVENT: text says why the present version cannot read the record */
    const char *text;
    const char *job;    /* DECISION; empty: about the cluster */
    json_t *then, *now; /* DECISION: arrays of words; NULL: none */
    bool differs;
} ReplayReport;

typedef int (*ReplayHandler)(const ReplayReport *report, void *userdata);

int journal_replay(const char *path, ReplayHandler handler, void *userdata, Error *err);
