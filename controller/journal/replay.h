/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - feeds a journal (journal.h) to the present core and compares its decisions with those recorded.
 *
 * The recorded events are fed whatever the core answers, so after a difference the present core continues with the
 * effects of the recorded decision, not of its own.
 *
 * Ownership: a report belongs to journal_replay() and is valid until the handler returns.
 * Units:     real_usec is CLOCK_REALTIME of the controller that recorded.
 * Errors:    -errno with "FILE:LINE: <what is wrong>". An unreadable line is skipped where a writer may have died:
 *            at the end, or before a head. A handler's result other than 0 ends the replay and is its result.
 * Threads:   one.
 */
#pragma once

#include "controller/journal/journal.h"

typedef enum ReplayKind {
    REPLAY_HEAD,     /* a controller started, or a new part begins */
    REPLAY_EVENT,    /* an event was fed */
    REPLAY_DECISION, /* the recorded core, the present core, or both have decided */
    REPLAY_CUT,      /* the line was cut when its writer died */
} ReplayKind;

typedef struct ReplayReport {
    ReplayKind kind;
    size_t line;
    uint64_t real_usec;
    const JournalHead *head; /* for REPLAY_HEAD: the head */
    /* for REPLAY_EVENT: the event, as "nodes/n1 gone", "tick", "leading, term 7" */
    const char *event;
    bool ignored;     /* for REPLAY_EVENT: this version cannot read the record */
    const char *text; /* for REPLAY_EVENT, if `ignored` is true: the reason */
    /* for REPLAY_DECISION: the job; empty: the decision is about no single job */
    const char *job;
    /* for REPLAY_DECISION: the decisions of the recorded core and of the present core, as lines of text; NULL: none */
    json_t *then, *now;
    bool differs;
} ReplayReport;

typedef int (*ReplayHandler)(const ReplayReport *report, void *userdata);

int journal_replay(const char *path, ReplayHandler handler, void *userdata, Error *err);
