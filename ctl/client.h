/* client.h - sdctl's connection to the cluster's etcd, and waiting for what the records say.
 *
 * Ownership: client_open() fills a Client; client_close() accepts a zeroed one.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    as etcd.h, but an etcd that does not answer within CLIENT_TIMEOUT_SEC is always
 *            -ECONNREFUSED, with the endpoints in the text. ctl_fail() maps errors to exit codes.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/records.h"
#include "ctl/verbs.h"
#include "etcd/etcd-wait.h"

enum { CLIENT_TIMEOUT_SEC = 3 };

typedef struct ClientOptions {
    const char *etcd;    /* --etcd; NULL: SDTRAIN_ETCD */
    const char *cluster; /* --cluster; NULL: SDTRAIN_CLUSTER, else "default" */
} ClientOptions;

typedef struct CtlClient {
    sd_event *event;
    Etcd *etcd;
    char cluster[64];
    char endpoints[256];    /* for messages */
    uint64_t patience_usec; /* of client_watch(), until the present state has come */
} CtlClient;

/* What client_open() connects with; the strings live until exit. */
int client_etcd_options(const ClientOptions *options, EtcdOptions *ret, Error *err);
int client_open(const ClientOptions *options, CtlClient *ret, Error *err);
void client_close(CtlClient *client);

/* All records under key (or that one key). */
int client_get(CtlClient *client, const char *key, bool prefix, EtcdAnswer **ret, Error *err);
/* One transaction; *ret_done says whether the compares held. */
int client_txn(CtlClient *client, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
               size_t n_ops, bool *ret_done, Error *err);

/* Writes a new request of that kind to that target; *ret has its id, to wait for the answer by. The caller
 * sets ret->submission where a job is meant, ret->machine_id where one machine alone may answer. */
int client_request(CtlClient *client, const char *kind, const char *target, RequestRecord *ret,
                   Error *err);

/* Watches every record under the cluster's prefix and calls handler with each event in order (the
 * present state first), and with event NULL after each batch, until it returns non-zero, which
 * becomes the result; -ETIMEDOUT after timeout_usec, but not before the present state has been
 * seen, and -ECANCELED when somebody ends the loop. An etcd that falls silent later is waited for,
 * and said so on standard error. */
typedef int (*ClientEventHandler)(const EtcdEvent *event, void *userdata);
int client_watch(CtlClient *client, ClientEventHandler handler, void *userdata,
                 uint64_t timeout_usec, Error *err);

/* Says the error on standard error and gives its exit code. */
int ctl_fail(const Error *err, int r);

/* The live view of a job until it ends (ctl/job/watch.c); an exit code. */
int job_watch(const ClientOptions *options, const char *name);
