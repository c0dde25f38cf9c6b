/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-messages.h - carries what a trainer says into reports and etcd.
 *
 * Ownership: borrows the Rank.
 * Units:     none.
 * Errors:    a packet that is not a message is logged and skipped.
 * Threads:   loop thread only.
 */
#pragma once

#include "protocol/channel.h"

typedef struct Rank Rank;

/* The trainer of that rank has said m. */
void trainer_messages_take(Rank *rank, const ChannelMessage *m);
/* Takes the messages that are there now, 256 at most; the loop calls again for more. */
void trainer_messages_receive(Rank *rank);
