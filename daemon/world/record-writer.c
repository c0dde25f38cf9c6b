/* record-writer.c - see record-writer.h. */
#include "daemon/world/record-writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/drain.h"
#include "daemon/manager.h"
#include "daemon/world/job.h"

#include <string.h>

enum { RETRY_FIRST_MSEC = 100, RETRY_LAST_MSEC = 2000 };

static void post_write(Post *post);

void post_init(Post *post, Team *team, bool leased, PostEncoder encode, PostDone done)
{
    *post = (Post){.team = team, .leased = leased, .encode = encode, .done = done};
}

void post_clear(Post *post)
{
    post->call = etcd_call_free(post->call);
    post->retry = sd_event_source_disable_unref(post->retry);
    post->wanted = false;
}

static int on_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Post *post = userdata;
    post->retry = sd_event_source_disable_unref(post->retry);
    if (post->wanted)
        post_write(post);
    return 0;
}

static void post_retry_later(Post *post)
{
    post->wanted = true;
    post->retry_usec = CLAMP(post->retry_usec * 2, RETRY_FIRST_MSEC * USEC_PER_MSEC,
                             RETRY_LAST_MSEC * USEC_PER_MSEC);
    if (!post->retry)
        manager_add_timer(post->team->job->manager, post->retry_usec, on_retry, post, &post->retry);
}

static void on_written(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Post *post = userdata;
    Manager *m = post->team->job->manager;
    post->call = NULL; /* it frees itself */
    if (r < 0) {
        log_debug("%s: %s; trying again", post->key, err->text);
        post_retry_later(post);
        return;
    }

    manager_note_contact(m);
    post->retry_usec = 0;
    if (!result->succeeded) {
        team_refused(post->team, post->key);
        if (post->wanted && post->team->over)
            post_write(post); /* the team ended meanwhile, and its guard is another one now */
        return;
    }
    post->revision = result->revision;
    if (post->wanted)
        post_write(post);
    else if (post->done)
        post->done(post->team);
    drain_advance(m); /* it waits for what is written */
}

static void post_write(Post *post)
{
    Manager *m = post->team->job->manager;
    int64_t lease = post->leased ? manager_lease(m) : 0;
    if (post->leased && lease == 0)
        return; /* the next lease brings it up again */

    _cleanup_free_ char *text = NULL;
    char guard_key[KEY_MAX];
    int r = post->encode(post->team, &text);
    if (r == 0) {
        EtcdCompare guard = {.key = key_of(m->config.cluster, KEY_WORLDS, post->team->job->name,
                                           guard_key),
                             .target = ETCD_MOD_REVISION,
                             .equals = team_guard_revision(post->team)};
        EtcdOp put = {.kind = ETCD_PUT, .key = post->key, .value = text, .lease = lease};
        post->wanted = false;
        r = etcd_txn(m->etcd, &guard, 1, &put, 1, on_written, post, &post->call);
    }
    if (r < 0) {
        log_warning("%s: cannot write it: %s", post->key, strerror(-r));
        post_retry_later(post);
    }
}

void post_send(Post *post)
{
    post->wanted = true;
    if (!post->call && !post->retry)
        post_write(post);
}
