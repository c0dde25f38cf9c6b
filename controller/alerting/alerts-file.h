/* SPDX-License-Identifier: Apache-2.0 */
/* alerts-file.h - the file that names the sinks of incidents (docs/operating/alerts.md).
 *
 * A sink's key stands in a file of its own: an absolute path, "%d/NAME" for systemd's LoadCredential=, or a name
 * beside the alerts file.
 *
 * Ownership: alerts_file_read() fills an AlertsFile of fixed buffers; alerts_file_clear() wipes the keys and frees
 *            labels and addresses.
 * Units:     as notifier.h.
 * Errors:    -EINVAL and others with "<file>: <path.to.key>: <what is wrong with which value>".
 *            A key's text is in no error.
 * Threads:   loop thread only.
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
    char url[SINK_URL_MAX + 1];       /* requests go there as it stands */
    char secret[SINK_SECRET_MAX + 1]; /* routing key, bearer token or password; empty: none */
    char ca_file[512];                /* empty: the system's authorities */
    char proxy[512];                  /* empty: as the environment says */
    json_t *labels;                   /* Alertmanager: labels beside ours; owned, may be NULL */
    /* of email */
    char from[256], user[SINK_SECRET_MAX + 1]; /* user: empty: no authentication */
    json_t *to;                                /* an array of addresses; owned */
    bool plain;                                /* without TLS */
} Sink;

typedef struct AlertsFile {
    NotifierConfig notifier;
    Sink sinks[NOTIFIER_SINKS_MAX]; /* in the order of notifier.sinks */
    char link[SINK_URL_MAX + 1]; /* a runbook's URL that each notification carries; empty: none */
    char runbook_url[SINK_URL_MAX +
                     1]; /* the folder of the runbooks; each notification has its cause's */
} AlertsFile;

/* An empty path gives no sinks. */
int alerts_file_read(const char *path, AlertsFile *ret, Error *err);
/* source names the text in errors; names of key files are relative to its folder. */
int alerts_file_parse(const char *source, const char *text, size_t n_bytes, AlertsFile *ret,
                      Error *err);
void alerts_file_clear(AlertsFile *file);
/* Adds what the sink's server, and its proxy, are handed: key, token or password; user, path and query of the URL. */
void sink_add_secrets(const Sink *sink, SecretSet *set);
/* Whether text is an address that can stand in a header and in an SMTP command as it is: local@domain, of printable
 * ASCII without any character that has a meaning there. */
bool sink_address_is_valid(const char *text);
