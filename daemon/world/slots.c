/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c - see slots.h. */
#include "daemon/world/slots.h"

#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

#include <string.h>

static uint64_t bit_of(const Rank *rank) { return UINT64_C(1) << rank->slot; }

static void check(const SlotTable *slots, const Rank *rank)
{
    assert(rank->slot >= 0 && rank->slot < RECORD_SLOTS_MAX);
    assert(slots->of[rank->slot] == rank);
    assert(((slots->lost & bit_of(rank)) != 0) == rank->lost);
}

void slots_put(SlotTable *slots, Rank *rank)
{
    assert(!slots->of[rank->slot]);
    assert(!rank->process.exited && !rank->killing && rank->local);
    slots->of[rank->slot] = rank;
    memcpy(slots->submissions[rank->slot], rank->local->submission, SUBMISSION_BYTES);
    check(slots, rank);
}

void slots_take(SlotTable *slots, const Rank *rank)
{
    check(slots, rank);
    assert(rank->process.exited);
    slots->lost &= ~bit_of(rank);
    slots->of[rank->slot] = NULL;
}

void slots_lose(SlotTable *slots, Rank *rank)
{
    check(slots, rank);
    assert(rank->killing || rank->process.exited);
    rank->lost = true;
    slots->lost |= bit_of(rank);
}

Rank *slots_rank_of(const LocalWorld *local, const LocalRank *local_rank)
{
    const SlotTable *slots = &local->job->workload->slots;
    Rank *rank = local_rank ? slots->of[local_rank->slot] : NULL;
    if (!rank || rank->local != local || rank->process.exited)
        return NULL;
    check(slots, rank);
    assert(rank->generation == local->generation);
    assert(rank->rank == local_rank->report.rank);
    return rank;
}

Rank *slots_rank_of_process(const SlotTable *slots, pid_t pid)
{
    Rank *rank;
    SLOTS_FOREACH (slots, rank)
        if (!rank->process.exited && rank->process.pid == pid)
            return rank;
    return NULL;
}

uint64_t slots_busy(const SlotTable *slots)
{
    uint64_t busy = 0;
    const Rank *rank;
    SLOTS_FOREACH (slots, rank)
        busy |= bit_of(rank);
    assert((slots->lost & ~busy) == 0);
    return busy;
}

bool slots_have_living(const SlotTable *slots) { return (slots_busy(slots) & ~slots->lost) != 0; }

void slots_kill_all(SlotTable *slots, const char *why)
{
    Rank *rank;
    SLOTS_FOREACH (slots, rank)
        rank_kill(rank, "%s", why);
}

void slots_end(SlotTable *slots)
{
    slots_kill_all(slots, "sdtraind ends");
    Rank *rank;
    SLOTS_FOREACH (slots, rank) {
        if (!rank->lost)
            rank_await_exit(rank); /* the keeper ends what is left */
        slots->of[rank->slot] = NULL;
        (void)rank_free(rank); /* always returns NULL */
    }
}
