/* SPDX-License-Identifier: Apache-2.0 */
/* books.h - the books of a fleet's checkers: they note every change in etcd as it is made, the actions of trainers, and
 * the first breach.
 *
 * The rules for records are the same as for a real etcd's history (tests/history/history.h). Rules that need more than
 * the records are in checks.h.
 *
 * Ownership: books_open() makes the only books of a simulation, books_close() frees them.
 * Units:     steps; *_usec is virtual time.
 * Errors:    books_break() stores a breach; only the first one counts.
 * Threads:   one.
 */
#pragma once

#include "tests/history/rules.h"
#include "tests/sim/server/server.h"

/* A person's transaction puts one of these two keys in addition, by which the checkers know that a
 * person made the change. A program's transaction puts neither key. */
#define BOOKS_BY_PERSON "/by-person" /* the person used sdctl */
#define BOOKS_BY_HAND "/by-hand" /* the person used etcdctl: the change need not keep any rule */

typedef struct JobBooks {
    char name[RECORD_JOB_MAX + 1];
    bool has_spec, has_phase, has_desired;
    DesiredRecord desired;
    char submission[SUBMISSION_BYTES]; /* the submission of the spec */
    PhaseRecord phase;
    int64_t spec_created; /* create revision of the spec; 0: there is none */
    /* the spec was last changed by hand; a person who puts the spec back keeps the submission */
    bool spec_by_hand;
    int64_t born; /* revision at which the submission was made */
    /* word_revision: the revision of a person's newest desired state */
    int64_t phase_revision, word_revision;
    int64_t generation; /* generation of the job's newest world; 0: no world */
    /* the world's record was last changed by hand, so the ranks may resume from the checkpoint from
     * which that world first resumed */
    bool world_by_hand;
    int64_t committed; /* the newest committed step that counts; 0: no step */
    int64_t trained_generation;
    uint64_t trained_usec;
} JobBooks;

typedef struct NodeBooks {
    char name[NODE_NAME_MAX + 1];
    bool is_there; /* the node's own record exists */
    /* since when the node's own record is missing: removed, or overwritten by a stranger */
    uint64_t gone_usec;
    bool is_forged;      /* a stranger's record is in the place of the node's record */
    uint64_t empty_usec; /* since when there is neither a record of the node nor a forged record */
    int64_t lease;       /* the last lease of the node's own record */
    CordonRecord cordon;
} NodeBooks;

typedef struct BooksCounts {
    uint64_t n_worlds, n_commits, n_incidents, n_changes;
} BooksCounts;

void books_open(const char *cluster);
void books_close(void);

/* Books the changes of a transaction; called as ServerOptions.on_commit. */
void books_note(int64_t revision, const ServerChange *changes, size_t n);
/* Books that a world of the given submission has trained a step. */
void books_trained(const char *job, const char *submission, int64_t generation, int64_t step);
/* Checks what remains at the end, when no further change follows. */
void books_end(void);

const JobBooks *books_job(const char *job);
const NodeBooks *books_node(const char *node);
/* Returns the revision at which the world of the given generation was last written; 0: it was never
 * written, or the books no longer contain the revision. */
int64_t books_world_revision(const char *job, int64_t generation);
BooksCounts books_counts(void);
uint64_t books_digest(void); /* digest of all values ever in etcd, in order, and of all steps */

void books_break(const char *invariant, const char *format, ...) _printf_(2, 3);
/* Returns the first breach, or NULL if nothing is broken. */
const Breach *books_broken(void);
