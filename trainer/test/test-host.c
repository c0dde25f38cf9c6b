/* SPDX-License-Identifier: Apache-2.0 */
/* test-host.c - a daemon's messages reach the training thread, whatever their order; if a daemon sends nothing, the
 * dead-man timer kills the rank; without a daemon the link acts as the daemon. */
#include "trainer/link/daemon-link.h"

#include "base/clock.h"
#include "base/test/testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { GENERATION = 7 };
#define WAIT_USEC (60 * USEC_PER_SEC)

static int daemon_fd = -EBADF; /* the daemon's end */
static DaemonLink *the_link;

static void open_host(void)
{
    Error err = ERROR_INIT;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    daemon_fd = pair[0];
    if (daemon_link_open(pair[1], &the_link, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(daemon_link_is_daemon(the_link));
}

static int close_host(void **unused)
{
    (void)unused;
    the_link = daemon_link_free(the_link);
    daemon_fd = fd_close(daemon_fd);
    return 0;
}

static void say(ChannelMessage m)
{
    Error err = ERROR_INIT;
    if (m.generation == 0)
        m.generation = GENERATION;
    if (channel_send(daemon_fd, &m, &err) < 0)
        fail_msg("%s", err.text);
}

/* Receives the trainer's next message; the test fails if none arrives. */
static ChannelMessage hear(void)
{
    Error err = ERROR_INIT;
    ChannelMessage m = {0};
    struct pollfd p = {.fd = daemon_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, (int)(WAIT_USEC / USEC_PER_MSEC)), 1);
    if (channel_receive(daemon_fd, &m, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

static void assign(uint64_t alive_usec)
{
    ChannelMessage m, spec = {.type = CHANNEL_ASSIGN,
                              .assign.rank = 1,
                              .assign.world_size = 3,
                              .assign.job = "demo",
                              .assign.spec = "{}",
                              .assign.alive_usec = alive_usec};
    Error err = ERROR_INIT;
    say(spec);
    if (daemon_link_wait_assign(the_link, WAIT_USEC, &m, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(m.generation, GENERATION);
    assert_int_equal(m.assign.rank, 1);
    assert_int_equal(m.assign.world_size, 3);
    assert_string_equal(m.assign.spec, "{}");
    channel_message_clear(&m);
    ChannelMessage hello = hear();
    assert_int_equal(hello.type, CHANNEL_HELLO);
    assert_int_equal(hello.pid, getpid());
}

/* When this function returns, the link has handled all earlier messages. */
static void settle(int64_t step)
{
    Error err = ERROR_INIT;
    DaemonVerdict verdict;
    say((ChannelMessage){.type = CHANNEL_COMMITTED, .step = step});
    assert_int_equal(daemon_link_wait_verdict(the_link, step, WAIT_USEC, &verdict, &err), 0);
    assert_int_equal(verdict, VERDICT_COMMITTED);
}

static void go_and_wishes_arrive(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char address[CHANNEL_ADDRESS_MAX];
    open_host();
    assign(0);
    /* messages of another generation are ignored */
    say((ChannelMessage){.type = CHANNEL_GO, .generation = GENERATION - 1, .address = "old:1"});
    say((ChannelMessage){.type = CHANNEL_STOP, .generation = GENERATION + 1});
    say((ChannelMessage){.type = CHANNEL_GO, .address = "127.0.0.1:4711"});
    assert_int_equal(daemon_link_wait_go(the_link, WAIT_USEC, address, &err), 0);
    assert_string_equal(address, "127.0.0.1:4711");
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_NONE);

    say((ChannelMessage){.type = CHANNEL_CHECKPOINT});
    settle(1);
    assert_int_equal(daemon_link_wishes(the_link, false), WISH_SAVE);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_SAVE);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_NONE);
    say((ChannelMessage){.type = CHANNEL_STOP});
    settle(2);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_LEAVE);
    /* the wish to leave stays set */
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_LEAVE);
    assert_int_equal(daemon_link_check(the_link, &err), 0);
}

static void assert_held(int64_t step)
{
    const ChannelHeld held = daemon_link_held(the_link);
    assert_int_equal(held.n, step > 0);
    assert_true(held.n == 0 || held.steps[0] == step);
}

/* A refusal tells nothing of evaluations. */
static void the_newest_word_of_evaluations_counts(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    DaemonVerdict verdict;
    char address[CHANNEL_ADDRESS_MAX];
    open_host();
    assert_held(0);
    assign(0);
    say((ChannelMessage){.type = CHANNEL_GO, .address = "a:1", .held = {.steps = {3}, .n = 1}});
    assert_int_equal(daemon_link_wait_go(the_link, WAIT_USEC, address, &err), 0);
    assert_held(3);
    say((ChannelMessage){.type = CHANNEL_COMMITTED, .step = 5, .held = {.steps = {4}, .n = 1}});
    assert_int_equal(daemon_link_wait_verdict(the_link, 5, WAIT_USEC, &verdict, &err), 0);
    assert_held(4);
    say((ChannelMessage){.type = CHANNEL_REFUSED, .step = 6});
    assert_int_equal(daemon_link_wait_verdict(the_link, 6, WAIT_USEC, &verdict, &err), 0);
    assert_held(4);
    settle(7);
    assert_held(0);
}

static void verdicts_are_of_their_step(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    DaemonVerdict verdict;
    open_host();
    assign(0);
    assert_int_equal(daemon_link_verdict(the_link, 5), VERDICT_PENDING);
    assert_int_equal(daemon_link_wait_verdict(the_link, 5, 1000, &verdict, &err), -ETIMEDOUT);
    settle(5);
    assert_int_equal(daemon_link_verdict(the_link, 5), VERDICT_COMMITTED);
    assert_int_equal(daemon_link_verdict(the_link, 6), VERDICT_PENDING);
    say((ChannelMessage){.type = CHANNEL_REFUSED, .step = 6});
    assert_int_equal(daemon_link_wait_verdict(the_link, 6, WAIT_USEC, &verdict, &err), 0);
    assert_int_equal(verdict, VERDICT_REFUSED);
    assert_int_equal(daemon_link_check(the_link, &err), -ESTALE);
}

static void a_daemon_that_is_gone_is_noticed(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    DaemonVerdict verdict;
    ChannelMessage m;
    char address[CHANNEL_ADDRESS_MAX];
    open_host();
    assert_int_equal(daemon_link_wait_assign(the_link, 1000, &m, &err), -ETIMEDOUT);
    daemon_fd = fd_close(daemon_fd);
    assert_int_equal(daemon_link_wait_go(the_link, WAIT_USEC, address, &err), -EPIPE);
    assert_int_equal(daemon_link_wait_verdict(the_link, 1, WAIT_USEC, &verdict, &err), -EPIPE);
    assert_int_equal(daemon_link_check(the_link, &err), -EPIPE);
}

static void bad_packets_are_skipped(void **unused)
{
    (void)unused;
    open_host();
    assign(0);
    assert_int_equal(send(daemon_fd, "{\"type\": 3", 10, 0), 10);
    assert_int_equal(send(daemon_fd, "{\"type\": \"dance\"}", 17, 0), 17);
    settle(1);
}

static void stages_are_coalesced(void **unused)
{
    (void)unused;
    enum { STAGES = 100000 };
    open_host();
    assign(0);
    const uint64_t began = clock_boottime_usec();
    for (int64_t i = 1; i <= STAGES; i++)
        daemon_link_stage(the_link, i, STAGE_COMPUTING);
    /* this call sends the last stage, and then closes the channel */
    the_link = daemon_link_free(the_link);
    const uint64_t took = clock_boottime_usec() - began;
    int64_t n = 0, last = 0;
    for (;;) {
        ChannelMessage m = {0};
        if (channel_receive(daemon_fd, &m, NULL) < 0)
            break;
        assert_int_equal(m.type, CHANNEL_STAGE);
        assert_int_equal(m.generation, GENERATION);
        assert_true(m.step > last);
        last = m.step;
        n++;
    }
    assert_int_equal(last, STAGES);
    assert_true(n <= 3 + (int64_t)(took / (50 * USEC_PER_MSEC)));
}

/* Starts a process that receives the time `first` in `assign` and then, unless `second` is 0, the time `second` in
 * `alive`. The process then runs for msec. Returns its exit code, or minus the signal that killed the process. */
static int end_of(uint64_t first, uint64_t second, int msec)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(60);
        open_host();
        assign(first);
        if (second > 0) {
            say((ChannelMessage){.type = CHANNEL_ALIVE, .alive_usec = second});
            settle(1);
        }
        (void)poll(NULL, 0, msec);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void silence_kills(void **unused)
{
    (void)unused;
    assert_int_equal(end_of(50 * USEC_PER_MSEC, 0, 500), -SIGKILL);
    assert_int_equal(end_of(3600 * USEC_PER_SEC, 50 * USEC_PER_MSEC, 500), -SIGKILL);
    assert_int_equal(end_of(2 * USEC_PER_SEC, 3600 * USEC_PER_SEC, 2500), 0);
    assert_int_equal(end_of(0, 0, 500), 0); /* no timer was requested */
}

static void without_a_daemon_it_hosts_itself(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    DaemonVerdict verdict;
    char address[CHANNEL_ADDRESS_MAX];
    assert_int_equal(daemon_link_open(-1, &the_link, &err), 0);
    assert_false(daemon_link_is_daemon(the_link));
    assert_int_equal(daemon_link_wait_go(the_link, 0, address, &err), 0);
    assert_int_equal(daemon_link_verdict(the_link, 3), VERDICT_PENDING);
    assert_int_equal(daemon_link_report(the_link,
                                        &(ChannelMessage){.type = CHANNEL_SAVED, .step = 3}, &err),
                     0);
    assert_int_equal(daemon_link_wait_verdict(the_link, 3, 0, &verdict, &err), 0);
    assert_int_equal(verdict, VERDICT_COMMITTED);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_NONE);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_LEAVE);
    assert_int_equal(daemon_link_wishes(the_link, true), WISH_LEAVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(go_and_wishes_arrive, close_host),
        cmocka_unit_test_teardown(the_newest_word_of_evaluations_counts, close_host),
        cmocka_unit_test_teardown(verdicts_are_of_their_step, close_host),
        cmocka_unit_test_teardown(a_daemon_that_is_gone_is_noticed, close_host),
        cmocka_unit_test_teardown(bad_packets_are_skipped, close_host),
        cmocka_unit_test_teardown(stages_are_coalesced, close_host),
        cmocka_unit_test(silence_kills),
        cmocka_unit_test_teardown(without_a_daemon_it_hosts_itself, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
