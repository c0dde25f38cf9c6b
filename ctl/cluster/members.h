/* members.h - the members of etcd that the endpoints name, asked one by one.
 *
 * Ownership: members_ask() fills the caller's Members.
 * Units:     bytes.
 * Errors:    -errno when nobody could be asked; what a member did not answer is in its error.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"

#include <jansson.h>

enum { MEMBERS_MAX = 16 };

typedef struct Member {
    char endpoint[128];
    int r; /* 0: it has answered */
    Error error;
    EtcdStatus status;
} Member;

typedef struct Members {
    Member members[MEMBERS_MAX];
    size_t n, n_answered;
    bool has_leader; /* one that has answered sees one */
} Members;

int members_ask(const ClientOptions *options, Members *ret, Error *err);

/* "127.0.0.1:2379", of the leader; "" when it is not among them. */
const char *members_leader(const Members *members);
json_t *members_json(const Members *members);
