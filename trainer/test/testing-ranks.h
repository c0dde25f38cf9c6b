/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ranks.h - for tests: real trainers under a daemon that the test plays over a socketpair.
 *
 * Ownership: rank_start() fills a Rank, rank_end() empties it; ranks_end() kills what is left.
 * Units:     steps.
 * Errors:    a failed cmocka assertion.
 * Threads:   the main thread.
 */
#pragma once

#include "protocol/channel.h"
#include "protocol/exit-code.h"

enum { RANKS_MAX = 4 };

typedef struct Rank {
    pid_t pid;
    int fd;
    ChannelMessage saved; /* newest */
    int64_t step;         /* newest reported */
    ChannelMessage told;  /* how */
    ChannelMessage error; /* with text, when it said one */
} Rank;

extern Rank ranks[RANKS_MAX];
extern const char *ranks_gpu;        /* as the daemon tells of the next rank's slot: "0000:3b:00" */
extern int64_t ranks_steps;          /* of the job */
extern const char *ranks_submission; /* "" unless a test draws one */
extern uint64_t ranks_startup_usec;  /* as the daemon tells it; 0: not told */
extern bool ranks_adopt;             /* what is resumed was named by an operator */

/* Looks at the job's data as it is when the job is submitted: all ranks that are assigned a job receive the result. */
void ranks_look_at_data(const char *text);

/* Starts sdtrainer. fault: SDTRAIN_FAULT for it, or NULL. */
void rank_start(Rank *rank, const char *fault);
/* Waits until it says something, or has ended. */
bool rank_is_gone(const Rank *rank);
/* Waits for its end: the exit code, or minus the signal. */
int rank_end(Rank *rank);
/* A cmocka teardown. */
int ranks_end(void **unused);

void rank_say(const Rank *rank, ChannelMessage m);
/* The next message, which is noted. */
ChannelMessage rank_receive_any(Rank *rank);
/* The next one that is neither stage nor step. */
ChannelMessage rank_hear(Rank *rank);
ChannelMessage rank_expect(Rank *rank, ChannelType type);
/* A life of a world: until all are done, or somebody is gone. */
typedef struct RanksLife {
    int64_t generation;
    int size;
    int n_done;
    bool done[RANKS_MAX];
    bool lost;
    Hash digest;          /* that all who are done have */
    ChannelMessage saved; /* the newest checkpoint that a daemon commits; type 0: none yet */
} RanksLife;

/* Starts the world of life->size ranks, which goes on from life->saved; fault: of the rank `of`, or NULL. */
void ranks_begin(RanksLife *life, const char *text, int of, const char *fault);
/* Commits what is saved, until all are done or one is gone. A rank beside one that is gone says EXIT_PEER_LOST. */
void ranks_live(RanksLife *life);

/* text: the job's; resume: the `saved` of an earlier life, or NULL. */
void rank_assign(Rank *rank, const char *text, int64_t generation, int number, int size,
                 const ChannelMessage *resume);
void rank_commit(Rank *rank, int64_t generation);
