/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - every input event of the core and every decision, in a file that can be replayed.
 *
 * One JSON object per line, in the order in which the core saw them:
 *   {"journal":1,"version":..,"cluster":..,"config":{..},"limits":{..},"snapshot":n,"calm":true}
 *                                        a core begins; the next n lines are its state.
 *                                        "lost_events":n and "lost_decisions":n: this many earlier lines are in no part
 *   {"now":usec,"real":usec,"key":"/sdtrain/...","value":"...","revision":n}   no value: key gone
 *   {"now":..,"real":..,"leading":term} | {"deposed":true} | {"outcome":"done","id":n,"revision":n}
 *   {"now":..,"real":..,"tick":true}     decide now
 *   {"now":..,"real":..,"decision":n,"job":"..","does":["..",..]}   the answer to the line before
 *   {"now":..,"real":..,"config":{..}}   settings that were changed without a restart
 * "stalled":true marks an event before which the loop was stalled. Lines of a snapshot carry the times of their
 * events, so that deadlines derived from these are kept.
 *
 * FILE is the present part, FILE.1 the one before. A part that has grown to a quarter of max_bytes ends when
 * nothing is under way (no decision, no key gone within a minute), or else ("calm":false) at half. Both parts
 * together stay below max_bytes, or six times the records if those are larger. Each part begins with a snapshot and
 * can be replayed without the other. A line is one write(2): a process that dies loses no line, a machine that
 * dies loses the lines of the last seconds.
 *
 * Units: microseconds, bytes. Threads: loop thread only.
 * Ownership: journal_new() gives the caller a Journal; with NULL, journal_free() and journal_record_*() do nothing.
 * Errors:    journal_new(): -errno with the path. A write that fails later is logged once, and each minute a new
 *            part is tried: recording must not stop the cluster. On a full disk FILE.1 is removed for the new part.
 *            Events and decisions that could not be written are counted; the log and the next head report them.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/core/cluster.h"

#include <jansson.h>

enum { JOURNAL_VERSION = 1 };

typedef struct JournalHead {
    char cluster[CLUSTER_NAME_MAX + 1];
    char version[32]; /* version of the program that wrote the part */
    ClusterConfig config;
    ClusterLimits limits;
    int64_t n_snapshot;
    bool quiescent;                      /* nothing was under way when the snapshot was taken */
    int64_t lost_events, lost_decisions; /* numbers of earlier lines that could not be written */
} JournalHead;

typedef struct Journal Journal;

/* Continues the file at path, or begins a new part if that file is large. head describes the core. */
int journal_new(const char *path, uint64_t max_bytes, const JournalHead *head, Journal **ret,
                Error *err);
Journal *journal_free(Journal *journal);
DEFINE_CLEANUP(Journal, journal_free)

/* value NULL: the key is gone. A value with a zero byte, or that is not UTF-8, is written as another value that is
 * also unreadable. */
void journal_record_key(Journal *journal, const Event *event, const char *key, const char *value,
                        size_t n_value);
void journal_record_event(Journal *journal, const Event *event);
/* Records the core's answer to the newest event. */
void journal_record_decision(Journal *journal, const Event *event, const Decision *decision);
void journal_record_config(Journal *journal, const Event *event, const ClusterConfig *config);

/* ---- the format, for readers (journal-format.c) ---- */

/* Reads a head line; limits that are too large for a replay are refused. After a reload the settings may keep more
 * incidents than the limits allow: the number is then cut to the limit, as in the core. */
int journal_head_read(const char *source, json_t *line, JournalHead *ret, Error *err);
int journal_config_read(const char *source, json_t *object, ClusterConfig *ret, Error *err);
/* The two functions return NULL when out of memory. */
json_t *journal_head_json(const JournalHead *head);
json_t *journal_config_json(const ClusterConfig *config);
/* Returns the lines of decision_log_lines() as an array of strings. */
json_t *journal_words(const Decision *decision);
