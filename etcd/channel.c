/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c - the client: one gRPC channel per endpoint, the thread that drains the completion
 * queue into the loop, and the choice of the endpoint.
 *
 * The queue has no descriptor, so a thread blocks in it, appends what ended to a list and writes an
 * eventfd. That is all that ever happens off the loop's thread. */
#include "base/file.h"
#include "base/log.h"
#include "etcd/etcd-internal.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

enum {
    PEM_BYTES_MAX = 1 << 20,
    TIMEOUT_DEFAULT_SEC = 5,
    SILENCE_MIN_MSEC = 500,
    SILENT_AVOID_SEC = 5,
    DRAIN_SEC = 20, /* a cancelled call ends at once; this is a bound for our own bugs */
};

/* ---- completions ---- */

static void *queue_thread(void *arg)
{
    Etcd *etcd = arg;

    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(etcd->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        Completion *completion = event.tag;
        pthread_mutex_lock(&etcd->lock);
        completion->ok = event.success;
        completion->next = NULL;
        *etcd->completions_end = completion;
        etcd->completions_end = &completion->next;
        pthread_mutex_unlock(&etcd->lock);
        uint64_t one = 1;
        ssize_t n = write(etcd->wake_fd, &one, sizeof(one));
        assert(n == sizeof(one)); /* the counter cannot overflow */
    }
}

static void dispatch(Etcd *etcd)
{
    pthread_mutex_lock(&etcd->lock);
    Completion *completion = etcd->completions;
    etcd->completions = NULL;
    etcd->completions_end = &etcd->completions;
    pthread_mutex_unlock(&etcd->lock);

    assert(!etcd->dispatching);
    etcd->dispatching = true;
    while (completion) {
        Completion *next = completion->next; /* the Rpc may go with its last completion */
        rpc_completed(completion);
        completion = next;
    }
    etcd->dispatching = false;
}

static int on_wake(sd_event_source *source _unused_, int fd, uint32_t revents _unused_,
                   void *userdata)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));
    if (n == sizeof(count))
        dispatch(userdata);
    return 0;
}

/* ---- endpoints ---- */

Endpoint *endpoint_pick(Etcd *etcd)
{
    uint64_t now = clock_boottime_usec();
    size_t best = etcd->current;

    assert(etcd->current < etcd->n_endpoints);
    for (size_t i = 0; i < etcd->n_endpoints; i++) {
        size_t at = (etcd->current + i) % etcd->n_endpoints;
        if (etcd->endpoints[at].avoid_until_usec <= now) {
            best = at;
            break;
        }
        if (etcd->endpoints[at].avoid_until_usec < etcd->endpoints[best].avoid_until_usec)
            best = at;
    }
    etcd->current = best;
    return &etcd->endpoints[best];
}

void endpoint_avoid(Endpoint *endpoint, uint64_t for_usec)
{
    uint64_t until = clock_boottime_usec() + for_usec;
    endpoint->avoid_until_usec = MAX(endpoint->avoid_until_usec, until);
}

/* Avoids a silent endpoint and cuts every rpc on it; each of those ends as `silent`. */
static void endpoint_leave(Etcd *etcd, Endpoint *endpoint)
{
    Rpc *rpc;

    endpoint_avoid(endpoint, SILENT_AVOID_SEC * USEC_PER_SEC);
    LIST_FOREACH(rpc, &etcd->rpcs, list)
    {
        if (rpc->endpoint == endpoint) {
            rpc->silent = true;
            rpc_cut(rpc);
        }
    }
}

void etcd_watchdog_arm(Etcd *etcd)
{
    int enabled = SD_EVENT_OFF;

    if (etcd->n_endpoints == 1) /* there is nowhere else to go */
        return;
    int r = sd_event_source_get_enabled(etcd->watchdog, &enabled);
    if (r < 0 || enabled != SD_EVENT_OFF)
        return;
    /* Fails only when the loop has finished, and then nobody waits. */
    (void)sd_event_source_set_time(etcd->watchdog, clock_boottime_usec() + etcd->silence_usec / 4);
    (void)sd_event_source_set_enabled(etcd->watchdog, SD_EVENT_ONESHOT);
}

static int on_watchdog(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    Etcd *etcd = userdata;
    uint64_t now = clock_boottime_usec();
    bool waiting = false;
    Rpc *rpc;

    LIST_FOREACH(rpc, &etcd->rpcs, list)
    {
        if (rpc->waiting_usec == 0 || rpc->silent)
            continue;
        waiting = true;
        if (now > MAX(rpc->waiting_usec, rpc->endpoint->heard_usec) + etcd->silence_usec)
            endpoint_leave(etcd, rpc->endpoint);
    }
    if (waiting)
        etcd_watchdog_arm(etcd);
    return 0;
}

/* ---- life ---- */

static int credentials_new(const EtcdOptions *options, grpc_channel_credentials **ret, Error *err)
{
    if (!options->ca_file) {
        *ret = grpc_insecure_credentials_create();
        return 0;
    }
    _cleanup_free_ char *ca = NULL, *cert = NULL, *key = NULL;
    size_t n;
    int r = file_read(options->ca_file, PEM_BYTES_MAX, &ca, &n, err);
    if (r < 0)
        return error_prefix(err, r, "etcd's CA");
    if (options->cert_file) {
        r = file_read(options->cert_file, PEM_BYTES_MAX, &cert, &n, err);
        if (r < 0)
            return error_prefix(err, r, "etcd client certificate");
        r = file_read(options->key_file, PEM_BYTES_MAX, &key, &n, err);
        if (r < 0)
            return error_prefix(err, r, "etcd client key");
    }
    grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = cert};
    *ret = grpc_ssl_credentials_create_ex(ca, cert ? &pair : NULL, NULL, NULL);
    if (key)
        explicit_bzero(key, n);
    return *ret ? 0 : error_set(err, -EINVAL, "cannot use etcd's TLS files: %s", options->ca_file);
}

#define INTEGER_ARG(name, number)                                                                  \
    {                                                                                              \
        .type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (number)                 \
    }

static int channels_open(Etcd *etcd, const EtcdOptions *options, Error *err)
{
    grpc_channel_credentials *credentials = NULL;
    int r = credentials_new(options, &credentials, err);
    if (r < 0)
        return r;

    grpc_arg args[] = {
        /* gRPC's own back-off grows to two minutes, beyond any lease. "min reconnect" is what it
         * gives a connection, handshake included, to come up. */
        INTEGER_ARG(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        INTEGER_ARG(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500),
        INTEGER_ARG(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000),
        /* A peer that does not answer a ping within 2 s is disconnected. etcd takes pings closer
         * than 5 s for an attack. */
        INTEGER_ARG(GRPC_ARG_KEEPALIVE_TIME_MS, 6000),
        INTEGER_ARG(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000),
        INTEGER_ARG(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        INTEGER_ARG(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        INTEGER_ARG(GRPC_ARG_ENABLE_RETRIES, 0),
        INTEGER_ARG(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        INTEGER_ARG(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        INTEGER_ARG(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, ETCD_MESSAGE_BYTES_MAX),
        {.type = GRPC_ARG_STRING,
         .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
         .value.string = (char *)options->tls_name},
    };
    grpc_channel_args list = {ELEMENTSOF(args) - (options->tls_name ? 0 : 1), args};

    for (size_t i = 0; i < etcd->n_endpoints && r == 0; i++) {
        char target[300];
        int n = snprintf(target, sizeof(target), "dns:///%s", etcd->endpoints[i].address);
        if ((size_t)n >= sizeof(target))
            r = error_set(err, -EINVAL, "etcd endpoint \"%s\": too long",
                          etcd->endpoints[i].address);
        else
            etcd->endpoints[i].channel = grpc_channel_create(target, credentials, &list);
    }
    grpc_channel_credentials_release(credentials);
    return r;
}

static int sources_open(Etcd *etcd, Error *err)
{
    etcd->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (etcd->wake_fd < 0)
        return error_errno(err, -errno, "cannot create an eventfd");
    int r = sd_event_add_io(etcd->event, &etcd->wake, etcd->wake_fd, EPOLLIN, on_wake, etcd);
    if (r < 0)
        return error_errno(err, r, "cannot watch etcd's answers");
    /* Answers before timers: after a stall of our own, what came in time must count as in time. */
    r = sd_event_source_set_priority(etcd->wake, SD_EVENT_PRIORITY_NORMAL - 10);
    if (r < 0)
        return error_errno(err, r, "cannot watch etcd's answers");
    r = sd_event_add_time(etcd->event, &etcd->watchdog, CLOCK_BOOTTIME, 0, 1, on_watchdog, etcd);
    if (r >= 0)
        r = sd_event_source_set_enabled(etcd->watchdog, SD_EVENT_OFF);
    if (r < 0)
        return error_errno(err, r, "cannot arm a timer");
    return 0;
}

static int open_all(Etcd *etcd, const EtcdOptions *options, Error *err)
{
    int r = endpoints_parse(etcd, options, err);
    if (r < 0)
        return r;
    if (!options->cert_file != !options->key_file || (options->cert_file && !options->ca_file))
        return error_set(err, -EINVAL,
                         "a client certificate needs cert_file, key_file and ca_file");
    if (!options->user != !options->password)
        return error_set(err, -EINVAL, "an etcd user needs a password and the other way round");
    etcd->endpoint_list = memory_text(options->endpoints);
    if (options->user) {
        etcd->user = memory_text(options->user);
        etcd->password = memory_text(options->password);
    }
    /* Clients spread over the members. */
    unsigned draw = 0;
    if (getrandom(&draw, sizeof(draw), GRND_NONBLOCK) == sizeof(draw))
        etcd->current = draw % etcd->n_endpoints;

    r = sources_open(etcd, err);
    if (r < 0)
        return r;
    r = channels_open(etcd, options, err);
    if (r < 0)
        return r;
    etcd->queue = grpc_completion_queue_create_for_next(NULL);
    r = pthread_create(&etcd->thread, NULL, queue_thread, etcd);
    if (r != 0)
        return error_errno(err, -r, "cannot start etcd's thread");
    etcd->thread_runs = true;
    return 0;
}

/* gRPC writes a line for each connection that fails; what matters of it comes back as a status. */
static void grpc_log(gpr_log_func_args *args)
{
    log_debug("grpc: %s:%d: %s", args->file, args->line, args->message);
}

int etcd_new(sd_event *event, const EtcdOptions *options, Etcd **ret, Error *err)
{
    Etcd *etcd = memory_new(Etcd);
    *etcd = (Etcd){
        .n_references = 1,
        .event = sd_event_ref(event),
        .wake_fd = -EBADF,
        .timeout_usec =
            options->timeout_usec ? options->timeout_usec : TIMEOUT_DEFAULT_SEC * USEC_PER_SEC,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .completions_end = &etcd->completions,
    };
    /* Three endpoints fit into one deadline. */
    etcd->silence_usec = MAX(etcd->timeout_usec / 3, SILENCE_MIN_MSEC * USEC_PER_MSEC);
    gpr_set_log_function(grpc_log);
    /* getaddrinfo, as everything else on the host, instead of c-ares (which leaks a "localhost").
     */
    (void)setenv("GRPC_DNS_RESOLVER", "native", 0); /* without memory for it c-ares does as well */
    grpc_init();
    int r = open_all(etcd, options, err);
    if (r < 0) {
        (void)etcd_free(etcd);
        return r;
    }
    *ret = etcd;
    return 0;
}

Etcd *etcd_ref(Etcd *etcd)
{
    assert(etcd->n_references > 0);
    etcd->n_references++;
    return etcd;
}

Etcd *etcd_unref(Etcd *etcd)
{
    assert(etcd->n_references > 0);
    if (--etcd->n_references == 0) {
        assert(etcd->closed);
        pthread_mutex_destroy(&etcd->lock);
        free(etcd);
    }
    return NULL;
}

/* Cancelled calls still hand back their batches. The loop may have finished, so not through it. */
static void drain(Etcd *etcd)
{
    uint64_t give_up = clock_boottime_usec() + DRAIN_SEC * USEC_PER_SEC;

    while (!LIST_EMPTY(&etcd->rpcs)) {
        struct pollfd fd = {.fd = etcd->wake_fd, .events = POLLIN};
        uint64_t count;
        if (poll(&fd, 1, 100) > 0 && read(etcd->wake_fd, &count, sizeof(count)) < 0)
            assert(errno == EAGAIN || errno == EINTR);
        dispatch(etcd);
        assert(clock_boottime_usec() < give_up);
    }
}

Etcd *etcd_free(Etcd *etcd)
{
    if (!etcd)
        return NULL;
    assert(!etcd->closed);
    assert(!etcd->dispatching); /* not from within a callback */

    Rpc *rpc;
    etcd->closed = true;
    while (!LIST_EMPTY(&etcd->calls))
        (void)etcd_call_free(LIST_FIRST(&etcd->calls));
    LIST_FOREACH(rpc, &etcd->rpcs, list)
    (void)rpc_cancel(rpc);
    drain(etcd);

    for (size_t i = 0; i < etcd->n_endpoints; i++) {
        if (etcd->endpoints[i].channel)
            grpc_channel_destroy(etcd->endpoints[i].channel);
        free(etcd->endpoints[i].address);
    }
    if (etcd->queue) {
        grpc_completion_queue_shutdown(etcd->queue);
        if (etcd->thread_runs)
            (void)pthread_join(etcd->thread, NULL); /* it ends with the queue */
        grpc_completion_queue_destroy(etcd->queue);
    }
    grpc_shutdown();
    sd_event_source_disable_unref(etcd->wake);
    sd_event_source_disable_unref(etcd->watchdog);
    etcd->wake_fd = fd_close(etcd->wake_fd);
    sd_event_unref(etcd->event);
    free(etcd->endpoint_list);
    free(etcd->user);
    if (etcd->password)
        explicit_bzero(etcd->password, strlen(etcd->password));
    free(etcd->password);
    free(etcd->token);
    return etcd_unref(etcd);
}
