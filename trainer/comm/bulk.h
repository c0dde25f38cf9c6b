/* SPDX-License-Identifier: Apache-2.0 */
/* bulk.h - opens the comm for sums and weights, if all ranks of the world know of it.
 *
 * Trainers of 0.2.0 reduce over the comm that they decide through, after the verdict. A world may hold
 * some of them, and all its ranks must make the same calls on the same comms. So each rank that knows
 * of the bulk comm says so in the rendezvous store before the world's first comm is opened. When that
 * comm stands, all have said so who will. Rank 0 then reads what they said and writes the answer.
 *
 * Ownership: bulk_open() gives the caller a Comm, or NULL.
 * Units:     as comm.h.
 * Errors:    those of rendezvous-client.h and comm_open_gloo(). *options->unmet as there.
 * Threads:   one.
 */
#pragma once

#include "trainer/comm/comm.h"

/* Says that this rank knows of the bulk comm. */
int bulk_offer(const CommOptions *options, Error *err);
/* After another comm of the world was opened. *ret is NULL on every rank when one of them does not know of
 * this comm. options->prefix is its own. */
int bulk_open(const CommOptions *options, Comm **ret, Error *err);
