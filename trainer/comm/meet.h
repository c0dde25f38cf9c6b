/* meet.h - connections between each two ranks of a world, each proven from both ends.
 *
 * Every rank listens at one port; of two ranks the higher one calls. Who is called greets with a
 * nonce, the caller says who calls whom with a nonce of its own and proves it, and is proven to in
 * turn (proof.h). What comes in and does not prove that it is of this world within 2 s is dropped;
 * such connections are counted apart, and the oldest makes way for the next.
 *
 * Ownership: meeting_open() gives the caller a Meeting; meeting_free() accepts NULL, stops listening
 *            and closes what was not handed over. Borrows the options until then.
 * Units:     deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT a rank did not come, or there was no way to it; -ECONNREFUSED nobody listens
 *            where it should. *ret_peer is that rank.
 * Threads:   one.
 */
#pragma once

#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"

typedef struct Meeting Meeting;

int meeting_open(const CommOptions *options, Meeting **ret, Error *err);
Meeting *meeting_free(Meeting *meeting);
DEFINE_CLEANUP(Meeting, meeting_free)
const char *meeting_address(const Meeting *meeting); /* where this rank listens */
/* Where a lower rank listens, as it says: refused unless it is "number:port". */
int meeting_call(Meeting *meeting, int peer, const char *address, Error *err);
/* Until there is a connection with every rank. All lower ones must have been called. */
int meeting_hold(Meeting *meeting, uint64_t deadline_usec, int *ret_peer, Error *err);
/* Hands over the connection; once each. */
int meeting_take(Meeting *meeting, int peer);
