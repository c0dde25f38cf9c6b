/* SPDX-License-Identifier: Apache-2.0 */
/* requests.h - answers requests/<id>: "checkpoint" for a job whose rank 0 is here, "check" and "clear" for this node,
 * "doctor" for all nodes.
 *
 * Ownership: none; an answer under way frees itself.
 * Units:     none.
 * Errors:    logged. An answer that is lost leaves the request open; sdctl has a deadline.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/world/workload.h"

/* The parts of the daemon that requests concern. */
typedef struct Requests {
    const DaemonConfig *config;
    Etcd *etcd;
    Workload *workload;
    void *userdata; /* of the calls below */
    /* This node is asked for a round of probes; clear: they forget first. */
    void (*check)(void *userdata, const EtcdKeyValue *request, bool clear);
    /* Nodes are asked what ranks would find here. */
    void (*doctor)(void *userdata, const RequestRecord *request);
} Requests;

/* The watch shows a request, or that one is gone. */
void requests_on_event(const Requests *requests, const EtcdEvent *event);
/* Puts the answer, if the record is still as kv holds it. */
void requests_answer(Etcd *etcd, const EtcdKeyValue *kv, const char *text);
