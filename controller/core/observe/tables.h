/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h - the places of nodes, jobs and reports in tables of fixed size, and the records that do not fit.
 *
 * Ownership: a place is given away only when nothing refers to it; pointers are valid for the step.
 * Errors:    -1 or NULL: the table is full. The record is counted (cluster_dropped) and read again later.
 */
#pragma once

#include "controller/core/state/state.h"

/* Counts a record that did not fit. */
void table_drop(Cluster *c, Table table);
/* True when a record that did not fit may fit now: the shell then reads everything again. */
bool tables_have_room(Cluster *c);
/* Returns the index of the node of that name; gives a new node a place. */
int node_intern(Cluster *c, const char *name);
/* Returns the index in by_name at which the name is, or would be inserted. */
int node_place_of_name(const Cluster *c, const char *name);
CoreJob *job_intern(Cluster *c, const char *name);
/* Frees the place of a job of which no record is left. */
void job_forget_if_empty(Cluster *c, CoreJob *job);
/* Sorts by_arrival into the order of the queue. */
void jobs_sort(Cluster *c);
/* Returns NULL if there is no such report. */
NodeRanks *report_find(Cluster *c, const CoreJob *job, int node, int64_t generation);
NodeRanks *report_new(Cluster *c, Scratch *s, const CoreJob *job, int node, int64_t generation);
void report_forget(Cluster *c, NodeRanks *report);
/* Notes whether the report's key has vanished. */
void report_set_gone(Cluster *c, NodeRanks *report, bool gone);
