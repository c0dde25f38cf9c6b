/* SPDX-License-Identifier: Apache-2.0 */
/* standstill.c - see standstill.h. */
#include "daemon/process/standstill.h"

#include "base/file.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/text/printable.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Sight {
    char name[64], state;
    int session, threads;
    unsigned long long user_ticks, kernel_ticks;
} Sight;

static bool look_at(pid_t pid, Sight *ret)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (file_read_line(path, text, sizeof(text)) < 0)
        return false;
    const char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (!name || !end || end < name ||
        sscanf(end + 1, " %c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %d",
               &ret->state, &ret->session, &ret->user_ticks, &ret->kernel_ticks,
               &ret->threads) != 5)
        return false;
    (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(end - name - 1), name + 1);
    printable_make(ret->name);
    return true;
}

char standstill_state(pid_t pid)
{
    Sight sight;
    return pid > 0 && look_at(pid, &sight) ? sight.state : '?';
}

static const char *state_words(char state)
{
    switch (state) {
    case 'R':
        return "runs";
    case 'S':
        return "sleeps";
    case 'D':
        return "waits for a driver or a disk";
    case 'T':
    case 't':
        return "is stopped";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        return "is in a state that is not known";
    }
}

static void describe(pid_t pid, const Sight *s, char ret[STANDSTILL_LINE])
{
    char path[64], place[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/wchan", (int)pid);
    (void)file_read_line(path, place, sizeof(place)); /* empty: another user's process */
    const bool has_place = *place && strcmp(place, "0") != 0;
    const double sec = (double)(s->user_ticks + s->kernel_ticks) / (double)sysconf(_SC_CLK_TCK);
    (void)snprintf(ret, STANDSTILL_LINE,
                   "process %d (%.20s) %s%s%s, %d thread%s, %.1f s of processor time", (int)pid,
                   s->name, state_words(s->state), has_place ? " in " : "", has_place ? place : "",
                   s->threads, s->threads == 1 ? "" : "s", sec);
}

size_t standstill_look(pid_t session, char (*lines)[STANDSTILL_LINE], size_t max)
{
    size_t n = 0;
    DIR *folder = opendir("/proc");
    for (const struct dirent *e; folder && n < max && (e = readdir(folder));) {
        Sight sight;
        const pid_t pid = isdigit((unsigned char)*e->d_name) ? (pid_t)atoi(e->d_name) : 0;
        if (pid > 0 && look_at(pid, &sight) && sight.session == session)
            describe(pid, &sight, lines[n++]);
    }
    if (folder)
        (void)closedir(folder);
    return n;
}

void standstill_log(pid_t session)
{
    char lines[STANDSTILL_LINES][STANDSTILL_LINE];
    const size_t n = standstill_look(session, lines, STANDSTILL_LINES);
    for (size_t i = 0; i < n; i++)
        log_info("%s", lines[i]);
    if (n == STANDSTILL_LINES)
        log_info("there may be more processes");
}
