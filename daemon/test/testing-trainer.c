/* SPDX-License-Identifier: Apache-2.0 */
/* testing-trainer.c - replaces sdtrainer in the daemon's tests: speaks the channel, trains nothing, and fails as its
 * environment says.
 *
 *   FAKE_STEPS=n        last step (10)           FAKE_STEP_MSEC=n   duration of a step (5)
 *   FAKE_SAVE_EVERY=n   save each n steps (0)    FAKE_PRINT=n       print n bytes at start
 *   FAKE_AT="rank:step:what"  what that rank does at that step: kill, segv, exitN, errorN, linger, hang, stop
 *   FAKE_CHILD=group|session|bare  start a process that outlives this one: in the same group, in a session of its
 *                       own, or in a session of its own and with an empty environment
 *   FAKE_HOLD=1         never ready              FAKE_DEAF=1        never reads its channel
 *   FAKE_SAY=1          print the address at which the ranks meet
 *   FAKE_LAST_MSEC=n    ranks other than 0 exit n ms after their last step (0) */
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/channel.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

typedef struct Fake {
    ChannelMessage assigned;
    int64_t steps, step_msec, save_every, step;
    bool gone, stop, save, saving;
    timer_t dead_man;
    int at_rank;
    int64_t at_step;
    char what[32];
} Fake;

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static _noreturn_ void give_up(const Error *err)
{
    (void)fprintf(stderr, "fake trainer: %s\n", err->text);
    _exit(75);
}

static void say(ChannelMessage *m)
{
    Error err = ERROR_INIT;
    if (channel_send(CHANNEL_FD, m, &err) < 0)
        give_up(&err);
}

static void arm(Fake *f, uint64_t usec)
{
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(usec / USEC_PER_SEC),
                                           .tv_nsec = (long)(usec % USEC_PER_SEC * 1000)}};
    (void)timer_settime(f->dead_man, 0, &when, NULL); /* cannot fail: the timer exists */
}

static void start_child(void)
{
    const char *kind = getenv("FAKE_CHILD");
    if (!kind)
        return;
    int ready[2];
    if (pipe(ready) < 0)
        _exit(75);
    if (fork() == 0) {
        if (strcmp(kind, "group") != 0) {
            (void)setsid();
            if (fork() != 0)
                _exit(0);
        }
        (void)!write(ready[1], "x", 1);
        if (strcmp(kind, "bare") == 0)
            (void)execle("/bin/sleep", "sleep", "1000", NULL, (char *[]){NULL});
        for (;;)
            (void)pause();
    }
    char c;
    (void)!read(ready[0], &c, 1);
    if (strcmp(kind, "group") != 0)
        (void)wait(NULL); /* reaps the parent of the detached child, so that no test counts it */
}

static void fail_here(Fake *f)
{
    if (f->assigned.assign.rank != f->at_rank || f->step != f->at_step || !*f->what)
        return;
    int code = (int)strtol(f->what + strcspn(f->what, "0123456789"), NULL, 10);
    ChannelMessage error = {.type = CHANNEL_ERROR,
                            .generation = f->assigned.generation,
                            .step = f->step,
                            .stage = STAGE_COMPUTING,
                            .exit_code = code,
                            .text = "the loss is not finite"};
    if (strcmp(f->what, "kill") == 0) {
        (void)raise(SIGKILL);
    } else if (strcmp(f->what, "segv") == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* replaces the sanitizer's handler */
        (void)raise(SIGSEGV);
    } else if (strcmp(f->what, "stop") == 0) {
        (void)raise(SIGSTOP);
    } else if (strncmp(f->what, "exit", 4) == 0) {
        (void)fprintf(stderr, "something\nwent wrong \xff\n");
        _exit(code);
    } else if (strncmp(f->what, "error", 5) == 0) {
        say(&error);
        _exit(code);
    } else if (strcmp(f->what, "linger") == 0) { /* sends its error, and does not exit */
        error.exit_code = 81;
        say(&error);
        for (;;)
            (void)pause();
    } else if (strcmp(f->what, "hang") == 0) {
        for (;;) /* the process lives, but makes no progress */
            (void)poll(NULL, 0, -1);
    }
}

static void take(Fake *f, const ChannelMessage *m)
{
    switch (m->type) {
    case CHANNEL_ALIVE:
        arm(f, m->alive_usec);
        break;
    case CHANNEL_GO:
        f->gone = true;
        if (setting("FAKE_SAY", 0)) {
            printf("meets at %s\n", m->address);
            (void)fflush(stdout);
        }
        break;
    case CHANNEL_STOP:
        f->stop = true;
        break;
    case CHANNEL_CHECKPOINT:
        f->save = true;
        break;
    case CHANNEL_COMMITTED:
        f->saving = false;
        break;
    case CHANNEL_REFUSED:
        _exit(75);
    default:
        break;
    }
}

/* Handles messages for msec milliseconds; -1: until one has arrived. */
static void listen_for(Fake *f, int msec)
{
    uint64_t end_usec = clock_boottime_usec() + (uint64_t)MAX(msec, 0) * 1000;
    for (;;) {
        uint64_t now = clock_boottime_usec();
        int left = msec < 0 ? -1 : now >= end_usec ? 0 : (int)((end_usec - now + 999) / 1000);
        struct pollfd p = {.fd = CHANNEL_FD, .events = POLLIN};
        if (poll(&p, 1, left) <= 0)
            return;
        _cleanup_(channel_message_clear) ChannelMessage m = {0};
        Error err = ERROR_INIT;
        if (channel_receive(CHANNEL_FD, &m, &err) < 0)
            give_up(&err);
        take(f, &m);
        if (msec < 0)
            return;
    }
}

static void save(Fake *f)
{
    ChannelMessage m = {.type = CHANNEL_SAVED,
                        .generation = f->assigned.generation,
                        .step = f->step,
                        .hash = {1, (uint64_t)f->step},
                        .digest = {2, (uint64_t)f->step}};
    (void)snprintf(m.uri, sizeof(m.uri), "file:///fake/step%lld-g%lld/manifest.json",
                   (long long)f->step, (long long)f->assigned.generation);
    ChannelMessage stage = {.type = CHANNEL_STAGE,
                            .generation = f->assigned.generation,
                            .step = f->step,
                            .stage = STAGE_SAVING};
    f->saving = true;
    f->save = false;
    say(&stage); /* etcd may be silent for longer than a step's bound */
    say(&m);
    while (f->saving)
        listen_for(f, -1);
}

static void train(Fake *f)
{
    int64_t g = f->assigned.generation;
    while (f->step < f->steps && !f->stop) {
        f->step++;
        ChannelMessage stage = {.type = CHANNEL_STAGE,
                                .generation = g,
                                .step = f->step,
                                .stage = STAGE_COMPUTING};
        say(&stage);
        fail_here(f);
        listen_for(f, (int)f->step_msec);
        if (f->assigned.assign.rank == 0) {
            ChannelMessage step = {.type = CHANNEL_STEP,
                                   .generation = g,
                                   .step = f->step,
                                   .loss = 1.0 / (double)f->step,
                                   .steps = f->steps};
            say(&step);
            if (f->save || (f->save_every && f->step % f->save_every == 0))
                save(f);
        }
    }
    if (f->assigned.assign.rank == 0 && (f->stop || !f->save_every || f->step % f->save_every))
        save(f);
    ChannelMessage done = {.type = CHANNEL_DONE, .generation = g, .step = f->step};
    (void)snprintf(done.end, sizeof(done.end), "%s", f->step < f->steps ? "left" : "finished");
    say(&done);
}

static void wait_for_assignment(Fake *f)
{
    ChannelMessage hello = {.type = CHANNEL_HELLO, .pid = getpid()};
    say(&hello);
    for (;;) {
        struct pollfd p = {.fd = CHANNEL_FD, .events = POLLIN};
        (void)poll(&p, 1, -1);
        ChannelMessage m = {0};
        Error err = ERROR_INIT;
        if (channel_receive(CHANNEL_FD, &m, &err) < 0)
            give_up(&err);
        if (m.type == CHANNEL_ASSIGN) {
            f->assigned = m;
            return;
        }
        take(f, &m);
        channel_message_clear(&m);
    }
}

int main(void)
{
    Fake f = {.steps = setting("FAKE_STEPS", 10),
              .step_msec = setting("FAKE_STEP_MSEC", 5),
              .save_every = setting("FAKE_SAVE_EVERY", 0)};
    struct sigevent kill_me = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    if (timer_create(CLOCK_BOOTTIME, &kill_me, &f.dead_man) < 0)
        return 75;
    for (int64_t n = setting("FAKE_PRINT", 0); n > 0; n -= 64)
        printf("%062lld\n", (long long)n);
    (void)fflush(stdout);
    start_child();
    if (setting("FAKE_DEAF", 0))
        for (;;)
            (void)pause();

    wait_for_assignment(&f);
    const char *at = getenv("FAKE_AT");
    if (at && sscanf(at, "%d:%lld:%31s", &f.at_rank, (long long *)&f.at_step, f.what) != 3)
        return 78;
    f.step = f.assigned.step;
    fail_here(&f);
    if (f.assigned.assign.rank == 0 && f.assigned.assign.world_size > 1) {
        ChannelMessage rendezvous = {.type = CHANNEL_RENDEZVOUS,
                                     .generation = f.assigned.generation,
                                     .address = "127.0.0.1:4711"};
        say(&rendezvous);
    }
    ChannelMessage ready = {.type = CHANNEL_READY,
                            .generation = f.assigned.generation,
                            .step = f.step};
    if (!setting("FAKE_HOLD", 0))
        say(&ready);
    while (!f.gone)
        listen_for(&f, -1);
    train(&f);
    if (f.assigned.assign.rank != 0)
        listen_for(&f, (int)setting("FAKE_LAST_MSEC", 0));
    channel_message_clear(&f.assigned);
    return 0;
}
