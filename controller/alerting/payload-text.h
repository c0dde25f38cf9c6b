/* SPDX-License-Identifier: Apache-2.0 */
/* payload-text.h - a notification in words: what happened, what to do, and where to read on.
 *
 * Ownership: texts are written into the caller's array, or are static, unless a function says otherwise.
 * Units:     bytes, with the terminating NUL; times are CLOCK_REALTIME microseconds.
 * Errors:    none. Words that do not fit are cut.
 * Threads:   any.
 */
#pragma once

#include "controller/alerting/alerts-file.h"

typedef struct PayloadCall {
    const char *cluster;
    const AlertsFile *file;
    int sink;
    MessageKind message_kind;
    const IncidentRecord *incident; /* NULL: a heartbeat */
    Severity told;                  /* the severity to tell, as in NotifierAction */
    uint64_t real_usec;
} PayloadCall;

/* "2026-01-31T12:00:00.123Z" */
enum { PAYLOAD_TIME_BYTES = 32 };
const char *payload_time(uint64_t usec, char ret[PAYLOAD_TIME_BYTES]);
/* "first: node-lost on n3, rank 2: its lease ran out" */
enum { PAYLOAD_SUMMARY_BYTES = 640 };
const char *payload_summary(const char *cluster, const IncidentRecord *incident,
                            char ret[PAYLOAD_SUMMARY_BYTES]);
/* Tells the person on call what to do; never NULL. */
const char *payload_advice(const IncidentRecord *incident);
/* The runbook of the incident's cause below runbook_url, else the file's link; empty: neither is set. */
enum { PAYLOAD_LINK_BYTES = SINK_URL_MAX + 1 + 96 };
const char *payload_link(const AlertsFile *file, const IncidentRecord *incident,
                         char ret[PAYLOAD_LINK_BYTES]);
/* The notification as a chat shows it: what happened and, while it is open, what to do. The caller frees it. */
char *payload_text(const PayloadCall *call);
