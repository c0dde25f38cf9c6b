/* SPDX-License-Identifier: Apache-2.0 */
/* logs.c - see logs.h. */
#include "daemon/process/logs.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_BYTES = 16 * 1024, DRAIN_ROUNDS = 64 };

struct RankLog {
    char path[700];
    /* The folder and the job whose old logs are removed when the disk is full. */
    char log_dir[512], job[64];
    int pipe, file;
    sd_event_source *source;
    int64_t max_bytes, written;
    bool failed; /* a write failed once, and a warning was logged */
    char line[RANK_LOG_LINE_MAX + 1], last[RANK_LOG_LINE_MAX + 1];
    size_t n_line;
};

static void note_line(RankLog *log, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n') {
            if (log->n_line < RANK_LOG_LINE_MAX)
                log->line[log->n_line++] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
            continue;
        }
        if (log->n_line > 0) {
            log->line[log->n_line] = '\0';
            memcpy(log->last, log->line, log->n_line + 1);
        }
        log->n_line = 0;
    }
    assert(log->n_line <= RANK_LOG_LINE_MAX);
    log->line[log->n_line] = '\0';
}

static int open_file(RankLog *log)
{
    log->file = fd_close(log->file);
    log->file = open(log->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    log->written = 0;
    return log->file < 0 ? -errno : 0;
}

/* Writes the text to the file, and moves *text and *n on by the bytes that were written. */
static int write_on(RankLog *log, const char **text, size_t *n)
{
    while (*n > 0 && log->file >= 0) {
        ssize_t done = write(log->file, *text, *n);
        if (done < 0 && errno != EINTR)
            return -errno;
        *text += MAX(done, 0);
        *n -= (size_t)MAX(done, 0);
    }
    return 0;
}

static void write_file(RankLog *log, const char *text, size_t n)
{
    int r = 0;
    assert(log->max_bytes > 0 && log->written >= 0);
    if (log->written + (int64_t)n > log->max_bytes / 2) {
        char old[sizeof(log->path) + 4];
        (void)snprintf(old, sizeof(old), "%s.1", log->path);
        r = rename(log->path, old) < 0 ? -errno : open_file(log);
    }
    log->written += (int64_t)n;
    if (r == 0)
        r = write_on(log, &text, &n);
    if ((r == -ENOSPC || r == -EDQUOT) && !log->failed) { /* removing older logs may make room */
        rank_log_prune(log->log_dir, log->job);
        r = write_on(log, &text, &n);
    }
    if (r < 0 && !log->failed)
        log_warning("%s: %s; lines of this rank are lost", log->path, strerror(-r));
    log->failed = log->failed || r < 0;
}

/* Reads once from the pipe. Returns false when nothing more can be read. */
static bool take(RankLog *log)
{
    char text[READ_BYTES];
    ssize_t n = read(log->pipe, text, sizeof(text));
    if (n <= 0)
        return false;
    note_line(log, text, (size_t)n);
    write_file(log, text, (size_t)n);
    return true;
}

static int on_readable(sd_event_source *source, _unused_ int fd, uint32_t revents, void *userdata)
{
    RankLog *log = userdata;
    if (!take(log) && (revents & (EPOLLHUP | EPOLLERR)))
        return sd_event_source_set_enabled(source, SD_EVENT_OFF);
    return 0;
}

void rank_log_drain(RankLog *log)
{
    for (int i = 0; i < DRAIN_ROUNDS && take(log); i++)
        ;
}

const char *rank_log_last_line(const RankLog *log)
{
    return log->n_line > 0 ? log->line : log->last;
}

int rank_log_new(sd_event *event, const char *log_dir, const char *job, int64_t generation,
                 int rank, int64_t max_bytes, int *ret_write_fd, RankLog **ret, Error *err)
{
    _cleanup_(rank_log_freep) RankLog *log = memory_new(RankLog);
    *log = (RankLog){.pipe = -EBADF, .file = -EBADF, .max_bytes = max_bytes};
    (void)snprintf(log->log_dir, sizeof(log->log_dir), "%s", log_dir);
    (void)snprintf(log->job, sizeof(log->job), "%s", job);

    char folder[640];
    (void)snprintf(folder, sizeof(folder), "%s/%s/g%lld", log_dir, job, (long long)generation);
    (void)snprintf(log->path, sizeof(log->path), "%s/rank%d.log", folder, rank);
    int r = folder_make(folder, err);
    if (r == 0)
        r = open_file(log);
    if (r < 0) { /* a full or read-only disk must not keep ranks from starting */
        log_warning("%s: %s; lines of this rank are lost", log->path, strerror(-r));
        log->failed = true;
    }

    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_errno(err, -errno, "cannot make a pipe for a log");
    log->pipe = fds[0];
    _cleanup_fd_ int write_end = fds[1];
    if (fcntl(log->pipe, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot prepare a pipe for a log");
    r = sd_event_add_io(event, &log->source, log->pipe, EPOLLIN, on_readable, log);
    if (r >= 0)
        r = sd_event_source_set_priority(log->source, SD_EVENT_PRIORITY_IDLE);
    if (r < 0)
        return error_errno(err, r, "cannot watch the pipe of a log");

    *ret_write_fd = TAKE_FD(write_end);
    *ret = TAKE_PTR(log);
    return 0;
}

RankLog *rank_log_free(RankLog *log)
{
    if (!log)
        return NULL;
    (void)sd_event_source_disable_unref(log->source); /* returns NULL always */
    log->pipe = fd_close(log->pipe);
    log->file = fd_close(log->file);
    free(log);
    return NULL;
}

/* Sorts the newest generation first. */
static int compare_logs(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x < y) - (x > y);
}

void rank_log_prune(const char *log_dir, const char *job)
{
    enum { LOOK_AT = 256 };
    char path[640];
    (void)snprintf(path, sizeof(path), "%s/%s", log_dir, job);
    _cleanup_dir_ DIR *folder = opendir(path);
    if (!folder)
        return;

    long long generations[LOOK_AT];
    size_t n = 0;
    struct dirent *entry;
    while (n < LOOK_AT && (entry = readdir(folder)))
        if (sscanf(entry->d_name, "g%lld", &generations[n]) == 1)
            n++;

    qsort(generations, n, sizeof(generations[0]), compare_logs);
    while (n > RANK_LOG_GENERATIONS_KEPT) {
        char old[700];
        (void)snprintf(old, sizeof(old), "%s/g%lld", path, generations[--n]);
        Error err = ERROR_INIT;
        if (folder_remove(old, &err) < 0)
            log_warning("%s", err.text);
    }
}
