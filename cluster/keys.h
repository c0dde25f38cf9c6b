/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - the keys of the records in etcd. Most are /sdtrain/<cluster>/<kind>/<...>. The keys of secrets are
 * /sdtrain-secrets/<cluster>/<job>, and the keys of logs are /sdtrain-logs/<cluster>/<kind>/<node>/<id>.
 *
 * Folder:    defaults of the headers here: Units: none. Errors: none. Threads: any.
 * Ownership: callers pass buffers of KEY_MAX bytes; functions that fill one return it.
 * Errors:    key_parse*(): -EINVAL for a key of another form or kind.
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
    KEY_SECRETS, /* has its own prefix, so that the right to read a cluster does not include secrets */
    KEY_ASKS, /* asks and lines have their own prefix: watches of the cluster carry no log text */
    KEY_LINES,
    KEY_PROGRAMS,
    KEY_EVALS,
    KEY_KINDS,
} KeyKind;

const char *key_kind_name(KeyKind kind); /* returns a name such as "leader" */
/* Returns "/sdtrain/<cluster>/<kind>/", or with kind -1 "/sdtrain/<cluster>/". */
const char *key_prefix(const char *cluster, int kind, char ret[KEY_MAX]);
/* Returns "/sdtrain/<cluster>/<kind>/<name>". */
const char *key_of(const char *cluster, KeyKind kind, const char *name, char ret[KEY_MAX]);
const char *key_ranks(const char *cluster, const char *job, int64_t generation, const char *node,
                      char ret[KEY_MAX]);
const char *key_rendezvous(const char *cluster, const char *job, int64_t generation,
                           char ret[KEY_MAX]);
const char *key_eval(const char *cluster, const char *job, int64_t step, char ret[KEY_MAX]);
/* Returns "/sdtrain/<cluster>/evals/<job>/", the prefix of all evaluations of the job. */
const char *key_evals(const char *cluster, const char *job, char ret[KEY_MAX]);
/* kind is KEY_ASKS or KEY_LINES; an empty id gives the prefix of all of the node's keys of this kind. */
const char *key_log(const char *cluster, KeyKind kind, const char *node, const char *id,
                    char ret[KEY_MAX]);

/* Splits a key of this cluster into its kind and the rest ("a", "job/3/node"), which points into key. */
int key_parse(const char *cluster, const char *key, KeyKind *ret_kind, const char **ret_rest);
/* These functions parse the rest of a key: "job/3/node" of ranks, "job/3" of a rendezvous or an evaluation, "node/id"
 * of asks and lines. */
int key_parse_ranks(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation,
                    char *ret_node, size_t node_size);
int key_parse_rendezvous(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation);
/* For tests. */
int key_parse_eval(const char *rest, char *ret_job, size_t job_size, int64_t *ret_step);
int key_parse_log(const char *rest, char *ret_node, size_t node_size, char *ret_id, size_t id_size);

/* Checks the name of a cluster, node or job: [a-z0-9]([a-z0-9.-]*[a-z0-9])?, at most 63 characters. */
bool name_is_valid(const char *name);
