/* health.h - asking a node to check itself, and showing what its probes say.
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

/* The node's probes run now, after it has forgotten what only a reset would cure if clear is set;
 * waits until it has answered. machine_id: only that machine answers; "": whichever has the name. */
int health_ask(CtlClient *client, const char *node, const char *machine_id, bool clear,
               double timeout_sec, RequestRecord *ret, NodeVerdict *ret_verdict, Error *err);

/* NULL where there is no record: JSON's null, no lines. */
json_t *health_json(const HealthRecord *health);
void health_print(const HealthRecord *health);
