/* SPDX-License-Identifier: Apache-2.0 */
/* controller.h - a model of sdcontroller's shell around the real core.
 *
 * It follows controller/: the feed, the execution of decisions as guarded transactions, reading
 * again after a refusal or an unknown outcome (transactions.c, execute.c, feed.c), and libetcd's election.
 * The Cluster inside is the real one.
 *
 * Ownership: the Universe owns the Controllers; a Controller its Cluster.
 * Units:     microseconds of virtual boottime; realtime with its own offset.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "controller/core/cluster.h"
#include "tests/sim/client.h"

enum { PENDING_MAX = 64 };

/* What a leader cannot forget while it lives. */
typedef struct Seen {
    char submission[SUBMISSION_BYTES];
    int64_t phase_serial, world_generation;
    int64_t world_revision; /* the newest world, also of a job whose spec it has not seen */
    CommitMark committed;   /* by checkpoints/<job> */
    int64_t word_revision;  /* the newest word of a person */
} Seen;

typedef struct SeenCordon {
    int64_t revision;
    CordonRecord record; /* the last that could be read, while there is one */
} SeenCordon;

typedef struct ModelPending { /* a decision under way */
    int64_t id;               /* 0: none */
    Outcome outcome;
    uint64_t token;
} ModelPending;

typedef struct ModelController {
    Universe *universe;
    int index;
    char name[16];
    Actor actor;
    ModelClient client;
    int64_t real_offset_usec;

    void *memory;
    Cluster *cluster;
    ClusterConfig config;
    uint64_t wake_usec, wake_token;
    uint64_t decided_usec, gather_token;
    uint64_t n_lists;
    int64_t read_revision; /* of the newest read of everything */
    int64_t term;          /* 0: following */
    uint64_t led_usec;     /* since when */
    int leader_key;        /* -1: none */
    bool loaded;
    unsigned refusals;
    ModelPending pending[PENDING_MAX];
    bool *fed; /* by key: the core knows of it */
    int n_fed;
    JobFacts specs[JOBS_MAX]; /* the last that could be read: controller/feed/feed.c */
    Seen seen[JOBS_MAX];      /* the checker's: what it has been told in this life */
    SeenCordon *seen_cordons; /* likewise, by node */
    /* the election */
    bool campaigning;
    uint64_t campaign_token;
    int64_t own_create, *candidates; /* by ordinal of the key: its create revision, 0: gone */
    int n_candidates;
} ModelController;

void controller_init(ModelController *c, Universe *u, int index);
void controller_clear(ModelController *c);
void controller_start(ModelController *c);
/* It dies, and systemd starts it again. */
void controller_crash(ModelController *c);
/* systemctl stop and start: its lease is revoked. */
void controller_leave(ModelController *c);
/* SIGHUP with other settings. */
void controller_reload(ModelController *c);
/* Its list of nodes is open again. */
void controller_welcome(ModelController *c);
void controller_freeze(ModelController *c, uint64_t usec);
uint64_t controller_real_usec(const ModelController *c);
