/* SPDX-License-Identifier: Apache-2.0 */
/* test-daemon-service.c - sdtraind's messages to its service manager: ready, status, watchdog, reload, stop. The
 * test acts as the manager: it owns the notify socket. */
#include "daemon/test/testing-daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { HEARD_MAX = 1 << 18, MESSAGE_MAX = 4096 };

/* The fake service manager. A thread receives its messages, since sdtraind would block on a full socket. */
static struct {
    char folder[40], address[60];
    int socket;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    char said[HEARD_MAX]; /* one message per line; line feeds inside a message are '|' */
    size_t used;
} manager = {.folder = "/tmp/sdtrain-notify-XXXXXX",
             .socket = -EBADF,
             .lock = PTHREAD_MUTEX_INITIALIZER};

static void *listen_always(_unused_ void *userdata)
{
    char text[MESSAGE_MAX];
    ssize_t n;
    while ((n = recv(manager.socket, text, sizeof(text) - 1, 0)) > 0) {
        text[n] = '\0';
        for (char *c = text; *c; c++)
            *c = *c == '\n' ? '|' : *c;
        pthread_mutex_lock(&manager.lock);
        assert(manager.used + MESSAGE_MAX < HEARD_MAX);
        manager.used += (size_t)snprintf(manager.said + manager.used, MESSAGE_MAX, "%s\n", text);
        pthread_mutex_unlock(&manager.lock);
    }
    return NULL;
}

static int open_manager(_unused_ void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(manager.folder));
    (void)snprintf(manager.address, sizeof(manager.address), "%s/notify", manager.folder);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", manager.address);
    manager.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(manager.socket >= 0);
    assert_int_equal(bind(manager.socket, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(pthread_create(&manager.thread, NULL, listen_always, NULL), 0);
    return 0;
}

static int close_manager(_unused_ void **state)
{
    (void)shutdown(manager.socket, SHUT_RDWR); /* ends the thread */
    assert_int_equal(pthread_join(manager.thread, NULL), 0);
    manager.socket = fd_close(manager.socket);
    return folder_remove(manager.folder, NULL);
}

static void forget(void)
{
    pthread_mutex_lock(&manager.lock);
    manager.used = 0;
    manager.said[0] = '\0';
    pthread_mutex_unlock(&manager.lock);
}

/* Starts a lab whose etcd does not get the notify socket, since etcd uses the same protocol. */
static Lab *start_lab(void)
{
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_PID");
    (void)unsetenv("WATCHDOG_USEC");
    Lab *lab = lab_start();
    (void)setenv("NOTIFY_SOCKET", manager.address, 1);
    (void)setenv("WATCHDOG_USEC", "400000", 1);
    forget();
    return lab;
}

static bool has_said(_unused_ Lab *lab, const void *text)
{
    pthread_mutex_lock(&manager.lock);
    bool said = strstr(manager.said, text);
    pthread_mutex_unlock(&manager.lock);
    return said;
}

static void expect(Lab *lab, const char *text)
{
    lab_wait_for(lab, has_said, text, text, LAB_WAIT_MSEC);
}

static bool has_reloaded(_unused_ Lab *lab, const void *node)
{
    return lab_log_has(node, "configuration reloaded");
}

static void test_ready_comes_with_the_record(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = start_lab();
    testing_etcd_freeze(lab_etcd(lab), 0);
    LabNode *node = lab_spawn_node(lab, 0, "", NULL);
    expect(lab, "STATUS=node0 of cluster lab: not registered yet, asking 127.0.0.1:");
    assert_int_equal(kill(node->pid, SIGHUP), 0); /* a reload must not end the start */
    lab_wait(lab, has_reloaded, node);
    expect(lab, "WATCHDOG=1");
    assert_false(has_said(lab, "READY=1"));
    testing_etcd_thaw(lab_etcd(lab), 0);
    expect(lab, "READY=1|STATUS=");
    expect(lab, "STATUS=node0 of cluster lab: idle, 1 slot; healthy; lease renewed ");
    assert_false(has_said(lab, "RELOADING"));
}

static void test_status_says_what_runs_and_that_etcd_is_silent(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = start_lab();
    (void)lab_start_node(lab, 0, "\"slots\": 2, \"trainer_environment\": [\"FAKE_STEPS=1000000\"]",
                         NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 7, (LabRun[]){{0, 3}}, 1);
    expect(lab, ": job a, generation 7, 2 of 2 ranks, ready");
    lab_put_phase(lab, "a", 7, PHASE_STARTING, true, false);
    expect(lab, ": job a, generation 7, 2 of 2 ranks, step ");
    testing_etcd_freeze(lab_etcd(lab), 0);
    expect(lab, "; etcd silent for ");
    expect(lab, " s, training on until 600 s");
    forget();
    testing_etcd_thaw(lab_etcd(lab), 0);
    expect(lab, "; lease renewed ");
}

static void test_reload_is_told(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = start_lab();
    LabNode *node = lab_start_node(lab, 0, "", NULL);
    expect(lab, "READY=1|STATUS=");
    forget();
    assert_int_equal(kill(node->pid, SIGHUP), 0);
    expect(lab, "RELOADING=1|MONOTONIC_USEC=");
    expect(lab, "\nREADY=1\n");
    assert_true(lab_log_has(node, "configuration reloaded"));

    char path[400];
    (void)snprintf(path, sizeof(path), "%s/config.json", node->folder);
    assert_int_equal(file_write(path, "{", 1, 0, NULL), 0);
    forget();
    assert_int_equal(kill(node->pid, SIGHUP), 0);
    expect(lab, "RELOADING=1|MONOTONIC_USEC=");
    expect(lab, "\nREADY=1\n"); /* the daemon keeps its old configuration */
    assert_true(lab_log_has(node, "configuration is not reloaded"));
}

/* At a stop sdtraind requests drain_sec and some seconds more, whatever the unit's TimeoutStopSec is. */
static void test_stop_asks_for_the_time_of_a_drain(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = start_lab();
    LabNode *node =
        lab_start_node(lab, 0,
                       "\"drain_sec\": 500, \"trainer_environment\": [\"FAKE_STEPS=1000000\"]",
                       NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 1, 0, 0});
    assert_int_equal(kill(node->pid, SIGTERM), 0);
    expect(lab, "STOPPING=1|EXTEND_TIMEOUT_USEC=512000000");
    expect(lab, ": draining, at most ");
    lab_put_phase(lab, "a", 1, PHASE_RESIZING, true, true);
    assert_int_equal(lab_wait_end(lab, node), 0);
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
    assert_true(record.n_commits > 0);
}

static bool has_hung(_unused_ Lab *lab, const void *userdata)
{
    const uint64_t *quiet_since_usec = userdata;
    return clock_boottime_usec() > *quiet_since_usec + 5 * 400 * USEC_PER_MSEC;
}

static bool stands_still(_unused_ Lab *lab, const void *node)
{
    return lab_log_has(node, "fault point commit-write strikes: stall");
}

/* A loop that hangs, here in a commit, sends the watchdog no more messages. */
static void test_a_hung_loop_does_not_feed_the_watchdog(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = start_lab();
    LabNode *node = lab_start_node(lab, 0,
                                   "\"lease_sec\": 4, \"trainer_environment\": "
                                   "[\"FAKE_STEPS=1000000\", \"FAKE_SAVE_EVERY=4\"]",
                                   "commit-write=stall");
    expect(lab, "WATCHDOG=1");
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, stands_still, node); /* from here on the loop sends nothing */
    uint64_t since_usec;
    do { /* waits for five quiet periods in a row, for longer on a slow machine */
        forget();
        since_usec = clock_boottime_usec();
        lab_wait(lab, has_hung, &since_usec);
    } while (has_said(lab, "WATCHDOG=1"));
    assert_int_equal(kill(node->pid, 0), 0);
    int pidfds[4];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC)); /* the ranks' dead-man timers ended them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_comes_with_the_record),
        cmocka_unit_test(test_status_says_what_runs_and_that_etcd_is_silent),
        cmocka_unit_test(test_reload_is_told),
        cmocka_unit_test(test_stop_asks_for_the_time_of_a_drain),
        cmocka_unit_test(test_a_hung_loop_does_not_feed_the_watchdog),
    };
    return cmocka_run_group_tests(tests, open_manager, close_manager);
}
