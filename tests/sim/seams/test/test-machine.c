/* SPDX-License-Identifier: Apache-2.0 */
/* test-machine.c - the processes of a simulated machine do what process.h, logs.h and channel.h promise. */
#include "base/test/testing.h"
#include "daemon/process/logs.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/machine.h"

#include <string.h>

enum { ALIVE_USEC = 7 };

/* ---- the model of a program: it records its events ---- */

static char happened[256];

static void note(const char *what, const Task *task)
{
    size_t n = strlen(happened);
    (void)snprintf(happened + n, sizeof(happened) - n, "%s%d ", what, task_slot(task));
}

static void started(_unused_ void *userdata, Task *task) { note("started", task); }
static void told(_unused_ void *userdata, Task *task) { note("told", task); }
static void killed(_unused_ void *userdata, Task *task) { note("killed", task); }
static void awaited(_unused_ void *userdata, Task *task)
{
    note("awaited", task);
    task_end(task, -SIGKILL);
}
static void hung_up(_unused_ void *userdata, Task *task) { note("hung", task); }
static void cleared(_unused_ void *userdata, Task *task) { note("cleared", task); }

#define assert_happened(text)                                                                      \
    do {                                                                                           \
        assert_string_equal(happened, text);                                                       \
        *happened = '\0';                                                                          \
    } while (0)

/* ---- the daemon's half ---- */

typedef struct Daemon {
    sd_event *loop;
    ProcessNeeds needs;
    Process process;
    ChannelType heard[8];
    int n_heard, n_moved, r;
} Daemon;

static Machine *machine, *other;
static Daemon daemons[2];

static void heard(void *userdata)
{
    Daemon *d = userdata;
    ChannelMessage m = {0};
    while ((d->r = channel_receive(d->process.channel, &m, NULL)) == 0) {
        assert_true(d->n_heard < (int)ELEMENTSOF(d->heard));
        d->heard[d->n_heard++] = m.type;
        channel_message_clear(&m);
    }
    if (d->r == -EPIPE)
        process_deafen(&d->process);
}

static void moved(void *userdata)
{
    Daemon *d = userdata;
    siginfo_t info;
    d->n_moved++;
    assert_true(process_reap(&d->process, &info));
    assert_false(process_reap(&d->process, &info)); /* a task is reaped only once */
}

static void begin(Daemon *d, Machine *m)
{
    *d = (Daemon){0};
    assert_int_equal(sd_event_new(&d->loop), 0);
    d->needs.event = d->loop;
    machine_open(m, d->loop);
}

static void start(Daemon *d, int slot)
{
    static const ProcessProgram program = {.output = -EBADF};
    const ProcessEvents events = {.userdata = d, .heard = heard, .moved = moved};
    assert_int_equal(process_start(&d->needs, slot, &program, &d->process, NULL), 0);
    assert_true(d->process.pid > 0);
    assert_int_equal(process_watch(&d->process, &events), 0);
}

static void end(Daemon *d, Machine *m)
{
    process_close(&d->process);
    machine_close(m);
    d->loop = sd_event_unref(d->loop);
}

static void settle(void)
{
    while (loops_run(loops_now_usec()))
        ;
}

static bool gone(const Daemon *d) { return process_is_gone(&d->process, NULL, NULL, NULL); }

static int set_up(_unused_ void **state)
{
    const TaskProgram program = {.started = started,
                                 .told = told,
                                 .killed = killed,
                                 .awaited = awaited,
                                 .hung_up = hung_up,
                                 .cleared = cleared};
    loops_open(USEC_PER_SEC);
    machine = machine_new(&program);
    other = machine_new(&program);
    begin(&daemons[0], machine);
    begin(&daemons[1], other);
    *happened = '\0';
    return 0;
}

static int tear_down(_unused_ void **state)
{
    end(&daemons[0], machine);
    end(&daemons[1], other);
    machine = machine_free(machine);
    other = machine_free(other);
    loops_close();
    return 0;
}

/* ---- tests ---- */

static void messages(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    char spec[] = "{}";
    ChannelMessage m = {.type = CHANNEL_ASSIGN, .generation = 3, .assign.spec = spec}, got = {0};
    start(d, 2);
    start(&daemons[1], 2);
    assert_happened("started2 started2 ");
    Task *task = machine_task(machine, 2);
    assert_non_null(task);
    assert_null(machine_task(machine, 1));

    /* Messages to the task arrive in order; the text is a copy. */
    assert_int_equal(channel_send(d->process.channel, &m, NULL), 0);
    spec[0] = '!';
    m = (ChannelMessage){.type = CHANNEL_ALIVE, .generation = 3, .alive_usec = ALIVE_USEC};
    assert_int_equal(channel_send(d->process.channel, &m, NULL), 0);
    assert_happened("told2 told2 ");
    /* the other machine's task gets no message */
    assert_false(task_hear(machine_task(other, 2), &got));
    assert_true(task_hear(task, &got));
    assert_int_equal(got.type, CHANNEL_ASSIGN);
    assert_string_equal(got.assign.spec, "{}");
    channel_message_clear(&got);
    assert_true(task_hear(task, &got));
    assert_int_equal(got.alive_usec, ALIVE_USEC);
    assert_false(task_hear(task, &got));

    /* Messages to the daemon arrive only when the loop runs, and only once. */
    m = (ChannelMessage){.type = CHANNEL_HELLO};
    assert_true(task_say(task, &m));
    m.type = CHANNEL_READY;
    assert_true(task_say(task, &m));
    assert_int_equal(d->n_heard, 0);
    settle();
    assert_int_equal(d->n_heard, 2);
    assert_int_equal(d->heard[0], CHANNEL_HELLO);
    assert_int_equal(d->heard[1], CHANNEL_READY);
    assert_int_equal(d->r, -EAGAIN);
    assert_int_equal(daemons[1].n_heard, 0);
}

static void full(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    ChannelMessage m = {.type = CHANNEL_STAGE}, got = {0};
    start(d, 0);
    Task *task = machine_task(machine, 0);
    for (int i = 0; i < TASK_MESSAGES_MAX; i++) {
        assert_int_equal(channel_send(d->process.channel, &m, NULL), 0);
        assert_true(task_say(task, &m));
    }
    assert_int_equal(channel_send(d->process.channel, &m, NULL), -EAGAIN);
    assert_false(task_say(task, &m));
    assert_true(task_hear(task, &got));
    assert_int_equal(channel_send(d->process.channel, &m, NULL), 0);
    process_deafen(&d->process); /* closes the channel, with the messages that were not read */
}

static void killed_and_gone(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    start(d, 1);
    Task *task = machine_task(machine, 1);
    process_kill(&d->process);
    settle();
    assert_happened("started1 killed1 ");
    assert_int_equal(d->n_moved, 0); /* the task survives until its model ends it */
    assert_false(gone(d));
    task_leave_behind(task, true);
    task_end(task, -SIGKILL);
    task_end(task, 0);     /* no effect: the task has ended */
    assert_false(gone(d)); /* the daemon has not reaped the task */
    settle();
    assert_int_equal(d->n_moved, 1);
    assert_int_equal(d->r, -EPIPE);
    assert_true(d->process.exited);
    assert_false(gone(d)); /* something that the task started lives on */
    process_kill(&d->process);
    assert_happened("");
    task_leave_behind(task, false);
    assert_true(gone(d));
    process_retire(&d->process);
    start(d, 1); /* the slot is clear now */
    assert_happened("cleared1 started1 ");
    assert_true(task_lives(machine_task(machine, 1)));
}

static void last_words(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    const ChannelMessage m = {.type = CHANNEL_DONE};
    siginfo_t info;
    start(d, 1);
    Task *task = machine_task(machine, 1);
    assert_true(task_say(task, &m));
    task_end(task, 3);
    /* The task's end and its message arrive at once: the end comes first, and the message is not
     * lost. */
    assert_true(process_reap(&d->process, &info));
    assert_int_equal(info.si_code, CLD_EXITED);
    assert_int_equal(info.si_status, 3);
    settle();
    assert_int_equal(d->n_moved, 0);
    assert_int_equal(d->n_heard, 1);
    assert_int_equal(d->heard[0], CHANNEL_DONE);
    assert_int_equal(channel_send(d->process.channel, &m, NULL), -EPIPE);
}

static void daemon_goes(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    const ChannelMessage m = {.type = CHANNEL_STAGE};
    start(d, 4);
    Task *task = machine_task(machine, 4);
    task_set_userdata(task, d);
    loop_kill(d->loop);
    assert_true(task_say(task, &m));
    end(d, machine);
    settle();
    assert_int_equal(d->n_heard, 0);
    assert_happened("started4 hung4 ");
    /* The task lives on, and the next daemon does not know it. */
    begin(d, machine);
    assert_ptr_equal(machine_task(machine, 4), task);
    assert_ptr_equal(task_userdata(task), d);
    assert_true(task_lives(task));
    assert_false(task_say(task, &m));
    task_end(task, -SIGKILL);
    start(d, 4);
}

static void awaits(_unused_ void **state)
{
    Daemon *d = &daemons[0];
    siginfo_t info;
    start(d, 0);
    process_kill(&d->process);
    process_await_exit(&d->process, 1);
    assert_happened("started0 killed0 awaited0 ");
    assert_true(process_reap(&d->process, &info));
    assert_int_equal(info.si_code, CLD_KILLED);
    assert_int_equal(info.si_status, SIGKILL);
    process_await_exit(&d->process, 1);
    assert_happened("");
}

static void logs(_unused_ void **state)
{
    RankLog *log = NULL;
    int fd = 0;
    assert_int_equal(rank_log_new(daemons[0].loop, "/nowhere", "job", 1, 0, 1, &fd, &log, NULL), 0);
    assert_true(fd < 0);
    rank_log_drain(log);
    assert_string_equal(rank_log_last_line(log), "");
    assert_null(rank_log_free(log));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(messages),   TEST(full),   TEST(killed_and_gone),
                                       TEST(last_words), TEST(awaits), TEST(daemon_goes),
                                       TEST(logs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
