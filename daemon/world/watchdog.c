/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c - see watchdog.h. */
#include "daemon/world/watchdog.h"

#include <string.h>

#define WAIT_MARGIN_USEC USEC_PER_SEC /* a waiting rank's bound is at least floor_usec plus this */

void watchdog_start(Watchdog *w, uint64_t known_usec, uint64_t now_usec)
{
    *w =
        (Watchdog){.step = -1, .done_step = -1, .changed_usec = now_usec, .known_usec = known_usec};
}

uint64_t watchdog_first_usec(const Watchdog *w)
{
    return w->n_took >= WATCHDOG_STEPS_MIN ? w->first_usec : 0;
}

static void note_duration(Watchdog *w, int64_t n_steps, uint64_t now_usec)
{
    if (w->step_usec > 0 && n_steps > 0) {
        uint64_t took_usec = (now_usec - w->step_usec) / (uint64_t)(w->by_reports ? 1 : n_steps);
        if (w->n_took < WATCHDOG_STEPS_MIN)
            w->first_usec = MAX(w->first_usec, took_usec);
        w->took_usec[w->n_took++ % WATCHDOG_WINDOW] = took_usec;
    }
    w->step_usec = now_usec;
}

void watchdog_note_stage(Watchdog *w, int64_t step, TrainStage stage, uint64_t now_usec)
{
    if (step == w->step && stage == w->stage)
        return;
    if (step != w->step && stage > STAGE_JOINING && w->done_step < 0)
        note_duration(w, step - w->step, now_usec);
    w->step = step;
    w->stage = stage;
    w->changed_usec = now_usec;
}

void watchdog_note_wait(Watchdog *w, uint64_t waited_usec, uint64_t now_usec)
{
    if (waited_usec > w->waited_usec)
        w->changed_usec = now_usec;
    w->waited_usec = waited_usec;
}

void watchdog_note_step(Watchdog *w, int64_t step, uint64_t now_usec)
{
    if (step == w->done_step)
        return;
    /* From the first finished step on, steps are timed by finished steps and no longer by stages. */
    note_duration(w, w->done_step < 0 ? 0 : step - w->done_step, now_usec);
    w->done_step = step;
    w->changed_usec = now_usec;
}

static uint64_t median_usec(const Watchdog *w)
{
    uint64_t sorted[WATCHDOG_WINDOW];
    size_t n = MIN(w->n_took, (size_t)WATCHDOG_WINDOW);
    assert(n > 0);
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > w->took_usec[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = w->took_usec[i];
    }
    return sorted[n / 2];
}

uint64_t watchdog_bound_usec(const Watchdog *w, const WatchdogLimits *limits)
{
    switch (w->stage) {
    case STAGE_STARTING:
    case STAGE_RESTORING:
    case STAGE_JOINING:
        return limits->startup_usec;
    case STAGE_READY:
    case STAGE_RUNNING: /* a program that names no stage may do anything for any time */
        return USEC_INFINITY;
    case STAGE_SAVING:
    case STAGE_LEAVING:
        return limits->save_usec;
    default:
        break;
    }
    bool settled = w->n_took >= WATCHDOG_STEPS_MIN;
    uint64_t usual_usec = settled ? median_usec(w) : MAX(w->first_usec, w->known_usec);
    if (!settled && usual_usec == 0)
        return limits->startup_usec;

    uint64_t derived = (uint64_t)(limits->factor * (double)usual_usec);
    bool waits = w->stage == STAGE_REDUCING || w->stage == STAGE_GATHERING;
    uint64_t bound = waits ? MAX(2 * derived, limits->floor_usec + WAIT_MARGIN_USEC)
                           : MAX(derived, limits->floor_usec);
    return settled ? bound : MIN(bound, limits->startup_usec);
}

bool watchdog_is_hung(const Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec)
{
    uint64_t bound = watchdog_bound_usec(w, limits);
    return bound != USEC_INFINITY && now_usec > w->changed_usec &&
           now_usec - w->changed_usec > bound;
}

bool watchdog_finds_standstill(Watchdog *w, const WatchdogLimits *limits, uint64_t now_usec)
{
    if (watchdog_bound_usec(w, limits) == USEC_INFINITY || w->stood_usec == w->changed_usec ||
        now_usec < w->changed_usec)
        return false;
    Watchdog computes = *w;
    computes.stage = STAGE_COMPUTING;
    if (now_usec - w->changed_usec <= watchdog_bound_usec(&computes, limits) / 2)
        return false;
    w->stood_usec = w->changed_usec;
    return true;
}

void watchdog_forgive(Watchdog *w, uint64_t usec)
{
    w->stood_usec += w->stood_usec == w->changed_usec ? usec : 0; /* the same standstill */
    w->changed_usec += usec;
    if (w->step_usec > 0)
        w->step_usec += usec;
}
