/* daemon-link.h - who runs this trainer: a daemon at the other end of the channel, or nobody (standalone).
 *
 * A thread receives what the daemon says, so that `alive` re-arms the dead-man timer however long a
 * step takes; it also sends the newest (step, stage) at most 20 times a second. Standalone, the
 * host is this process: it says go at once, commits every checkpoint, and takes SIGINT or SIGTERM
 * as the wish to leave.
 *
 * Ownership: host_open() gives the caller a Host and takes over the descriptor.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -EPIPE the daemon is gone; -ETIMEDOUT it did not say so in time; -ESTALE it
 *            refused: the world is over.
 * Threads:   the training thread's, but for its own thread.
 */
#pragma once

#include "protocol/channel.h"

typedef struct Host Host;

typedef enum HostWish { WISH_NONE = 0, WISH_SAVE = 1, WISH_LEAVE = 2 } HostWish;

typedef enum HostVerdict { VERDICT_PENDING, VERDICT_COMMITTED, VERDICT_REFUSED } HostVerdict;

/* fd < 0: standalone. */
int host_open(int fd, Host **ret, Error *err);
Host *host_free(Host *host);
DEFINE_CLEANUP(Host, host_free)
bool host_is_daemon(const Host *host);

/* Says hello and waits for assign; arms the dead-man timer (SIGKILL) when assign sets one. */
int host_wait_assign(Host *host, uint64_t timeout_usec, ChannelMessage *ret, Error *err);
/* Waits for go, at most until the daemon is gone; the leader's deadline bounds it, timeout_usec is
 * the last resort. */
int host_wait_go(Host *host, uint64_t timeout_usec, char address[CHANNEL_ADDRESS_MAX], Error *err);
int host_say(Host *host, const ChannelMessage *message, Error *err);
/* Cheap: remembered, sent by the thread. */
void host_stage(Host *host, int64_t step, TrainStage stage);
/* The same, and that all ranks wait, for waited_usec by now, for the data of one of them at least; in
 * STAGE_SAVING, for a save that must be there. */
void host_wait(Host *host, int64_t step, TrainStage stage, uint64_t waited_usec, int waits_rank);

/* Wishes (HostWish bits) since the last call that cleared them; leave stays set. */
unsigned host_wishes(Host *host, bool clear);
/* What became of the `saved` of this step. */
HostVerdict host_verdict(Host *host, int64_t step);
int host_wait_verdict(Host *host, int64_t step, uint64_t timeout_usec, HostVerdict *ret,
                      Error *err);
/* 0, -EPIPE or -ESTALE: the loop asks once a step. */
int host_check(Host *host, Error *err);
