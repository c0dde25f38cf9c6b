/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - what is below a prefix: objects, and uploads that nobody finished.
 *
 * Names that are no keys of a store (folders' markers of consoles, scratch objects) are passed over.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "store/s3/s3-internal.h"

#include <string.h>

enum {
    PAGE_BYTES = 8 << 20, /* 1,000 names of 1,024 bytes, each written as %XX, and what is around */
    EMPTY_PAGES_MAX = 1000,
};

/* One page of a listing; the caller frees request->text. */
static int ask_page(S3Store *s3, const S3Pair *query, size_t n_query, const char *prefix,
                    uint64_t patience_usec, S3Request *request, Error *err)
{
    *request = (S3Request){.method = S3_GET,
                           .bucket = s3->bucket,
                           .key = "",
                           .query = query,
                           .n_query = n_query,
                           .repeatable = true,
                           .deadline_usec = clock_boottime_usec() + patience_usec,
                           .text_max = PAGE_BYTES};
    if (s3_do(s3->client, request, NULL) == 0)
        return 0;
    if (request->result == -ENOENT)
        return error_set(err, -ENOENT, "cannot list s3://%s/%s: there is no bucket %s", s3->bucket,
                         prefix, s3->bucket);
    return error_set(err, request->result, "cannot list s3://%s/%s: %s", s3->bucket, prefix,
                     request->error.text);
}

/* ---- objects ---- */

typedef struct S3Listing {
    S3Store *s3;
    const char *prefix; /* of names */
    size_t max, capacity, n_seen;
    StoreList list;
} S3Listing;

/* Takes the name; what it keeps is the key. */
static int add(S3Listing *l, StoreObject *object, Error *err)
{
    const size_t skip = strlen(l->s3->prefix);
    if (strncmp(object->key, l->prefix, strlen(l->prefix)) != 0)
        return error_set(err, -EIO, "cannot list s3://%s/%s: the server tells of %.200s",
                         l->s3->bucket, l->prefix, object->key);
    l->n_seen++;
    if (!store_key_is_good(object->key + skip))
        return 0;
    if (l->list.n_objects == l->max)
        return error_set(err, -E2BIG, "s3://%s/%s: more than %zu objects", l->s3->bucket, l->prefix,
                         l->max);
    l->list.objects =
        memory_grow(l->list.objects, l->list.n_objects, &l->capacity, sizeof(StoreObject));
    StoreObject *kept = &l->list.objects[l->list.n_objects++];
    *kept = *object;
    kept->key = memory_text(object->key + skip);
    return 0;
}

/* *token: where to go on; NULL at the end. */
static int add_page(S3Listing *l, char **token, Error *err)
{
    const S3Pair query[] = {{"list-type", "2"},
                            {"encoding-type", "url"},
                            {"max-keys", "1000"},
                            {"prefix", l->prefix},
                            {"continuation-token", *token}};
    S3Request request;
    int r = ask_page(l->s3, query, ELEMENTSOF(query) - !*token, l->prefix,
                     l->s3->options->deadline_usec, &request, err);
    ReplyList page = {0};
    if (r == 0 && (r = reply_list(request.text, request.n_text, &page, err)) < 0)
        r = error_prefix(err, -EIO, "cannot list s3://%s/%s", l->s3->bucket, l->prefix);
    for (size_t i = 0; r == 0 && i < page.n_objects; i++)
        r = add(l, &page.objects[i], err);
    if (r == 0 && page.next && *token && strcmp(page.next, *token) == 0)
        r = error_set(err, -EIO, "cannot list s3://%s/%s: the same page again", l->s3->bucket,
                      l->prefix);
    if (r == 0) {
        free(*token);
        *token = TAKE_PTR(page.next);
    }
    reply_list_clear(&page);
    free(request.text);
    return r;
}

int s3_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err)
{
    S3Store *s3 = s3_store(store);
    S3Name name;
    int r = s3_name(s3, prefix, &name, err);
    if (r < 0)
        return r;
    S3Listing l = {.s3 = s3, .prefix = name.text, .max = max};
    _cleanup_free_ char *token = NULL;
    size_t empty = 0;
    do {
        const size_t seen = l.n_seen;
        r = add_page(&l, &token, err);
        empty = l.n_seen == seen ? empty + 1 : 0;
        if (r == 0 && empty > EMPTY_PAGES_MAX)
            r = error_set(err, -EIO, "cannot list s3://%s/%s: %d pages without an object",
                          s3->bucket, name.text, EMPTY_PAGES_MAX);
    } while (r == 0 && token);
    if (r < 0) {
        store_list_clear(&l.list);
        return r;
    }
    if (l.list.n_objects > 0)
        qsort(l.list.objects, l.list.n_objects, sizeof(*l.list.objects), store_compare_keys);
    *ret = l.list;
    return 0;
}

/* ---- unfinished uploads ---- */

/* Where to go on: after (key, id). */
typedef struct Marker {
    char *key, *id;
} Marker;

static int each_of_page(S3Store *s3, const char *prefix, uint64_t patience_usec, Marker *after,
                        S3EachUpload each, void *context, Error *err)
{
    /* Not encoding-type: Ceph (16.2) obeys it here and does not say so. */
    const S3Pair query[] = {{"uploads", NULL},
                            {"max-uploads", "1000"},
                            {"prefix", prefix},
                            {"key-marker", after->key},
                            {"upload-id-marker", after->id}};
    S3Request request;
    ReplyUploads page = {0};
    const size_t n_query = ELEMENTSOF(query) - (after->key ? !after->id : 2);
    int r = ask_page(s3, query, n_query, prefix, patience_usec, &request, err);
    if (r == 0 && (r = reply_uploads(request.text, request.n_text, &page, err)) < 0)
        r = error_prefix(err, -EIO, "cannot list uploads of s3://%s/%s", s3->bucket, prefix);
    for (size_t i = 0; r == 0 && i < page.n_uploads; i++)
        if (strncmp(page.uploads[i].key, prefix, strlen(prefix)) == 0) /* not all servers filter */
            r = each(context, &page.uploads[i], request.reply.date, err);
    if (r == 0 && page.next_key && after->key && strcmp(page.next_key, after->key) == 0 &&
        strcmp(page.next_id ? page.next_id : "", after->id ? after->id : "") == 0)
        r = error_set(err, -EIO, "cannot list uploads of s3://%s/%s: the same page again",
                      s3->bucket, prefix);
    free(after->key);
    free(after->id);
    *after = (Marker){.key = TAKE_PTR(page.next_key), .id = TAKE_PTR(page.next_id)};
    reply_uploads_clear(&page);
    free(request.text);
    return r;
}

int s3_each_upload(S3Store *s3, const char *prefix, uint64_t patience_usec, S3EachUpload each,
                   void *context, Error *err)
{
    Marker after = {0};
    int r;
    do
        r = each_of_page(s3, prefix, patience_usec, &after, each, context, err);
    while (r == 0 && after.key);
    free(after.key);
    free(after.id);
    return r;
}

/* ---- sweep ---- */

typedef struct S3Sweep {
    S3Store *s3;
    uint64_t older_than_usec;
    StoreMayRemove may_remove;
    void *context;
    size_t removed;
} S3Sweep;

/* By the server's clock, where it tells it. */
static bool is_old(const S3Sweep *sweep, uint64_t since_usec, int64_t server_date)
{
    const uint64_t now =
        server_date > 0 ? (uint64_t)server_date * USEC_PER_SEC : clock_realtime_usec();
    return sweep->older_than_usec == 0 ||
           (now > since_usec && now - since_usec >= sweep->older_than_usec);
}

static int sweep_upload(void *context, const ReplyUpload *upload, int64_t server_date, Error *err)
{
    S3Sweep *sweep = context;
    const char *key = upload->key + strlen(sweep->s3->prefix);
    if (!is_old(sweep, upload->begun_usec, server_date) ||
        (sweep->may_remove && !sweep->may_remove(sweep->context, key)))
        return 0;
    int r = s3_abort(sweep->s3, upload->key, upload->id, err);
    sweep->removed += r == 0;
    return r;
}

/* What probe.c left behind when its process died. */
static int sweep_scratch(S3Sweep *sweep, Error *err)
{
    S3Store *s3 = sweep->s3;
    S3Name name;
    int r = s3_name(s3, STORE_TEMPORARY "probe-", &name, err);
    if (r < 0)
        return r;
    const S3Pair query[] = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", name.text}};
    S3Request request;
    ReplyList page = {0};
    r = ask_page(s3, query, ELEMENTSOF(query), name.text, s3->options->deadline_usec, &request,
                 err);
    if (r == 0 && (r = reply_list(request.text, request.n_text, &page, err)) < 0)
        r = error_prefix(err, -EIO, "cannot list s3://%s/%s", s3->bucket, name.text);
    for (size_t i = 0; r == 0 && i < page.n_objects; i++) {
        const char *key = page.objects[i].key + strlen(s3->prefix);
        if (strncmp(page.objects[i].key, name.text, strlen(name.text)) != 0 ||
            !is_old(sweep, page.objects[i].modified_usec, request.reply.date) ||
            (sweep->may_remove && !sweep->may_remove(sweep->context, key)))
            continue;
        r = s3_delete(&s3->store, key, err);
        sweep->removed += r == 0;
    }
    reply_list_clear(&page);
    free(request.text);
    return r;
}

int s3_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
             size_t *ret_removed, Error *err)
{
    S3Sweep sweep = {.s3 = s3_store(store),
                     .older_than_usec = older_than_usec,
                     .may_remove = may_remove,
                     .context = context};
    int r = s3_each_upload(sweep.s3, sweep.s3->prefix, sweep.s3->options->deadline_usec,
                           sweep_upload, &sweep, err);
    if (r == 0)
        r = sweep_scratch(&sweep, err);
    *ret_removed = sweep.removed;
    return r;
}
