/* SPDX-License-Identifier: Apache-2.0 */
/* workload.c - see workload.h. */
#include "daemon/world/workload.h"

#include "base/log.h"
#include "base/message-id.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"

#include <signal.h>

void workload_init(Workload *w, const WorkloadNeeds *needs, const WorkloadEvents *events)
{
    *w = (Workload){.needs = *needs, .events = *events};
}

void workload_clear(Workload *w)
{
    slots_end(&w->slots);
    while (w->jobs) {
        LocalJob *next = w->jobs->next;
        (void)local_job_free(w->jobs); /* always returns NULL */
        w->jobs = next;
        w->n_jobs--;
    }
    assert(w->n_jobs == 0);
}

/* Checks the list of jobs: it has as many jobs as are counted, and no job's present world is over. */
static void check_jobs(const Workload *w)
{
    size_t n = 0;
    for (const LocalJob *job = w->jobs; job; job = job->next) {
        n++;
        assert(job->workload == w && n <= w->n_jobs);
        assert(!job->local || (job->local->job == job && !job->local->over));
    }
    assert(n == w->n_jobs);
}

void workload_advance(Workload *w)
{
    check_jobs(w);
    for (LocalJob *job = w->jobs, *next; job; job = next) {
        next = job->next;
        job_advance(job);
    }
    w->events.may_be_idle(w->events.userdata);
}

void workload_end_late(Workload *w, uint64_t now_usec)
{
    for (LocalJob *job = w->jobs, *next; job; job = next) {
        next = job->next;
        if (job->ends_usec && now_usec >= job->ends_usec && job->local &&
            local_world_is_live(job->local)) /* skips jobs that are over */
            job_advance(job);
    }
}

uint64_t workload_alive_usec(const Workload *w)
{
    int64_t ttl_sec = etcd_lease_ttl_sec(w->needs.lease);
    return (uint64_t)(ttl_sec > 0 ? ttl_sec : w->needs.config->lease_sec) * USEC_PER_SEC;
}

void workload_send_alive(Workload *w)
{
    uint64_t alive_usec = workload_alive_usec(w);
    for (size_t i = 0; i < ELEMENTSOF(w->slots.of); i++)
        if (w->slots.of[i])
            rank_send_alive(w->slots.of[i], alive_usec);
}

void workload_kill_all(Workload *w, const char *why)
{
    for (LocalJob *job = w->jobs; job; job = job->next)
        if (job->local)
            local_world_kill(job->local, why);
    slots_kill_all(&w->slots, why);
}

bool workload_is_idle(const Workload *w)
{
    return !slots_have_living(&w->slots) && !workload_running(w);
}

bool workload_is_reported(const Workload *w)
{
    for (const LocalJob *job = w->jobs; job; job = job->next) {
        if (job->local && (job->local->report.wanted || job->local->report.call))
            return false;
        for (const LocalWorld *t = job->over; t; t = t->next)
            if (t->report.wanted || t->report.call)
                return false;
    }
    return true;
}

const LocalWorld *workload_running(const Workload *w)
{
    for (const LocalJob *job = w->jobs; job; job = job->next)
        if (job->local && local_world_is_live(job->local))
            return job->local;
    return NULL;
}

bool workload_has_old_ranks(const Workload *w)
{
    for (size_t i = 0; i < ELEMENTSOF(w->slots.of); i++) {
        const Rank *rank = w->slots.of[i];
        if (rank && !rank->lost && (!rank->local || rank->local->over))
            return true;
    }
    return false;
}

void workload_collect(Workload *w)
{
    Rank *rank;
    bool any = false;
    SLOTS_FOREACH (&w->slots, rank) {
        if (!rank->clear)
            continue;
        if (rank->lost)
            log_info("slot %d is clear again NODE=%s", rank->slot, w->needs.config->node);
        slots_take(&w->slots, rank);
        rank_retire(rank);
        any = true;
    }
    if (any)
        workload_advance(w);
}

void workload_slot_lost(Workload *w, Rank *rank)
{
    log_event(LOG_LEVEL_ERROR, MESSAGE_SLOT_LOST,
              "slot %d is lost: process %d survives SIGKILL JOB=%s GENERATION=%lld RANK=%d",
              rank->slot, (int)rank->process.pid, rank->job, (long long)rank->generation,
              rank->rank);
    slots_lose(&w->slots, rank);
    workload_advance(w);
}

void workload_note_node_written(Workload *w)
{
    bool changed = false;
    for (size_t i = 0; i < ELEMENTSOF(w->slots.of); i++) {
        Rank *rank = w->slots.of[i];
        LocalRank *local_rank =
            rank && rank->lost && rank->local ? local_world_rank_of(rank->local, rank) : NULL;
        if (!local_rank || local_rank->report.state == RANK_EXITED)
            continue;
        ExitVerdict verdict = {.code = -SIGKILL, .text = "it survives SIGKILL; the slot is lost"};
        local_world_note_exit(rank->local, rank, &verdict);
        changed = true;
    }
    if (changed)
        workload_advance(w); /* only now the worlds of these ranks count as dead */
}

void workload_note_lease_lost(Workload *w)
{
    for (LocalJob *job = w->jobs; job; job = job->next) {
        if (job->local)
            record_writer_note(&job->local->report, 0);
        for (LocalWorld *t = job->over; t; t = t->next)
            record_writer_note(&t->report, 0);
    }
}

void workload_note_lease(Workload *w)
{
    for (LocalJob *job = w->jobs; job; job = job->next) {
        if (job->local)
            local_world_report(job->local);
        for (LocalWorld *t = job->over; t; t = t->next)
            if (t->killed_usec)
                local_world_report(t);
    }
}
