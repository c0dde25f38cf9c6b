/* SPDX-License-Identifier: Apache-2.0 */
/* test-report-socket.c - connections of a program to its runner: how many there are, who loses one, and what passes. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "exec/report-socket.h"
#include "exec/words.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test-socket-XXXXXX";
static char path[64];
static ReportSocket s;
static char taken[4096];
static size_t n_taken, longest;

static void take(_unused_ void *userdata, const char *packet, size_t n)
{
    n_taken++;
    longest = MAX(longest, n);
    (void)snprintf(taken + strlen(taken), sizeof(taken) - strlen(taken), "%.*s;", (int)MIN(n, 20),
                   packet);
}

static int begin(_unused_ void **state)
{
    Error err = ERROR_INIT;
    *taken = '\0';
    n_taken = longest = 0;
    return report_socket_open(path, &s, &err);
}

static int end(_unused_ void **state)
{
    report_socket_close(&s);
    return access(path, F_OK) == 0; /* it is removed */
}

static int reporter(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void report(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

/* Returns whether the runner has closed the connection. */
static bool is_closed(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static pid_t peers[2];

static void take_peer(_unused_ void *userdata, _unused_ const char *packet, _unused_ size_t n)
{
    assert_in_range(n_taken, 0, 1);
    peers[n_taken++] = report_socket_peer(&s);
}

static void each_packet_has_the_process_that_connected(_unused_ void **state)
{
    int a = reporter(), status;
    const pid_t child = fork();
    if (child == 0) {
        report(reporter(), "STEP=2");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    report(a, "STEP=1");
    report_socket_serve(&s, take_peer, NULL);
    assert_int_equal(peers[0], getpid());
    assert_int_equal(peers[1], child);
    (void)close(a);
}

static void packets_arrive_and_requests_reach_all(_unused_ void **state)
{
    struct pollfd fds[1 + REPORTERS_MAX];
    char text[32];
    int a = reporter(), b = reporter();
    report(a, "STEP=1");
    report(a, "STEP=2");
    report(b, "READY=1");
    report_socket_serve(&s, take, NULL);
    assert_string_equal(taken, "STEP=1;STEP=2;READY=1;");
    assert_int_equal(report_socket_poll(&s, fds), 3);
    assert_true(fds[1].events == POLLIN && fds[0].fd == s.listener);
    report_socket_send(&s, "SAVE=1\n");
    assert_int_equal(recv(a, text, sizeof(text), 0), 7);
    assert_int_equal(recv(b, text, sizeof(text), 0), 7);
    (void)close(a);
    report_socket_serve(&s, take, NULL);
    assert_int_equal(s.n, 1);
    (void)close(b);
}

/* A program that ends without having read a request keeps its last reports. */
static void last_reports_survive_unread_requests(_unused_ void **state)
{
    int a = reporter();
    report_socket_serve(&s, take, NULL);
    report_socket_send(&s, "LEAVE=60\n");
    report(a, "STEP=9");
    report(a, "FINISHED=1");
    (void)close(a);
    report_socket_serve(&s, take, NULL);
    assert_string_equal(taken, "STEP=9;FINISHED=1;");
    assert_int_equal(s.n, 0);
}

static void only_this_user_may_connect(_unused_ void **state)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void the_oldest_connection_makes_way(_unused_ void **state)
{
    int fds[REPORTERS_MAX + 3];
    for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
        fds[i] = reporter();
        report_socket_serve(&s, take, NULL);
    }
    assert_int_equal(s.n, REPORTERS_MAX);
    assert_int_equal(s.n_accepted, ELEMENTSOF(fds));
    for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
        assert_int_equal(is_closed(fds[i]), i < 3);
        (void)close(fds[i]);
    }
}

static void a_long_packet_is_seen_as_long(_unused_ void **state)
{
    static char packet[EXEC_PACKET_MAX + 100];
    int a = reporter();
    memset(packet, 'x', sizeof(packet));
    assert_int_equal(send(a, packet, sizeof(packet), 0), (ssize_t)sizeof(packet));
    report_socket_serve(&s, take, NULL);
    assert_true(longest > EXEC_PACKET_MAX); /* exec_report_parse() refuses it */
    (void)close(a);
}

static void many_packets_leave_time_for_other_events(_unused_ void **state)
{
    int a = reporter();
    for (int i = 0; i < 100; i++)
        report(a, "STEP=1");
    int b = reporter();
    report(b, "STEP=2");
    assert_true(report_socket_serve(&s, take, NULL));
    assert_int_equal(n_taken, 64 + 1); /* the other connection does not wait */
    assert_false(report_socket_serve(&s, take, NULL));
    assert_int_equal(n_taken, 100 + 1);
    (void)close(a);
    (void)close(b);
}

static void who_does_not_receive_is_closed(_unused_ void **state)
{
    int a = reporter();
    struct pollfd hangup = {.fd = a};
    report_socket_serve(&s, take, NULL);
    report(a, "STEP=9"); /* is received all the same */
    for (int i = 0; i < 100000 && !(hangup.revents & POLLHUP); i++) {
        report_socket_send(&s, "SAVE=1\n");
        (void)poll(&hangup, 1, 0);
    }
    report_socket_serve(&s, take, NULL);
    assert_string_equal(taken, "STEP=9;");
    assert_int_equal(s.n, 0);
    (void)close(a);
}

static void take_and_answer(void *userdata, const char *packet, size_t n)
{
    take(userdata, packet, n);
    report_socket_send(&s, "REFUSED=1\n");
}

/* A program that ends without waiting for the answers keeps its last reports. */
static void an_answer_to_who_has_left_loses_nothing(_unused_ void **state)
{
    int a = reporter(), b = reporter();
    report(a, "STEP=1");
    report(a, "STEP=2");
    report(b, "STEP=3");
    (void)close(a);
    report_socket_serve(&s, take_and_answer, NULL);
    assert_string_equal(taken, "STEP=1;STEP=2;STEP=3;");
    assert_int_equal(s.n, 1);
    (void)close(b);
}

static void a_path_that_is_too_long_is_named(_unused_ void **state)
{
    char name[200];
    ReportSocket other = {0};
    Error err = ERROR_INIT;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(report_socket_open(name, &other, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, ": a socket's path has at most 107 bytes"));
    report_socket_close(&other); /* it never was open */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packets_arrive_and_requests_reach_all, begin, end),
        cmocka_unit_test_setup_teardown(each_packet_has_the_process_that_connected, begin, end),
        cmocka_unit_test_setup_teardown(last_reports_survive_unread_requests, begin, end),
        cmocka_unit_test_setup_teardown(only_this_user_may_connect, begin, end),
        cmocka_unit_test_setup_teardown(the_oldest_connection_makes_way, begin, end),
        cmocka_unit_test_setup_teardown(a_long_packet_is_seen_as_long, begin, end),
        cmocka_unit_test_setup_teardown(many_packets_leave_time_for_other_events, begin, end),
        cmocka_unit_test_setup_teardown(who_does_not_receive_is_closed, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_to_who_has_left_loses_nothing, begin, end),
        cmocka_unit_test(a_path_that_is_too_long_is_named),
    };
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(path, sizeof(path), "%s/socket", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}
