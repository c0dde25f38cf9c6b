/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - which rank lives in which of this node's slots.
 *
 * A slot that still holds a process of an old world must take no new rank, even when that process survives
 * SIGKILL. So a rank keeps its slot until nothing of it lives (rank.h), and a slot whose rank cannot be
 * killed is lost until it ends after all.
 *
 * Ownership: the table owns its ranks from slots_put() until slots_take() or slots_end().
 * Units:     slots are counted from 0; a set of slots has bit i for slot i.
 * Errors:    none.
 * Threads:   loop thread only.
 * Invariant: of[i]->slot == i; a lost slot has a rank, and that rank says that it is lost.
 */
#pragma once

#include "daemon/world/job.h"

#include <sys/types.h>

enum { SLOT_GPU_MAX = 16 };

/* The GPU of each slot, by its PCI address ("0000:3b:00"): the first n slots have one each, the others "". */
typedef struct SlotGpus {
    char pci[RECORD_SLOTS_MAX][SLOT_GPU_MAX];
    int n;
} SlotGpus;

typedef struct SlotTable {
    Rank *of[RECORD_SLOTS_MAX]; /* the rank that has the slot; NULL: the slot is clear */
    uint64_t lost;              /* slots whose rank survives SIGKILL */
    /* The submission of the slot's rank, or of the last one there: a GPU's fault may come when its program is gone. */
    char submissions[RECORD_SLOTS_MAX][SUBMISSION_BYTES];
} SlotTable;

/* For each rank that has a slot, from slot 0 on: a Rank * that is declared before. */
#define SLOTS_FOREACH(slots, rank)                                                                 \
    for (size_t _slot = 0; _slot < RECORD_SLOTS_MAX; _slot++)                                      \
        if (!((rank) = (slots)->of[_slot])) {                                                      \
        } else

/* The slot of the rank must be clear. */
void slots_put(SlotTable *slots, Rank *rank);
/* Nothing of the rank lives any more: its slot is clear, and the caller owns the rank. */
void slots_take(SlotTable *slots, const Rank *rank);
/* The rank survives SIGKILL. */
void slots_lose(SlotTable *slots, Rank *rank);

/* The rank of local_rank in that world if its trainer is not reaped, or NULL. local_rank may be NULL. */
Rank *slots_rank_of(const LocalWorld *local, const LocalRank *local_rank);
/* The rank whose trainer is that process and is not reaped, or NULL. */
Rank *slots_rank_of_process(const SlotTable *slots, pid_t pid);
/* The slots that have a rank. */
uint64_t slots_busy(const SlotTable *slots);
/* Whether a rank lives there, but for lost ones. */
bool slots_have_living(const SlotTable *slots);

/* SIGKILL to every rank. */
void slots_kill_all(SlotTable *slots, const char *why);
/* The last resort when the loop does not run any more: SIGKILL to every rank, a wait of 2 s at most for each. The
 * ranks are freed; `lost` still says which slots were lost. */
void slots_end(SlotTable *slots);
