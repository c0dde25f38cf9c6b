/* SPDX-License-Identifier: Apache-2.0 */
/* requests.h - answers requests/<id>: "checkpoint" for a job whose rank 0 runs here, "check" and "clear" for this
 * node, "doctor" for all nodes.
 *
 * Ownership: none; an answer under way frees itself.
 * Errors:    logged. A lost answer leaves the request open; sdctl then times out.
 */
#pragma once

#include "daemon/world/workload.h"

/* The parts of the daemon that requests concern. */
typedef struct Requests {
    const DaemonConfig *config;
    Etcd *etcd;
    Workload *workload;
    void *userdata; /* passed to the callbacks below */
    /* Called for a request for a round of probes on this node; clear: the faults that only a reset cures are
     * forgotten first. */
    void (*check)(void *userdata, const EtcdKeyValue *request, bool clear);
    /* Called for a request of kind "doctor" for this node or for all nodes. */
    void (*doctor)(void *userdata, const RequestRecord *request);
} Requests;

/* Called when the watch shows a request or its deletion. */
void requests_on_event(const Requests *requests, const EtcdEvent *event);
/* Writes the answer into the request's record, if kv still holds the record's present revision. */
void requests_answer(Etcd *etcd, const EtcdKeyValue *kv, const char *text);
