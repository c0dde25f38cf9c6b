/* SPDX-License-Identifier: Apache-2.0 */
/* bulk.h - opens the comm for sums and weights, if all ranks of the world know of it.
 *
 * Trainers of version 0.2.0 do not know of this second comm: they reduce over the world's first comm,
 * which carries the decisions, too. A world may contain such trainers, and all its ranks must make the
 * same calls on the same comms. So each rank that knows of the bulk comm publishes that in the
 * rendezvous store before the world's first comm is opened. Once that comm is open, all such ranks have
 * published. Rank 0 then reads what they published and writes the answer.
 *
 * Units: as comm.h. Threads: one.
 * Ownership: bulk_open() gives the caller a Comm, or NULL.
 * Errors:    those of rendezvous-client.h and comm_open_gloo(). *options->unmet as there.
 */
#pragma once

#include "trainer/comm/comm.h"

/* Publishes that this rank knows of the bulk comm. */
int bulk_offer(const CommOptions *options, Error *err);
/* Opens the bulk comm. Call it after another comm of the world was opened. Sets *ret to NULL on
 * every rank if any rank does not know of the bulk comm. options->prefix must differ from the other
 * comm's. */
int bulk_open(const CommOptions *options, Comm **ret, Error *err);
