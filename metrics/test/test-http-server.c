/* SPDX-License-Identifier: Apache-2.0 */
/* test-http-server.c - the HTTP server with normal clients, slow clients, too many clients, and clients that
 * disconnect. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "metrics/exporter.h"
#include "metrics/http-server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { PATIENCE_SEC = 60, ANSWER_BYTES = 1 << 20, LONG_PAGE_BYTES = 300000 };

typedef struct Lab {
    sd_event *event;
    HttpServer *server;
    int n_asked;
    char answer[ANSWER_BYTES];
    const char *given; /* the next data of the stream */
    size_t n_given;
    bool gives_always, ends;
    int n_viewers;
    char last_id[40];
} Lab;

static int make_short(_unused_ const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    Lab *lab = userdata;
    lab->n_asked++;
    ret->text = strdup("short\n");
    ret->n_text = 6;
    return ret->text ? 0 : -ENOMEM;
}

static int make_long(_unused_ const HttpRequest *request, HttpAnswer *ret, _unused_ void *userdata)
{
    char *text = malloc(LONG_PAGE_BYTES);
    if (!text)
        return -ENOMEM;
    memset(text, 'x', LONG_PAGE_BYTES);
    ret->text = text;
    ret->n_text = LONG_PAGE_BYTES;
    ret->status = 503;
    return 0;
}

static int make_none(_unused_ const HttpRequest *request, _unused_ HttpAnswer *ret,
                     _unused_ void *userdata)
{
    return -EIO;
}

static int make_below(const HttpRequest *request, HttpAnswer *ret, _unused_ void *userdata)
{
    ret->text = strdup(request->rest);
    ret->n_text = strlen(request->rest);
    ret->policy = "default-src 'none'";
    return 0;
}

/* ---- a stream whose data the test sets ---- */

static ssize_t give_next(void *viewer, const char **ret)
{
    Lab *lab = viewer;
    const ssize_t n = lab->ends ? -EPIPE : (ssize_t)lab->n_given;
    *ret = lab->given;
    if (!lab->gives_always)
        lab->n_given = 0;
    return n;
}

static void leave(void *viewer)
{
    Lab *lab = viewer;
    lab->n_viewers--;
}

static int make_stream(const HttpRequest *request, HttpAnswer *ret, void *userdata)
{
    Lab *lab = userdata;
    if (request->n_viewers >= HTTP_VIEWERS_MAX) {
        ret->status = 503;
        ret->text = strdup("too many look\n");
        ret->n_text = 14;
        return 0;
    }
    (void)snprintf(lab->last_id, sizeof(lab->last_id), "%s",
                   request->last_id ? request->last_id : "");
    lab->n_viewers++;
    *ret = (HttpAnswer){.status = 200,
                        .type = "text/event-stream",
                        .next = give_next,
                        .leave = leave,
                        .viewer = lab};
    return 0;
}

static char huge[16 << 20];

static int make_huge(_unused_ const HttpRequest *request, HttpAnswer *ret, _unused_ void *userdata)
{
    ret->text = huge;
    ret->n_text = sizeof(huge);
    ret->keep = true;
    return 0;
}

static const HttpPage pages[] = {{.path = "/short", .make = make_short},
                                 {.path = "/long", .make = make_long},
                                 {.path = "/none", .make = make_none},
                                 {.path = "/below/", .make = make_below},
                                 {.path = "/stream", .make = make_stream},
                                 {.path = "/huge", .make = make_huge},
                                 {.path = "/own", .make = make_short, .reserved = true}};

static int lab_begin(void **state)
{
    Lab *lab = calloc(1, sizeof(*lab));
    Error err = ERROR_INIT;
    assert_non_null(lab);
    assert_true(sd_event_new(&lab->event) >= 0);
    assert_int_equal(http_server_new(lab->event, "127.0.0.1:0", pages, ELEMENTSOF(pages), lab,
                                     &lab->server, &err),
                     0);
    *state = lab;
    return 0;
}

static int lab_end(void **state)
{
    Lab *lab = *state;
    lab->server = http_server_free(lab->server);
    lab->event = sd_event_unref(lab->event);
    free(lab);
    return 0;
}

/* Connects from the address 127.0.0.<host>. */
static int connect_from(const Lab *lab, uint32_t host)
{
    const char *address = http_server_address(lab->server);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 | host)};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    assert_true(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EINPROGRESS);
    return fd;
}

static int connect_to(const Lab *lab) { return connect_from(lab, 1); }

static void turn(Lab *lab) { assert_true(sd_event_run(lab->event, 10000) >= 0); }

/* Reads the answer until the server ends the connection. */
static const char *read_answer(Lab *lab, int fd)
{
    uint64_t end_usec = clock_boottime_usec() + PATIENCE_SEC * USEC_PER_SEC;
    size_t n = 0;
    for (;;) {
        assert_true(clock_boottime_usec() < end_usec);
        turn(lab);
        ssize_t got = recv(fd, lab->answer + n, sizeof(lab->answer) - 1 - n, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN))
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    lab->answer[n] = '\0';
    return lab->answer;
}

static void send_text(Lab *lab, int fd, const char *text)
{
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    while (poll(&writable, 1, 0) == 0)
        turn(lab);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static const char *ask(Lab *lab, const char *request)
{
    _cleanup_fd_ int fd = connect_to(lab);
    send_text(lab, fd, request);
    return read_answer(lab, fd);
}

/* Reads until the answer contains the wanted text; the connection stays open. */
static const char *read_so_far(Lab *lab, int fd, const char *wanted)
{
    uint64_t end_usec = clock_boottime_usec() + PATIENCE_SEC * USEC_PER_SEC;
    size_t n = 0;
    do {
        assert_true(clock_boottime_usec() < end_usec);
        assert_true(sd_event_run(lab->event, 100000) >= 0);
        ssize_t got = recv(fd, lab->answer + n, sizeof(lab->answer) - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        lab->answer[n] = '\0';
    } while (!strstr(lab->answer, wanted));
    return lab->answer;
}

static void test_pages(void **state)
{
    Lab *lab = *state;
    const char *answer = ask(lab, "GET /short?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 200 "));
    assert_non_null(strstr(answer, "Content-Type: text/plain; charset=utf-8\r\n"));
    assert_non_null(strstr(answer, "Connection: close\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\nshort\n"));
    answer = ask(lab, "HEAD /short HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(answer, "Content-Length: 6\r\n"));
    assert_null(strstr(answer, "short\n"));
    assert_int_equal(lab->n_asked, 2);

    assert_non_null(strstr(ask(lab, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 503 "));
    assert_int_equal(strlen(strstr(lab->answer, "\r\n\r\n") + 4), LONG_PAGE_BYTES);
}

static void test_refusals(void **state)
{
    Lab *lab = *state;
    assert_non_null(strstr(ask(lab, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), " 404 "));
    assert_non_null(strstr(ask(lab, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n"), " 500 "));
    const char *answer =
        ask(lab, "POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    assert_non_null(strstr(answer, " 405 "));
    assert_non_null(strstr(answer, "Allow: GET, HEAD\r\n"));
    assert_null(strstr(ask(lab, "\x01\x02 nonsense\r\n\r\n"), " 200 "));
    assert_int_equal(lab->n_asked, 0);

    char long_line[20000];
    memset(long_line, 'a', sizeof(long_line) - 1);
    long_line[sizeof(long_line) - 1] = '\0';
    memcpy(long_line, "GET /short", 10);
    assert_null(strstr(ask(lab, long_line), " 200 "));
    assert_non_null(strstr(ask(lab, "GET /short HTTP/1.1\r\nHost: x\r\n\r\n"), " 200 "));
}

static void test_one_that_drips_is_ended(void **state)
{
    Lab *lab = *state;
    _cleanup_fd_ int fd = connect_to(lab);
    send_text(lab, fd, "GET /short HTTP/1.1\r\nX: ");
    uint64_t begun_usec = clock_boottime_usec(), sent_usec = begun_usec;
    char byte;
    ssize_t got = -1;
    while (got < 0) { /* a byte every half second keeps the connection from being idle */
        turn(lab);
        uint64_t now_usec = clock_boottime_usec();
        assert_true(now_usec < begun_usec + PATIENCE_SEC * USEC_PER_SEC);
        if (now_usec > sent_usec + USEC_PER_SEC / 2) {
            /* send() fails if the server has closed the connection. */
            (void)send(fd, "x", 1, MSG_NOSIGNAL);
            sent_usec = now_usec;
        }
        got = recv(fd, &byte, 1, 0);
        if (got < 0 && errno != EAGAIN)
            break;
    }
    assert_true(clock_boottime_usec() - begun_usec >= (HTTP_CONNECTION_SEC - 1) * USEC_PER_SEC);
}

static int count_fds(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    (void)closedir(folder);
    return n;
}

static void test_a_crowd_is_bounded(void **state)
{
    Lab *lab = *state;
    int crowd[3 * HTTP_CONNECTIONS_MAX], before = count_fds();
    for (size_t i = 0; i < ELEMENTSOF(crowd); i++) {
        crowd[i] = connect_to(lab);
        turn(lab);
    }
    for (int i = 0; i < 50; i++)
        turn(lab);
    int served = count_fds() - before - (int)ELEMENTSOF(crowd);
    assert_true(served > 0 && served <= HTTP_UNFINISHED_MAX);
    for (size_t i = 0; i < ELEMENTSOF(crowd); i++)
        crowd[i] = fd_close(crowd[i]);
    assert_non_null(strstr(ask(lab, "GET /short HTTP/1.1\r\nHost: x\r\n\r\n"), " 200 "));
    for (int i = 0; count_fds() > before && i < 1000; i++)
        turn(lab);
    assert_int_equal(count_fds(), before);
}

/* ---- clients that cannot block other clients ---- */

static void assert_answered(Lab *lab, const char *path, const char *status)
{
    char request[100];
    uint64_t begun_usec = clock_boottime_usec();
    (void)snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_non_null(strstr(ask(lab, request), status));
    assert_true(clock_boottime_usec() - begun_usec < HTTP_CONNECTION_SEC * USEC_PER_SEC / 2);
}

/* Thousands of silent connections do not delay other clients. Their number is limited by the process's open files and
 * by the kernel's queue. If only the timeout of 5 s closed the connections, 48 at a time, the test
 * would take minutes. */
static void test_thousands_are_silent(void **state)
{
    Lab *lab = *state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)4200);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const size_t n = limit.rlim_cur > 800 ? limit.rlim_cur - 200 : 600;
    int *silent = calloc(n, sizeof(*silent));
    assert_non_null(silent);
    /* More connections than are allowed from one address. */
    for (size_t i = 0; i < n; i++)
        silent[i] = connect_from(lab, 1 + (uint32_t)(i % 5));
    assert_answered(lab, "/short", " 200 ");
    assert_answered(lab, "/own", " 200 ");
    for (size_t i = 0; i < n; i++)
        (void)close(silent[i]);
    free(silent);
}

/* A slow client is not closed because of many connections from another address. */
static void test_a_crowd_makes_way_for_itself(void **state)
{
    Lab *lab = *state;
    int crowd[300];
    _cleanup_fd_ int slow = connect_from(lab, 2);
    send_text(lab, slow, "GET /short HTTP/1.1\r\n");
    for (size_t i = 0; i < ELEMENTSOF(crowd); i++) {
        crowd[i] = connect_to(lab);
        turn(lab);
    }
    send_text(lab, slow, "Host: x\r\n\r\n");
    assert_non_null(strstr(read_answer(lab, slow), " 200 "));
    for (size_t i = 0; i < ELEMENTSOF(crowd); i++)
        (void)close(crowd[i]);
}

/* Connections with finished requests are not limited per address, because a reverse proxy has only one address. */
static void test_answers_count_for_no_address(void **state)
{
    Lab *lab = *state;
    int viewers[HTTP_UNFINISHED_MAX + 4];
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++) {
        viewers[i] = connect_to(lab);
        send_text(lab, viewers[i], "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        (void)read_so_far(lab, viewers[i], "text/event-stream");
    }
    int huge_ones[HTTP_UNFINISHED_MAX + 4];
    for (size_t i = 0; i < ELEMENTSOF(huge_ones); i++) {
        huge_ones[i] = connect_to(lab);
        send_text(lab, huge_ones[i], "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
        (void)read_so_far(lab, huge_ones[i], " 200 ");
    }
    assert_int_equal(lab->n_viewers, ELEMENTSOF(viewers));
    assert_answered(lab, "/short", " 200 ");
    for (size_t i = 0; i < ELEMENTSOF(huge_ones); i++) {
        char byte;
        /* The connection was not reset. */
        assert_int_equal(recv(huge_ones[i], &byte, 1, MSG_PEEK), 1);
        (void)close(huge_ones[i]);
    }
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++)
        (void)close(viewers[i]);
}

/* If clients do not read their answers until all places are taken, other pages get status 503, and reserved pages are
 * still served. */
static void test_answers_that_nobody_takes(void **state)
{
    Lab *lab = *state;
    int asked[2 * HTTP_CONNECTIONS_MAX];
    for (size_t i = 0; i < ELEMENTSOF(asked); i++) {
        asked[i] = connect_to(lab);
        assert_int_equal(setsockopt(asked[i], SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int)), 0);
        send_text(lab, asked[i], "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
        for (int k = 0; k < 3; k++)
            turn(lab);
        if (i + 1 == HTTP_CONNECTIONS_MAX - HTTP_RESERVED - 1)
            assert_answered(lab, "/short", " 200 ");
        if (i + 1 == HTTP_CONNECTIONS_MAX - HTTP_RESERVED)
            assert_answered(lab, "/short", " 503 ");
        if (i + 1 >= HTTP_CONNECTIONS_MAX - HTTP_RESERVED)
            assert_answered(lab, "/own", " 200 ");
    }
    for (size_t i = 0; i < ELEMENTSOF(asked); i++)
        (void)close(asked[i]);
}

static void test_one_that_leaves(void **state)
{
    Lab *lab = *state;
    for (int i = 0; i < 20; i++) { /* each client resets its connection during the answer */
        _cleanup_fd_ int fd = connect_to(lab);
        send_text(lab, fd, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
        turn(lab);
        struct linger reset = {.l_onoff = 1};
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    }
    assert_non_null(strstr(ask(lab, "GET /short HTTP/1.1\r\nHost: x\r\n\r\n"), " 200 "));
}

static void test_addresses(void **state)
{
    Lab *lab = *state;
    static const char *const bad[] = {"9464",           ":9464",       "127.0.0.1:",
                                      "localhost:9464", "127.0.0.1:x", "::1:9464",
                                      "[::1]",          "1.2.3.4.5:1", "127.0.0.1:1:2"};
    HttpServer *server = NULL;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(http_server_new(lab->event, bad[i], pages, 1, lab, &server, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, bad[i]));
    }
    Error err = ERROR_INIT;
    const char *taken = http_server_address(lab->server);
    assert_int_equal(http_server_new(lab->event, taken, pages, 1, lab, &server, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, taken));
    assert_null(server);
    assert_int_equal(http_server_new(lab->event, "[::1]:0", pages, 1, lab, &server, &err), 0);
    assert_int_equal(strncmp(http_server_address(server), "[::1]:", 6), 0);
    server = http_server_free(server);
}

/* ---- streams ---- */

static void give(Lab *lab, const char *text)
{
    lab->given = text;
    lab->n_given = strlen(text);
    http_server_wake(lab->server);
}

static void test_paths_below(void **state)
{
    Lab *lab = *state;
    const char *answer = ask(lab, "GET /below/a%20b HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(answer, "\r\n\r\na b"));
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none'\r\n"));
    assert_non_null(strstr(answer, "X-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(ask(lab, "GET /below HTTP/1.1\r\nHost: x\r\n\r\n"), " 404 "));
    assert_non_null(strstr(ask(lab, "GET /short/x HTTP/1.1\r\nHost: x\r\n\r\n"), " 404 "));
}

static void test_a_stream(void **state)
{
    Lab *lab = *state;
    _cleanup_fd_ int fd = connect_to(lab);
    send_text(lab, fd, "GET /stream HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 7-8\r\n\r\n");
    (void)read_so_far(lab, fd, "text/event-stream");
    assert_string_equal(lab->last_id, "7-8");
    give(lab, "data: one\n\n");
    (void)read_so_far(lab, fd, "data: one\n\n");
    give(lab, "data: two\n\n");
    assert_null(strstr(read_so_far(lab, fd, "data: two\n\n"), "one"));
    assert_int_equal(lab->n_viewers, 1);
    lab->ends = true;
    http_server_wake(lab->server);
    (void)read_answer(lab, fd);
    assert_int_equal(lab->n_viewers, 0);
}

static void test_a_viewer_that_leaves(void **state)
{
    Lab *lab = *state;
    int fd = connect_to(lab);
    send_text(lab, fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)read_so_far(lab, fd, "text/event-stream");
    fd = fd_close(fd);
    for (int i = 0; lab->n_viewers > 0 && i < 100; i++) {
        give(lab, "data: x\n\n");
        assert_true(sd_event_run(lab->event, 10000) >= 0);
    }
    assert_int_equal(lab->n_viewers, 0);
}

/* Viewers beyond the limit are refused with a text, and pages are still served beside the maximum of viewers. */
static void test_viewers_are_bounded(void **state)
{
    Lab *lab = *state;
    int viewers[HTTP_VIEWERS_MAX];
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++) {
        viewers[i] = connect_to(lab);
        send_text(lab, viewers[i], "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        (void)read_so_far(lab, viewers[i], "text/event-stream");
    }
    for (int i = 0; i < 1000; i++) {
        const char *answer = ask(lab, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_non_null(strstr(answer, " 503 "));
        assert_non_null(strstr(answer, "too many look"));
        assert_non_null(strstr(answer, "Retry-After: "));
    }
    assert_non_null(strstr(ask(lab, "GET /short HTTP/1.1\r\nHost: x\r\n\r\n"), " 200 "));
    assert_int_equal(lab->n_viewers, HTTP_VIEWERS_MAX);
    lab->server = http_server_free(lab->server); /* while viewers are connected */
    assert_int_equal(lab->n_viewers, 0);
    for (size_t i = 0; i < ELEMENTSOF(viewers); i++)
        viewers[i] = fd_close(viewers[i]);
}

/* A viewer that does not read for HTTP_STALL_SEC is disconnected. */
static void test_a_viewer_that_stalls(void **state)
{
    Lab *lab = *state;
    static char much[100000];
    memset(much, 'x', sizeof(much) - 1);
    _cleanup_fd_ int stalled = connect_to(lab);
    assert_int_equal(setsockopt(stalled, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int)), 0);
    send_text(lab, stalled, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    uint64_t begun_usec = clock_boottime_usec();
    lab->gives_always = true;
    give(lab, much);
    while (lab->n_viewers > 0 || clock_boottime_usec() < begun_usec + USEC_PER_SEC) {
        assert_true(clock_boottime_usec() < begun_usec + PATIENCE_SEC * USEC_PER_SEC);
        turn(lab);
    }
    assert_true(clock_boottime_usec() - begun_usec >= (HTTP_STALL_SEC - 1) * USEC_PER_SEC);
}

/* ---- the exporter ---- */

static const MetricFamily own[] = {{"t_shown", METRIC_GAUGE, "Shown.", .group = 1},
                                   {"t_left_out", METRIC_GAUGE, "Left out.", .group = 2}};

static unsigned collect(Metrics *metrics, void *userdata)
{
    Lab *lab = userdata;
    metrics_set(metrics, 0, NO_LABELS, ++lab->n_asked);
    metrics_set(metrics, 1, NO_LABELS, 1);
    return 1;
}

static bool is_healthy(char text[EXPORTER_HEALTH_BYTES], void *userdata)
{
    const Lab *lab = userdata;
    (void)snprintf(text, EXPORTER_HEALTH_BYTES, "asked %d times\n", lab->n_asked);
    return lab->n_asked > 0;
}

static void test_exporter(void **state)
{
    Lab *lab = *state;
    Error err = ERROR_INIT;
    char address[80];
    (void)snprintf(address, sizeof(address), "%s", http_server_address(lab->server));
    lab->server = http_server_free(lab->server); /* frees the port for the exporter */
    ExporterProgram program = {.name = "t",
                               .version = "1",
                               .families = own,
                               .n_families = ELEMENTSOF(own),
                               .collect = collect,
                               .is_healthy = is_healthy,
                               .userdata = lab};
    Exporter *exporter = NULL;
    assert_int_equal(exporter_new(lab->event, "", &program, &exporter, &err), 0);
    assert_null(exporter); /* metrics are off */
    exporter_note_request("Txn", 0, 1, exporter);
    assert_int_equal(exporter_new(lab->event, address, &program, &exporter, &err), 0);
    exporter_note_request("Txn", 0, 2000, exporter);
    exporter_note_request("Txn", -ETIMEDOUT, 5 * USEC_PER_SEC, exporter);
    assert_int_equal(http_server_new(lab->event, "127.0.0.1:0", pages, 1, lab, &lab->server, &err),
                     0);

    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1))};
    static const struct {
        const char *request, *wanted;
    } asked[] = {
        {"GET /healthz HTTP/1.0\r\n\r\n", " 503 "},
        {"GET /metrics HTTP/1.0\r\n\r\n", "\nt_shown 1\n"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "\nt_shown 2\n"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "method=\"Txn\",outcome=\"timeout\"} 1\n"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "_seconds_bucket{method=\"Txn\",le=\"0.0025\"} 1\n"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "version=0.0.4"},
        {"GET /healthz HTTP/1.0\r\n\r\n", "asked 5 times\n"},
    };
    for (size_t i = 0; i < ELEMENTSOF(asked); i++) {
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EINPROGRESS);
        send_text(lab, fd, asked[i].request);
        const char *answer = read_answer(lab, fd);
        assert_non_null(strstr(answer, asked[i].wanted));
        assert_null(strstr(answer, "t_left_out"));
    }
    exporter = exporter_free(exporter);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, lab_begin, lab_end)
    const struct CMUnitTest tests[] = {
        T(test_pages),
        T(test_refusals),
        T(test_a_crowd_is_bounded),
        T(test_thousands_are_silent),
        T(test_a_crowd_makes_way_for_itself),
        T(test_answers_count_for_no_address),
        T(test_answers_that_nobody_takes),
        T(test_one_that_leaves),
        T(test_addresses),
        T(test_exporter),
        T(test_paths_below),
        T(test_a_stream),
        T(test_a_viewer_that_leaves),
        T(test_viewers_are_bounded),
        T(test_a_viewer_that_stalls),
        T(test_one_that_drips_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
