/* client.h - sdctl's connection to the cluster's etcd, and waiting for what the records say.
 *
 * Ownership: client_open() fills a Client; client_close() accepts a zeroed one.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    as etcd.h. ctl_exit_of() maps them to exit codes.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/verbs.h"
#include "etcd/etcd_wait.h"

typedef struct ClientOptions {
    const char *etcd;    /* --etcd; NULL: SDTRAIN_ETCD */
    const char *cluster; /* --cluster; NULL: SDTRAIN_CLUSTER, else "default" */
} ClientOptions;

typedef struct Client {
    sd_event *event;
    Etcd *etcd;
    char cluster[64];
    char endpoints[256]; /* for messages */
} Client;

int client_open(const ClientOptions *options, Client *ret, Error *err);
void client_close(Client *client);

/* Watches every record under the cluster's prefix and calls handler with each event in order (the
 * present state first) until it returns non-zero, which becomes the result; -ETIMEDOUT after
 * timeout_usec. */
typedef int (*ClientEventHandler)(const EtcdEvent *event, bool initial, void *userdata);
/* Called after each batch too, with event NULL, so that a view is drawn once per batch. */
int client_watch(Client *client, ClientEventHandler handler, void *userdata, uint64_t timeout_usec,
                 Error *err);

/* Says the error on standard error and gives its exit code. */
int ctl_fail(const Error *err, int r);

/* The live view of a job until it ends (job_watch.c); an exit code. */
int job_watch(const ClientOptions *options, const char *name);
