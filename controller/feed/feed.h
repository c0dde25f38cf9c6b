/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - keys and values of etcd into events of the core.
 *
 * Remembers which keys there are, so that a re-read can tell what is gone, and the text of records
 * that the leader rewrites, so that fields it does not know are kept.
 *
 * Ownership: feed_new() gives the caller a Feed; the record of an event belongs to the Feed
 *            until the next call.
 * Units:     none.
 * Errors:    feed_event(): 1 an event, 0 a key that the core does not look at, -EINVAL for a key
 *            that is none of its kind. A record that cannot be read is an event, too: its health says
 *            so, and err why.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/core/cluster.h"

typedef struct Feed Feed;

Feed *feed_new(const char *cluster);
Feed *feed_free(Feed *feed);
DEFINE_CLEANUP(Feed, feed_free)

/* value NULL: the key is gone. created, revision: its create and mod revision. Fills all of *ret but the times. */
int feed_event(Feed *feed, const char *key, const char *value, size_t n_value, int64_t created,
               int64_t revision, Event *ret, Error *err);

/* The last text that could be read of a record that is put back when it is lost (specs, desired, phases,
 * checkpoints), also when the key is gone; NULL: never seen, or gone with its job. What is not known of it here
 * is in that text alone. */
const char *feed_last(const Feed *feed, const char *key);

/* The last value of a key, NULL when it does not exist or is of a kind that is not rewritten. */
const char *feed_text(const Feed *feed, const char *key);

/* Whether a node that is there says that it knows a feature. */
bool feed_node_knows(const Feed *feed, const char *node, const char *feature);

/* Between feed_mark() and feed_next_unseen(), feed every key that exists; then the latter names,
 * one a call, the keys that were known and are not there any more. NULL: no more. */
void feed_mark(Feed *feed);
const char *feed_next_unseen(Feed *feed);
