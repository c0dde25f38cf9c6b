/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - a model of sdtraind: what the rest of the cluster can see of it.
 *
 * It follows daemon/ file by file: registration under a lease (node.c), local worlds with their ranks and reports,
 * writes under the world's guard, commits (job.c, local-world.c, record-writer.c, commit.c), hangs and the fence.
 * A Team stands for a LocalWorld, a Seat for a LocalRank, a Post for a RecordWriter. The pure code of daemon/ runs
 * here itself: plan.c, watchdog.c, exit.c, fence_is_due().
 *
 * Ownership: the Universe owns the SimNodes; a SimNode owns its Processes and Teams.
 * Units:     microseconds of virtual boottime; realtime by node_real_usec().
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/client.h"
#include "tests/sim/trainer.h"

typedef struct Seat {
    bool pending; /* waits for its slot to be clear */
    RankReport report;
} Seat;

typedef enum PostKind { POST_REPORT, POST_RENDEZVOUS, POST_PROGRESS, POST_KINDS } PostKind;

typedef struct Post { /* daemon/world/record-writer.h */
    bool wanted;
    uint64_t call, retry; /* tokens of what is under way; 0: nothing */
    uint64_t pause_usec;
} Post;

typedef struct ModelCommit { /* daemon/world/commit.h */
    bool busy;
    CheckpointCommit lines[RECORD_COMMITS_MAX]; /* one, or what was found, oldest first */
    size_t n_lines;
    uint64_t token; /* of the call or the pause under way */
} ModelCommit;

struct Team {
    Team *next; /* among those that are over */
    int job, world_size;
    int64_t generation, world_revision;
    int resume;
    int64_t resume_step;
    ResumeFind find;
    char submission[SUBMISSION_BYTES];
    bool over, has_spec, wants_rendezvous;
    uint64_t spec_token;
    uint64_t killed_usec; /* realtime */
    int64_t first_step;
    uint64_t first_step_usec;
    ProgressRecord progress;
    Post posts[POST_KINDS];
    ModelCommit commit;
    size_t n_seats;
    Seat seats[];
};

typedef struct JobView { /* what the watches said of a job */
    int64_t world_revision;
    ModelValue *phase;
    int64_t rendezvous_generation, rendezvous_revision;
    Team *team, *over;
} JobView;

struct SimNode {
    Universe *universe;
    int index;
    char name[NODE_NAME_MAX + 1];
    Actor actor; /* sdtraind */
    ModelClient client;
    bool host_up;
    uint64_t frozen_until_usec; /* the host, with everything on it */
    int64_t real_offset_usec;
    int island;     /* its ranks reach the ranks of nodes on the same island */
    int n_machines; /* machines that had the name before */
    bool refuses_numerics;
    bool has_no_store; /* nothing can be restored there */
    NodeVerdict verdict;
    int n_gpus; /* that it tells of */

    int64_t said_up_revision, said_left_revision; /* the checker's: its record's last of each */

    uint64_t incarnation;
    bool registered, fenced, draining, leaving, has_left;
    NodeState state;
    uint64_t lost_slots, contact_usec, hang_tick_usec, drain_until_usec;
    /* the record: daemon/node/node.c */
    int64_t revision; /* of our key as last seen */
    int put_lease;    /* that it was put under; -1: it must be put */
    uint64_t put_call, put_retry;
    bool put_wanted, with_ranks;
    NodeRecord last_put;

    JobView jobs[JOBS_MAX];
    int n_slots;
    Process *slots;
};

void node_init(SimNode *node, Universe *u, int index);
void node_clear(SimNode *node);
uint64_t node_real_usec(const SimNode *node);

/* ---- what may happen to it ---- */

void node_boot(SimNode *node); /* the host comes up, and with it sdtraind */
/* Keeps the store from its ranks alone for this time; one of them may die just then. */
void node_lose_store(SimNode *node, uint64_t usec);
void node_crash(SimNode *node); /* sdtraind dies, its ranks with it */
void node_lose_power(SimNode *node);
void node_replace(SimNode *node);               /* the host is gone, and another one has its name */
void node_freeze(SimNode *node, uint64_t usec); /* the whole host */
void node_freeze_daemon(SimNode *node, uint64_t usec); /* sdtraind alone: SIGSTOP */
void node_drain(SimNode *node);                        /* systemctl stop */
void node_set_verdict(SimNode *node, NodeVerdict verdict);
/* Where there are GPUs at all, its driver shows one for each slot, all of a sudden. */
void node_fill_slots(SimNode *node);
/* The id of the machine that has the name now. */
const char *node_machine(const SimNode *node, char ret[33]);
/* Whether etcd holds a record of it. */
bool node_is_registered(const SimNode *node);

/* ---- between node.c, team.c and trainer.c ---- */

/* token: the life of the process, and the word. */
void node_hears(Universe *u, void *process, uint64_t token);
void node_note_contact(SimNode *node);
/* Its record may have changed. */
void node_touch(SimNode *node);
void node_advance(SimNode *node); /* every job, then the drain */
void node_advance_drain(SimNode *node);
void node_kill_all(SimNode *node, const char *why);
bool node_is_idle(const SimNode *node);

void process_kill(Process *p, const char *why);

void team_watch(Universe *u, void *node, const WatchEvent *events, size_t n, bool initial);
void team_hears(Process *p, ModelWord word);
void team_note_exit(Process *p);
void team_report(SimNode *node, Team *team);
void team_report_all(SimNode *node);
const Team *team_running(const SimNode *node);
bool team_is_live(const Team *team);
bool team_reports_are_written(const SimNode *node);
/* Puts the records of the teams that run into the transaction, under their guards. */
void team_add_records(SimNode *node, Txn *txn, int lease);
void team_advance(SimNode *node, int job);
void team_forget_all(SimNode *node);
