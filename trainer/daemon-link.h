/* daemon-link.h - who runs this trainer: a daemon at the other end of the channel, or nobody (standalone).
 *
 * A thread receives what the daemon says, so that `alive` re-arms the dead-man timer however long a
 * step takes; it also sends the newest (step, stage) at most 20 times a second. Standalone, the
 * host is this process: it says go at once, commits every checkpoint, and takes SIGINT or SIGTERM
 * as the wish to leave.
 *
 * Ownership: daemon_link_open() gives the caller a DaemonLink and takes over the descriptor.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EPIPE the daemon is gone; -ETIMEDOUT it did not say so in time; -ESTALE it
 *            refused: the world is over.
 * Threads:   the training thread's, but for its own thread.
 */
#pragma once

#include "protocol/channel.h"

typedef struct DaemonLink DaemonLink;

typedef enum DaemonWish { WISH_NONE = 0, WISH_SAVE = 1, WISH_LEAVE = 2 } DaemonWish;

typedef enum DaemonVerdict { VERDICT_PENDING, VERDICT_COMMITTED, VERDICT_REFUSED } DaemonVerdict;

/* fd < 0: standalone. */
int daemon_link_open(int fd, DaemonLink **ret, Error *err);
DaemonLink *daemon_link_free(DaemonLink *link);
DEFINE_CLEANUP(DaemonLink, daemon_link_free)
bool daemon_link_is_daemon(const DaemonLink *link);

/* Says hello and waits for assign; arms the dead-man timer (SIGKILL) when assign sets one. */
int daemon_link_wait_assign(DaemonLink *link, uint64_t timeout_usec, ChannelMessage *ret,
                            Error *err);
/* Waits for go, at most until the daemon is gone; the leader's deadline bounds it, timeout_usec is
 * the last resort. */
int daemon_link_wait_go(DaemonLink *link, uint64_t timeout_usec, char address[CHANNEL_ADDRESS_MAX],
                        Error *err);
int daemon_link_say(DaemonLink *link, const ChannelMessage *message, Error *err);
/* Cheap: remembered, sent by the thread. */
void daemon_link_stage(DaemonLink *link, int64_t step, TrainStage stage);
/* The same, and that all ranks wait, for waited_usec by now, for the data of one of them at least; in
 * STAGE_SAVING, for a save that must be there. */
void daemon_link_wait(DaemonLink *link, int64_t step, TrainStage stage, uint64_t waited_usec,
                      int waits_rank);

/* Wishes (DaemonWish bits) since the last call that cleared them; leave stays set. */
unsigned daemon_link_wishes(DaemonLink *link, bool clear);
/* What became of the `saved` of this step. */
DaemonVerdict daemon_link_verdict(DaemonLink *link, int64_t step);
int daemon_link_wait_verdict(DaemonLink *link, int64_t step, uint64_t timeout_usec,
                             DaemonVerdict *ret, Error *err);
/* 0, -EPIPE or -ESTALE: the loop asks once a step. */
int daemon_link_check(DaemonLink *link, Error *err);
