/* SPDX-License-Identifier: Apache-2.0 */
/* health.h - requests that a node checks itself, and shows the results of its probes.
 *
 * Units: seconds. Threads: the main thread.
 * Ownership: health_json() gives the caller a reference.
 * Errors:    -ENOENT: the node does not exist or is not registered now; -ETIMEDOUT: the node did not answer.
 */
#pragma once

#include "cluster/records.h"
#include "ctl/client.h"

#include <jansson.h>

enum { HEALTH_CHECK_SEC = 60 };

/* Makes the node run its probes now and waits for the answer. With clear, the node first forgets the faults that only a
 * reset repairs. machine_id is the only machine that may answer, or "" for any machine with the node's name. */
int health_request(CtlClient *client, const char *node, const char *machine_id, bool clear,
                   double timeout_sec, RequestRecord *ret, NodeVerdict *ret_verdict, Error *err);

/* health may be NULL (no record). Then the JSON is null, and nothing is printed. */
json_t *health_json(const HealthRecord *health);
void health_print(const HealthRecord *health);
