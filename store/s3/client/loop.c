/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - the client's thread: waits with epoll for the sockets and the time that libcurl names.
 *
 * A thread that begins or cancels a request wakes the client's thread by an eventfd.
 */
#include "store/s3/client/client-internal.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { EVENTS_MAX = 64 };

/* ---- callbacks of libcurl ---- */

static int on_loop_socket(_unused_ CURL *easy, curl_socket_t fd, int what, void *userdata,
                          void *known)
{
    S3Client *client = userdata;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* fails if fd is closed */
        (void)curl_multi_assign(client->multi, fd, NULL); /* cannot fail: libcurl knows fd */
        return 0;
    }
    struct epoll_event event = {
        .events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                  (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0),
        .data.fd = fd,
    };
    if (epoll_ctl(client->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
        return -1; /* then libcurl fails the transfer */
    return curl_multi_assign(client->multi, fd, client) == CURLM_OK ? 0 : -1;
}

static int on_loop_timeout(_unused_ CURLM *multi, long timeout_msec, void *userdata)
{
    S3Client *client = userdata;
    client->curl_due_usec = timeout_msec < 0
                                ? USEC_INFINITY
                                : clock_boottime_usec() + (uint64_t)timeout_msec * USEC_PER_MSEC;
    return 0;
}

/* ---- the thread ---- */

void loop_wake(S3Client *client)
{
    uint64_t one = 1;
    /* Fails only if 2^64 - 2 wake-ups are unread: then the thread is awake anyway. */
    (void)!write(client->wake_fd, &one, sizeof(one));
}

static bool is_busy(const S3Client *client)
{
    return !TAILQ_EMPTY(&client->waiting) || !TAILQ_EMPTY(&client->paused) ||
           !TAILQ_EMPTY(&client->active);
}

/* Moves to the waiting queue the requests that other threads have begun, and ends cancelled requests. Returns whether
 * any request is in progress. */
static bool take(S3Client *client)
{
    (void)pthread_mutex_lock(&client->lock);
    S3Request *request;
    while ((request = TAILQ_FIRST(&client->incoming)))
        queue_put(request, &client->waiting, false);
    (void)pthread_mutex_unlock(&client->lock);
    if (atomic_exchange(&client->cancels, false))
        queue_cancel(client);
    return is_busy(client);
}

static int timeout_msec(const S3Client *client, uint64_t now_usec)
{
    uint64_t due =
        MIN(client->curl_due_usec, is_busy(client) ? client->tick_due_usec : USEC_INFINITY);
    if (due == USEC_INFINITY)
        return -1;
    return due <= now_usec ? 0 : (int)MIN(DIV_ROUND_UP(due - now_usec, USEC_PER_MSEC), 60000);
}

static void serve(S3Client *client, const struct epoll_event *event)
{
    if (event->data.fd == client->wake_fd) {
        uint64_t woken;
        /* wake_fd is readable, or was read already. */
        (void)!read(client->wake_fd, &woken, sizeof(woken));
        return;
    }
    int what = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
               (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (event->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    int running;
    /* libcurl reports a failure of the transfer later, as the transfer's end. */
    (void)curl_multi_socket_action(client->multi, event->data.fd, what, &running);
}

static void wait_and_serve(S3Client *client)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(client->epoll_fd, events, EVENTS_MAX,
                       timeout_msec(client, clock_boottime_usec()));
    assert(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++)
        serve(client, &events[i]);

    if (client->curl_due_usec <= clock_boottime_usec()) {
        int running;
        client->curl_due_usec = USEC_INFINITY; /* libcurl sets the next time */
        (void)curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }

    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        S3Try *t = NULL;
        if (message->msg == CURLMSG_DONE &&
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t) == CURLE_OK && t)
            queue_end_try(client, t, message->data.result);
    }
}

void *s3_loop_run(void *userdata)
{
    S3Client *client = userdata;
    while (!atomic_load(&client->closing)) {
        (void)take(client);
        uint64_t now_usec = clock_boottime_usec();
        if (now_usec >= client->tick_due_usec) {
            queue_tick(client, now_usec);
            client->tick_due_usec = now_usec + ENGINE_TICK_USEC;
        }
        queue_start(client);
        wait_and_serve(client);
    }
    while (take(client)) /* the end of a request may begin another request */
        queue_end_all(client);
    return NULL;
}

/* ---- open and close ---- */

int loop_open(S3Client *client, Error *err)
{
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = client->wake_fd};
    if (client->epoll_fd < 0 || client->wake_fd < 0 ||
        epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, client->wake_fd, &event) < 0)
        return error_errno(err, -errno, "S3 client: cannot wait for events");

    client->curl_due_usec = USEC_INFINITY;
    client->multi = curl_multi_init();
    if (!client->multi)
        return error_set(err, -ENOMEM, "out of memory opening an S3 client");
    CURLMcode code = CURLM_OK;
#define SET(option, value) code = code ? code : curl_multi_setopt(client->multi, option, value)
    SET(CURLMOPT_SOCKETFUNCTION, on_loop_socket);
    SET(CURLMOPT_SOCKETDATA, client);
    SET(CURLMOPT_TIMERFUNCTION, on_loop_timeout);
    SET(CURLMOPT_TIMERDATA, client);
    SET(CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    /* Hedges need connections, too. */
    SET(CURLMOPT_MAXCONNECTS, (long)client->options.connections * 11 / 10 + 1);
#undef SET
    if (code != CURLM_OK)
        return error_set(err, -EIO, "S3 client: libcurl: %s", curl_multi_strerror(code));
    return 0;
}

void loop_close(S3Client *client)
{
    for (size_t i = 0; i < client->n_idle; i++)
        curl_easy_cleanup(client->idle[i]);
    if (client->multi)
        (void)curl_multi_cleanup(client->multi); /* no transfer is in progress any more */
    client->epoll_fd = fd_close(client->epoll_fd);
    client->wake_fd = fd_close(client->wake_fd);
}
