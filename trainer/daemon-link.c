/* daemon-link.c - see daemon-link.h. */
#include "trainer/daemon-link.h"

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

struct Host {
    int fd; /* the thread receives; every thread may send (one packet is one message) */
    int stop_fd;
    pthread_t thread;
    bool has_thread;
    timer_t deadman;
    bool has_deadman;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    ChannelMessage assign;
    bool assigned, go, gone, refused;
    char address[CHANNEL_ADDRESS_MAX];
    unsigned wishes;
    int64_t verdict_step;
    HostVerdict verdict;
    int64_t generation;
    int64_t step; /* newest (step, stage), not yet sent when stage_dirty */
    TrainStage stage;
    uint64_t waited_usec;
    int waits_rank;
    bool stage_dirty;
};

/* Standalone: the signal handler's word. */
static atomic_uint signalled;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&signalled, 1);
}

static int deadman_open(Host *host, Error *err)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    if (timer_create(CLOCK_BOOTTIME, &event, &host->deadman) < 0)
        return error_errno(err, -errno, "cannot create the dead-man timer");
    host->has_deadman = true;
    return 0;
}

static void deadman_arm(Host *host, uint64_t usec)
{
    if (usec == 0 || !host->has_deadman)
        return;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(usec / USEC_PER_SEC),
                                           .tv_nsec = (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)}};
    int r = timer_settime(host->deadman, 0, &when, NULL);
    assert(r == 0); /* the timer is ours and the time is valid */
}

/* Called with the lock held. */
static void take_message(Host *host, ChannelMessage *m)
{
    if (m->type != CHANNEL_ASSIGN && host->assigned && m->generation != host->generation) {
        log_warning("ignoring %s of generation %lld", channel_type_name(m->type),
                    (long long)m->generation);
        return;
    }

    switch (m->type) {
    case CHANNEL_ASSIGN:
        if (!host->assigned) {
            host->generation = m->generation;
            host->assign = *m;
            m->spec = NULL; /* moved */
            host->assigned = true;
            deadman_arm(host, host->assign.alive_usec);
        }
        break;
    case CHANNEL_GO:
        (void)snprintf(host->address, sizeof(host->address), "%s", m->address);
        host->go = true;
        break;
    case CHANNEL_ALIVE:
        deadman_arm(host, m->alive_usec);
        break;
    case CHANNEL_CHECKPOINT:
        host->wishes |= WISH_SAVE;
        break;
    case CHANNEL_STOP:
        host->wishes |= WISH_LEAVE;
        break;
    case CHANNEL_COMMITTED:
    case CHANNEL_REFUSED:
        host->verdict_step = m->step;
        host->verdict = m->type == CHANNEL_COMMITTED ? VERDICT_COMMITTED : VERDICT_REFUSED;
        host->refused = host->refused || m->type == CHANNEL_REFUSED;
        break;
    default:
        log_warning("ignoring %s from the daemon", channel_type_name(m->type));
    }
}

/* False when the channel has ended. */
static bool receive_all(Host *host)
{
    for (;;) {
        ChannelMessage m = {0};
        Error err = ERROR_INIT;
        int r = channel_receive(host->fd, &m, &err);
        if (r == -EAGAIN)
            return true;
        if (r == -EBADMSG) {
            log_warning("%s", err.text);
            continue;
        }
        pthread_mutex_lock(&host->lock);
        if (r < 0)
            host->gone = true;
        else
            take_message(host, &m);
        pthread_cond_broadcast(&host->changed);
        pthread_mutex_unlock(&host->lock);
        channel_message_clear(&m);
        if (r < 0)
            return false;
    }
}

static void send_stage(Host *host)
{
    ChannelMessage m = {.type = CHANNEL_STAGE};
    pthread_mutex_lock(&host->lock);
    bool dirty = host->stage_dirty;
    m.generation = host->generation;
    m.step = host->step;
    m.stage = host->stage;
    m.waited_usec = host->waited_usec;
    m.waits_rank = host->waits_rank;
    host->stage_dirty = false;
    pthread_mutex_unlock(&host->lock);
    if (dirty)
        (void)channel_send(host->fd, &m,
                           NULL); /* a daemon that is gone shows as end of the channel */
}

static void *host_main(void *userdata)
{
    Host *host = userdata;
    for (;;) {
        struct pollfd fds[2] = {{.fd = host->fd, .events = POLLIN},
                                {.fd = host->stop_fd, .events = POLLIN}};
        if (poll(fds, 2, STAGE_PERIOD_MSEC) < 0 && errno != EINTR)
            return NULL;
        if (fds[1].revents)
            return NULL;
        if (fds[0].revents && !receive_all(host))
            return NULL;
        send_stage(host);
    }
}

static int host_start(Host *host, Error *err)
{
    int r = deadman_open(host, err);
    if (r < 0)
        return r;
    host->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (host->stop_fd < 0)
        return error_errno(err, -errno, "cannot create an eventfd");
    r = pthread_create(&host->thread, NULL, host_main, host);
    if (r != 0)
        return error_errno(err, -r, "cannot start the channel's thread");
    host->has_thread = true;
    return 0;
}

int host_open(int fd, Host **ret, Error *err)
{
    _cleanup_(host_freep) Host *host = calloc(1, sizeof(*host));
    if (!host) {
        (void)fd_close(fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    host->fd = fd < 0 ? -EBADF : fd;
    host->stop_fd = -EBADF;
    host->step = -1;
    host->verdict_step = -1;
    (void)pthread_mutex_init(&host->lock, NULL); /* default attributes cannot fail */
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&host->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);

    if (host_is_daemon(host)) {
        int r = host_start(host, err);
        if (r < 0)
            return r;
    } else {
        struct sigaction action = {.sa_handler = on_signal};
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        host->go = true;
    }
    *ret = TAKE_PTR(host);
    return 0;
}

Host *host_free(Host *host)
{
    if (!host)
        return NULL;
    if (host->has_thread) {
        uint64_t one = 1;
        (void)fd_write_all(host->stop_fd, &one, sizeof(one)); /* an eventfd takes it */
        (void)pthread_join(host->thread, NULL);
        send_stage(host);
    }
    if (host->has_deadman)
        (void)timer_delete(host->deadman);
    (void)fd_close(host->stop_fd);
    (void)fd_close(host->fd);
    channel_message_clear(&host->assign);
    (void)pthread_cond_destroy(&host->changed);
    (void)pthread_mutex_destroy(&host->lock);
    free(host);
    return NULL;
}

bool host_is_daemon(const Host *host) { return host->fd >= 0; }

/* With the lock held: waits for a change, at most until the deadline of CLOCK_MONOTONIC. */
static int wait_changed(Host *host, const struct timespec *deadline)
{
    return -pthread_cond_timedwait(&host->changed, &host->lock, deadline);
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

/* Waits until *flag or the end; the lock is held when it returns. */
static int wait_for(Host *host, const bool *flag, uint64_t timeout_usec, const char *what,
                    Error *err)
{
    struct timespec deadline = deadline_in(timeout_usec);
    pthread_mutex_lock(&host->lock);
    int r = 0;
    while (!*flag && !host->gone && r != -ETIMEDOUT)
        r = wait_changed(host, &deadline);
    if (*flag)
        return 0;
    if (host->gone)
        return error_set(err, -EPIPE, "the daemon closed the channel before %s", what);
    return error_set(err, -ETIMEDOUT, "the daemon did not say %s within %llu s", what,
                     (unsigned long long)(timeout_usec / USEC_PER_SEC));
}

int host_wait_assign(Host *host, uint64_t timeout_usec, ChannelMessage *ret, Error *err)
{
    ChannelMessage hello = {.type = CHANNEL_HELLO, .pid = (int)getpid()};
    int r = host_say(host, &hello, err);
    if (r < 0)
        return r;
    r = wait_for(host, &host->assigned, timeout_usec, "assign", err);
    if (r == 0) {
        *ret = host->assign;
        host->assign.spec = NULL; /* moved */
        explicit_bzero(host->assign.secret, sizeof(host->assign.secret));
    }
    pthread_mutex_unlock(&host->lock);
    return r;
}

int host_wait_go(Host *host, uint64_t timeout_usec, char address[CHANNEL_ADDRESS_MAX], Error *err)
{
    int r = wait_for(host, &host->go, timeout_usec, "go", err);
    if (r == 0)
        memcpy(address, host->address, CHANNEL_ADDRESS_MAX);
    pthread_mutex_unlock(&host->lock);
    return r;
}

int host_say(Host *host, const ChannelMessage *message, Error *err)
{
    if (host_is_daemon(host))
        return channel_send(host->fd, message, err);

    if (message->type == CHANNEL_SAVED) {
        host->verdict_step = message->step;
        host->verdict = VERDICT_COMMITTED;
    }
    return 0;
}

void host_stage(Host *host, int64_t step, TrainStage stage) { host_wait(host, step, stage, 0, 0); }

void host_wait(Host *host, int64_t step, TrainStage stage, uint64_t waited_usec, int waits_rank)
{
    pthread_mutex_lock(&host->lock);
    host->step = step;
    host->stage = stage;
    host->waited_usec = waited_usec;
    host->waits_rank = waits_rank;
    host->stage_dirty = true;
    pthread_mutex_unlock(&host->lock);
}

unsigned host_wishes(Host *host, bool clear)
{
    pthread_mutex_lock(&host->lock);
    if (!host_is_daemon(host) && atomic_load(&signalled))
        host->wishes |= WISH_LEAVE;
    unsigned wishes = host->wishes;
    if (clear)
        host->wishes &= WISH_LEAVE;
    pthread_mutex_unlock(&host->lock);
    return wishes;
}

HostVerdict host_verdict(Host *host, int64_t step)
{
    pthread_mutex_lock(&host->lock);
    HostVerdict verdict = host->verdict_step == step ? host->verdict : VERDICT_PENDING;
    pthread_mutex_unlock(&host->lock);
    return verdict;
}

int host_wait_verdict(Host *host, int64_t step, uint64_t timeout_usec, HostVerdict *ret, Error *err)
{
    struct timespec deadline = deadline_in(timeout_usec);
    int r = 0;
    pthread_mutex_lock(&host->lock);
    while (host->verdict_step != step && !host->gone && r != -ETIMEDOUT)
        r = wait_changed(host, &deadline);
    bool there = host->verdict_step == step, gone = host->gone;
    *ret = there ? host->verdict : VERDICT_PENDING;
    pthread_mutex_unlock(&host->lock);
    if (there)
        return 0;
    if (gone)
        return error_set(err, -EPIPE, "the daemon closed the channel before it committed step %lld",
                         (long long)step);
    return error_set(err, -ETIMEDOUT, "the daemon neither committed nor refused step %lld",
                     (long long)step);
}

int host_check(Host *host, Error *err)
{
    pthread_mutex_lock(&host->lock);
    bool gone = host->gone, refused = host->refused;
    pthread_mutex_unlock(&host->lock);
    if (gone)
        return error_set(err, -EPIPE, "the daemon closed the channel");
    if (refused)
        return error_set(err, -ESTALE, "the daemon refused the checkpoint: this world is over");
    return 0;
}
