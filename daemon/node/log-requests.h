/* SPDX-License-Identifier: Apache-2.0 */
/* log-requests.h - answers requests for logs (asks/<node>/<id>): returns what this node's ranks print.
 *
 * A request holds the positions from which to read on, so that the daemon keeps no state that a lost record could
 * contradict. The answer is one record of at most LOG_TEXT_MAX bytes of log; the next answer follows when the reader
 * has asked again. While a request with `follow` has no new lines, its files are checked five times a second.
 *
 * LOG_REQUESTS_MAX readers have a place. A reader that has not taken its answer for LOG_REQUESTS_UNTAKEN_SEC loses
 * its place to the next new reader. Its answer stays in etcd, and the reader gets a place again with its next request.
 *
 * Ownership: part of the Manager. Borrows the objects that manager.c sets.
 * Units:     microseconds, bytes.
 * Errors:    logged. An answer that fails is written again, except if etcd denies the right to write it.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/log-records.h"
#include "daemon/config/config.h"
#include "daemon/loop/timer.h"
#include "etcd/etcd.h"

enum {
    LOG_REQUESTS_LOOK_MSEC = 200,
    LOG_REQUESTS_PAUSE_MSEC = 100, /* the least time between two answers to one reader */
    LOG_REQUESTS_BURST_BYTES = 4 * 1024 * 1024, /* bytes that this node may write at once */
    LOG_REQUESTS_BYTES_A_SEC = 64 * 1024,       /* bytes a second that this node may write */
    LOG_REQUESTS_TAIL_MAX = 1024 * 1024,
    LOG_REQUESTS_UNTAKEN_SEC = 60,
    LOG_REQUESTS_DAMAGED_SEC = 60, /* seconds between two warnings of skipped requests */
};

typedef struct LogRequests LogRequests;

typedef struct LogRequest {
    LogRequests *requests; /* NULL: the place is free */
    char id[LOG_ID_MAX + 1];
    LogRequestRecord record;
    int64_t answered;   /* seq of the last answer that was put */
    uint64_t next_usec; /* when the next answer may be written */
    uint64_t put_usec;  /* when the answer that waits for the reader was put; 0: none waits */
    bool told;          /* the reader has had an answer since it got this place */
    bool ends;          /* the answer under way is the last answer */
    bool gone;          /* the reader has gone, and its answer is to be removed */
    EtcdCall *call;     /* the write under way; NULL: none */
} LogRequest;

struct LogRequests {
    /* Set by manager.c. */
    const DaemonConfig *config;
    const Timers *timers;
    Etcd *etcd;
    EtcdLease *lease;
    const bool *has_name;          /* whether this machine holds the node's name */
    void *userdata;                /* passed to `ready` */
    void (*ready)(void *userdata); /* called once this node may read requests */

    LogRequest of[LOG_REQUESTS_MAX];
    EtcdWatch *watch;
    EtcdCall *rights_call;
    Timer rights_retry, look;
    int64_t budget_bytes;
    uint64_t budget_usec; /* when budget_bytes was last updated */
    bool refused_told;    /* the one warning about missing rights was logged */
    Timer damaged;        /* runs after a warning about requests that were skipped */
    unsigned n_damaged;   /* number of requests skipped since the last warning */
    char damaged_text[sizeof(((Error *)0)->text)]; /* why the last request was skipped */
};

/* Checks whether this node may read requests for its logs, and watches the requests once that right is granted. The
 * fields that manager.c sets must be set before. */
void log_requests_open(LogRequests *requests);
void log_requests_clear(LogRequests *requests);
/* Called when the node has a new lease: the answers expired with the old lease, so they are written again. */
void log_requests_lease_changed(LogRequests *requests);
