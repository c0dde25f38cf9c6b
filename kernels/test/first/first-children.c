/* SPDX-License-Identifier: Apache-2.0 */
/* first-children.c - see first-children.h. */
#include "kernels/test/first/first-children.h"

#include "base/clock.h"
#include "base/memory.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
    BESIDE_MAX = 4,
    LINE_BYTES_MAX = 1 << 18,
    SAID_BYTES = 4096,    /* bytes that are kept of the end of a child's stderr */
    DEATH_USEC = 5 << 20, /* a process in a driver may take so long to end */
    TICK_MSEC = 50,
};

typedef struct Child {
    const FirstCase *of; /* NULL: the place is free */
    pid_t pid;
    int out, err;
    char line[LINE_BYTES_MAX + 1];
    size_t n_line;
    char said[SAID_BYTES + 1];
    size_t n_said;
    uint64_t began, deadline, killed; /* killed: 0, or the time of the kill */
} Child;

typedef struct Children {
    Child *all; /* an array of BESIDE_MAX places */
    uint64_t end;
    bool emulated, all_ended;
} Children;

/* ---- lines ---- */

static void print(json_t *object)
{
    char *text = memory_given(json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(4)));
    (void)printf("%s\n", text); /* a failure means that the reader has closed the pipe */
    (void)fflush(stdout);
    free(text);
    json_decref(object);
}

/* Prints a child's line. A line that is not an object of a case comes from a library and is quoted. */
static void pass_on(Child *c)
{
    c->line[c->n_line] = '\0';
    json_t *object = json_loads(c->line, JSON_REJECT_DUPLICATES, NULL);
    c->n_line = 0;
    if (!object || !json_object_get(object, "case")) {
        print(json_pack("{s:s,s:o}", "case", c->of->name, "printed", first_text(c->line)));
    } else {
        (void)printf("%s\n", c->line); /* a failure is ignored, as in print() */
        (void)fflush(stdout);
    }
    json_decref(object);
}

static void take_lines(Child *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || c->n_line == LINE_BYTES_MAX)
            pass_on(c);
        if (bytes[i] != '\n')
            c->line[c->n_line++] = bytes[i];
    }
}

static void take_said(Child *c, const char *bytes, size_t n)
{
    if (n >= SAID_BYTES) {
        bytes += n - SAID_BYTES;
        n = SAID_BYTES;
    }
    const size_t kept = MIN(c->n_said, SAID_BYTES - n);
    memmove(c->said, c->said + c->n_said - kept, kept);
    memcpy(c->said + kept, bytes, n);
    c->n_said = kept + n;
}

/* Reads the output that is in the pipes now. The pipes do not block. */
static void take_all(Child *c)
{
    char bytes[65536];
    for (int k = 0; k < 2; k++) {
        int *fd = k == 0 ? &c->out : &c->err;
        for (int i = 0; *fd >= 0 && i < 64; i++) {
            const ssize_t n = read(*fd, bytes, sizeof(bytes));
            if (n < 0)
                break;
            if (n == 0)
                *fd = fd_close(*fd);
            else
                (k == 0 ? take_lines : take_said)(c, bytes, (size_t)n);
        }
    }
}

/* ---- processes ---- */

static _noreturn_ void become(const FirstCase *of, int limit_sec, bool emulated, int out, int err)
{
    char limit[16];
    (void)snprintf(limit, sizeof(limit), "%d", limit_sec);
    const char *arguments[] = {"gpu-first", "--case", of->name,
                               "--limit",   limit,    emulated ? "--emulated" : NULL,
                               NULL};
    (void)setpgid(0, 0);                    /* so that the case's own children are killed with it */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* kill the case if this process dies */
    if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        (void)execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static int begin(Children *children, Child *c, const FirstCase *of)
{
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0) {
        int r = -errno;
        (void)fd_close(out[0]);
        (void)fd_close(out[1]);
        return r;
    }
    const uint64_t now = clock_boottime_usec();
    const uint64_t limit = (uint64_t)of->limit_sec * USEC_PER_SEC;
    c->deadline = MIN(now + limit, children->end);
    const int left_sec = (int)((c->deadline - now) / USEC_PER_SEC);
    c->pid = fork();
    if (c->pid == 0)
        become(of, MAX(left_sec, 1), children->emulated, out[1], err[1]);
    int r = c->pid < 0 ? -errno : 0;
    (void)fd_close(out[1]);
    (void)fd_close(err[1]);
    c->out = out[0];
    c->err = err[0];
    (void)fcntl(c->out, F_SETFL, O_NONBLOCK); /* cannot fail on a pipe */
    (void)fcntl(c->err, F_SETFL, O_NONBLOCK);
    c->n_line = c->n_said = 0;
    c->began = now;
    c->killed = 0;
    c->of = r < 0 ? NULL : of;
    return r;
}

/* Ends a case. status: from waitpid(); NULL: the process is still not dead, and the caller stops waiting for it. */
static void end(Children *children, Child *c, const int *status)
{
    (void)kill(-c->pid, SIGKILL); /* kills the processes that the case left behind */
    take_all(c);
    if (c->n_line > 0)
        pass_on(c); /* the case ended in the middle of its last line */
    c->said[c->n_said] = '\0';
    json_t *line = json_pack("{s:s,s:b}", "case", c->of->name, "done", 1);
    if (!status)
        json_object_set_new(line, "stuck", json_true());
    if (c->killed)
        json_object_set_new(line, "late", json_true());
    else if (status && WIFSIGNALED(*status))
        json_object_set_new(line, "signal", json_integer(WTERMSIG(*status)));
    else if (status)
        json_object_set_new(line, "exit", json_integer(WEXITSTATUS(*status)));
    json_object_set_new(line, "seconds",
                        first_number((double)(clock_boottime_usec() - c->began) * 1e-6));
    json_object_set_new(line, "stderr", first_text(c->said));
    print(line);
    if (!status || c->killed || !WIFEXITED(*status) || WEXITSTATUS(*status) > 1)
        children->all_ended = false;
    c->out = fd_close(c->out);
    c->err = fd_close(c->err);
    c->of = NULL;
}

static void watch(Children *children, Child *c)
{
    int status;
    take_all(c);
    const uint64_t now = clock_boottime_usec();
    if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
        end(children, c, &status);
    } else if (!c->killed && now >= c->deadline) {
        (void)kill(-c->pid, SIGKILL);
        (void)kill(c->pid, SIGKILL); /* the child may have no process group yet */
        c->killed = now;
    } else if (c->killed && now - c->killed > DEATH_USEC) {
        end(children, c, NULL);
    }
}

/* Waits until a child writes something, at most TICK_MSEC; the caller checks for ended children each time. */
static void wait_for_any(const Children *children)
{
    struct pollfd fds[2 * BESIDE_MAX];
    nfds_t n = 0;
    for (int i = 0; i < BESIDE_MAX; i++)
        if (children->all[i].of) {
            fds[n++] = (struct pollfd){.fd = children->all[i].out, .events = POLLIN};
            fds[n++] = (struct pollfd){.fd = children->all[i].err, .events = POLLIN};
        }
    (void)poll(fds, n, TICK_MSEC); /* the caller checks all children, whatever poll() returns */
}

/* ---- all cases ---- */

/* Returns a free place where the next case may run now, or NULL. */
static Child *place_for(const Children *children, const FirstCase *next)
{
    Child *place = NULL;
    for (int i = 0; i < BESIDE_MAX; i++) {
        Child *c = &children->all[i];
        if (!c->of)
            place = place ? place : c;
        else if (c->of->timed || next->timed)
            return NULL;
    }
    return place;
}

static bool is_running(const Children *children)
{
    for (int i = 0; i < BESIDE_MAX; i++)
        if (children->all[i].of)
            return true;
    return false;
}

int first_children_run(const FirstCase *const *cases, size_t n, int seconds, bool emulated)
{
    _cleanup_free_ Child *all = memory_zeroed(BESIDE_MAX, sizeof(*all));
    Children children = {.all = all, .emulated = emulated, .all_ended = true};
    children.end = clock_boottime_usec() + (uint64_t)seconds * USEC_PER_SEC;
    size_t next = 0;
    int r = 0;
    while (next < n || is_running(&children)) {
        Child *place;
        const bool over = clock_boottime_usec() + USEC_PER_SEC / 2 > children.end;
        while (next < n && !over && (place = place_for(&children, cases[next])) && r == 0)
            r = begin(&children, place, cases[next++]);
        if (!is_running(&children) && (over || r < 0))
            break;
        wait_for_any(&children);
        for (int i = 0; i < BESIDE_MAX; i++)
            if (all[i].of)
                watch(&children, &all[i]);
    }
    for (; next < n; next++) {
        print(json_pack("{s:s,s:s}", "case", cases[next]->name, "not_run", "the time was over"));
        children.all_ended = false;
    }
    return r < 0 ? r : children.all_ended ? 0 : -ECANCELED;
}
