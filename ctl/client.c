/* client.c - see client.h. */
#include "ctl/client.h"

#include "cluster/keys.h"

#include <string.h>

int client_open(const ClientOptions *options, Client *ret, Error *err)
{
    *ret = (Client){0};
    EtcdOptions etcd;
    int r = etcd_options_from_environment(&etcd, err);
    if (r < 0)
        return r;
    if (options->etcd)
        etcd.endpoints = options->etcd;
    if (!etcd.endpoints)
        return error_set(err, -EDESTADDRREQ,
                         "no etcd is named: set SDTRAIN_ETCD or give --etcd HOST:PORT");

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

void client_close(Client *client)
{
    client->etcd = etcd_free(client->etcd);
    client->event = sd_event_unref(client->event);
}

typedef struct Watching {
    sd_event *event;
    ClientEventHandler handler;
    void *userdata;
    int r;
} Watching;

static void on_events(const EtcdEvent *events, size_t n, int64_t revision, bool initial,
                      void *userdata)
{
    (void)revision;
    Watching *w = userdata;
    for (size_t i = 0; i < n && w->r == 0; i++)
        w->r = w->handler(&events[i], initial, w->userdata);
    if (w->r == 0)
        w->r = w->handler(NULL, initial, w->userdata);
    if (w->r != 0)
        (void)sd_event_exit(w->event, 1); /* the loop is ours and runs */
}

int client_watch(Client *client, ClientEventHandler handler, void *userdata, uint64_t timeout_usec,
                 Error *err)
{
    char prefix[KEY_MAX];
    Watching w = {.event = client->event, .handler = handler, .userdata = userdata};
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    int r = etcd_watch_prefix(client->etcd, key_prefix(client->cluster, -1, prefix), on_events, &w,
                              &watch);
    if (r < 0)
        return error_errno(err, r, "cannot watch %s", prefix);

    uint64_t now, deadline;
    (void)sd_event_now(client->event, CLOCK_BOOTTIME, &now); /* a valid clock */
    deadline = timeout_usec > UINT64_MAX - now ? UINT64_MAX : now + timeout_usec;
    while (w.r == 0 && now < deadline) {
        r = sd_event_run(client->event, deadline == UINT64_MAX ? UINT64_MAX : deadline - now);
        if (r < 0)
            return error_errno(err, r, "waiting for etcd");
        if (sd_event_get_state(client->event) == SD_EVENT_FINISHED)
            break;
        struct timespec ts;
        (void)clock_gettime(CLOCK_BOOTTIME, &ts); /* cannot fail */
        now = (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / NSEC_PER_USEC;
    }
    if (w.r != 0)
        return w.r;
    return error_set(err, -ETIMEDOUT, "timed out");
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
