/* SPDX-License-Identifier: Apache-2.0 */
/* testing-life.h - the life of a job that is recorded: a small shell drives the core, with a store of its own in which
 * every decision succeeds, and keeps a ledger of its own of what the journal must have.
 *
 * Each part gets a second name when it begins, so that all of them are there in the end. life_check() holds them
 * against the ledger, line by line and in order, and replays each.
 *
 * Ownership: life_setup() and life_teardown() are cmocka's.
 * Units:     microseconds of a clock that stands between events.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "controller/feed/feed.h"
#include "controller/journal/journal.h"
#include "controller/journal/replay.h"

enum { LIFE_LARGE = 64 << 20 }; /* a part that never ends */

typedef struct Life {
    char folder[64], path[96], old_path[96];
    JournalHead head;
    Journal *journal; /* NULL: nothing is recorded */
    Feed *feed;
    void *memory;
    Cluster *cluster;
    uint64_t now_usec;
    int64_t revision, world_revision;
    int64_t lease; /* of nodes and ranks; 0: none */
    bool stalled;  /* the next event is */
    bool holds;    /* outcomes are not told; the newest is of held_id */
    int64_t held_id;
    bool may_fail; /* a journal need not open */
    int n_decisions;
    json_t *ledger;  /* the lines that must be written */
    int n_parts;     /* that were seen; they lie at part-1, ... */
    uint64_t part;   /* inode of the present one */
    char said[4096]; /* what was logged */
} Life;

int life_setup(void **state);
int life_teardown(void **state);

/* A controller starts: a new core, and the journal of before. A result other than 0 ends the test unless it may fail;
 * nothing is recorded then. */
int life_open(Life *s, uint64_t max_bytes);
void life_begin_core(Life *s); /* without a journal */
void life_configure(Life *s, const ClusterConfig *config);

void life_tell(Life *s, Event event);
void life_tick(Life *s);
void life_put(Life *s, const char *key, const char *value, size_t n_value); /* value NULL: gone */
void life_put_node(Life *s, const char *name);
/* Two nodes, a leader of this term, and a job that runs its first world. */
void life_begin_job(Life *s);
void life_lose_a_rank(Life *s, int64_t generation);

/* Where the n-th part lies, from 1. */
const char *life_part(const Life *s, int n, char ret[128]);
/* Frees the journal; gives the line of the ledger that a restart is, with what the journal said that it had lost. */
json_t *life_end_journal(Life *s);

typedef struct LifeParts {
    int n_heads, n_cut, n_unfit, n_decisions;
    int64_t lost_events,
        lost_decisions; /* as heads and log said, which is as many as are lacking */
} LifeParts;

/* Frees the journal and looks at all parts. n_unfit: parts that began while something was under way. */
LifeParts life_check(Life *s);
