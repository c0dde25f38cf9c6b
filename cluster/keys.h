/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - the names of the records: /sdtrain/<cluster>/<kind>/<...>; secrets lie at
 * /sdtrain-secrets/<cluster>/<job>.
 *
 * Ownership: callers pass buffers of KEY_MAX bytes; the buffer is returned.
 * Units:     none.
 * Errors:    key_parse_*: -EINVAL for a key that is not of that kind.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

enum { KEY_MAX = 384 };

typedef enum KeyKind {
    KEY_LEADER,
    KEY_NODES,
    KEY_CORDONS,
    KEY_SPECS,
    KEY_DESIRED,
    KEY_WORLDS,
    KEY_PHASES,
    KEY_RANKS,
    KEY_RENDEZVOUS,
    KEY_CHECKPOINTS,
    KEY_PROGRESS,
    KEY_INCIDENTS,
    KEY_ALERTS,
    KEY_REQUESTS,
    KEY_HEALTH,
    KEY_SECRETS, /* under a prefix of their own: whoever may read a whole cluster may not read them */
    KEY_KINDS,
} KeyKind;

const char *key_kind_name(KeyKind kind); /* "leader" */
/* "/sdtrain/<cluster>/" with kind -1, "/sdtrain/<cluster>/<kind>/" otherwise. */
const char *key_prefix(const char *cluster, int kind, char ret[KEY_MAX]);
/* "/sdtrain/<cluster>/<kind>/<name>" */
const char *key_of(const char *cluster, KeyKind kind, const char *name, char ret[KEY_MAX]);
const char *key_ranks(const char *cluster, const char *job, int64_t generation, const char *node,
                      char ret[KEY_MAX]);
const char *key_rendezvous(const char *cluster, const char *job, int64_t generation,
                           char ret[KEY_MAX]);

/* The kind of a key of this cluster and what follows it ("a", "job/3/node"), borrowed from key. */
int key_parse(const char *cluster, const char *key, KeyKind *ret_kind, const char **ret_rest);
/* "job/3/node" and "job/3". */
int key_parse_ranks(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation,
                    char *ret_node, size_t node_size);
int key_parse_rendezvous(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation);

/* Names of clusters, nodes and jobs: [a-z0-9]([a-z0-9.-]*[a-z0-9])?, at most 63. */
bool name_is_valid(const char *name);
