/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - see client.h. */
#include "ctl/client.h"
#include "ctl/requester.h"

#include "base/clock.h"
#include "cluster/keys.h"

#include <string.h>

enum { LOOK_MSEC = 500, REQUEST_TRIES = 5 };

int client_etcd_options(const ClientOptions *options, EtcdOptions *ret, Error *err)
{
    int r = etcd_options_from_environment(ret, err);
    if (r < 0)
        return r;
    if (options->etcd)
        ret->endpoints = options->etcd;
    if (!ret->endpoints)
        return error_set(
            err, -EDESTADDRREQ,
            "no etcd is named: set SDTRAIN_ETCD, give --etcd HOST:PORT or --context NAME");
    return 0;
}

int client_open(const ClientOptions *options, CtlClient *ret, Error *err)
{
    return client_open_briefly(options, CLIENT_TIMEOUT_SEC * USEC_PER_SEC, ret, err);
}

int client_open_briefly(const ClientOptions *options, uint64_t patience_usec, CtlClient *ret,
                        Error *err)
{
    *ret = (CtlClient){0};
    EtcdOptions etcd;
    int r = client_etcd_options(options, &etcd, err);
    if (r < 0)
        return r;
    etcd.timeout_usec = ret->patience_usec = patience_usec;

    const char *cluster = options->cluster ? options->cluster : getenv("SDTRAIN_CLUSTER");
    if (!cluster)
        cluster = "default";
    if (!name_is_valid(cluster))
        return error_set(err, -EINVAL, "cluster: \"%s\" is not a name", cluster);
    (void)snprintf(ret->cluster, sizeof(ret->cluster), "%s", cluster);
    (void)snprintf(ret->endpoints, sizeof(ret->endpoints), "%s", etcd.endpoints);

    r = sd_event_new(&ret->event);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    r = etcd_new(ret->event, &etcd, &ret->etcd, err);
    if (r < 0)
        client_close(ret);
    return r;
}

int client_open_for_node(const ClientOptions *options, const char *node, CtlClient *ret, Error *err)
{
    if (!name_is_valid(node))
        return error_set(err, -ENOENT, "\"%s\" is not a node's name", node);
    return client_open(options, ret, err);
}

void client_close(CtlClient *client)
{
    client->etcd = etcd_free(client->etcd);
    client->event = sd_event_unref(client->event);
}

/* Returns libetcd's error unchanged, unless etcd did not answer: then sets an error with the endpoints and advice. */
static int judge(const CtlClient *client, int r, Error *err)
{
    if (r != -ETIMEDOUT && r != -ECONNREFUSED)
        return r;
    return error_set(err, -ECONNREFUSED,
                     "cannot reach etcd at %s: no answer within %d s; is it up, and is that its "
                     "address?",
                     client->endpoints, CLIENT_TIMEOUT_SEC);
}

int client_get(CtlClient *client, const char *key, bool prefix, EtcdAnswer **ret, Error *err)
{
    int r = etcd_get_wait(client->etcd, key, prefix, ret, err);
    return r < 0 ? judge(client, r, err) : 0;
}

int client_txn(CtlClient *client, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
               size_t n_ops, bool *ret_done, Error *err)
{
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = etcd_txn_wait(client->etcd, compares, n_compares, ops, n_ops, &answer, err);
    if (r < 0)
        return judge(client, r, err);
    *ret_done = answer->succeeded;
    return 0;
}

/* Each call gives the request a new id, because another host may have made the same id in the same microsecond. */
void client_make_request(const CtlClient *client, RequestRecord *request, char *key,
                         char **ret_text, EtcdCompare *ret_absent, EtcdOp *ret_put)
{
    request->at_usec = clock_realtime_usec();
    (void)requester_text(request->by);
    (void)snprintf(request->id, sizeof(request->id), "%llx-%x",
                   (unsigned long long)request->at_usec, (unsigned)getpid());
    *ret_text = request_record_encode(request, NULL);
    (void)key_of(client->cluster, KEY_REQUESTS, request->id, key);
    *ret_absent = (EtcdCompare){.key = key, .target = ETCD_CREATE_REVISION, .equals = 0};
    *ret_put = (EtcdOp){.kind = ETCD_PUT, .key = key, .value = *ret_text};
}

static int put_request(CtlClient *client, RequestRecord *request, bool *ret_done, Error *err)
{
    char key[KEY_MAX];
    _cleanup_free_ char *text = NULL;
    EtcdCompare absent;
    EtcdOp put;
    client_make_request(client, request, key, &text, &absent, &put);
    return client_txn(client, &absent, 1, &put, 1, ret_done, err);
}

int client_request(CtlClient *client, const char *kind, const char *target, RequestRecord *ret,
                   Error *err)
{
    RequestRecord request = {.commit = ret->commit, .n_uris = ret->n_uris, .n_peers = ret->n_peers};
    bool done = false;
    int r = 0;
    memcpy(request.submission, ret->submission, sizeof(request.submission));
    memcpy(request.uris, ret->uris, sizeof(request.uris));
    memcpy(request.peers, ret->peers, sizeof(request.peers));
    memcpy(request.machine_id, ret->machine_id, sizeof(request.machine_id));
    (void)snprintf(request.kind, sizeof(request.kind), "%s", kind);
    (void)snprintf(request.target, sizeof(request.target), "%s", target);
    *ret = request;
    for (int try = 0; try < REQUEST_TRIES && r == 0 && !done; try++)
        r = put_request(client, ret, &done, err);
    return r == 0 && !done ? error_set(err, -EAGAIN, "no request could be put; try again") : r;
}

typedef struct Watching {
    CtlClient *client;
    ClientEventHandler handler;
    void *userdata;
    int r;
    bool listed;         /* the watch has passed on the present state */
    uint64_t heard_usec; /* the last time when the watch's stream was connected */
    bool silent;
} Watching;

static void on_client_events(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                             _unused_ bool initial, void *userdata)
{
    Watching *w = userdata;
    w->listed = true;
    for (size_t i = 0; i < n && w->r == 0; i++)
        w->r = w->handler(&events[i], w->userdata);
    if (w->r == 0)
        w->r = w->handler(NULL, w->userdata);
}

static void print_silence(Watching *w, bool connected, uint64_t now)
{
    if (connected)
        w->heard_usec = now;
    bool silent = now > w->heard_usec + CLIENT_TIMEOUT_SEC * USEC_PER_SEC;
    w->client->silent_usec = silent ? clock_realtime_usec() - (now - w->heard_usec) : 0;
    if (w->client->is_quiet)
        return;
    if (silent != w->silent && isatty(STDOUT_FILENO)) {
        printf("\r\033[K");   /* erases a line of progress on the terminal */
        (void)fflush(stdout); /* if fflush() fails, the progress line stays */
    }
    if (silent != w->silent)
        fprintf(stderr, "sdctl: etcd at %s %s\n", w->client->endpoints,
                silent ? "does not answer; waiting for it" : "answers again");
    w->silent = silent;
}

int client_watch(CtlClient *client, ClientEventHandler handler, void *userdata,
                 uint64_t timeout_usec, Error *err)
{
    char prefix[KEY_MAX];
    const uint64_t began = clock_boottime_usec();
    Watching w = {.client = client, .handler = handler, .userdata = userdata, .heard_usec = began};
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    int r = etcd_watch_prefix(client->etcd, key_prefix(client->cluster, -1, prefix),
                              on_client_events, &w, &watch);
    if (r < 0)
        return error_errno(err, r, "cannot watch %s", prefix);

    while (w.r == 0) {
        const uint64_t now = clock_boottime_usec(), passed = now - began;
        if (!w.listed && passed >= client->patience_usec)
            return judge(client, -ECONNREFUSED, err);
        if (w.listed && passed >= timeout_usec)
            return error_set(err, -ETIMEDOUT, "timed out");
        if (w.listed)
            print_silence(&w, etcd_watch_connected(watch), now);
        uint64_t left = passed < timeout_usec ? timeout_usec - passed : USEC_PER_MSEC;
        r = sd_event_run(client->event, MIN(left, LOOK_MSEC * USEC_PER_MSEC));
        if (r < 0)
            return error_errno(err, r, "waiting for etcd");
        if (sd_event_get_state(client->event) == SD_EVENT_FINISHED)
            return error_set(err, -ECANCELED, "told to end");
    }
    return w.r;
}

typedef struct Awaited {
    char key[KEY_MAX];
    RequestRecord *request;
} Awaited;

static int on_request_event(const EtcdEvent *event, void *userdata)
{
    Awaited *awaited = userdata;
    RequestRecord request;
    Error err = ERROR_INIT;
    if (!event)
        return *awaited->request->answer != '\0';
    /* A record that cannot be decoded is ignored; if no other record follows, the deadline ends the wait. */
    if (event->kind == ETCD_EVENT_PUT && strcmp(event->kv.key, awaited->key) == 0 &&
        request_record_decode(awaited->key, event->kv.value, event->kv.n_value, &request, &err) ==
            0)
        *awaited->request = request;
    return 0;
}

int client_await(CtlClient *client, RequestRecord *request, double timeout_sec, Error *err)
{
    Awaited awaited = {.request = request};
    (void)key_of(client->cluster, KEY_REQUESTS, request->id, awaited.key);
    int r = client_watch(client, on_request_event, &awaited, (uint64_t)(timeout_sec * 1e6), err);
    return MIN(r, 0);
}

int ctl_fail(const Error *err, int r)
{
    fprintf(stderr, "sdctl: %s\n", *err->text ? err->text : strerror(-r));
    switch (r) {
    case -ENOENT:
        return CTL_NOT_FOUND;
    case -ETIMEDOUT:
        return CTL_TIMED_OUT;
    case -ECONNREFUSED:
    case -EDESTADDRREQ:
        return CTL_UNREACHABLE;
    default:
        return CTL_FAILED;
    }
}
