/* SPDX-License-Identifier: Apache-2.0 */
/* members.h - the status of each member of etcd that the endpoints name.
 *
 * Units: bytes. Threads: the main thread.
 * Ownership: members_request() fills the caller's Members.
 * Errors:    -errno when the requests could not be sent; a member that did not answer has its own error.
 */
#pragma once

#include "ctl/client.h"

#include <jansson.h>

enum { MEMBERS_MAX = 16 };

typedef struct Member {
    char endpoint[128];
    int r; /* 0: the member has answered; else -errno */
    Error error;
    EtcdStatus status;
} Member;

typedef struct Members {
    Member members[MEMBERS_MAX];
    size_t n, n_answered;
    bool has_leader; /* a member that has answered sees a leader */
} Members;

int members_request(const ClientOptions *options, Members *ret, Error *err);

/* Returns the endpoint of etcd's leader, such as "127.0.0.1:2379", or "" when the leader is not among the members. */
const char *members_leader(const Members *members);
json_t *members_json(const Members *members);
