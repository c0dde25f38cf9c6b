/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - one gRPC channel for each endpoint, and the thread that drains the completion queue into the loop.
 *
 * The queue has no descriptor to poll, so a thread blocks in it, appends each completion to a list and writes to an
 * eventfd. Nothing else runs outside the loop's thread. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "etcd/grpc/wire-grpc.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

enum {
    PEM_BYTES_MAX = 1 << 20,
    /* Values in etcd have at most 1.5 MiB; a read reduces its page size if an answer is too large. */
    MESSAGE_BYTES_MAX = 16 << 20,
    DRAIN_SEC = 20, /* a cancelled call ends at once; a longer wait is a bug in this code */
};

/* ---- completions ---- */

static void *queue_thread(void *arg)
{
    Wire *wire = arg;

    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(wire->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        Completion *completion = event.tag;
        pthread_mutex_lock(&wire->lock);
        completion->ok = event.success;
        completion->next = NULL;
        *wire->completions_end = completion;
        wire->completions_end = &completion->next;
        pthread_mutex_unlock(&wire->lock);
        uint64_t one = 1;
        ssize_t n = write(wire->wake_fd, &one, sizeof(one));
        assert(n == sizeof(one)); /* the counter cannot overflow */
    }
}

static void dispatch(Wire *wire)
{
    pthread_mutex_lock(&wire->lock);
    Completion *completion = wire->completions;
    wire->completions = NULL;
    wire->completions_end = &wire->completions;
    pthread_mutex_unlock(&wire->lock);

    assert(!wire->dispatching);
    wire->dispatching = true;
    while (completion) {
        /* `next` is read first: the last completion of a WireCall frees the WireCall, and itself with it. */
        Completion *next = completion->next;
        wire_call_completed(completion);
        completion = next;
    }
    wire->dispatching = false;
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

/* ---- channels ---- */

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

static int channels_open(Wire *wire, const EtcdOptions *options, const char *const *addresses,
                         size_t n_addresses, Error *err)
{
    grpc_channel_credentials *credentials = NULL;
    int r = credentials_new(options, &credentials, err);
    if (r < 0)
        return r;

    grpc_arg args[] = {
        /* gRPC's default back-off grows to two minutes, longer than any lease. The "min reconnect" time is the limit
         * for establishing a connection, including the handshake. */
        INTEGER_ARG(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        INTEGER_ARG(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500),
        INTEGER_ARG(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000),
        /* A peer that does not answer a ping within 2 s is disconnected. etcd treats pings less than 5 s apart as an
         * attack. */
        INTEGER_ARG(GRPC_ARG_KEEPALIVE_TIME_MS, 6000),
        INTEGER_ARG(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000),
        INTEGER_ARG(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        INTEGER_ARG(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        INTEGER_ARG(GRPC_ARG_ENABLE_RETRIES, 0),
        INTEGER_ARG(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        INTEGER_ARG(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        INTEGER_ARG(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MESSAGE_BYTES_MAX),
        {.type = GRPC_ARG_STRING,
         .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
         .value.string = (char *)options->tls_name},
    };
    grpc_channel_args list = {ELEMENTSOF(args) - (options->tls_name ? 0 : 1), args};

    wire->channels = memory_zeroed(n_addresses, sizeof(grpc_channel *));
    for (size_t i = 0; i < n_addresses && r == 0; i++) {
        char target[300];
        int n = snprintf(target, sizeof(target), "dns:///%s", addresses[i]);
        if ((size_t)n >= sizeof(target))
            r = error_set(err, -EINVAL, "etcd endpoint \"%s\": too long", addresses[i]);
        else
            wire->channels[wire->n_channels++] = grpc_channel_create(target, credentials, &list);
    }
    grpc_channel_credentials_release(credentials);
    return r;
}

/* ---- creation and end ---- */

static int wake_open(Wire *wire, sd_event *event, Error *err)
{
    wire->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wire->wake_fd < 0)
        return error_errno(err, -errno, "cannot create an eventfd");
    int r = sd_event_add_io(event, &wire->wake, wire->wake_fd, EPOLLIN, on_wake, wire);
    if (r < 0)
        return error_errno(err, r, "cannot watch etcd's answers");
    /* Answers have priority over timers: if this process was stalled, an answer that arrived in time must count as in
     * time. */
    r = sd_event_source_set_priority(wire->wake, SD_EVENT_PRIORITY_NORMAL - 10);
    if (r < 0)
        return error_errno(err, r, "cannot watch etcd's answers");
    return 0;
}

static int open_all(Wire *wire, sd_event *event, const EtcdOptions *options,
                    const char *const *addresses, size_t n_addresses, Error *err)
{
    int r = wake_open(wire, event, err);
    if (r < 0)
        return r;
    r = channels_open(wire, options, addresses, n_addresses, err);
    if (r < 0)
        return r;
    wire->queue = grpc_completion_queue_create_for_next(NULL);
    r = pthread_create(&wire->thread, NULL, queue_thread, wire);
    if (r != 0)
        return error_errno(err, -r, "cannot start etcd's thread");
    wire->thread_runs = true;
    return 0;
}

/* gRPC logs a line for each failed connection. The line has only debug level, because its relevant part is also in the
 * status of the RPC. */
static void grpc_log(gpr_log_func_args *args)
{
    log_debug("grpc: %s:%d: %s", args->file, args->line, args->message);
}

int wire_new(sd_event *event, const EtcdOptions *options, const char *const *addresses,
             size_t n_addresses, Wire **ret, Error *err)
{
    assert(n_addresses > 0);
    Wire *wire = memory_new(Wire);
    *wire = (Wire){
        .wake_fd = -EBADF,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .completions_end = &wire->completions,
    };
    gpr_set_log_function(grpc_log);
    /* Resolve names with getaddrinfo, like other programs of the host, instead of c-ares (which leaks
     * a "localhost"). */
    (void)setenv("GRPC_DNS_RESOLVER", "native", 0); /* if setenv() lacks memory, c-ares works too */
    grpc_init();
    int r = open_all(wire, event, options, addresses, n_addresses, err);
    if (r < 0) {
        (void)wire_free(wire);
        return r;
    }
    *ret = wire;
    return 0;
}

size_t wire_draw(Wire *wire)
{
    unsigned draw = 0;
    if (getrandom(&draw, sizeof(draw), GRND_NONBLOCK) != sizeof(draw))
        return 0;
    return draw % wire->n_channels;
}

/* Waits until the batches of cancelled calls have completed. Polls wake_fd itself, as the loop may have finished. */
static void drain(Wire *wire)
{
    uint64_t give_up = clock_boottime_usec() + DRAIN_SEC * USEC_PER_SEC;

    while (!LIST_EMPTY(&wire->calls)) {
        struct pollfd fd = {.fd = wire->wake_fd, .events = POLLIN};
        uint64_t count;
        if (poll(&fd, 1, 100) > 0 && read(wire->wake_fd, &count, sizeof(count)) < 0)
            assert(errno == EAGAIN || errno == EINTR);
        dispatch(wire);
        assert(clock_boottime_usec() < give_up);
    }
}

Wire *wire_free(Wire *wire)
{
    if (!wire)
        return NULL;
    WireCall *call;
    LIST_FOREACH(call, &wire->calls, list)
    wire_call_cut(call);
    drain(wire);

    for (size_t i = 0; i < wire->n_channels; i++)
        grpc_channel_destroy(wire->channels[i]);
    free(wire->channels);
    if (wire->queue) {
        grpc_completion_queue_shutdown(wire->queue);
        if (wire->thread_runs)
            (void)pthread_join(wire->thread, NULL); /* the queue's shutdown ends the thread */
        grpc_completion_queue_destroy(wire->queue);
    }
    grpc_shutdown();
    sd_event_source_disable_unref(wire->wake);
    wire->wake_fd = fd_close(wire->wake_fd);
    pthread_mutex_destroy(&wire->lock);
    free(wire);
    return NULL;
}
