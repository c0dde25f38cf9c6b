/* record-writer.h - a record about a job that this node keeps up to date in etcd.
 *
 * The latest content wins: changes that come while a write is under way are written together after
 * it. Each write is guarded by the mod revision of worlds/<job> that the team belongs to; the first
 * refusal means that the world has moved. A write that fails for another reason is repeated, with
 * whatever the content is then.
 *
 * Ownership: a Post is part of its Team; post_clear() cancels what is under way.
 * Units:     none.
 * Errors:    logged; a lost connection is not an error but a delay.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "etcd/etcd.h"

typedef struct Team Team;

/* The text of the record, to be freed by the caller; -errno. */
typedef int (*PostEncoder)(Team *team, char **ret);
typedef void (*PostDone)(Team *team);

typedef struct Post {
    Team *team;
    char key[KEY_MAX];
    bool leased; /* put under this node's lease */
    PostEncoder encode;
    PostDone done; /* after each acknowledged write; may be NULL; may free the team */

    int64_t revision; /* of the last acknowledged write */
    bool wanted;      /* the content has changed since the last write began */
    EtcdCall *call;
    sd_event_source *retry;
    uint64_t retry_usec;
} Post;

void post_init(Post *post, Team *team, bool leased, PostEncoder encode, PostDone done);
void post_clear(Post *post);
/* The content has changed. */
void post_send(Post *post);
