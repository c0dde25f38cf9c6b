/* SPDX-License-Identifier: Apache-2.0 */
/* presence.h - which nodes and processes count as dead, and what keeps ranks off a node. */
#pragma once

#include "controller/core/state/state.h"

/* True when an absent node has left, or when its grace, a new leader's observation and the hold are over. */
bool node_is_lost(const Cluster *c, Scratch *s, const CoreNode *node);
/* Returns the strongest cause that keeps ranks off the node, for that job or, if job is NULL, for all jobs; NULL if
 * none does. */
const CordonCause *node_find_cordon(const Cluster *c, const CoreNode *node, const CoreJob *job);
/* Returns the leader's own cause against the machine that has the node's name now; NULL: there is none. */
const CordonCause *node_own_cause(const Cluster *c, const CoreNode *node);
/* True when a world that has not ended has ranks on the node. */
bool node_hosts_ranks(const Cluster *c, const CoreNode *node);
/* The result of node_refusal() for a node that is open but has no GPU, if the job needs GPUs. */
extern const char node_lacks_gpu[];
/* Returns why no rank of the job (if NULL, of any job) may be placed on the node; NULL if a rank may be placed
 * there. */
const char *node_refusal(const Cluster *c, Scratch *s, const CoreNode *node, const CoreJob *job);
/* True when the report's ranks have finished the job's present world, or have saved and left that world as asked. Then
 * the end of the ranks' node is not a failure, even while the world goes on. */
bool report_has_end(const CoreJob *job, const NodeRanks *report);
/* True while a process of the report may run: its end was not reported, and its node is not known to be dead. */
bool report_is_alive(const Cluster *c, Scratch *s, const NodeRanks *report);
/* Looks for living ranks of worlds before the given generation or before the given revision of worlds/<job>. The
 * revision is compared, too, because a job that was deleted and submitted again begins with generation 1. */
bool job_has_ranks_alive(const Cluster *c, Scratch *s, const CoreJob *job,
                         int64_t before_generation, int64_t before_revision, int *ret_node);
/* Looks for living ranks of worlds before the present one. */
bool job_has_older_ranks_alive(const Cluster *c, Scratch *s, const CoreJob *job, int *ret_node);
/* True while ranks of the job live, or may be about to start: a node that has not reported yet may still start its
 * ranks. */
bool job_ranks_are_left(const Cluster *c, Scratch *s, const CoreJob *job);
