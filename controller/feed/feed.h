/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - turns keys and values of etcd into events of the core.
 *
 * A Feed remembers which keys exist, so that a re-read shows which no longer exist. It keeps the text of each record
 * that the leader rewrites: only that text has the fields of a later version.
 *
 * Units: none. Threads: loop thread only.
 * Ownership: feed_new() gives the caller a Feed; an event's record belongs to the Feed until the next call.
 * Errors:    feed_event(): 1 an event; 0 a key that the core ignores; -EINVAL a key that is malformed for its kind.
 *            An unreadable record is an event, too: its health shows that, and err holds the reason.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/core/cluster.h"

typedef struct Feed Feed;

Feed *feed_new(const char *cluster);
Feed *feed_free(Feed *feed);
DEFINE_CLEANUP(Feed, feed_free)

/* value NULL: the key does not exist. created, revision: the key's create and mod revision. Fills all of *ret except
 * the times and the lease. */
int feed_event(Feed *feed, const char *key, const char *value, size_t n_value, int64_t created,
               int64_t revision, Event *ret, Error *err);

/* Returns the last readable text of a record that the leader puts back when it is lost (specs, desired, phases,
 * checkpoints), even if the key is gone. NULL: the key was never read, or its job is gone. */
const char *feed_last(const Feed *feed, const char *key);

/* Returns the present value of a key; NULL: the key does not exist, or the leader does not rewrite keys of its kind. */
const char *feed_text(const Feed *feed, const char *key);

/* Returns whether the node has a record that lists the feature. */
bool feed_node_knows(const Feed *feed, const char *node, const char *feature);

/* After a gap in the watch: call feed_mark(), feed every key that exists, then call feed_next_unseen() until it
 * returns NULL. Each call names one key that was known and no longer exists. */
void feed_mark(Feed *feed);
const char *feed_next_unseen(Feed *feed);
