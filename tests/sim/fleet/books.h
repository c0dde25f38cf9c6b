/* SPDX-License-Identifier: Apache-2.0 */
/* books.h - what a fleet's checkers know: every change in etcd as it is made, what trainers do, and what broke first.
 *
 * The records' rules are those of a real etcd's history (tests/history/history.h). Rules that take more than records
 * are in checks.h.
 *
 * Ownership: books_open() makes the only books of a simulation, books_close() frees them.
 * Units:     steps; *_usec is virtual time.
 * Errors:    what breaks is kept by books_break(); the first counts.
 * Threads:   one.
 */
#pragma once

#include "tests/history/rules.h"
#include "tests/sim/server/server.h"

/* Keys that tell who has made a change: its transaction puts one of them, too. A program's transaction puts neither. */
#define BOOKS_BY_PERSON "/by-person" /* sdctl */
#define BOOKS_BY_HAND "/by-hand"     /* etcdctl: it is not judged, for it has to keep nothing */

typedef struct JobBooks {
    char name[RECORD_JOB_MAX + 1];
    bool has_spec, has_phase, has_desired;
    DesiredRecord desired;
    char submission[SUBMISSION_BYTES]; /* of the spec */
    PhaseRecord phase;
    int64_t spec_created; /* create revision of the spec; 0: it is not there */
    bool spec_by_hand;    /* lost, not deleted: the job is the same if it is given back */
    int64_t born;         /* when the submission came */
    int64_t phase_revision, word_revision; /* word: of a person's newest wish */
    int64_t generation;                    /* of its newest world; 0: there is none */
    bool
        world_by_hand; /* its ranks may begin where it once began: they cannot commit what is committed */
    int64_t committed; /* the newest step that counts; 0: none */
    int64_t trained_generation;
    uint64_t trained_usec;
} JobBooks;

typedef struct NodeBooks {
    char name[NODE_NAME_MAX + 1];
    bool is_there;       /* its own record is */
    uint64_t gone_usec;  /* since when it is not: removed, or written over by a stranger */
    bool is_forged;      /* the stranger's record is there */
    uint64_t empty_usec; /* since when there is none, if it is not */
    int64_t lease;       /* that its own record hung on last */
    CordonRecord cordon;
} NodeBooks;

typedef struct BooksCounts {
    uint64_t n_worlds, n_commits, n_incidents, n_changes;
} BooksCounts;

void books_open(const char *cluster);
void books_close(void);

/* As ServerOptions.on_commit. */
void books_note(int64_t revision, const ServerChange *changes, size_t n);
/* A world of that submission has trained a step. */
void books_trained(const char *job, const char *submission, int64_t generation, int64_t step);
/* Nothing follows any more: what is left over is judged. */
void books_end(void);

const JobBooks *books_job(const char *job);
const NodeBooks *books_node(const char *node);
/* When the world of that generation was written, or written once more; 0: never, or too long ago. */
int64_t books_world_revision(const char *job, int64_t generation);
BooksCounts books_counts(void);
uint64_t books_digest(void); /* of all that etcd has ever held, in order, and of all steps */

void books_break(const char *invariant, const char *format, ...) _printf_(2, 3);
/* NULL: nothing is broken. */
const Breach *books_broken(void);
