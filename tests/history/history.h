/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - checks the history of a cluster's records in etcd: every change, in the order of revisions.
 *
 * The checker knows only keys and values, as they are in etcd. It needs no process, clock or network. It must be given
 * the history from its first revision on, without a gap. The rules that it shares with the simulator are in rules.h.
 *
 * A change by hand (etcdctl) that no program would make is judged like any other: such a history is broken. If the
 * caller marks a change as made by hand, the history does not count as broken, and from then on the rules demand less
 * of the records that the change affected.
 *
 * Units: revisions. Threads: one at a time.
 * Ownership: history_checker_new() gives the caller a HistoryChecker; history_checker_free() accepts NULL. Keys and
 *            values are copied.
 * Errors:    each breach goes to the handler, and the checker continues. -EINVAL: the changes are not a history.
 */
#pragma once

#include "tests/history/rules.h"

typedef struct HistoryChecker HistoryChecker;

/* Receives a breach. key is the key of the record that broke a rule. */
typedef void (*HistoryHandler)(int64_t revision, const char *key, const Breach *breach,
                               void *userdata);

typedef struct HistoryChange {
    const char *key;   /* "/sdtrain/<cluster>/<kind>/<...>" */
    const char *value; /* NULL: the key was removed */
    size_t n_value;
    int64_t lease; /* 0: no lease */
    /* number of writes since the key was created; by it the checker finds gaps in the history */
    int64_t version;
    bool by_hand;
} HistoryChange;

typedef struct HistoryCounts {
    uint64_t n_changes, n_revisions, n_worlds, n_commits, n_incidents, n_breaches;
    int64_t revision; /* the newest revision */
} HistoryCounts;

HistoryChecker *history_checker_new(const char *cluster, HistoryHandler handler, void *userdata);
HistoryChecker *history_checker_free(HistoryChecker *h);
DEFINE_CLEANUP(HistoryChecker, history_checker_free)

/* Checks all changes of one revision. Returns -EINVAL if the revision is not newer than the last checked revision. */
int history_checker_apply(HistoryChecker *h, int64_t revision, const HistoryChange *changes,
                          size_t n_changes, Error *err);
/* Checks the final state, when no further change follows. */
void history_checker_end(HistoryChecker *h);
HistoryCounts history_checker_counts(const HistoryChecker *h);
