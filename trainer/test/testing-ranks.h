/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ranks.h - for tests: real trainers under a daemon that the test plays over a socketpair.
 *
 * Units: steps. Threads: the main thread.
 * Ownership: rank_start() fills a Rank, rank_end() empties it; ranks_end() kills all other ranks.
 * Errors:    a failed cmocka assertion.
 */
#pragma once

#include "protocol/channel.h"
#include "protocol/exit-code.h"

enum { RANKS_MAX = 4 };

typedef struct Rank {
    pid_t pid;
    int fd;
    ChannelMessage saved; /* newest `saved` message */
    int64_t step;         /* newest reported step */
    ChannelMessage told;  /* newest `step` message */
    ChannelMessage error; /* the rank's error message, if it has sent an error */
} Rank;

extern Rank ranks[RANKS_MAX];
/* GPU of the next rank's slot, as the daemon sends it: "0000:3b:00" */
extern const char *ranks_gpu;
extern int64_t ranks_steps;          /* steps of the job */
extern const char *ranks_submission; /* "" unless a test draws one */
extern uint64_t ranks_startup_usec;  /* time for a start, as the daemon sends it; 0: not sent */
extern bool ranks_adopt;             /* an operator has named the manifest that is resumed */

/* Reads facts about the job's data, like a submission: all ranks that are assigned a job receive them. */
void ranks_look_at_data(const char *text);

/* Starts sdtrainer. fault: SDTRAIN_FAULT of the new process, or NULL. */
void rank_start(Rank *rank, const char *fault);
/* Waits until the rank sends a message or ends. Returns whether it has ended. */
bool rank_is_gone(const Rank *rank);
/* Waits for the rank's end. Returns the exit code, or minus the signal. */
int rank_end(Rank *rank);
/* A cmocka teardown that kills all ranks. */
int ranks_end(void **unused);

void rank_say(const Rank *rank, ChannelMessage m);
/* Receives the rank's next message, and notes it in the Rank. */
ChannelMessage rank_receive_any(Rank *rank);
/* Receives the rank's next message that is neither stage nor step. */
ChannelMessage rank_hear(Rank *rank);
ChannelMessage rank_expect(Rank *rank, ChannelType type);
/* One life of a world: until all ranks are done, or one is lost. */
typedef struct RanksLife {
    int64_t generation;
    int size;
    int n_done;
    bool done[RANKS_MAX];
    bool lost;
    Hash digest; /* the digest that each rank that is done has reported */
    /* the newest checkpoint, which the daemon has committed; type 0: none yet */
    ChannelMessage saved;
} RanksLife;

/* Starts a world of life->size ranks, which continues from life->saved. fault: for the rank `of`, or NULL. */
void ranks_begin(RanksLife *life, const char *text, int of, const char *fault);
/* Commits every save, until all ranks are done or one has ended. A peer of a rank that has ended reports
 * EXIT_PEER_LOST. */
void ranks_live(RanksLife *life);

/* text: the job's text; resume: the `saved` of an earlier life, or NULL. */
void rank_assign(Rank *rank, const char *text, int64_t generation, int number, int size,
                 const ChannelMessage *resume);
void rank_commit(Rank *rank, int64_t generation);
