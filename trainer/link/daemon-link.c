/* SPDX-License-Identifier: Apache-2.0 */
/* daemon-link.c - see daemon-link.h. */
#include "trainer/link/daemon-link.h"

#include "base/dead-man.h"
#include "base/file.h"
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

enum { STAGE_PERIOD_MSEC = 50 };

struct DaemonLink {
    int fd; /* the link's thread receives; every thread may send (one packet is one message) */
    int stop_fd;
    pthread_t thread;
    bool has_thread;
    DeadMan dead_man;

    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t changed;
    ChannelMessage assignment;
    bool assigned, go, gone, refused;
    char address[CHANNEL_ADDRESS_MAX];
    unsigned wishes;
    int64_t verdict_step;
    DaemonVerdict verdict;
    ChannelHeld held; /* as of the newest go or committed */
    int64_t generation;
    int64_t step; /* the newest step and stage; not sent yet if stage_dirty is set */
    TrainStage stage;
    uint64_t waited_usec;
    int waits_rank;
    bool stage_dirty;
};

/* Standalone: set by the signal handler. */
static atomic_uint signalled;

static void on_link_signal(int number)
{
    (void)number;
    atomic_store(&signalled, 1);
}

/* Called with the lock held. */
static void take_message(DaemonLink *link, ChannelMessage *m)
{
    if (m->type != CHANNEL_ASSIGN && link->assigned && m->generation != link->generation) {
        log_warning("ignoring %s of generation %lld", channel_type_name(m->type),
                    (long long)m->generation);
        return;
    }

    switch (m->type) {
    case CHANNEL_ASSIGN:
        if (!link->assigned) {
            link->generation = m->generation;
            link->assignment = *m;
            m->assign.spec = NULL; /* moved to link->assignment */
            link->assigned = true;
            dead_man_arm(&link->dead_man, link->assignment.assign.alive_usec);
        }
        break;
    case CHANNEL_GO:
        (void)snprintf(link->address, sizeof(link->address), "%s", m->address);
        link->held = m->held;
        link->go = true;
        break;
    case CHANNEL_ALIVE:
        dead_man_arm(&link->dead_man, m->alive_usec);
        break;
    case CHANNEL_CHECKPOINT:
        link->wishes |= WISH_SAVE;
        break;
    case CHANNEL_STOP:
        link->wishes |= WISH_LEAVE;
        break;
    case CHANNEL_COMMITTED:
    case CHANNEL_REFUSED:
        link->verdict_step = m->step;
        link->verdict = m->type == CHANNEL_COMMITTED ? VERDICT_COMMITTED : VERDICT_REFUSED;
        if (m->type == CHANNEL_COMMITTED)
            link->held = m->held;
        link->refused = link->refused || m->type == CHANNEL_REFUSED;
        break;
    default:
        log_warning("ignoring %s from the daemon", channel_type_name(m->type));
    }
}

/* Returns false if the channel has ended. */
static bool receive_all(DaemonLink *link)
{
    for (;;) {
        ChannelMessage m = {0};
        Error err = ERROR_INIT;
        int r = channel_receive(link->fd, &m, &err);
        if (r == -EAGAIN)
            return true;
        if (r == -EBADMSG) {
            log_warning("%s", err.text);
            continue;
        }
        pthread_mutex_lock(&link->lock);
        if (r < 0)
            link->gone = true;
        else
            take_message(link, &m);
        pthread_cond_broadcast(&link->changed);
        pthread_mutex_unlock(&link->lock);
        channel_message_clear(&m);
        if (r < 0)
            return false;
    }
}

static void send_stage(DaemonLink *link)
{
    ChannelMessage m = {.type = CHANNEL_STAGE};
    pthread_mutex_lock(&link->lock);
    bool dirty = link->stage_dirty;
    m.generation = link->generation;
    m.step = link->step;
    m.stage = link->stage;
    m.waited_usec = link->waited_usec;
    m.waits_rank = link->waits_rank;
    link->stage_dirty = false;
    pthread_mutex_unlock(&link->lock);
    if (dirty)
        /* if this fails, the daemon has ended, and receive_all() finds the channel ended */
        (void)channel_send(link->fd, &m, NULL);
}

static void *daemon_link_main(void *userdata)
{
    DaemonLink *link = userdata;
    for (;;) {
        struct pollfd fds[2] = {{.fd = link->fd, .events = POLLIN},
                                {.fd = link->stop_fd, .events = POLLIN}};
        if (poll(fds, 2, STAGE_PERIOD_MSEC) < 0 && errno != EINTR)
            return NULL;
        if (fds[1].revents)
            return NULL;
        if (fds[0].revents && !receive_all(link))
            return NULL;
        send_stage(link);
    }
}

static int daemon_link_start(DaemonLink *link, Error *err)
{
    int r = dead_man_open(&link->dead_man, err);
    if (r < 0)
        return r;
    link->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (link->stop_fd < 0)
        return error_errno(err, -errno, "cannot create an eventfd");
    r = pthread_create(&link->thread, NULL, daemon_link_main, link);
    if (r != 0)
        return error_errno(err, -r, "cannot start the channel's thread");
    link->has_thread = true;
    return 0;
}

int daemon_link_open(int fd, DaemonLink **ret, Error *err)
{
    _cleanup_(daemon_link_freep) DaemonLink *link = calloc(1, sizeof(*link));
    if (!link) {
        (void)fd_close(fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    link->fd = fd < 0 ? -EBADF : fd;
    link->stop_fd = -EBADF;
    link->step = -1;
    link->verdict_step = -1;
    (void)pthread_mutex_init(&link->lock, NULL); /* default attributes cannot fail */
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&link->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);

    if (daemon_link_is_daemon(link)) {
        int r = daemon_link_start(link, err);
        if (r < 0)
            return r;
    } else {
        struct sigaction action = {.sa_handler = on_link_signal};
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        link->go = true;
    }
    *ret = TAKE_PTR(link);
    return 0;
}

DaemonLink *daemon_link_free(DaemonLink *link)
{
    if (!link)
        return NULL;
    if (link->has_thread) {
        uint64_t one = 1;
        /* cannot fail: an eventfd accepts a 1 */
        (void)fd_write_all(link->stop_fd, &one, sizeof(one));
        (void)pthread_join(link->thread, NULL);
        send_stage(link);
    }
    dead_man_close(&link->dead_man);
    (void)fd_close(link->stop_fd);
    (void)fd_close(link->fd);
    channel_message_clear(&link->assignment);
    (void)pthread_cond_destroy(&link->changed);
    (void)pthread_mutex_destroy(&link->lock);
    free(link);
    return NULL;
}

bool daemon_link_is_daemon(const DaemonLink *link) { return link->fd >= 0; }

/* With the lock held: waits for a change, at most until the deadline of CLOCK_MONOTONIC. */
static int wait_changed(DaemonLink *link, const struct timespec *deadline)
{
    return -pthread_cond_timedwait(&link->changed, &link->lock, deadline);
}

static struct timespec deadline_in(uint64_t usec)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail */
    uint64_t nsec = (uint64_t)t.tv_nsec + usec % USEC_PER_SEC * NSEC_PER_USEC;
    t.tv_sec += (time_t)(usec / USEC_PER_SEC + nsec / UINT64_C(1000000000));
    t.tv_nsec = (long)(nsec % UINT64_C(1000000000));
    return t;
}

/* Waits until *flag is set, the channel ends or the time is over. The lock is held when it returns. */
static int wait_for(DaemonLink *link, const bool *flag, uint64_t timeout_usec, const char *what,
                    Error *err)
{
    struct timespec deadline = deadline_in(timeout_usec);
    pthread_mutex_lock(&link->lock);
    int r = 0;
    while (!*flag && !link->gone && r != -ETIMEDOUT)
        r = wait_changed(link, &deadline);
    if (*flag)
        return 0;
    if (link->gone)
        return error_set(err, -EPIPE, "the daemon closed the channel before %s", what);
    return error_set(err, -ETIMEDOUT, "the daemon did not say %s within %llu s", what,
                     (unsigned long long)(timeout_usec / USEC_PER_SEC));
}

int daemon_link_wait_assign(DaemonLink *link, uint64_t timeout_usec, ChannelMessage *ret,
                            Error *err)
{
    ChannelMessage hello = {.type = CHANNEL_HELLO, .pid = (int)getpid()};
    int r = daemon_link_report(link, &hello, err);
    if (r < 0)
        return r;
    r = wait_for(link, &link->assigned, timeout_usec, "assign", err);
    if (r == 0) {
        *ret = link->assignment;
        link->assignment.assign.spec = NULL; /* moved to *ret */
        explicit_bzero(link->assignment.assign.secret, sizeof(link->assignment.assign.secret));
    }
    pthread_mutex_unlock(&link->lock);
    return r;
}

int daemon_link_wait_go(DaemonLink *link, uint64_t timeout_usec, char address[CHANNEL_ADDRESS_MAX],
                        Error *err)
{
    int r = wait_for(link, &link->go, timeout_usec, "go", err);
    if (r == 0)
        memcpy(address, link->address, CHANNEL_ADDRESS_MAX);
    pthread_mutex_unlock(&link->lock);
    return r;
}

int daemon_link_report(DaemonLink *link, const ChannelMessage *message, Error *err)
{
    if (daemon_link_is_daemon(link))
        return channel_send(link->fd, message, err);

    if (message->type == CHANNEL_SAVED) {
        link->verdict_step = message->step;
        link->verdict = VERDICT_COMMITTED;
    }
    return 0;
}

void daemon_link_stage(DaemonLink *link, int64_t step, TrainStage stage)
{
    daemon_link_wait(link, step, stage, 0, 0);
}

void daemon_link_wait(DaemonLink *link, int64_t step, TrainStage stage, uint64_t waited_usec,
                      int waits_rank)
{
    pthread_mutex_lock(&link->lock);
    link->step = step;
    link->stage = stage;
    link->waited_usec = waited_usec;
    link->waits_rank = waits_rank;
    link->stage_dirty = true;
    pthread_mutex_unlock(&link->lock);
}

unsigned daemon_link_wishes(DaemonLink *link, bool clear)
{
    pthread_mutex_lock(&link->lock);
    if (!daemon_link_is_daemon(link) && atomic_load(&signalled))
        link->wishes |= WISH_LEAVE;
    unsigned wishes = link->wishes;
    if (clear)
        link->wishes &= WISH_LEAVE;
    pthread_mutex_unlock(&link->lock);
    return wishes;
}

DaemonVerdict daemon_link_verdict(DaemonLink *link, int64_t step)
{
    pthread_mutex_lock(&link->lock);
    DaemonVerdict verdict = link->verdict_step == step ? link->verdict : VERDICT_PENDING;
    pthread_mutex_unlock(&link->lock);
    return verdict;
}

ChannelHeld daemon_link_held(DaemonLink *link)
{
    pthread_mutex_lock(&link->lock);
    const ChannelHeld held = link->held;
    pthread_mutex_unlock(&link->lock);
    return held;
}

int daemon_link_wait_verdict(DaemonLink *link, int64_t step, uint64_t timeout_usec,
                             DaemonVerdict *ret, Error *err)
{
    struct timespec deadline = deadline_in(timeout_usec);
    int r = 0;
    pthread_mutex_lock(&link->lock);
    while (link->verdict_step != step && !link->gone && r != -ETIMEDOUT)
        r = wait_changed(link, &deadline);
    bool there = link->verdict_step == step, gone = link->gone;
    *ret = there ? link->verdict : VERDICT_PENDING;
    pthread_mutex_unlock(&link->lock);
    if (there)
        return 0;
    if (gone)
        return error_set(err, -EPIPE, "the daemon closed the channel before it committed step %lld",
                         (long long)step);
    return error_set(err, -ETIMEDOUT, "the daemon neither committed nor refused step %lld",
                     (long long)step);
}

int daemon_link_check(DaemonLink *link, Error *err)
{
    pthread_mutex_lock(&link->lock);
    bool gone = link->gone, refused = link->refused;
    pthread_mutex_unlock(&link->lock);
    if (gone)
        return error_set(err, -EPIPE, "the daemon closed the channel");
    if (refused)
        return error_set(err, -ESTALE, "the daemon refused the checkpoint: this world is over");
    return 0;
}
