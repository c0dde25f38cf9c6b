/* SPDX-License-Identifier: Apache-2.0 */
/* health.h - asking a node to check itself, and showing the answers of its probes.
 *
 * Ownership: health_json() gives the caller a reference.
 * Units:     seconds.
 * Errors:    -ENOENT: there is no such node, or it is gone; -ETIMEDOUT: it did not answer.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/records.h"
#include "ctl/client.h"

#include <jansson.h>

enum { HEALTH_CHECK_SEC = 60 };

/* Makes the node run its probes now and waits for its answer. With clear the node first forgets the
 * faults that only a reset would cure. machine_id is the one machine that may answer; "": any
 * machine that has the node's name. */
int health_request(CtlClient *client, const char *node, const char *machine_id, bool clear,
                   double timeout_sec, RequestRecord *ret, NodeVerdict *ret_verdict, Error *err);

/* health may be NULL (no record): then the JSON is null, and nothing is printed. */
json_t *health_json(const HealthRecord *health);
void health_print(const HealthRecord *health);
