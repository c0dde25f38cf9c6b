/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - the table of this node's slots and the ranks in them.
 *
 * A slot that still holds a process of an old world must not get a new rank, even when that process survives
 * SIGKILL. So a rank keeps its slot until none of its processes lives (rank.h). A slot whose rank cannot be
 * killed is lost until that rank ends after all.
 *
 * Ownership: the table owns its ranks from slots_put() until slots_take() or slots_end().
 * Units:     slots are counted from 0; a set of slots has bit i for slot i.
 * Invariant: of[i]->slot == i; a lost slot has a rank, whose `lost` is set.
 */
#pragma once

#include "daemon/world/job.h"

#include <sys/types.h>

enum { SLOT_GPU_MAX = 16 };

/* The GPU of each slot, by its PCI address ("0000:3b:00"): the first n slots have one GPU each, other slots have "". */
typedef struct SlotGpus {
    char pci[RECORD_SLOTS_MAX][SLOT_GPU_MAX];
    int n;
} SlotGpus;

typedef struct SlotTable {
    Rank *of[RECORD_SLOTS_MAX]; /* the rank that has the slot; NULL: the slot is clear */
    uint64_t lost;              /* slots whose rank survives SIGKILL */
    /* The submission of the slot's rank, or of the last rank there: a GPU's fault may show after its program has
     * ended. */
    char submissions[RECORD_SLOTS_MAX][SUBMISSION_BYTES];
} SlotTable;

/* Loops over the ranks that have a slot, from slot 0 on; rank is a Rank * that is declared before. */
#define SLOTS_FOREACH(slots, rank)                                                                 \
    for (size_t _slot = 0; _slot < RECORD_SLOTS_MAX; _slot++)                                      \
        if (!((rank) = (slots)->of[_slot])) {                                                      \
        } else

/* Puts the rank into its slot, which must be clear. */
void slots_put(SlotTable *slots, Rank *rank);
/* Takes a rank of which no process lives out of its slot. The slot is clear then, and the caller owns the rank. */
void slots_take(SlotTable *slots, const Rank *rank);
/* Marks the slot as lost, because its rank survives SIGKILL. */
void slots_lose(SlotTable *slots, Rank *rank);

/* Returns the rank of local_rank in that world, or NULL if there is none or its trainer is reaped. local_rank may be
 * NULL. */
Rank *slots_rank_of(const LocalWorld *local, const LocalRank *local_rank);
/* Returns the rank whose trainer is that process and is not reaped, or NULL. */
Rank *slots_rank_of_process(const SlotTable *slots, pid_t pid);
/* Returns the set of slots that have a rank. */
uint64_t slots_busy(const SlotTable *slots);
/* Returns whether any slot that is not lost has a rank. */
bool slots_have_living(const SlotTable *slots);

/* Sends SIGKILL to every rank. */
void slots_kill_all(SlotTable *slots, const char *why);
/* The last resort when the loop does not run any more: sends SIGKILL to every rank, and waits at most 2 s for each.
 * Frees the ranks; `lost` still shows which slots were lost. */
void slots_end(SlotTable *slots);
