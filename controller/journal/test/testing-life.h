/* SPDX-License-Identifier: Apache-2.0 */
/* testing-life.h - the life of a job that is recorded: a small shell drives the core, with a store of its own in
 * which every decision succeeds, and keeps a ledger of its own of what the journal must contain.
 *
 * Each part gets a second name when it begins, so that all parts exist at the end. life_check() compares them with
 * the ledger, line by line and in order, and replays each part.
 *
 * Ownership: life_setup() and life_teardown() are cmocka's.
 * Units:     microseconds of a clock that moves only with events.
 * Errors:    none: anything that goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "controller/feed/feed.h"
#include "controller/journal/journal.h"
#include "controller/journal/replay.h"

enum { LIFE_LARGE = 64 << 20 }; /* with this size a part never ends */

typedef struct Life {
    char folder[64], path[96], old_path[96];
    JournalHead head;
    Journal *journal; /* NULL: nothing is recorded */
    Feed *feed;
    void *memory;
    Cluster *cluster;
    uint64_t now_usec;
    int64_t revision, world_revision;
    int64_t lease; /* lease of nodes and ranks; 0: none */
    bool stalled;  /* the next event is marked as stalled */
    bool holds;    /* outcomes are not fed; held_id is the id of the newest decision */
    int64_t held_id;
    bool may_fail; /* life_open() may fail */
    int n_decisions;
    json_t *ledger;  /* the lines that the journal must contain */
    int n_parts;     /* number of parts seen; their second names are part-1, ... */
    uint64_t part;   /* inode of the present part */
    char said[4096]; /* the lines that were logged */
} Life;

int life_setup(void **state);
int life_teardown(void **state);

/* Starts a controller with a new core, which continues the journal of the controller before. An error ends the test.
 * If may_fail is set, an error is returned instead, and nothing is recorded. */
int life_open(Life *s, uint64_t max_bytes);
void life_begin_core(Life *s); /* a core without a journal */
void life_configure(Life *s, const ClusterConfig *config);

void life_tell(Life *s, Event event);
void life_tick(Life *s);
/* value NULL: the key is removed. */
void life_put(Life *s, const char *key, const char *value, size_t n_value);
void life_put_node(Life *s, const char *name);
/* Puts two nodes, begins to lead, and submits a job that runs its first world. */
void life_begin_job(Life *s);
void life_lose_a_rank(Life *s, int64_t generation);

/* Returns the path of the n-th part; the first is 1. */
const char *life_part(const Life *s, int n, char ret[128]);
/* Frees the journal. Returns the ledger's line for a restart, with the numbers of lines that the journal reported as
 * lost. */
json_t *life_end_journal(Life *s);

typedef struct LifeParts {
    int n_heads, n_cut, n_unfit, n_decisions;
    /* numbers of missing lines, as the heads and the log report them */
    int64_t lost_events, lost_decisions;
} LifeParts;

/* Frees the journal and checks all parts. n_unfit: parts that began while something was under way. */
LifeParts life_check(Life *s);
