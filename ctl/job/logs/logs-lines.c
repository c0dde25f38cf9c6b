/* SPDX-License-Identifier: Apache-2.0 */
/* logs-lines.c - see logs-lines.h. */
#include "ctl/job/logs/logs-lines.h"

#include "base/memory.h"
#include "base/text/printable.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_BYTES = 16384 };

static void put_line(const LogLines *lines, RankLines *f)
{
    /* A trainer's libraries may print control characters. */
    printable_make_bytes(f->line, f->n_line);
    if (lines->prefixed)
        printf("rank %-3d ", f->rank);
    printf("%.*s\n", (int)f->n_line, f->line);
    f->n_line = 0;
}

static void take(const LogLines *lines, RankLines *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            put_line(lines, f);
        else
            f->line[f->n_line++] = text[i];
        if (f->n_line == LOG_LINES_LINE_BYTES)
            put_line(lines, f);
    }
}

void log_lines_clear(LogLines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        if (lines->of[i]->n_line > 0)
            put_line(lines, lines->of[i]);
        (void)fd_close(lines->of[i]->fd);
        free(lines->of[i]);
    }
    lines->n = 0;
}

RankLines *log_lines_add(LogLines *lines, int rank, const char *path)
{
    if (lines->n == LOG_LINES_RANKS_MAX)
        return NULL;
    RankLines *f = memory_new(RankLines);
    f->rank = rank;
    f->fd = -EBADF;
    (void)snprintf(f->path, sizeof(f->path), "%s", path);
    return lines->of[lines->n++] = f;
}

void log_lines_take(LogLines *lines, int rank, const char *text, size_t n)
{
    RankLines *f = NULL;
    for (size_t i = 0; !f && i < lines->n; i++)
        f = lines->of[i]->rank == rank ? lines->of[i] : NULL;
    if (!f)
        f = log_lines_add(lines, rank, "");
    if (f)
        take(lines, f, text, n);
    (void)fflush(stdout); /* if the pipe's reader has exited, SIGPIPE ends sdctl */
}

/* ---- files ---- */

static void read_rest(const LogLines *lines, RankLines *f)
{
    char text[READ_BYTES];
    for (ssize_t n; f->fd >= 0 && (n = read(f->fd, text, sizeof(text))) > 0;)
        take(lines, f, text, (size_t)n);
}

/* Shows the new part of a file, even if the file was renamed to .1 meanwhile and a new file was begun. */
static void advance(const LogLines *lines, RankLines *f)
{
    struct stat there, here;
    read_rest(lines, f);
    if (!*f->path || stat(f->path, &there) < 0)
        return; /* the file does not exist yet, or was removed */
    if (f->fd >= 0 && fstat(f->fd, &here) == 0 && here.st_ino == there.st_ino)
        return;
    read_rest(lines, f);
    f->fd = fd_close(f->fd);
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    read_rest(lines, f);
}

void log_lines_show(LogLines *lines, bool last)
{
    for (size_t i = 0; i < lines->n; i++) {
        advance(lines, lines->of[i]);
        if (last && lines->of[i]->n_line > 0)
            put_line(lines, lines->of[i]);
    }
    (void)fflush(stdout); /* if the pipe's reader has exited, SIGPIPE ends sdctl */
}

void log_lines_show_old(LogLines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        char path[sizeof(lines->of[i]->path) + 2];
        if (!*lines->of[i]->path)
            continue;
        (void)snprintf(path, sizeof(path), "%s.1", lines->of[i]->path);
        lines->of[i]->fd = open(path, O_RDONLY | O_CLOEXEC);
        read_rest(lines, lines->of[i]);
    }
}
