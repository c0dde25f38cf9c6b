/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-messages.h - handles the messages of trainers: notes them in reports and in etcd.
 *
 * Ownership: borrows the Rank. Units: none.
 * Errors:    a packet that is not a message is logged and skipped.
 */
#pragma once

#include "protocol/channel.h"

typedef struct Rank Rank;

/* Handles a message of the rank's trainer. */
void trainer_messages_take(Rank *rank, const ChannelMessage *m);
/* Receives and handles the messages that have arrived, at most 256; the loop calls again for more. */
void trainer_messages_receive(Rank *rank);
