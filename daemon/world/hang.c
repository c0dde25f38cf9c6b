/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - see hang.h. */
#include "daemon/world/hang.h"

#include "base/log.h"
#include "base/message-id.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

static bool is_watched(const Rank *rank)
{
    return rank->local && !rank->local->over && !rank->process.exited && !rank->killing &&
           !rank->hangs;
}

static bool is_behind(const Watchdog *a, const Watchdog *b)
{
    return a->step < b->step || (a->step == b->step && a->stage < b->stage);
}

/* A program's rank that names no step or no stage is compared with nobody: it would pass for one that is behind, for
 * ever. */
static bool is_comparable(const Rank *rank)
{
    return !rank->local->is_program || (rank->watchdog.stage != STAGE_RUNNING &&
                                        rank->watchdog.step > rank->local->resume.step);
}

static bool waits_for_another(const Workload *w, const Rank *rank)
{
    const Rank *other;
    SLOTS_FOREACH (&w->slots, other)
        if (is_watched(other) && other->local == rank->local &&
            other->watchdog.stage != STAGE_READY && is_comparable(other) &&
            is_behind(&other->watchdog, &rank->watchdog))
            return true;
    return false; /* `other` was also `rank`, which is not behind itself */
}

static void declare_hung(Rank *rank, uint64_t now_usec)
{
    assert(is_watched(rank));
    LocalWorld *local = rank->local;
    LocalRank *local_rank = local_world_rank_of(local, rank);
    assert(local_rank);
    RankReport *report = &local_rank->report;
    report->hung = true;
    report->step = MAX(report->step, rank->watchdog.step);
    report->stage = (int)rank->watchdog.stage;
    report->unnamed = false; /* a rank that names no stage is not watched */
    log_event(LOG_LEVEL_WARNING, MESSAGE_RANK_HANGS,
              "hangs at step %lld in %s for %.1f s JOB=%s GENERATION=%lld RANK=%d",
              (long long)report->step, train_stage_name(rank->watchdog.stage),
              (double)(now_usec - rank->watchdog.changed_usec) / 1e6, rank->job,
              (long long)rank->generation, rank->rank);
    local_world_report(local);
    rank_end_hung(rank, "no progress since step %lld, %s", (long long)report->step,
                  train_stage_name(rank->watchdog.stage));
}

/* Reports where a program's rank stands, so that the leader knows which ranks wait when one of another node hangs. */
static void report_standstill(Rank *rank, const WatchdogLimits *limits, uint64_t now_usec)
{
    if (rank->local->is_program && watchdog_finds_standstill(&rank->watchdog, limits, now_usec))
        local_world_report(rank->local);
}

void hang_check(Workload *w, uint64_t now_usec, uint64_t stood_still_usec)
{
    const DaemonConfig *c = w->needs.config;
    const WatchdogLimits limits = {.floor_usec = (uint64_t)(c->hang_floor_sec * 1e6),
                                   .startup_usec = (uint64_t)(c->startup_sec * 1e6),
                                   .save_usec = (uint64_t)(c->save_sec * 1e6),
                                   .factor = c->hang_factor};
    uint64_t hung = 0; /* slots whose rank hangs; bit i is slot i */
    Rank *rank;
    SLOTS_FOREACH (&w->slots, rank) {
        if (!is_watched(rank))
            continue;
        if (stood_still_usec > 0)
            watchdog_forgive(&rank->watchdog, stood_still_usec);
        else if (watchdog_is_hung(&rank->watchdog, &limits, now_usec) &&
                 !waits_for_another(w, rank))
            hung |= UINT64_C(1) << rank->slot;
        report_standstill(rank, &limits, now_usec);
    }
    SLOTS_FOREACH (&w->slots, rank)
        if (hung >> rank->slot & 1)
            declare_hung(rank, now_usec);
}
