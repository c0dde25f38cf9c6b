/* SPDX-License-Identifier: Apache-2.0 */
/* payload-text.h - a notification in words: what happened, what to do, and where to read on.
 *
 * Ownership: texts are written into the caller's array, or are static, unless a function says otherwise.
 * Units:     bytes, with the terminating NUL; times are CLOCK_REALTIME microseconds.
 * Errors:    none. Texts that do not fit are cut.
 */
#pragma once

#include "controller/alerting/alerts-file.h"

typedef struct PayloadCall {
    const char *cluster;
    const AlertsFile *file;
    int sink;
    MessageKind message_kind;
    const IncidentRecord *incident; /* NULL for a heartbeat */
    Severity told; /* the severity that the sink last accepted, as in NotifierAction */
    uint64_t real_usec;
} PayloadCall;

/* A time as "2026-01-31T12:00:00.123Z". */
enum { PAYLOAD_TIME_BYTES = 32 };
const char *payload_time(uint64_t usec, char ret[PAYLOAD_TIME_BYTES]);
/* A summary as "first: node-lost on n3, rank 2: its lease ran out", where "first" is the cluster. */
enum { PAYLOAD_SUMMARY_BYTES = 640 };
const char *payload_summary(const char *cluster, const IncidentRecord *incident,
                            char ret[PAYLOAD_SUMMARY_BYTES]);
/* Returns what the person on call should do; never NULL. */
const char *payload_advice(const IncidentRecord *incident);
/* Returns the address of the runbook for the incident's cause below runbook_url, or else the file's link; empty if
 * runbook_url and the link are empty. */
enum { PAYLOAD_LINK_BYTES = SINK_URL_MAX + 1 + 96 };
const char *payload_link(const AlertsFile *file, const IncidentRecord *incident,
                         char ret[PAYLOAD_LINK_BYTES]);
/* Returns the notification as a chat shows it: what happened and, while the incident is open, what to do. The caller
 * frees the text. */
char *payload_text(const PayloadCall *call);
