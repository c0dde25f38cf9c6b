/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - sdctl's connection to the cluster's etcd: read, write, and wait for records.
 *
 * Ownership: client_open() fills a CtlClient; client_close() accepts a zeroed CtlClient.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    as etcd.h, but an etcd that does not answer within CLIENT_TIMEOUT_SEC is always -ECONNREFUSED, with the
 *            endpoints in the text. ctl_fail() maps errors to exit codes.
 */
#pragma once

#include "cluster/records.h"
#include "ctl/verbs.h"
#include "etcd/etcd-wait.h"

enum { CLIENT_TIMEOUT_SEC = 3 };

typedef struct ClientOptions {
    const char *etcd;    /* value of --etcd; NULL: SDTRAIN_ETCD is used */
    const char *cluster; /* value of --cluster; NULL: SDTRAIN_CLUSTER, else "default" */
    const char *context; /* value of --context; NULL: not given */
} ClientOptions;

typedef struct CtlClient {
    sd_event *event;
    Etcd *etcd;
    char cluster[64];
    char endpoints[256];    /* all endpoints as one text, for errors */
    uint64_t patience_usec; /* time limit of client_watch() for reading the present state */
    bool is_quiet;          /* the caller shows silent_usec, so client_watch() prints nothing */
    /* Time at which etcd stopped answering client_watch(), in realtime; 0: etcd answers. */
    uint64_t silent_usec;
} CtlClient;

/* Fills the options that client_open() connects with; their strings live until exit. */
int client_etcd_options(const ClientOptions *options, EtcdOptions *ret, Error *err);
int client_open(const ClientOptions *options, CtlClient *ret, Error *err);
/* Works as client_open(), but operations fail when etcd does not answer within patience_usec. */
int client_open_briefly(const ClientOptions *options, uint64_t patience_usec, CtlClient *ret,
                        Error *err);
/* Works as client_open(), for a verb about one node. Returns -ENOENT if the node's name is invalid. */
int client_open_for_node(const ClientOptions *options, const char *node, CtlClient *ret,
                         Error *err);
void client_close(CtlClient *client);

/* Reads one key, or if prefix is true, all keys that begin with `key`. */
int client_get(CtlClient *client, const char *key, bool prefix, EtcdAnswer **ret, Error *err);
/* Runs one transaction; *ret_done tells whether its comparisons were true. */
int client_txn(CtlClient *client, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
               size_t n_ops, bool *ret_done, Error *err);

/* Writes a new request of this kind for this target; *ret has its id, by which client_await() finds the answer. Before
 * the call the caller sets ret->submission for a job, ret->machine_id if only one machine may answer, ret->uris and
 * ret->peers for "doctor", and the rest to 0. */
int client_request(CtlClient *client, const char *kind, const char *target, RequestRecord *ret,
                   Error *err);

/* Gives the request a new id, the time and the requester's name. Makes the etcd operation that puts the request, and
 * the comparison that guards the put. The caller frees *ret_text after the transaction. key has KEY_MAX bytes. */
void client_make_request(const CtlClient *client, RequestRecord *request, char *key,
                         char **ret_text, EtcdCompare *ret_absent, EtcdOp *ret_put);

/* Watches all records under the cluster's prefix. Calls handler with each event in order, first with the present state,
 * and with event NULL after each batch. The watch ends when handler returns a non-zero value, which client_watch()
 * returns. -ETIMEDOUT: the present state was read, and timeout_usec has passed. -ECANCELED: the event loop was told to
 * exit. If etcd stops answering later, client_watch() prints a message on standard error and keeps waiting. */
typedef int (*ClientEventHandler)(const EtcdEvent *event, void *userdata);
int client_watch(CtlClient *client, ClientEventHandler handler, void *userdata,
                 uint64_t timeout_usec, Error *err);

/* Waits for the answer to a request of client_request() and stores the answered record in *request. Returns the errors
 * of client_watch(). */
int client_await(CtlClient *client, RequestRecord *request, double timeout_sec, Error *err);

/* Prints the error on standard error and returns the exit code for r. */
int ctl_fail(const Error *err, int r);
