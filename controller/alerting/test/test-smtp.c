/* SPDX-License-Identifier: Apache-2.0 */
/* test-smtp.c - when a mail may begin, and how calls end. A thread of the test is the server. */
#include "base/clock.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "controller/alerting/smtp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

typedef struct Server {
    int listener;
    char url[64];
    pthread_t thread;
    bool holds;             /* the server sends a greeting and no replies */
    _Atomic int seen_mails; /* how many MAIL commands were received */
} Server;

/* Returns false if the client has closed the connection, which it may do at any moment. */
static bool say(int fd, const char *line)
{
    return send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line);
}

static void serve_one(Server *s, int fd)
{
    FILE *in = fdopen(fd, "r");
    char line[512];
    bool body = false, there = say(fd, "220 here\r\n");
    while (there && fgets(line, sizeof(line), in)) {
        if (body && strcmp(line, ".\r\n") != 0)
            continue;
        if (s->holds)
            continue;
        const char *reply = strncmp(line, "DATA", 4) == 0 ? "354 go on\r\n" : "250 fine\r\n";
        body = reply[0] == '3';
        if (strncmp(line, "MAIL", 4) == 0)
            atomic_fetch_add(&s->seen_mails, 1);
        there = say(fd, reply);
    }
    (void)fclose(in);
}

static void *serve(void *userdata)
{
    Server *s = userdata;
    int fd;
    while ((fd = accept(s->listener, NULL, NULL)) >= 0)
        serve_one(s, fd);
    return NULL;
}

static void server_start(Server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(s->listener, 16), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &n), 0);
    (void)snprintf(s->url, sizeof(s->url), "smtp://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_stop(Server *s)
{
    assert_int_equal(shutdown(s->listener, SHUT_RDWR), 0);
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    s->listener = fd_close(s->listener);
}

typedef struct Told {
    sd_event *event;
    uint64_t deadline_usec;
    int n, status;
    char failure[256];
} Told;

static void on_told(const MailReply *reply, void *userdata)
{
    Told *told = userdata;
    told->n++;
    told->status = reply->status;
    (void)snprintf(told->failure, sizeof(told->failure), "%s", reply->failure);
    assert_true(sd_event_exit(told->event, 0) >= 0);
}

static uint64_t deadline(void *userdata) { return ((Told *)userdata)->deadline_usec; }

static int begin(Smtp *smtp, const Server *s, Told *told, uint64_t timeout_usec, SmtpCall **ret)
{
    _cleanup_json_ json_t *to = json_pack("[s]", "ann@example.org");
    SmtpRequest request = {.url = s->url,
                           .plain = true,
                           .from = "sd@example.org",
                           .to = to,
                           .text = "Subject: x\r\n\r\nwords\r\n",
                           .timeout_usec = timeout_usec};
    return smtp_send(smtp, &request, on_told, told, ret);
}

static Told send_one(Server *s, uint64_t deadline_usec, uint64_t timeout_usec)
{
    Told told = {.deadline_usec = deadline_usec, .status = -1};
    SmtpCall *call;
    assert_true(sd_event_new(&told.event) >= 0);
    server_start(s);
    {
        _cleanup_(smtp_freep) Smtp *smtp = NULL;
        assert_int_equal(smtp_new(told.event, deadline, &told, &smtp), 0);
        assert_int_equal(begin(smtp, s, &told, timeout_usec, &call), 0);
        assert_int_equal(sd_event_loop(told.event), 0);
    }
    server_stop(s);
    told.event = sd_event_unref(told.event);
    assert_int_equal(told.n, 1);
    return told;
}

static void a_mail_is_sent(void **state)
{
    (void)state;
    Server s = {0};
    Told told = send_one(&s, UINT64_MAX, 60 * USEC_PER_SEC);
    assert_int_equal(told.status, 250);
    assert_int_equal(s.seen_mails, 1);
}

static void nothing_is_sent_after_the_lease(void **state)
{
    (void)state;
    Server s = {0};
    Told told = send_one(&s, clock_boottime_usec(), 60 * USEC_PER_SEC);
    assert_int_equal(told.status, 0);
    assert_string_equal(told.failure, "the leader's lease is nearly over");
    assert_int_equal(s.seen_mails, 0);
}

static void a_stall_ends(void **state)
{
    (void)state;
    Server s = {.holds = true};
    Told told = send_one(&s, UINT64_MAX, USEC_PER_SEC / 5);
    assert_int_equal(told.status, 0);
    assert_non_null(strstr(told.failure, "timed out"));
}

/* A cancelled call does not call its handler, and smtp_free() does not wait for its timeout of an hour. */
static void freeing_waits_for_no_server(void **state)
{
    (void)state;
    Server s = {.holds = true};
    Told told = {.deadline_usec = UINT64_MAX};
    SmtpCall *call;
    assert_true(sd_event_new(&told.event) >= 0);
    server_start(&s);
    Smtp *smtp = NULL;
    assert_int_equal(smtp_new(told.event, deadline, &told, &smtp), 0);
    for (int i = 0; i < SMTP_CALLS_MAX; i++)
        assert_int_equal(begin(smtp, &s, &told, 3600 * USEC_PER_SEC, &call), 0);
    assert_int_equal(begin(smtp, &s, &told, 3600 * USEC_PER_SEC, &call), -EAGAIN);
    assert_null(smtp_call_cancel(call));
    assert_null(smtp_free(smtp));
    server_stop(&s);
    told.event = sd_event_unref(told.event);
    assert_int_equal(told.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mail_is_sent),
        cmocka_unit_test(nothing_is_sent_after_the_lease),
        cmocka_unit_test(a_stall_ends),
        cmocka_unit_test(freeing_waits_for_no_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
