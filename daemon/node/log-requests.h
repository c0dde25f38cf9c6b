/* SPDX-License-Identifier: Apache-2.0 */
/* log-requests.h - answers asks/<node>/<id>: what this node's ranks print, for whoever may ask.
 *
 * An ask holds the places to read on from, so that nothing is kept here that a lost record could contradict. The answer
 * is one record of at most LOG_TEXT_MAX bytes of log, and the next one comes when the reader has asked again. While an
 * ask that follows has nothing to be told, its files are looked at five times a second.
 *
 * LOG_REQUESTS_MAX readers have a place. One that has not taken its answer for LOG_REQUESTS_UNTAKEN_SEC loses it to
 * the next one that comes; its answer stays, and asking on gives it a place again.
 *
 * Ownership: part of the Manager. Borrows what it is handed.
 * Units:     microseconds, bytes.
 * Errors:    logged. An answer that fails is tried again; one that etcd denies is not.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "daemon/config/config.h"
#include "daemon/loop/timer.h"
#include "etcd/etcd.h"

enum {
    LOG_REQUESTS_LOOK_MSEC = 200,
    LOG_REQUESTS_PAUSE_MSEC = 100,              /* the least time between two answers to one ask */
    LOG_REQUESTS_BURST_BYTES = 4 * 1024 * 1024, /* that this node writes at once, for all readers */
    LOG_REQUESTS_BYTES_A_SEC = 64 * 1024,       /* and in the long run */
    LOG_REQUESTS_TAIL_MAX = 1024 * 1024,
    LOG_REQUESTS_UNTAKEN_SEC = 60,
    LOG_REQUESTS_DAMAGED_SEC = 60, /* between two warnings of asks that are passed over */
};

typedef struct LogRequests LogRequests;

typedef struct LogRequest {
    LogRequests *asks; /* NULL: the place is free */
    char id[LOG_ID_MAX + 1];
    LogRequestRecord record;
    int64_t answered;   /* seq of the last answer that was put */
    uint64_t next_usec; /* no answer before that time */
    uint64_t put_usec;  /* when the answer that waits for its reader was put; 0: none waits */
    bool told;          /* it had an answer in this place */
    bool ends;          /* the answer under way is the last one */
    bool gone;          /* the reader is, and its answer is to be removed */
    EtcdCall *call;     /* the write under way; NULL: none */
} LogRequest;

struct LogRequests {
    /* Handed in by manager.c. */
    const DaemonConfig *config;
    const Timers *timers;
    Etcd *etcd;
    EtcdLease *lease;
    const bool *has_name;          /* asks of this name are for this node */
    void *userdata;                /* of `ready` */
    void (*ready)(void *userdata); /* this node may read asks: its record may say so */

    LogRequest of[LOG_REQUESTS_MAX];
    EtcdWatch *watch;
    EtcdCall *rights_call;
    Timer rights_retry, look;
    int64_t budget_bytes;
    uint64_t budget_usec; /* when it was counted */
    bool refused_told;    /* one warning is enough */
    Timer damaged;        /* runs since the last warning of asks that were passed over */
    unsigned n_damaged;   /* since then */
    char damaged_text[sizeof(((Error *)0)->text)]; /* of the last one */
};

/* Asks for the right to read asks, and begins to watch them when it is there. The fields that are handed in are set. */
void log_requests_open(LogRequests *asks);
void log_requests_clear(LogRequests *asks);
/* The node has another lease, and what it had answered went with the old one. */
void log_requests_lease_changed(LogRequests *asks);
