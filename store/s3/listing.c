/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - lists what a prefix has: objects, and unfinished uploads.
 *
 * Names that are not keys of a store (folder markers of consoles, scratch objects) are skipped.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "store/s3/s3-internal.h"

#include <string.h>

enum {
    PAGE_BYTES = 8 << 20, /* enough for 1,000 names of 1,024 bytes, each byte as %XX, and the XML */
    EMPTY_PAGES_MAX = 1000,
};

/* Replaces *page by the next page, or by the first page if *page is empty. */
static int turn_page(S3Store *s3, bool uploads, const char *prefix, uint64_t patience_usec,
                     ReplyPage *page, int64_t *ret_date, Error *err)
{
    const S3Pair of_objects[] = {{"list-type", "2"},
                                 {"encoding-type", "url"},
                                 {"max-keys", "1000"},
                                 {"prefix", prefix},
                                 {"continuation-token", page->next}};
    /* encoding-type is not sent: Ceph (16.2) would encode the names of this list, but not report that it did. */
    const S3Pair of_uploads[] = {{"uploads", NULL},
                                 {"max-uploads", "1000"},
                                 {"prefix", prefix},
                                 {"key-marker", page->next},
                                 {"upload-id-marker", page->next_id}};
    const size_t n_query = uploads ? ELEMENTSOF(of_uploads) - (page->next ? !page->next_id : 2)
                                   : ELEMENTSOF(of_objects) - !page->next;
    S3Request request = {.method = S3_GET,
                         .bucket = s3->bucket,
                         .key = "",
                         .query = uploads ? of_uploads : of_objects,
                         .n_query = n_query,
                         .repeatable = true,
                         .deadline_usec = clock_boottime_usec() + patience_usec,
                         .text_max = PAGE_BYTES};
    ReplyPage next = {0};
    int r = s3_do(s3->client, &request, NULL);
    if (r == -ENOENT)
        r = error_set(err, r, "cannot list s3://%s/%s: there is no bucket %s", s3->bucket, prefix,
                      s3->bucket);
    else if (r < 0)
        r = error_set(err, r, "cannot list s3://%s/%s: %s", s3->bucket, prefix, request.error.text);
    else if ((r = (uploads ? reply_uploads : reply_list)(request.text, request.n_text, &next,
                                                         err)) < 0)
        r = error_prefix(err, -EIO, "cannot list s3://%s/%s", s3->bucket, prefix);
    else if (next.next && page->next && strcmp(next.next, page->next) == 0 &&
             strcmp(next.next_id ?: "", page->next_id ?: "") == 0)
        r = error_set(err, -EIO, "cannot list s3://%s/%s: the same page again", s3->bucket, prefix);
    free(request.text);
    reply_page_clear(r < 0 ? &next : page);
    if (r < 0)
        return r;
    *page = next;
    *ret_date = request.reply.date;
    return 0;
}

int s3_each_entry(S3Store *s3, bool uploads, const char *prefix, uint64_t patience_usec,
                  S3EachEntry each, void *context, Error *err)
{
    ReplyPage page = {0};
    size_t empty = 0;
    int r;
    do {
        int64_t date = 0;
        r = turn_page(s3, uploads, prefix, patience_usec, &page, &date, err);
        empty = page.n_entries == 0 ? empty + 1 : 0;
        if (r == 0 && empty > EMPTY_PAGES_MAX)
            r = error_set(err, -EIO, "cannot list s3://%s/%s: %d pages without an object",
                          s3->bucket, prefix, EMPTY_PAGES_MAX);
        for (size_t i = 0; r == 0 && i < page.n_entries; i++)
            r = each(context, &page.entries[i], date, err);
    } while (r == 0 && page.next);
    reply_page_clear(&page);
    return r;
}

/* ---- objects ---- */

typedef struct S3Listing {
    S3Store *s3;
    const char *prefix; /* prefix of the objects' full names */
    size_t max, capacity;
    bool versions;
    StoreList list;
} S3Listing;

/* Adds an object to the list, with only the key part of its name. */
static int add_object(void *context, const ReplyEntry *object, _unused_ int64_t server_date,
                      Error *err)
{
    S3Listing *l = context;
    if (strncmp(object->key, l->prefix, strlen(l->prefix)) != 0)
        return error_set(err, -EIO, "cannot list s3://%s/%s: the server tells of %.200s",
                         l->s3->bucket, l->prefix, object->key);
    const char *key = object->key + strlen(l->s3->prefix);
    if (!store_key_is_good(key))
        return 0;
    if (l->list.n_objects == l->max)
        return error_set(err, -E2BIG, "s3://%s/%s: more than %zu objects", l->s3->bucket, l->prefix,
                         l->max);
    l->list.objects =
        memory_grow(l->list.objects, l->list.n_objects, &l->capacity, sizeof(StoreObject));
    l->list.objects[l->list.n_objects++] =
        (StoreObject){.key = memory_text(key),
                      .n_bytes = object->n_bytes,
                      .modified_usec = object->usec,
                      .version = l->versions ? memory_text(object->etag) : NULL};
    return 0;
}

int s3_list(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret, Error *err)
{
    S3Store *s3 = s3_store(store);
    S3Name name;
    int r = s3_name(s3, prefix, &name, err);
    if (r < 0)
        return r;
    S3Listing l = {.s3 = s3, .prefix = name.text, .max = max, .versions = versions};
    r = s3_each_entry(s3, false, name.text, s3->options->deadline_usec, add_object, &l, err);
    if (r < 0) {
        store_list_clear(&l.list);
        return r;
    }
    if (l.list.n_objects > 0)
        qsort(l.list.objects, l.list.n_objects, sizeof(*l.list.objects), store_compare_keys);
    *ret = l.list;
    return 0;
}

/* ---- sweep ---- */

typedef struct S3Sweep {
    S3Store *s3;
    const char *prefix; /* prefix of the objects' full names; some servers do not filter by it */
    uint64_t older_than_usec;
    StoreMayRemove may_remove;
    void *context;
    size_t removed;
} S3Sweep;

/* Whether an entry is old enough to be removed. Its age is computed with the server's clock if the reply has a date. */
static bool is_old(const S3Sweep *sweep, uint64_t since_usec, int64_t server_date)
{
    const uint64_t now =
        server_date > 0 ? (uint64_t)server_date * USEC_PER_SEC : clock_realtime_usec();
    return sweep->older_than_usec == 0 ||
           (now > since_usec && now - since_usec >= sweep->older_than_usec);
}

static int sweep_entry(void *context, const ReplyEntry *entry, int64_t server_date, Error *err)
{
    S3Sweep *sweep = context;
    S3Store *s3 = sweep->s3;
    if (strncmp(entry->key, sweep->prefix, strlen(sweep->prefix)) != 0 ||
        !is_old(sweep, entry->usec, server_date))
        return 0;
    const char *key = entry->key + strlen(s3->prefix);
    if (sweep->may_remove && !sweep->may_remove(sweep->context, key))
        return 0;
    int r = entry->id ? s3_abort(s3, entry->key, entry->id, err) : s3_delete(&s3->store, key, err);
    sweep->removed += r == 0;
    return r;
}

int s3_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
             size_t *ret_removed, Error *err)
{
    S3Store *s3 = s3_store(store);
    const uint64_t patience_usec = s3->options->deadline_usec;
    S3Name scratch; /* name prefix of the scratch objects that crashed probes left */
    S3Sweep sweep = {.s3 = s3,
                     .prefix = s3->prefix,
                     .older_than_usec = older_than_usec,
                     .may_remove = may_remove,
                     .context = context};
    int r = s3_each_entry(s3, true, sweep.prefix, patience_usec, sweep_entry, &sweep, err);
    if (r == 0)
        r = s3_name(s3, STORE_TEMPORARY "probe-", &scratch, err);
    sweep.prefix = scratch.text;
    if (r == 0)
        r = s3_each_entry(s3, false, sweep.prefix, patience_usec, sweep_entry, &sweep, err);
    *ret_removed = sweep.removed;
    return r;
}
