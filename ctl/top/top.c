/* SPDX-License-Identifier: Apache-2.0 */
/* top.c - `sdctl top`: shows the whole cluster on one screen until the user quits. The screen is drawn every second,
 * and sooner when a record changes. */
#include "base/clock.h"
#include "ctl/arguments.h"
#include "ctl/top/screen.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { DRAW_MSEC = 1000, DRAW_LEAST_MSEC = 200, ASK_SEC = 10 };

typedef struct Top {
    const ClientOptions *options;
    CtlClient client;
    Model *model;
    Members members;
    Screen screen;
    sd_event_source *timer;
    /* Times of the last drawing and of the last request to the members, in CLOCK_BOOTTIME; 0: none yet. */
    uint64_t drawn_usec, asked_usec;
    int signal; /* the signal that ends sdctl; 0: none */
} Top;

/* ---- drawing ---- */

static void request_members(Top *t)
{
    Error ignored = ERROR_INIT; /* the frame shows each member's own error */
    (void)members_request(t->options, &t->members, &ignored);
    t->asked_usec = clock_boottime_usec();
}

static void make_frame(const Top *t, int columns, int rows, Frame *ret)
{
    const FrameInput input = {.model = t->model,
                              .members = t->asked_usec ? &t->members : NULL,
                              .silent_usec = t->client.silent_usec,
                              .now_usec = clock_realtime_usec()};
    frame_make(&input, columns, rows, ret);
}

static void draw(Top *t)
{
    Frame frame;
    int columns, rows;
    if (clock_boottime_usec() >= t->asked_usec + ASK_SEC * USEC_PER_SEC)
        request_members(t);
    screen_enter(&t->screen);
    screen_size(&columns, &rows);
    make_frame(t, columns, rows, &frame);
    screen_draw(&frame);
    frame_clear(&frame);
    t->drawn_usec = clock_boottime_usec();
}

/* Draws now, or a little later if the last drawing was just before, because the records of a busy cluster change
 * thousands of times a second. */
static void draw_soon(Top *t)
{
    const uint64_t next_usec = t->drawn_usec + DRAW_LEAST_MSEC * USEC_PER_MSEC;
    const bool is_due = clock_boottime_usec() >= next_usec;
    if (is_due)
        draw(t);
    (void)sd_event_source_set_time(t->timer, is_due ? t->drawn_usec + DRAW_MSEC * USEC_PER_MSEC
                                                    : next_usec); /* the timer is enabled already */
}

static int on_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Top *t = userdata;
    if (t->drawn_usec) /* 0: the records are not read yet */
        draw(t);
    int r = sd_event_source_set_time(t->timer, clock_boottime_usec() + DRAW_MSEC * USEC_PER_MSEC);
    return r < 0 ? r : sd_event_source_set_enabled(t->timer, SD_EVENT_ONESHOT);
}

static int on_records(const EtcdEvent *event, void *userdata)
{
    Top *t = userdata;
    if (event)
        return model_feed(t->model, event);
    draw_soon(t);
    return 0;
}

/* ---- keys and signals ---- */

static int on_key(sd_event_source *source, int fd, _unused_ uint32_t events, void *userdata)
{
    Top *t = userdata;
    char keys[64];
    ssize_t n = read(fd, keys, sizeof(keys));
    /* If nothing was read, the input has ended. Before the first drawing this is uncertain, because the terminal still
     * passes input line by line. */
    if (n <= 0 && t->drawn_usec)
        return sd_event_source_set_enabled(source, SD_EVENT_OFF);
    if (n > 0 && memchr(keys, 'q', (size_t)n))
        return sd_event_exit(t->client.event, 0);
    return 0;
}

static int on_signal(_unused_ sd_event_source *source, const struct signalfd_siginfo *info,
                     void *userdata)
{
    Top *t = userdata;
    const int number = (int)info->ssi_signo;
    if (number == SIGTSTP) {
        screen_leave(&t->screen);
        (void)raise(SIGSTOP); /* execution continues here after SIGCONT */
    }
    if (number == SIGWINCH || number == SIGTSTP || number == SIGCONT) {
        if (t->drawn_usec)
            draw(t);
        return 0;
    }
    t->signal = number;
    return sd_event_exit(t->client.event, 0);
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

/* Blocks the signals. Must run before any thread starts, because the thread could receive the signals instead. */
static void block_signals(sigset_t *ret_before)
{
    sigset_t set;
    (void)sigemptyset(&set); /* these calls fail only for bad arguments */
    for (size_t i = 0; i < ELEMENTSOF(signals); i++)
        (void)sigaddset(&set, signals[i]);
    (void)sigprocmask(SIG_BLOCK, &set, ret_before);
}

static int listen_to(Top *t, Error *err)
{
    sd_event *event = t->client.event;
    int r = sd_event_add_time(event, &t->timer, CLOCK_BOOTTIME, UINT64_MAX, 0, on_timer, t);
    for (size_t i = 0; r >= 0 && i < ELEMENTSOF(signals); i++)
        r = sd_event_add_signal(event, NULL, signals[i], on_signal, t);
    if (r >= 0 && isatty(STDIN_FILENO) == 1)
        r = sd_event_add_io(event, NULL, STDIN_FILENO, EPOLLIN, on_key, t);
    return r < 0 ? error_errno(err, r, "cannot listen to signals and keys") : 0;
}

/* ---- the verb ---- */

static int show_live(Top *t, Error *err)
{
    sigset_t before;
    block_signals(&before);
    int r = client_open(t->options, &t->client, err);
    t->client.is_quiet = true; /* the frame shows when etcd does not answer */
    t->model = model_new(t->client.cluster);
    r = r < 0 ? r : listen_to(t, err);
    if (r == 0)
        r = client_watch(&t->client, on_records, t, USEC_INFINITY, err);
    screen_leave(&t->screen);
    t->timer = sd_event_source_unref(t->timer);
    (void)sigprocmask(SIG_SETMASK, &before, NULL); /* fails only for bad arguments */
    if (t->signal && t->signal != SIGINT)
        (void)raise(t->signal); /* so that the exit status shows the signal */
    return r == -ECANCELED ? 0 : r;
}

static int show_once(Top *t, Error *err)
{
    Frame frame;
    int columns, rows, r = client_open(t->options, &t->client, err);
    r = r < 0 ? r : model_read(&t->client, &t->model, err);
    if (r < 0)
        return r;
    request_members(t);
    screen_size(&columns, &rows);
    make_frame(t, columns, 0, &frame);
    screen_print(&frame);
    frame_clear(&frame);
    return 0;
}

typedef struct TopOptions {
    bool once;
} TopOptions;

#define OPTIONS_STRUCT TopOptions
static const CtlOption options[] = {
    {"once", 0, NULL, "print it once, as where there is no terminal", TAKES(NOTHING, once)},
};
const CtlOptions top_options = CTL_OPTIONS(options, .once = false);

int top(const Arguments *a)
{
    const TopOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    Top t = {.options = &a->client};
    int r = o->once || !screen_is_there() ? show_once(&t, &err) : show_live(&t, &err);
    t.model = model_free(t.model);
    client_close(&t.client);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}
