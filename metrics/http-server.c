/* SPDX-License-Identifier: Apache-2.0 */
/* http-server.c - see http-server.h. libmicrohttpd implements HTTP. The program's event loop watches libmicrohttpd's
 * epoll descriptor, and a timer serves the deadlines of libmicrohttpd and of this file. */
#include "metrics/http-server.h"

#include "base/clock.h"
#include "base/memory.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    ADDRESS_BYTES = 80,
    REQUEST_BYTES = 8192,
    STREAM_BYTES = 8192, /* piece of a stream that is passed to libmicrohttpd at a time */
    /* Size of a viewer's send buffer, which bounds the data that waits for a viewer that does not read. The kernel
     * doubles the value. */
    SOCKET_BYTES = 32768,
    SILENT_MSEC = 30000, /* time limit for a viewer to acknowledge sent data */
    /* Extra places for connections that are shut down to make room and close in the next run. libmicrohttpd accepts at
     * most 10 connections per run, so 32 are enough. */
    LEAVING_MAX = 32,
    /* Length of the kernel's queue, large so that many waiting clients do not block other clients; the kernel may
     * reduce it. */
    BACKLOG = 4096,
    PEER_BYTES = 16,
};

typedef struct Visit {
    int fd; /* owned by libmicrohttpd; -EBADF: this place is free */
    uint64_t until_usec;
    uint64_t serial;          /* a lower serial is an older connection */
    uint8_t peer[PEER_BYTES]; /* the client's address; for IPv6 only the network */
    bool finished;            /* the request was received completely */
    bool leaves;              /* the socket is shut down, so the connection no longer counts */
    bool reserved;            /* the request is for a reserved page */
    struct MHD_Connection *connection;
    HttpAnswer stream; /* the stream of a viewer; stream.next NULL: the visit is not a viewer */
    bool rests;        /* the viewer is suspended, because its stream has no data now */
    const char *at;    /* data of the stream that is not sent yet */
    size_t n_left;
} Visit;

struct HttpServer {
    sd_event *event;
    sd_event_source *io, *timer;
    struct MHD_Daemon *daemon;
    const HttpPage *pages;
    size_t n_pages;
    void *userdata;
    Visit visits[HTTP_CONNECTIONS_MAX + LEAVING_MAX];
    uint64_t serial;
    bool has_room; /* a connection was closed during this run */
    char address[ADDRESS_BYTES];
};

/* ---- one request ---- */

static enum MHD_Result add_headers(struct MHD_Response *response, const HttpAnswer *answer)
{
    enum MHD_Result r = MHD_add_response_header(response, "Content-Type", answer->type);
    if (r == MHD_YES)
        r = MHD_add_response_header(response, "Connection", "close");
    if (r == MHD_YES)
        r = MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (r == MHD_YES && answer->policy) {
        r = MHD_add_response_header(response, "Content-Security-Policy", answer->policy);
        if (r == MHD_YES)
            r = MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
        if (r == MHD_YES)
            r = MHD_add_response_header(response, "Cache-Control", "no-store");
    }
    if (r == MHD_YES && answer->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        r = MHD_add_response_header(response, "Allow", "GET, HEAD");
    if (r == MHD_YES && answer->status == MHD_HTTP_SERVICE_UNAVAILABLE)
        r = MHD_add_response_header(response, "Retry-After", "15");
    return r;
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, HttpAnswer *answer)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->n_text, (void *)answer->text,
                                        answer->keep ? MHD_RESPMEM_PERSISTENT
                                                     : MHD_RESPMEM_MUST_FREE);
    if (!response) {
        if (!answer->keep)
            free((void *)answer->text);
        return MHD_NO;
    }
    enum MHD_Result r = add_headers(response, answer);
    if (r == MHD_YES)
        r = MHD_queue_response(connection, (unsigned)answer->status, response);
    MHD_destroy_response(response);
    return r;
}

static enum MHD_Result send_words(struct MHD_Connection *connection, int status, const char *words)
{
    HttpAnswer answer = {.status = status,
                         .type = "text/plain; charset=utf-8",
                         .text = memory_format("%s\n", words)};
    answer.n_text = strlen(answer.text);
    return send_answer(connection, &answer);
}

/* ---- viewers ---- */

static int count_viewers(const HttpServer *server)
{
    int n = 0;
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++)
        n += server->visits[i].fd >= 0 && server->visits[i].stream.next != NULL;
    return n;
}

/* Passes a piece of the viewer's stream to libmicrohttpd. If there is no data, suspends the viewer until
 * http_server_wake(). */
static ssize_t on_viewer_reads(void *userdata, _unused_ uint64_t position, char *to, size_t n_room)
{
    Visit *visit = userdata;
    if (visit->n_left == 0) {
        const ssize_t n = visit->stream.next(visit->stream.viewer, &visit->at);
        if (n < 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        visit->n_left = (size_t)n;
        visit->until_usec = clock_boottime_usec() + HTTP_STALL_SEC * USEC_PER_SEC;
    }
    if (visit->n_left == 0) {
        visit->rests = true;
        visit->until_usec = USEC_INFINITY;
        MHD_suspend_connection(visit->connection);
        return 0;
    }
    const size_t n = MIN(visit->n_left, n_room);
    memcpy(to, visit->at, n);
    visit->at += n;
    visit->n_left -= n;
    return (ssize_t)n;
}

static enum MHD_Result send_stream(Visit *visit, struct MHD_Connection *connection,
                                   const HttpAnswer *answer)
{
    struct MHD_Response *response =
        visit ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, on_viewer_reads,
                                                  visit, NULL)
              : NULL;
    enum MHD_Result r = response ? add_headers(response, answer) : MHD_NO;
    if (r == MHD_YES) {
        visit->stream = *answer;
        (void)setsockopt(visit->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
        /* a dead client never acknowledges data, which would stay in the send buffer for a long time */
        (void)setsockopt(visit->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){SILENT_MSEC},
                         sizeof(int));
        /* disables libmicrohttpd's idle timeout: end_long_visits() handles the timeouts of viewers */
        (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
        r = MHD_queue_response(connection, (unsigned)answer->status, response);
        if (r != MHD_YES)
            visit->stream = (HttpAnswer){0};
    }
    if (r != MHD_YES)
        answer->leave(answer->viewer);
    if (response)
        MHD_destroy_response(response);
    return r;
}

static void resume_viewers(HttpServer *server)
{
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++) {
        Visit *visit = &server->visits[i];
        if (visit->fd >= 0 && visit->rests) {
            visit->rests = false;
            visit->until_usec = clock_boottime_usec() + HTTP_STALL_SEC * USEC_PER_SEC;
            MHD_resume_connection(visit->connection);
        }
    }
}

/* ---- requests ---- */

static const HttpPage *find_page(const HttpServer *server, const char *path, const char **ret_rest)
{
    for (size_t i = 0; i < server->n_pages; i++) {
        const char *own = server->pages[i].path;
        const size_t n = strlen(own);
        *ret_rest = path + MIN(n, strlen(path));
        if (strcmp(own, path) == 0 || (n > 1 && own[n - 1] == '/' && strncmp(own, path, n) == 0))
            return &server->pages[i];
    }
    return NULL;
}

static Visit *find_visit(HttpServer *server, const struct MHD_Connection *connection)
{
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++)
        if (server->visits[i].fd >= 0 && server->visits[i].connection == connection)
            return &server->visits[i];
    return NULL;
}

/* Tells whether all places that are not reserved are taken by connections that have finished their requests. */
static bool is_crowded(const HttpServer *server)
{
    int n = 0;
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++) {
        const Visit *v = &server->visits[i];
        n += v->fd >= 0 && v->finished && !v->leaves && !v->reserved;
    }
    return n >= HTTP_CONNECTIONS_MAX - HTTP_RESERVED;
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
                                  const char *path, const char *method,
                                  _unused_ const char *version, _unused_ const char *upload,
                                  _unused_ size_t *n_upload, _unused_ void **request)
{
    HttpServer *server = userdata;
    HttpRequest asked = {.n_viewers = count_viewers(server)};
    const HttpPage *page = find_page(server, path, &asked.rest);
    Visit *visit = find_visit(server, connection);
    const bool reserved = page && page->reserved, crowded = is_crowded(server);
    if (visit) {
        visit->finished = true;
        visit->reserved = reserved;
    }
    if (crowded && !reserved)
        return send_words(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "too many ask at once");
    asked.last_id = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Last-Event-ID");
    if (!page)
        return send_words(connection, MHD_HTTP_NOT_FOUND, "there is no such page");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return send_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "this page can only be read");
    HttpAnswer answer = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    if (page->make(&asked, &answer, page->userdata ? page->userdata : server->userdata) < 0)
        return send_words(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "cannot make this page");
    return answer.next ? send_stream(visit, connection, &answer) : send_answer(connection, &answer);
}

/* ---- connections ---- */

/* Shuts the connection down. libmicrohttpd then notices the end of the socket and closes it. */
static void send_away(Visit *visit)
{
    (void)shutdown(visit->fd, SHUT_RDWR); /* fails only if the client has closed it already */
    visit->until_usec = USEC_INFINITY;
    visit->leaves = true;
}

static void name_peer(struct MHD_Connection *connection, uint8_t ret[PEER_BYTES])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    memset(ret, 0, PEER_BYTES);
    if (!info || !info->client_addr)
        return;
    const struct sockaddr_in *v4 = (const void *)info->client_addr;
    const struct sockaddr_in6 *v6 = (const void *)info->client_addr;
    if (info->client_addr->sa_family == AF_INET)
        memcpy(ret + 8, &v4->sin_addr, sizeof(v4->sin_addr));
    else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        memcpy(ret + 8, v6->sin6_addr.s6_addr + 12, sizeof(v4->sin_addr));
    else
        memcpy(ret, &v6->sin6_addr, 8);
}

/* Returns the oldest connection whose request is finished, or with `finished` false, whose request is unfinished.
 * Stores in *ret_n how many connections there are of the same kind. Viewers are skipped. With peer not NULL,
 * only connections of this peer count. */
static Visit *oldest(HttpServer *server, bool finished, const uint8_t *peer, int *ret_n)
{
    Visit *found = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++) {
        Visit *v = &server->visits[i];
        if (v->fd < 0 || v->leaves || v->finished != finished || v->stream.next ||
            (peer && memcmp(v->peer, peer, PEER_BYTES) != 0))
            continue;
        ++*ret_n;
        if (!found || v->serial < found->serial)
            found = v;
    }
    return found;
}

/* Closes a connection if necessary, before a new connection of this peer is added. */
static void make_way(HttpServer *server, const uint8_t peer[PEER_BYTES])
{
    int n_own, n_unfinished, n_finished;
    Visit *own = oldest(server, false, peer, &n_own);
    Visit *unfinished = oldest(server, false, NULL, &n_unfinished);
    Visit *finished = oldest(server, true, NULL, &n_finished);
    const int n_all = n_unfinished + n_finished + count_viewers(server);
    Visit *who = n_own >= HTTP_UNFINISHED_MAX   ? own
                 : n_all < HTTP_CONNECTIONS_MAX ? NULL
                 : unfinished                   ? unfinished
                                                : finished;
    if (who)
        send_away(who);
}

static void on_connection(void *userdata, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    HttpServer *server = userdata;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        server->has_room = true;
        Visit *visit = *context;
        if (visit) {
            assert(visit >= server->visits && visit < server->visits + ELEMENTSOF(server->visits) &&
                   visit->fd >= 0);
            if (visit->stream.next)
                visit->stream.leave(visit->stream.viewer);
            *visit = (Visit){.fd = -EBADF};
        }
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    uint8_t peer[PEER_BYTES];
    name_peer(connection, peer);
    make_way(server, peer);
    for (size_t i = 0; info && i < ELEMENTSOF(server->visits); i++)
        if (server->visits[i].fd < 0) {
            server->visits[i] =
                (Visit){.fd = info->connect_fd,
                        .connection = connection,
                        .serial = ++server->serial,
                        .until_usec = clock_boottime_usec() + HTTP_CONNECTION_SEC * USEC_PER_SEC};
            memcpy(server->visits[i].peer, peer, sizeof(peer));
            *context = &server->visits[i];
            return;
        }
}

/* Ends connections that are past their deadline, because libmicrohttpd ends only idle connections, not slow
 * connections. Returns the next deadline. */
static uint64_t end_long_visits(HttpServer *server, uint64_t now_usec)
{
    uint64_t next_usec = USEC_INFINITY;
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++) {
        Visit *visit = &server->visits[i];
        if (visit->fd >= 0 && visit->until_usec <= now_usec)
            send_away(visit);
        if (visit->fd >= 0)
            next_usec = MIN(next_usec, visit->until_usec);
    }
    return next_usec;
}

static int run(HttpServer *server)
{
    server->has_room = false;
    if (MHD_run(server->daemon) != MHD_YES)
        return -EIO;
    MHD_UNSIGNED_LONG_LONG msec;
    uint64_t now_usec = clock_boottime_usec(), wake_usec = end_long_visits(server, now_usec);
    /* When libmicrohttpd is full, it stops accepting. After a connection was closed, it accepts again only in the next
     * run, and no event would start this run for waiting clients. So run again at once. */
    if (server->has_room)
        wake_usec = now_usec;
    if (MHD_get_timeout(server->daemon, &msec) == MHD_YES)
        wake_usec = MIN(wake_usec, now_usec + (uint64_t)msec * USEC_PER_MSEC);
    int r = 0;
    if (wake_usec != USEC_INFINITY)
        r = sd_event_source_set_time(server->timer, wake_usec);
    if (r >= 0)
        r = sd_event_source_set_enabled(server->timer, wake_usec == USEC_INFINITY
                                                           ? SD_EVENT_OFF
                                                           : SD_EVENT_ONESHOT);
    return r;
}

static int on_server_io(_unused_ sd_event_source *source, _unused_ int fd,
                        _unused_ uint32_t revents, void *userdata)
{
    /* After an error sd-event disables the source: the pages stop, the program continues. */
    return run(userdata);
}

static int on_server_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    return run(userdata);
}

/* ---- creation and end ---- */

static int parse_address(const char *address, struct addrinfo **ret, Error *err)
{
    char host[ADDRESS_BYTES];
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool bracketed = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    if (n == 0 || n >= sizeof(host) || !colon[1] || (!bracketed && memchr(address, ':', n)))
        return error_set(err, -EINVAL,
                         "\"%.100s\" is not ADDRESS:PORT, as 127.0.0.1:9464 or "
                         "[::1]:9464",
                         address);
    (void)snprintf(host, sizeof(host), "%.*s", (int)(bracketed ? n - 2 : n), address + bracketed);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    int e = getaddrinfo(host, colon + 1, &hints, ret);
    if (e != 0)
        return error_set(err, -EINVAL, "\"%.100s\" is not a numeric address and port: %s", address,
                         gai_strerror(e));
    return 0;
}

int http_address_check(const char *address, Error *err)
{
    struct addrinfo *found = NULL;
    int r = parse_address(address, &found, err);
    if (r == 0)
        freeaddrinfo(found);
    return r;
}

static int name_address(int fd, char ret[ADDRESS_BYTES])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return -errno;
    if (getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EINVAL;
    (void)snprintf(ret, ADDRESS_BYTES, a.ss_family == AF_INET6 ? "[%.60s]:%.8s" : "%.60s:%.8s",
                   host, port);
    return 0;
}

static int listen_at(const char *address, char ret_address[ADDRESS_BYTES], Error *err)
{
    struct addrinfo *found = NULL;
    int r = parse_address(address, &found, err);
    if (r < 0)
        return r;
    const int on = 1;
    _cleanup_fd_ int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        r = -errno;
    freeaddrinfo(found);
    if (r == 0)
        r = name_address(fd, ret_address);
    return r < 0 ? error_errno(err, r, "cannot listen at %s", address) : TAKE_FD(fd);
}

static int start(HttpServer *server, int *listener, Error *err)
{
    server->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request,
                         server, MHD_OPTION_LISTEN_SOCKET, *listener, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)(HTTP_CONNECTIONS_MAX + LEAVING_MAX),
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_CONNECTION_SEC,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
                         MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_END);
    if (!server->daemon)
        return error_set(err, -EIO, "cannot start a server at %s", server->address);
    (void)TAKE_FD(*listener); /* MHD_stop_daemon() closes the listener */
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int r =
        sd_event_add_io(server->event, &server->io, info->epoll_fd, EPOLLIN, on_server_io, server);
    if (r >= 0)
        r = sd_event_add_time(server->event, &server->timer, CLOCK_BOOTTIME, 0, 1000,
                              on_server_timer, server);
    if (r >= 0)
        r = sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
    /* the program's own work has priority over the pages */
    if (r >= 0)
        r = sd_event_source_set_priority(server->io, SD_EVENT_PRIORITY_NORMAL + 20);
    if (r >= 0)
        r = sd_event_source_set_priority(server->timer, SD_EVENT_PRIORITY_NORMAL + 20);
    return r < 0 ? error_errno(err, r, "cannot serve %s", server->address) : 0;
}

int http_server_new(sd_event *event, const char *address, const HttpPage *pages, size_t n_pages,
                    void *userdata, HttpServer **ret, Error *err)
{
    _cleanup_(http_server_freep) HttpServer *server = memory_new(HttpServer);
    server->event = sd_event_ref(event);
    server->pages = pages;
    server->n_pages = n_pages;
    server->userdata = userdata;
    for (size_t i = 0; i < ELEMENTSOF(server->visits); i++)
        server->visits[i].fd = -EBADF;
    _cleanup_fd_ int listener = listen_at(address, server->address, err);
    if (listener < 0)
        return listener;
    int r = start(server, &listener, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(server);
    return 0;
}

HttpServer *http_server_free(HttpServer *server)
{
    if (!server)
        return NULL;
    server->io = sd_event_source_disable_unref(server->io);
    server->timer = sd_event_source_disable_unref(server->timer);
    if (server->daemon) {
        resume_viewers(server); /* MHD_stop_daemon() allows no suspended connections */
        MHD_stop_daemon(server->daemon);
    }
    server->event = sd_event_unref(server->event);
    free(server);
    return NULL;
}

void http_server_wake(HttpServer *server)
{
    resume_viewers(server);
    (void)run(server); /* an error will occur again at the next event */
}

const char *http_server_address(const HttpServer *server) { return server->address; }
