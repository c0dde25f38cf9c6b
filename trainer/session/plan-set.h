/* SPDX-License-Identifier: Apache-2.0 */
/* plan-set.h - the plan set of a submission whose job names no set (train.plans "auto").
 *
 * Two ranks that time algorithms independently choose differently, and ranks have no comm before all of them are ready.
 * So only rank 0 makes the set, and puts it, if absent, into the checkpoint's folder:
 *
 *     plans/auto-<submission>-<GPU's name>-<multiprocessors>-<cuDNN>-<cuBLASLt>.json
 *
 * An existing object is used, whichever rank put it: by the other ranks, which wait for it and time nothing, and by
 * later worlds of the submission that have no commit yet. A machine without libraries has the plain set,
 * <submission>-plain. From the first commit on, only the set in the commit's manifest counts, and checkpoint_retire()
 * removes the object.
 *
 * If a store's put-if-absent is not atomic, rank 0 reads its object back after a pause.
 *
 * Ownership: borrows everything; the text is the caller's to free.
 * Units:     seconds.
 * Errors:    the exit code decides what the leader does. -EXDEV (85): rank 0 has put a set for another GPU or other
 *            libraries. -ETIMEDOUT (75): rank 0 has put no set in time. Others are those of the device and of the
 *            store.
 *
 * Fault points: plans.made, plans.put, plans.wait.
 */
#pragma once

#include "nn/network.h"
#include "store/store.h"
#include "trainer/link/daemon-link.h"

typedef struct PlanSetNeeds {
    Store *store; /* the store of checkpoint.uri */
    const char *submission;
    int rank;
    const DeviceOptions *device; /* the device that the rank computes on */
    const UnetConfig *config;
    const NetworkShape *shape;
    int tune_sec; /* time in which rank 0 times algorithms */
    int wait_sec; /* time in which the other ranks wait for the set */
    DaemonLink *link;
} PlanSetNeeds;

int plan_set_take(const PlanSetNeeds *needs, char **ret, Error *err);

/* Makes the plans that a device with DeviceOptions.tune lacks for the network. *ret has all plans of the device. */
int plan_set_make(Device *maker, const UnetConfig *config, const NetworkShape *shape, char **ret,
                  Error *err);
