/* SPDX-License-Identifier: Apache-2.0 */
/* daemon-link.h - the trainer's link to its daemon, over the channel. Standalone, the link itself acts as the daemon.
 *
 * A step may take minutes, and meanwhile the daemon's `alive` must re-arm the dead-man timer. So a
 * thread receives the daemon's messages; it also sends the newest (step, stage) at most 20 times a
 * second. Standalone, the link answers `go` at once, commits every checkpoint, and takes SIGINT or
 * SIGTERM as the wish to leave.
 *
 * Ownership: daemon_link_open() gives the caller a DaemonLink and takes over the descriptor.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EPIPE: the daemon has closed the channel; -ETIMEDOUT: the daemon's message did not arrive in time;
 *            -ESTALE: the daemon refused a checkpoint, so the world is over.
 * Threads:   the training thread calls; the link has a thread of its own.
 */
#pragma once

#include "protocol/channel.h"

typedef struct DaemonLink DaemonLink;

typedef enum DaemonWish { WISH_NONE = 0, WISH_SAVE = 1, WISH_LEAVE = 2 } DaemonWish;

typedef enum DaemonVerdict { VERDICT_PENDING, VERDICT_COMMITTED, VERDICT_REFUSED } DaemonVerdict;

/* fd: the channel; < 0: standalone. */
int daemon_link_open(int fd, DaemonLink **ret, Error *err);
DaemonLink *daemon_link_free(DaemonLink *link);
DEFINE_CLEANUP(DaemonLink, daemon_link_free)
/* Returns false if standalone. */
bool daemon_link_is_daemon(const DaemonLink *link);

/* Sends hello and waits for assign; arms the dead-man timer (SIGKILL) if assign sets one. */
int daemon_link_wait_assign(DaemonLink *link, uint64_t timeout_usec, ChannelMessage *ret,
                            Error *err);
/* Waits for `go`. The leader's deadline usually ends the wait (the daemon ends the rank); timeout_usec is the last
 * resort. */
int daemon_link_wait_go(DaemonLink *link, uint64_t timeout_usec, char address[CHANNEL_ADDRESS_MAX],
                        Error *err);
int daemon_link_report(DaemonLink *link, const ChannelMessage *message, Error *err);
/* Only stores the stage; the link's thread sends it. */
void daemon_link_stage(DaemonLink *link, int64_t step, TrainStage stage);
/* Like daemon_link_stage(), and reports that all ranks have waited for waited_usec: for the data of at least one rank
 * (waits_rank) or, in STAGE_SAVING, for a required save. */
void daemon_link_wait(DaemonLink *link, int64_t step, TrainStage stage, uint64_t waited_usec,
                      int waits_rank);

/* Returns the daemon's wishes (DaemonWish bits) since the last call with clear; WISH_LEAVE stays set. */
unsigned daemon_link_wishes(DaemonLink *link, bool clear);
/* Returns the daemon's answer to `saved` of this step. */
DaemonVerdict daemon_link_verdict(DaemonLink *link, int64_t step);
/* Returns the checkpoints that evaluations read, as of `go` or of the newest commit. */
ChannelHeld daemon_link_held(DaemonLink *link);
int daemon_link_wait_verdict(DaemonLink *link, int64_t step, uint64_t timeout_usec,
                             DaemonVerdict *ret, Error *err);
/* Returns 0, -EPIPE or -ESTALE; the loop calls it once per step. */
int daemon_link_check(DaemonLink *link, Error *err);
