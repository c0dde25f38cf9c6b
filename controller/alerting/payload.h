/* SPDX-License-Identifier: Apache-2.0 */
/* payload.h - a notification as bytes: PagerDuty Events v2, Alertmanager v2, Slack, mail, webhook.
 *
 * Ownership: payload_make() gives the caller a Payload; payload_clear() frees and wipes it.
 * Units:     real_usec is CLOCK_REALTIME microseconds.
 * Errors:    -EINVAL: a text is not UTF-8.
 * Source:    PagerDuty "Events API v2"; Alertmanager api/v2/openapi.yaml and "Alerts API";
 *            docs/operating/alerts.md for the webhook.
 */
#pragma once

#include "controller/alerting/payload-text.h"

enum { PAYLOAD_HEADERS_MAX = 4, PAYLOAD_HEADER_BYTES = 512 };

typedef struct Payload {
    char *body;
    char headers[PAYLOAD_HEADERS_MAX][PAYLOAD_HEADER_BYTES]; /* "Name: value" */
    int n_headers;
} Payload;

int payload_make(const PayloadCall *call, Payload *ret);
void payload_clear(Payload *payload);
