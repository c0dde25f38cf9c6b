/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - see job.h. */
#include "daemon/world/job.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/probe.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

#include <string.h>

enum {
    JOBS_MAX = 4096,
    LAST_SEC = 2, /* time for a job's other ranks to exit when rank 0 is done */
};

/* ---- the list ---- */

LocalJob *job_find(Workload *w, const char *name)
{
    for (LocalJob *job = w->jobs; job; job = job->next)
        if (strcmp(job->name, name) == 0)
            return job;
    return NULL;
}

LocalJob *job_get(Workload *w, const char *name)
{
    LocalJob *job = job_find(w, name);
    assert(!job || job->workload == w);
    if (job)
        return job;

    if (w->n_jobs >= JOBS_MAX || strlen(name) > RECORD_JOB_MAX) {
        log_error("job %s is ignored: %zu jobs are known", name, w->n_jobs);
        return NULL;
    }
    job = memory_new(LocalJob);
    *job = (LocalJob){.workload = w, .next = w->jobs};
    (void)snprintf(job->name, sizeof(job->name), "%s", name);
    w->jobs = job;
    w->n_jobs++;
    return job;
}

LocalJob *local_job_free(LocalJob *job)
{
    if (!job)
        return NULL;
    assert(!job->local || job->local->job == job);
    (void)local_world_free(job->local); /* always returns NULL */
    while (job->over) {
        LocalWorld *next = job->over->next;
        (void)local_world_free(job->over); /* always returns NULL */
        job->over = next;
    }
    free(job);
    return NULL;
}

void job_forget_if_idle(LocalJob *job)
{
    if (job->world_revision != 0 || job->has_phase || job->rendezvous_generation != 0 ||
        job->local || job->over)
        return;
    Workload *w = job->workload;
    LocalJob **at = &w->jobs;
    while (*at && *at != job)
        at = &(*at)->next;
    assert(*at && w->n_jobs > 0);
    *at = job->next;
    w->n_jobs--;
    w->events.job_forgotten(w->events.userdata, job->name);
    (void)local_job_free(job); /* always returns NULL */
}

/* ---- events of the watches ---- */

static void settle_over(LocalJob *job);

static void end_local_world(LocalJob *job, const char *why)
{
    LocalWorld *local = job->local;
    if (local) {
        assert(local->job == job && !local->over);
        job->local = NULL;
        local->next = job->over;
        job->over = local;
        local_world_end(local, why);
    }
    assert(!job->local);
    for (LocalWorld *t = job->over; t; t = t->next)
        if (t->killed_usec)
            local_world_report(t); /* again, under the guard of the new revision */
}

void job_set_world(LocalJob *job, const WorldRecord *world, int64_t revision)
{
    Workload *w = job->workload;
    if (!world) {
        job->world_revision = 0;
        end_local_world(job, "the job was removed");
        /* The leader has read how these ranks ended, and needs no more reports. */
        local_worlds_forget_reported(job);
        settle_over(job);
        if (job->rendezvous_revision <= revision) /* the watch may show neither put nor deletion */
            job->rendezvous_generation = 0;
        job_forget_if_idle(job);
        return;
    }
    if (revision <= job->world_revision)
        return;

    char why[64];
    (void)snprintf(why, sizeof(why), "generation %lld replaces it", (long long)world->generation);
    job->world_revision = revision;
    if (strcmp(job->submission, world->submission) != 0) /* a new job: its step times are unknown */
        job->first_steps_usec = 0;
    memcpy(job->submission, world->submission, sizeof(job->submission));
    (void)fault("world.seen"); /* a test may end the daemon at this fault point and those below */
    end_local_world(job, why);

    PlannedRank local_ranks[RECORD_SLOTS_MAX];
    size_t n_local_ranks = 0;
    Error err = ERROR_INIT;
    int r = plan_ranks(world, w->needs.config->node, w->needs.incarnation,
                       (int)w->needs.config->slots, local_ranks, &n_local_ranks, &err);
    if (r < 0)
        log_error("%s; this node takes no part in the world JOB=%s", err.text, job->name);
    else if (n_local_ranks > 0)
        job->local = local_world_new(job, world, revision, local_ranks, n_local_ranks);
    PROBE(world, job->name, world->generation, world->size, n_local_ranks, r);
    if (job->local) {
        job->local->has_older = job->over;
        w->events.world_began(w->events.userdata, job->local);
    }
    if (job->local)
        log_info("world of %d ranks has %zu here JOB=%s GENERATION=%lld", world->size,
                 n_local_ranks, job->name, (long long)world->generation);
    job_advance(job);
}

/* Called for a world's record that cannot be decoded. Such a record is newer than the present world: the ranks of
 * the present world end, and are reported under the guard of the new revision. */
void job_lose_world(LocalJob *job, int64_t revision)
{
    if (revision <= job->world_revision)
        return;
    job->world_revision = revision;
    end_local_world(job, "worlds/<job> cannot be read");
    job_advance(job);
}

void job_set_phase(LocalJob *job, const PhaseRecord *phase)
{
    job->has_phase = phase != NULL;
    job->phase = phase ? *phase : (PhaseRecord){0};
    if (job->phase.phase != PHASE_SUCCEEDED)
        job->ends_usec = 0;
    else if (job->ends_usec == 0)
        job->ends_usec = clock_boottime_usec() + LAST_SEC * USEC_PER_SEC;
    if (phase)
        job_advance(job);
    else
        job_forget_if_idle(job);
}

/* Takes the newest change, not the highest generation: the generations of a job that was deleted and submitted again
 * begin at 1 again. */
void job_set_rendezvous(LocalJob *job, int64_t generation, int64_t revision,
                        const RendezvousRecord *record)
{
    if (revision < job->rendezvous_revision)
        return;
    if (record) {
        job->rendezvous_revision = revision;
        job->rendezvous_generation = generation;
        (void)snprintf(job->rendezvous, sizeof(job->rendezvous), "%s", record->address);
        job_advance(job);
    } else if (generation == job->rendezvous_generation) {
        job->rendezvous_revision = revision;
        job->rendezvous_generation = 0;
        job_forget_if_idle(job);
    }
}

/* Scales the known time of the first steps to this world size: fewer ranks have more grains each. */
uint64_t job_first_steps_usec(const LocalJob *job, int world_size)
{
    int share = (job->first_steps_size + world_size - 1) / world_size;
    return job->first_steps_usec * (uint64_t)MAX(share, 1);
}

/* ---- advancing a job ---- */

/* Returns whether the phase is of the world's submission. Each kind of record has its own watch, which may be behind
 * the others: after a job was deleted and submitted again, the phase of one submission may be known together with
 * the world of the other. Generations of two submissions cannot be compared. */
static bool phase_concerns(const LocalJob *job, const LocalWorld *local)
{
    return job->has_phase && strcmp(job->phase.submission, local->submission) == 0;
}

static bool phase_is_of(const LocalJob *job, const LocalWorld *local)
{
    return phase_concerns(job, local) && job->phase.generation == local->generation;
}

static void start_pending(LocalWorld *local)
{
    Workload *w = local->job->workload;
    bool changed = false;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        LocalRank *local_rank = &local->local_ranks[i];
        if (!local_rank->pending)
            continue;
        assert(local_rank->report.state == RANK_STARTING && local_rank->report.pid == 0);
        const Rank *occupant = w->slots.of[local_rank->slot];
        Error err = ERROR_INIT;
        assert(!occupant || (occupant->slot == local_rank->slot && occupant->local != local));
        if (occupant && !occupant->lost)
            continue; /* the occupant is being killed; its exit calls this function again */
        local_rank->pending = false;
        changed = true;
        int r = occupant
                    ? error_set(&err, -EBUSY, "slot %d holds process %d, which survives SIGKILL",
                                local_rank->slot, (int)occupant->process.pid)
                    : rank_start(local, local_rank, &err);
        if (r < 0)
            local_world_rank_failed(local, local_rank, err.text);
    }
    if (!changed)
        return;
    (void)fault("world.started");
    local_world_report(local); /* one write reports all ranks */
}

/* A checkpoint that is older than this world and may be removed when it begins has been under evaluation since before
 * `go`, and the watch of phases has shown that. */
static ChannelHeld held_of(const LocalWorld *local)
{
    ChannelHeld held = {0};
    for (const LocalJob *job = local->job->workload->jobs; job; job = job->next)
        if (job->has_phase)
            evaluation_add_held(&job->phase, local->submission, &held);
    return held;
}

static void send_go(LocalWorld *local)
{
    LocalJob *job = local->job;
    if (!job->phase.go || !phase_is_of(job, local))
        return;
    if (local->world_size > 1 && (job->rendezvous_generation != local->generation ||
                                  job->rendezvous_revision <= local->world_revision))
        return; /* the ranks need the rendezvous of this world to meet */
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        Rank *rank = slots_rank_of(local, &local->local_ranks[i]);
        if (!rank || !rank->is_ready || rank->has_gone)
            continue;
        ChannelMessage go = {.type = CHANNEL_GO,
                             .generation = local->generation,
                             .held = held_of(local)};
        (void)snprintf(go.address, sizeof(go.address), "%s", job->rendezvous);
        rank->has_gone = true;
        watchdog_note_stage(&rank->watchdog, rank->watchdog.step, STAGE_JOINING,
                            clock_boottime_usec()); /* from now on, no leader waits for this rank */
        (void)fault("go.before");
        rank_send(rank, &go);
        (void)fault("go.after");
    }
}

/* Trainers agree on the step at which they leave, so rank 0 alone is told. Each rank of a program is told. */
static void send_stop(LocalWorld *local)
{
    LocalJob *job = local->job;
    if (!job->phase.leave || !phase_is_of(job, local))
        return;
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        Rank *rank = slots_rank_of(local, &local->local_ranks[i]);
        if (!rank || !rank->has_gone || rank->was_stopped ||
            (rank->rank != 0 && !local->is_program))
            continue;
        ChannelMessage stop = {.type = CHANNEL_STOP, .generation = local->generation};
        rank->was_stopped = true;
        log_info("rank %d is told to save and leave: %s JOB=%s GENERATION=%lld", rank->rank,
                 job->phase.reason, job->name, (long long)local->generation);
        rank_send(rank, &stop);
    }
}

/* Returns whether the ranks of this world, and of the older worlds after it in the list, are dead. A rank in a lost
 * slot counts as dead once etcd knows of the slot. */
static bool is_dead_with_older(const LocalWorld *local)
{
    while (local && local_world_is_dead(local) && !local_world_is_live(local))
        local = local->next;
    return !local;
}

/* Returns whether an outdated report of this or an older world is under way, or has an unknown outcome. Such a
 * report may reach etcd late, and must not do so after the report that these ranks are dead. */
static bool reports_late(const LocalWorld *local)
{
    for (; local; local = local->next) {
        const RecordWriter *report = &local->report;
        if (report->unsure || (report->call && (report->wanted || !local->killed_usec)))
            return true;
    }
    return false;
}

/* Reports local worlds that are over once their ranks are dead, except for ranks in lost slots. The leader concludes
 * that all older ranks here are dead, too, so a world whose ranks never started waits for the ranks that hold its
 * slots. */
static void settle_over(LocalJob *job)
{
    for (LocalWorld *t = job->over; t; t = t->next) {
        assert(t->over && t->job == job && t != job->local);
        if (t->killed_usec || !is_dead_with_older(t) || reports_late(t->next))
            continue;
        (void)fault("world.dead");
        t->killed_usec = clock_realtime_usec();
        log_info("old ranks are dead JOB=%s GENERATION=%lld", job->name, (long long)t->generation);
        local_world_report(t);
    }
    if (job->local && job->local->has_older && !job->local->killed_usec &&
        is_dead_with_older(job->over) && !reports_late(job->over)) {
        job->local->killed_usec = clock_realtime_usec();
        local_world_report(job->local);
    }
}

/* The phases pending, stopped, succeeded and failed end the ranks of their generation, and so does a pause. */
static void end_by_phase(LocalJob *job)
{
    JobPhase phase = job->phase.phase;
    if (!job->local || !phase_concerns(job, job->local) ||
        job->phase.generation < job->local->generation ||
        (phase != PHASE_PENDING && phase != PHASE_STOPPED && phase != PHASE_SUCCEEDED &&
         phase != PHASE_FAILED && job->phase.pause_usec == 0))
        return;
    if (clock_boottime_usec() < job->ends_usec)
        return; /* the job has succeeded: its ranks get time to exit */
    char why[64];
    (void)snprintf(why, sizeof(why), "the job is %s",
                   job->phase.pause_usec ? "pausing" : job_phase_name(phase));
    local_world_kill(job->local, why);
}

void job_advance(LocalJob *job)
{
    assert(!job->local || (job->local->job == job && !job->local->over));
    assert(!job->local || job->local->world_revision == job->world_revision);
    end_by_phase(job);
    settle_over(job);
    if (job->local) {
        start_pending(job->local);
        local_world_assign(job->local);
        send_go(job->local);
        send_stop(job->local);
    }
    job->workload->events.node_changed(job->workload->events.userdata);
}
