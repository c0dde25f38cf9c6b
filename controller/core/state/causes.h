/* SPDX-License-Identifier: Apache-2.0 */
/* causes.h - what each cause of a failure costs: the only table of these facts.
 *
 * The core decides by this table, and tests/reference prints it into docs/concepts/failure-and-blame.md and
 * docs/reference/exit-codes.md. If more must be known of a cause, it becomes another column here.
 *
 * Units: none. Errors: none. Threads: any.
 * Ownership: everything is static.
 */
#pragma once

#include "controller/core/cluster.h"

typedef enum Cause {
    CAUSE_NONE,
    CAUSE_STORE_TROUBLE, /* ends no world: store-incident.c */
    CAUSE_DIVERGING,     /* ends no world, but maybe the job: divergence-incident.c */
    CAUSE_GROWTH_STUCK,  /* ends no world: growth-incident.c */
    CAUSE_RECORD_LOST,   /* ends no world: put-back.c */
    /* From here on, each cause explains more than the causes before it. */
    CAUSE_PEER_LOST,
    CAUSE_RANKS_LOST,
    CAUSE_WORLD_LOST, /* found by facts/lost.c */
    CAUSE_START_TIMEOUT,
    CAUSE_RETRY,
    CAUSE_STORE_UNREACHABLE,
    CAUSE_UNREACHABLE,
    CAUSE_JOB_DIES, /* a trainer died or hung in the same way as on another machine: strikes.c */
    CAUSE_TRAINER_DIED,
    CAUSE_HANG,
    CAUSE_SLOT_LOST,
    CAUSE_NODE_LEFT,
    CAUSE_NODE_RESTARTED,
    CAUSE_NODE_LOST,
    CAUSE_NODE_UNHEALTHY,
    CAUSE_DATA_CORRUPT,
    CAUSE_CHECKPOINT_CORRUPT,
    CAUSE_NON_FINITE,
    CAUSE_BAD_JOB,
    CAUSE_NOT_OWNER, /* another job has taken the checkpoint folder over */
    CAUSE_NUMERICS,
    CAUSE_DEVICE_FAULT,
    CAUSES,
} Cause;

/* Whether a generation that ended by the cause, without progress, counts as one of the K failures of invariant I7
 * (recovery.max_failures_at_same_step). */
typedef enum CauseBudget {
    BUDGET_NO_WORLD,      /* no generation ends by this cause */
    BUDGET_ONE,           /* the generation counts */
    BUDGET_FREE,          /* the generation does not count: another rule bounds such generations */
    BUDGET_FREE_PATIENCE, /* the generation does not count while the job's store_patience_s lasts */
    BUDGET_FREE_WHILE_OLDER, /* the generation does not count while an older commit is left */
} CauseBudget;

/* The consequence for the node that is to blame. */
typedef enum CauseBlame {
    BLAME_NONE,       /* no consequence; a node that is absent gets no ranks anyway */
    BLAME_STRIKE,     /* the node gets a strike */
    BLAME_STRIKE_OUT, /* the node gets a strike, and the next world goes without the node */
    BLAME_LATE,       /* the next world goes without the nodes that are late */
    BLAME_QUARANTINE, /* the node is quarantined until an operator uncordons it */
    BLAME_REFUSAL,    /* the node is quarantined for this job only */
} CauseBlame;

/* When a failure counts as one node's own, so that a spare answers it (spare.c). */
typedef enum CauseOwn {
    OWN_NEVER,
    OWN_BEFORE_STEP, /* the failure is one node's own before the world's first step */
    OWN_IF_ALONE, /* the failure is one node's own if no other node reports the cause; that node also gets a strike */
    OWN_IF_OTHERS_RESTORE, /* as OWN_IF_ALONE, but all other ranks must have restored */
    OWN_AFTER_PAUSE,       /* as OWN_IF_ALONE, decided when the pause is over */
} CauseOwn;

typedef struct CauseRule {
    char name[20];
    CauseBudget budget;
    CauseBlame blame;
    CauseOwn own;
    bool is_final; /* another try cannot help: the job fails at once */
    bool pauses;   /* a pause comes before the next world */
    Severity severity;
    const char *costs; /* what the cause costs, in words for people */
    /* The rule that bounds the number of generations that end by the cause, in words for people. NULL: there is no rule
     * for this cause but K (max_failures). */
    const char *bounds;
} CauseRule;

/* Returns the cause's row, also for CAUSE_NONE, which costs nothing. */
const CauseRule *cause_rule(Cause cause);
const char *cause_name(Cause cause);
/* True when no world ends by the cause of that name. A name that only a later version knows counts as a cause that
 * ends a world. */
bool cause_ends_no_world(const char *name);
/* Returns the cause for a trainer's exit code, or for the negated signal that ended the trainer. CAUSE_DATA_CORRUPT
 * may also mean a damaged checkpoint: cause_of_exit() distinguishes damaged data from a damaged checkpoint. */
Cause cause_of_code(int code);
typedef struct Failure {
    Cause cause;
    int node; /* index of the node to blame; -1: none */
    int rank; /* the rank to blame; -1: none */
    int code; /* the rank's exit code, or its negated signal; 0: it has none */
    int64_t step;
    uint64_t at_usec; /* CLOCK_REALTIME of the fault */
    char evidence[RECORD_TEXT_MAX + 1];
} Failure;
