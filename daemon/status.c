/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - see status.h. A failure of sd_notify() is ignored: it means that systemd is not there to notify. */
#include "daemon/status.h"

#include "base/clock.h"
#include "daemon/node/drain.h"
#include "daemon/node/manager.h"
#include "daemon/world/rank.h"

#include <string.h>
#include <systemd/sd-daemon.h>

enum { STOP_MARGIN_SEC = 10 };

/* One form of the status line: complete, or without the figures, which change all the time. */
typedef struct Line {
    char text[STATUS_BYTES];
    size_t used;
    bool figures;
} Line;

static void append_text(Line *line, const char *format, ...) _printf_(2, 3);
static void append_text(Line *line, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line->text + line->used, sizeof(line->text) - line->used, format, ap);
    va_end(ap);
    line->used = MIN(line->used + (size_t)MAX(n, 0), sizeof(line->text) - 1);
}

static int seconds(uint64_t from_usec, uint64_t to_usec)
{
    return to_usec > from_usec ? (int)((to_usec - from_usec) / USEC_PER_SEC) : 0;
}

/* Returns the rank that is furthest behind; the line shows this rank for the local world. *ret_n: the number of live
 * ranks in the local world. */
static const Rank *slowest_rank(const Manager *m, const LocalWorld *local, int *ret_n)
{
    const Rank *slowest = NULL;
    *ret_n = 0;
    for (size_t i = 0; i < ELEMENTSOF(m->workload.slots.of); i++) {
        const Rank *rank = m->workload.slots.of[i];
        if (!rank || rank->local != local || rank->process.exited)
            continue;
        ++*ret_n;
        if (!slowest || rank->watchdog.step < slowest->watchdog.step)
            slowest = rank;
    }
    return slowest;
}

static void write_local_world(Line *line, const Manager *m, const LocalWorld *local)
{
    int n;
    const Rank *rank = slowest_rank(m, local, &n);
    append_text(line, "job %s, generation %lld, %d of %d ranks", local->job->name,
                (long long)local->generation, n, local->world_size);
    if (!rank)
        return;
    TrainStage stage = rank->watchdog.stage;
    bool trains = stage > STAGE_READY && stage != STAGE_SAVING && stage != STAGE_LEAVING;
    if (!trains)
        append_text(line, ", %s", train_stage_name(stage));
    if (line->figures && rank->watchdog.step >= 0)
        append_text(line, ", step %lld", (long long)rank->watchdog.step);
}

static void write_jobs(Line *line, const Manager *m)
{
    bool any = false;
    for (const LocalJob *job = m->workload.jobs; job; job = job->next) {
        if (!job->local || !local_world_is_live(job->local))
            continue;
        if (any)
            append_text(line, "; ");
        write_local_world(line, m, job->local);
        any = true;
    }
    if (!any)
        append_text(line, "idle, %lld slot%s", (long long)m->needs.config->slots,
                    m->needs.config->slots == 1 ? "" : "s");
    if (m->workload.slots.lost)
        append_text(line, "; %d lost", __builtin_popcountll(m->workload.slots.lost));
}

static void write_health(Line *line, const Manager *m)
{
    static const char *const word[] = {"healthy", "suspect", "unhealthy, to be drained",
                                       "unhealthy, to be isolated"};
    append_text(line, "; %s", word[m->node.verdict]);
    if (*m->node.evidence)
        append_text(line, " (%.200s)", m->node.evidence);
}

static void write_stranger(Line *line, const Manager *m)
{
    if (m->node.stranger_revision != 0)
        append_text(line, "; another writer puts nodes/%s, too", m->needs.config->node);
}

static void write_lease(Line *line, const Manager *m, uint64_t now_usec)
{
    int silent_sec = seconds(m->fence.contact_usec, now_usec);
    bool is_silent = now_usec > m->fence.contact_usec + workload_alive_usec(&m->workload) / 2;
    if (m->fence.fenced)
        append_text(line, "; etcd silent for more than fence_sec: nothing may run");
    else if (is_silent && line->figures)
        append_text(line, "; etcd silent for %d s, %s until %lld s", silent_sec,
                    workload_is_idle(&m->workload) ? "nothing to fence" : "training on",
                    (long long)m->needs.config->fence_sec);
    else if (is_silent)
        append_text(line, "; etcd silent");
    else if (etcd_lease_id(m->lease) == 0)
        append_text(line, "; without a lease");
    else if (line->figures)
        append_text(line, "; lease renewed %d s ago", silent_sec);
}

static void put_together(Line *line, const DaemonStatus *s, const Manager *m, uint64_t now_usec)
{
    const DaemonConfig *c = m->needs.config;
    append_text(line, "%s of cluster %s: ", c->node, c->cluster);
    if (m->node.yields) {
        append_text(line, "waits, nodes/%s is held under another one's lease", c->node);
        return;
    }
    if (!m->node.registered) {
        append_text(line,
                    m->node.refused ? "not registered: refused by %s"
                                    : "not registered yet, asking %s",
                    c->etcd.endpoints);
        if (line->figures)
            append_text(line, " for %d s", seconds(s->started_usec, now_usec));
        return;
    }
    if (m->draining)
        append_text(line, "draining, ");
    if (m->draining && line->figures)
        append_text(line, "at most %d s more; ",
                    seconds(now_usec, m->drain_usec + (uint64_t)c->drain_sec * USEC_PER_SEC));
    write_jobs(line, m);
    write_health(line, m);
    write_stranger(line, m);
    write_lease(line, m, now_usec);
}

void status_update(DaemonStatus *s, const Manager *m, uint64_t now_usec)
{
    Line state = {.figures = false}, whole = {.figures = true};
    put_together(&state, s, m, now_usec);
    if (strcmp(state.text, s->state) == 0 && now_usec - s->said_usec < STATUS_SEC * USEC_PER_SEC)
        return;
    memcpy(s->state, state.text, sizeof(s->state));
    s->said_usec = now_usec;

    put_together(&whole, s, m, now_usec);
    for (char *c = whole.text; *c; c++)
        *c = *c == '\n' ? ' ' : *c; /* in a message to systemd each line is one assignment */
    (void)sd_notifyf(0, "STATUS=%s", whole.text);
}

void status_ready(const Manager *m)
{
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s of cluster %s: registered", m->needs.config->node,
                     m->needs.config->cluster);
}

/* Before the first READY=1 the unit is still starting, and a reload must not end the start. */
void status_reloading(const Manager *m)
{
    if (m->node.registered)
        (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
                         (unsigned long long)clock_monotonic_usec());
}

void status_reloaded(const Manager *m)
{
    if (m->node.registered)
        (void)sd_notify(0, "READY=1");
}

void status_stopping(const Manager *m)
{
    long long sec = m->needs.config->drain_sec + DRAIN_LAST_WORDS_SEC + STOP_MARGIN_SEC;
    (void)sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld", sec * 1000000);
}
