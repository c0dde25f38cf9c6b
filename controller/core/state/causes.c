/* SPDX-License-Identifier: Apache-2.0 */
/* causes.c - see causes.h. */
#include "controller/core/state/causes.h"

#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"
#include "protocol/exit-code.h"

static const CauseRule rules[CAUSES] = {
    [CAUSE_NONE] = {.name = "none", .costs = "nothing"},
    [CAUSE_STORE_TROUBLE] = {.name = "store-trouble",
                             .severity = SEVERITY_WARNING,
                             .costs = "nothing: it ends no world"},
    [CAUSE_DIVERGING] = {.name = "diverging",
                         .severity = SEVERITY_WARNING,
                         .costs = "nothing; with `train.stop_if_diverging` the job fails"},
    [CAUSE_GROWTH_STUCK] = {.name = "growth-stuck",
                            .severity = SEVERITY_WARNING,
                            .costs = "nothing: the job trains on with the ranks that it has"},
    [CAUSE_RECORD_LOST] = {.name = "record-lost",
                           .severity = SEVERITY_WARNING,
                           .costs = "nothing: it ends no world"},
    [CAUSE_PEER_LOST] = {.name = "peer-lost",
                         .budget = BUDGET_ONE,
                         .severity = SEVERITY_INFO,
                         .costs = "the generation"},
    [CAUSE_RANKS_LOST] = {.name = "ranks-lost",
                          .budget = BUDGET_ONE,
                          .severity = SEVERITY_INFO,
                          .costs = "the generation"},
    [CAUSE_WORLD_LOST] = {.name = "world-lost",
                          .budget = BUDGET_FREE,
                          .severity = SEVERITY_WARNING,
                          .costs = "the generation",
                          .bounds = "people: one generation for each record that they remove"},
    [CAUSE_START_TIMEOUT] = {.name = "start-timeout",
                             .budget = BUDGET_ONE,
                             .blame = BLAME_LATE,
                             .severity = SEVERITY_WARNING,
                             .costs = "the generation; the next world goes without the late nodes"},
    [CAUSE_RETRY] = {.name = "retry",
                     .budget = BUDGET_ONE,
                     .own = OWN_AFTER_PAUSE,
                     .pauses = true,
                     .severity = SEVERITY_INFO,
                     .costs = "the generation, and a pause before the next one"},
    [CAUSE_STORE_UNREACHABLE] =
        {.name = "store-unreachable",
         .budget = BUDGET_FREE_PATIENCE,
         .own = OWN_IF_OTHERS_RESTORE,
         .pauses = true,
         .severity = SEVERITY_WARNING,
         .costs = "the generation, and a pause before the next one",
         .bounds = "`store_patience_s`, by the clock and by the number of pauses"},
    [CAUSE_UNREACHABLE] = {.name = "unreachable",
                           .budget = BUDGET_ONE,
                           .blame = BLAME_STRIKE_OUT,
                           .severity = SEVERITY_WARNING,
                           .costs = "the generation; the next world goes without the node that "
                                    "others could not join with"},
    [CAUSE_JOB_DIES] = {.name = "job-dies",
                        .budget = BUDGET_ONE,
                        .severity = SEVERITY_INFO,
                        .costs = "the generation: a trainer died or hung as it did on another "
                                 "machine, up to the limit on both"},
    [CAUSE_TRAINER_DIED] = {.name = "trainer-died",
                            .budget = BUDGET_ONE,
                            .blame = BLAME_STRIKE,
                            .own = OWN_BEFORE_STEP,
                            .severity = SEVERITY_INFO,
                            .costs = "the generation"},
    [CAUSE_HANG] = {.name = "hang",
                    .budget = BUDGET_ONE,
                    .blame = BLAME_STRIKE,
                    .own = OWN_BEFORE_STEP,
                    .severity = SEVERITY_WARNING,
                    .costs = "the generation"},
    [CAUSE_SLOT_LOST] = {.name = "slot-lost",
                         .budget = BUDGET_ONE,
                         .severity = SEVERITY_CRITICAL,
                         .costs = "the slot: its process survives SIGKILL, or its device is bad"},
    [CAUSE_NODE_LEFT] = {.name = "node-left",
                         .budget = BUDGET_FREE,
                         .severity = SEVERITY_INFO,
                         .costs = "the generation; the node is planned without",
                         .bounds = "people: one generation for each node that they stop"},
    [CAUSE_NODE_RESTARTED] = {.name = "node-restarted",
                              .budget = BUDGET_ONE,
                              .severity = SEVERITY_WARNING,
                              .costs = "the generation; the node is planned anew"},
    [CAUSE_NODE_LOST] = {.name = "node-lost",
                         .budget = BUDGET_ONE,
                         .severity = SEVERITY_INFO, /* the node has an incident of its own */
                         .costs = "the generation; the node is planned without"},
    [CAUSE_NODE_UNHEALTHY] = {.name = "node-unhealthy",
                              .budget = BUDGET_ONE,
                              .blame = BLAME_QUARANTINE,
                              .severity = SEVERITY_CRITICAL,
                              .costs = "the generation; `sdctl node uncordon` needs a good check"},
    [CAUSE_DATA_CORRUPT] = {.name = "data-corrupt",
                            .budget = BUDGET_ONE,
                            .own = OWN_IF_ALONE,
                            .is_final = true,
                            .severity = SEVERITY_CRITICAL,
                            .costs = "the job fails"},
    [CAUSE_CHECKPOINT_CORRUPT] =
        {.name = "checkpoint-corrupt",
         .budget = BUDGET_FREE_WHILE_OLDER,
         .own = OWN_IF_ALONE,
         .severity = SEVERITY_WARNING,
         .costs = "the checkpoint is struck out, and the next world uses the one before; "
                  "none is left: the job fails",
         .bounds = "the record: a commit is struck out once, and there are 16 at most"},
    [CAUSE_NON_FINITE] = {.name = "non-finite-loss",
                          .budget = BUDGET_ONE,
                          .is_final = true,
                          .severity = SEVERITY_CRITICAL,
                          .costs = "the job fails"},
    [CAUSE_BAD_JOB] = {.name = "bad-job",
                       .budget = BUDGET_ONE,
                       .own = OWN_IF_ALONE,
                       .is_final = true,
                       .severity = SEVERITY_CRITICAL,
                       .costs = "the job fails"},
    [CAUSE_NOT_OWNER] = {.name = "not-owner",
                         .budget = BUDGET_ONE,
                         .is_final = true,
                         .severity = SEVERITY_CRITICAL,
                         .costs = "the job fails"},
    [CAUSE_NUMERICS] = {.name = "numerics",
                        .budget = BUDGET_ONE,
                        .blame = BLAME_REFUSAL,
                        .severity = SEVERITY_CRITICAL,
                        .costs = "the generation: the bits are not the job's, or no module or "
                                 "driver serves its device"},
    [CAUSE_DEVICE_FAULT] = {.name = "device-fault",
                            .budget = BUDGET_ONE,
                            .blame = BLAME_QUARANTINE,
                            .severity = SEVERITY_CRITICAL,
                            .costs = "the generation"},
};

const CauseRule *cause_rule(Cause cause)
{
    assert(cause < CAUSES && rules[cause].name[0]);
    return &rules[cause];
}

const char *cause_name(Cause cause) { return cause_rule(cause)->name; }

bool cause_ends_no_world(const char *name)
{
    for (int i = CAUSE_NONE + 1; i < CAUSES; i++)
        if (text_equal(rules[i].name, name))
            return rules[i].budget == BUDGET_NO_WORLD;
    return false;
}

Cause cause_of_code(int code)
{
    switch (code) {
    case EXIT_DONE:
        return CAUSE_NONE;
    case EXIT_RETRY:
        return CAUSE_RETRY;
    case EXIT_NEVER_RETRY:
        return CAUSE_BAD_JOB;
    case EXIT_NOT_OWNER:
        return CAUSE_NOT_OWNER;
    case EXIT_DEVICE_FAULT:
        return CAUSE_DEVICE_FAULT;
    case EXIT_PEER_LOST:
        return CAUSE_PEER_LOST;
    case EXIT_DATA_CORRUPT:
        return CAUSE_DATA_CORRUPT;
    case EXIT_STORE_UNREACHABLE:
        return CAUSE_STORE_UNREACHABLE;
    case EXIT_NON_FINITE:
        return CAUSE_NON_FINITE;
    case EXIT_NUMERICS:
        return CAUSE_NUMERICS;
    default:
        return CAUSE_TRAINER_DIED;
    }
}
