/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-watch.c - see kernel-watch.h. */
#include "daemon/health/kernel-watch.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/health/probes.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORDS_A_TURN = 256, REST_MSEC = 50, STATE_MAX = 65536 };

static void state_path(const Probes *p, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/kernel-log.json", p->needs.config->state_dir);
}

static void save(Probes *p)
{
    KernelWatch *w = &p->kernel;
    char path[PATH_MAX];
    _cleanup_free_ char *text = NULL;
    Error err = ERROR_INIT;
    state_path(p, path);
    int r = kernel_log_format(&w->log, &text);
    /* No fsync: a power loss may lose the state, since after the next boot the state is not used. */
    if (r == 0)
        r = file_write(path, text, strlen(text), 0, &err);
    if (r < 0)
        log_warning("what the kernel's log said is not kept: %s", err.text);
    else
        w->saved_seq = w->log.next_seq;
}

static void load(Probes *p)
{
    char path[PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    Error err = ERROR_INIT;
    state_path(p, path);
    int r = file_read(path, STATE_MAX, &text, &n, &err);
    if (r == 0)
        r = kernel_log_parse(path, text, n, &p->kernel.log, &err);
    if (r < 0 && r != -ENOENT)
        log_warning("what the kernel's log said before is not known: %s", err.text);
    kernel_log_begin(&p->kernel.log, p->needs.boot_id);
    p->kernel.saved_seq = p->kernel.log.next_seq;
}

/* Gathers the facts that the log is judged with: the clocks, the GPUs and the running submissions. Fills addresses,
 * which the result borrows. */
static KernelScene look_around(const Probes *p, PciAddress addresses[PROBE_SLOTS_MAX])
{
    _Static_assert(sizeof(SubmissionId) == SUBMISSION_BYTES, "ids are as long in both");
    const Gpus *gpus = &p->gpus;
    for (size_t i = 0; i < gpus->n; i++)
        memcpy(addresses[i], gpus->gpus[i].pci, sizeof(addresses[i]));
    KernelScene scene = {.now_usec = clock_realtime_usec(),
                         .boot_usec = clock_boottime_usec(),
                         .gpus = addresses,
                         .n_gpus = gpus->n,
                         .submissions = p->needs.slots->submissions,
                         .n_submissions = ELEMENTSOF(p->needs.slots->submissions)};
    int r = xid_overrides_read(p->needs.config->xid_actions, &scene.overrides, NULL);
    assert(r == 0); /* config_load() has checked xid_actions */
    return scene;
}

void kernel_watch_weigh(Probes *p)
{
    PciAddress addresses[PROBE_SLOTS_MAX];
    ProbeResult result;
    if (p->n_answers == 0)
        return; /* the probes have not begun */
    const KernelScene scene = look_around(p, addresses);
    kernel_log_judge(&p->kernel.log, &scene, &result);
    probes_note_kernel(p, &result);
}

/* Processes the complete lines in the buffer and keeps the rest for the next call. Returns whether any line brought
 * news. */
static bool take_lines(KernelWatch *w, const KernelScene *scene)
{
    bool news = false;
    size_t at = 0;
    char *end;
    while ((end = memchr(w->carry + at, '\n', w->n_carry - at))) {
        size_t n = (size_t)(end - (w->carry + at));
        news |= kernel_log_take(&w->log, scene, w->carry + at, n);
        at += n + 1;
    }
    if (at == 0 && w->n_carry == sizeof(w->carry))
        at = w->n_carry; /* discards the buffer: no valid record fills it */
    assert(at <= w->n_carry);
    w->n_carry -= at;
    memmove(w->carry, w->carry + at, w->n_carry);
    return news;
}

static void give_up(Probes *p, const char *why)
{
    KernelWatch *w = &p->kernel;
    log_warning("%s is not read any more: %s NODE=%s", p->needs.config->kernel_log, why,
                p->needs.config->node);
    w->source = sd_event_source_disable_unref(w->source);
    w->fd = fd_close(w->fd);
    (void)snprintf(w->log.unread, sizeof(w->log.unread), "the kernel's log can't be read: %s", why);
}

/* Reads at most RECORDS_A_TURN records. Returns 0 when there are no more, 1 when there may be more, or -errno. */
static int read_some(Probes *p, bool *ret_news)
{
    KernelWatch *w = &p->kernel;
    PciAddress addresses[PROBE_SLOTS_MAX];
    const KernelScene scene = look_around(p, addresses);
    for (int i = 0; i < RECORDS_A_TURN; i++) {
        assert(w->n_carry < sizeof(w->carry)); /* take_lines() leaves room */
        ssize_t n = read(w->fd, w->carry + w->n_carry, sizeof(w->carry) - w->n_carry);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && (errno == EPIPE || errno == EINTR))
            continue; /* after EPIPE the next record's number tells how many records were lost */
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        w->n_carry += (size_t)n;
        *ret_news |= take_lines(w, &scene);
    }
    return 1;
}

static void on_rested(void *userdata)
{
    Probes *p = userdata;
    if (p->kernel.source)
        (void)sd_event_source_set_enabled(p->kernel.source, SD_EVENT_ON); /* cannot fail */
}

static int on_records(sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                      void *userdata)
{
    Probes *p = userdata;
    KernelWatch *w = &p->kernel;
    bool news = false;
    uint64_t lost = w->log.lost;
    const int noted = w->log.noted;
    int r = read_some(p, &news);
    if (r > 0) {
        (void)sd_event_source_set_enabled(source, SD_EVENT_OFF); /* cannot fail */
        timer_start(p->needs.timers, &w->rest, REST_MSEC * USEC_PER_MSEC, on_rested, p);
    }
    if (r < 0)
        give_up(p, strerror(-r));
    if (w->log.lost != lost)
        log_warning("%llu records of the kernel's log were lost NODE=%s",
                    (unsigned long long)(w->log.lost - lost), p->needs.config->node);
    if (w->log.noted != noted)
        log_info("the kernel's log says %s, which asks for nothing%s NODE=%s", w->log.note,
                 w->log.noted - noted > 1 ? ", and more like it" : "", p->needs.config->node);
    if (news || r < 0) {
        kernel_watch_weigh(p); /* informs the leader before the file is written */
        save(p);
    }
    return 0;
}

static int open_log(Probes *p)
{
    KernelWatch *w = &p->kernel;
    /* Tests use a FIFO as the kernel's log. It is opened for writing, too, so that a read never returns end of file. */
    struct stat st;
    int mode =
        stat(p->needs.config->kernel_log, &st) == 0 && S_ISFIFO(st.st_mode) ? O_RDWR : O_RDONLY;
    w->fd = open(p->needs.config->kernel_log, mode | O_NONBLOCK | O_CLOEXEC);
    if (w->fd < 0)
        return -errno;
    bool news = false;
    int r = 1;
    /* Reads the whole ring buffer. The limit of turns ends the loop if new records keep arriving. */
    for (int turn = 0; r > 0 && turn < 1024; turn++)
        r = read_some(p, &news);
    return r < 0 ? r : sd_event_add_io(p->needs.event, &w->source, w->fd, EPOLLIN, on_records, p);
}

void kernel_watch_start(Probes *p)
{
    load(p);
    p->kernel.log.is_needed = p->needs.config->gpus > 0;
    if (strcmp(p->needs.config->kernel_log, "off") == 0) {
        (void)snprintf(p->kernel.log.unread, sizeof(p->kernel.log.unread),
                       "the kernel's log is not read: kernel_log is off");
    } else {
        int r = open_log(p);
        if (r < 0)
            give_up(p, strerror(-r));
    }
    kernel_watch_weigh(p);
    save(p);
}

void kernel_watch_note_round(Probes *p)
{
    KernelWatch *w = &p->kernel;
    w->log.lost_is_news = false;
    kernel_watch_weigh(p);
    if (w->saved_seq != w->log.next_seq)
        save(p);
}

void kernel_watch_forget(Probes *p)
{
    kernel_log_forget(&p->kernel.log);
    kernel_watch_weigh(p);
    save(p);
}

void kernel_watch_clear(KernelWatch *watch)
{
    watch->source = sd_event_source_disable_unref(watch->source);
    timer_stop(&watch->rest);
    watch->fd = fd_close(watch->fd);
}
