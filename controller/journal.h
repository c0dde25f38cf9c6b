/* journal.h - what is said about decisions, and every input event in a form that can be replayed.
 *
 * The file holds one JSON object a line, in the order in which the core saw them:
 *   {"now":usec,"real":usec,"key":"/sdtrain/...","value":"...","revision":n}   value absent: gone
 *   {"now":..,"real":..,"leading":term} | {"deposed":true} | {"outcome":"done","id":n,"revision":n}
 *   {"now":..,"real":..,"tick":true}     decide now; "stalled" when the loop came late
 *
 * Ownership: journal_new() gives the caller a Journal; journal_free() accepts NULL, and so does
 *            every other function (nothing is recorded then).
 * Units:     microseconds.
 * Errors:    journal_new(): -errno with the path. A line that cannot be written is dropped with
 *            one warning for all: recording must not stop the cluster.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/core/cluster.h"

typedef struct Journal Journal;

int journal_new(const char *path, Journal **ret, Error *err);
Journal *journal_free(Journal *journal);
DEFINE_CLEANUP(Journal, journal_free)

void journal_record_key(Journal *journal, const Event *event, const char *key, const char *value);
void journal_record_event(Journal *journal, const Event *event);

/* One log line a transition, once it is in the store. */
void journal_say_decision(const Decision *decision);
