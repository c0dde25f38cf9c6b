/* trainer-messages.h - what a trainer says, carried into reports and etcd.
 *
 * Ownership: borrows the Rank.
 * Units:     none.
 * Errors:    a packet that is no message is logged and skipped.
 * Threads:   loop thread only.
 */
#pragma once

typedef struct Rank Rank;

/* Takes every message that is there now (bounded a call; the loop calls again for more). */
void trainer_messages_receive(Rank *rank);
