/* SPDX-License-Identifier: Apache-2.0 */
/* alerts-file.h - the file that names the sinks of incidents (docs/operating/alerts.md).
 *
 * The key of a sink is in a file of its own, named by an absolute path, by "%d/NAME" for systemd's LoadCredential=,
 * or by a name relative to the folder of the alerts file.
 *
 * Units: as notifier.h. Threads: loop thread only.
 * Ownership: alerts_file_read() fills an AlertsFile of fixed buffers; alerts_file_clear() wipes the keys and frees
 *            labels and addresses.
 * Errors:    -EINVAL and others with "<file>: <path.to.key>: <what is wrong with which value>".
 *            No error contains a key.
 */
#pragma once

#include "base/text/secret-set.h"
#include "controller/core/notifier/notifier.h"

#include <jansson.h>

typedef enum SinkKind {
    SINK_PAGERDUTY,
    SINK_ALERTMANAGER,
    SINK_WEBHOOK,
    SINK_HEARTBEAT,
    SINK_SLACK,
    SINK_EMAIL,
} SinkKind;

enum { SINK_URL_MAX = 1023, SINK_SECRET_MAX = 255, SINK_LABELS_MAX = 16, SINK_ADDRESSES_MAX = 16 };

typedef struct Sink {
    SinkKind kind;
    char url[SINK_URL_MAX + 1]; /* the complete URL that requests are sent to */
    char secret[SINK_SECRET_MAX +
                1];    /* routing key, bearer token or password; empty if there is none */
    char ca_file[512]; /* empty: the system's certificate authorities */
    char proxy[512];   /* empty: the proxy that the environment names */
    /* for Alertmanager: labels in addition to the labels of payload.c; owned, may be NULL */
    json_t *labels;
    /* the fields below are for email only */
    char from[256], user[SINK_SECRET_MAX + 1]; /* user is empty: no authentication */
    json_t *to;                                /* JSON array of the recipients' addresses; owned */
    bool plain;                                /* the server is used without TLS */
} Sink;

typedef struct AlertsFile {
    NotifierConfig notifier;
    Sink sinks[NOTIFIER_SINKS_MAX]; /* in the order of notifier.sinks */
    char link[SINK_URL_MAX + 1]; /* a runbook's URL that each notification carries; empty: none */
    /* The base URL of the runbooks: each notification has a link to the runbook of its cause. Empty: none. */
    char runbook_url[SINK_URL_MAX + 1];
} AlertsFile;

/* An empty path gives a file without sinks. */
int alerts_file_read(const char *path, AlertsFile *ret, Error *err);
/* For tests: reads an alerts file that lies in memory. source names the text in errors; the names of key files are
 * relative to the folder of source. */
int alerts_file_parse(const char *source, const char *text, size_t n_bytes, AlertsFile *ret,
                      Error *err);
void alerts_file_clear(AlertsFile *file);
/* Adds to set every secret that the sink's server or proxy receives: key, token or password, and the user, path and
 * query of the URL. */
void sink_add_secrets(const Sink *sink, SecretSet *set);
/* Whether text is an address local@domain of printable ASCII, without any character that has a special meaning in a
 * mail's header or in an SMTP command. */
bool sink_address_is_valid(const char *text);
