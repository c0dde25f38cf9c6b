/* trainer-messages.h - carries what a trainer says into reports and etcd.
 *
 * Ownership: borrows the Rank.
 * Units:     none.
 * Errors:    a packet that is no message is logged and skipped.
 * Threads:   loop thread only.
 */
#pragma once

typedef struct Rank Rank;

/* Takes the messages that are there now, 256 at most; the loop calls again for more. */
void trainer_messages_receive(Rank *rank);
