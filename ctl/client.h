/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - sdctl's connection to the cluster's etcd: read, write, and wait for records.
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
    const char *context; /* --context; NULL: not given */
} ClientOptions;

typedef struct CtlClient {
    sd_event *event;
    Etcd *etcd;
    char cluster[64];
    char endpoints[256];    /* all endpoints as one text, for errors */
    uint64_t patience_usec; /* client_watch() waits this time for the present state */
    bool is_quiet;          /* set by a caller that shows silent_usec itself */
    uint64_t silent_usec;   /* realtime since when etcd is silent in client_watch(); 0: it is not */
} CtlClient;

/* Fills the options that client_open() connects with; their strings live until exit. */
int client_etcd_options(const ClientOptions *options, EtcdOptions *ret, Error *err);
int client_open(const ClientOptions *options, CtlClient *ret, Error *err);
/* Works as client_open(), and gives up after that time where etcd does not answer. */
int client_open_briefly(const ClientOptions *options, uint64_t patience_usec, CtlClient *ret,
                        Error *err);
/* Works as client_open(), for a verb about one node; -ENOENT: no node can have that name. */
int client_open_for_node(const ClientOptions *options, const char *node, CtlClient *ret,
                         Error *err);
void client_close(CtlClient *client);

/* Reads one key, or with prefix all keys that begin with it. */
int client_get(CtlClient *client, const char *key, bool prefix, EtcdAnswer **ret, Error *err);
/* Runs one transaction; *ret_done tells whether its compares held. */
int client_txn(CtlClient *client, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
               size_t n_ops, bool *ret_done, Error *err);

/* Writes a new request of that kind for that target; *ret has its id, by which the answer is found. Before the call
 * the caller sets ret->submission for a job, ret->machine_id if only one machine may answer, ret->uris and ret->peers
 * for "doctor", and the rest to 0. */
int client_request(CtlClient *client, const char *kind, const char *target, RequestRecord *ret,
                   Error *err);

/* Makes a request of that kind anew, with an id, a time and who asks, as one op that puts it and its guard; text is to
 * be freed after the transaction. key: KEY_MAX bytes. */
void client_make_request(const CtlClient *client, RequestRecord *request, char *key,
                         char **ret_text, EtcdCompare *ret_absent, EtcdOp *ret_put);

/* Watches every record under the cluster's prefix and calls handler with each event in order (the
 * present state first), and with event NULL after each batch, until it returns non-zero, which
 * becomes the result. -ETIMEDOUT: timeout_usec has passed, and the present state has been seen;
 * -ECANCELED: the loop was told to exit. When etcd falls silent later, the call says so on standard
 * error and waits. */
typedef int (*ClientEventHandler)(const EtcdEvent *event, void *userdata);
int client_watch(CtlClient *client, ClientEventHandler handler, void *userdata,
                 uint64_t timeout_usec, Error *err);

/* Waits for the answer to a request that client_request() put, and reads the record with it. Errors are those of
 * client_watch(). */
int client_await(CtlClient *client, RequestRecord *request, double timeout_sec, Error *err);

/* Prints the error on standard error; returns its exit code. */
int ctl_fail(const Error *err, int r);
