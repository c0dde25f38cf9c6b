/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c - s3://: the objects of a bucket below a prefix. This file has open, names, errors, head and version; the
 * other functions are in put.c, multipart.c, defer.c, probe.c, reads.c, listing.c and delete.c.
 *
 * The name of an object is the bytes of prefix, "/" and key, whatever they are. The client (client.h)
 * signs, retries and judges single requests; these files implement operations that need several requests.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "store/s3/s3-internal.h"

#include <string.h>

/* ---- names, errors ---- */

int s3_name(const S3Store *s3, const char *key, S3Name *ret, Error *err)
{
    int n = snprintf(ret->text, sizeof(ret->text), "%s%s", s3->prefix, key);
    if (n < 0 || (size_t)n >= sizeof(ret->text))
        return error_set(err, -EINVAL, "%s/%.200s: longer than the %d bytes of a name in S3",
                         s3->store.uri, key, S3_NAME_MAX);
    return 0;
}

int s3_refuse(const S3Store *s3, const char *key, const S3Request *request, const char *what,
              Error *err)
{
    const char *uri = s3->store.uri, *slash = *key ? "/" : "";
    int r = request->result;
    assert(r < 0);
    if (r == -ENOENT && strcmp(request->refusal.code, "NoSuchBucket") == 0)
        return error_set(err, r, "cannot %s %s%s%s: there is no bucket %s", what, uri, slash, key,
                         s3->bucket);
    if (r == -ENOENT)
        return error_set(err, r, "%s%s%s: no such object", uri, slash, key);
    return error_set(err, r, "cannot %s %s%s%s: %s", what, uri, slash, key, request->error.text);
}

uint64_t s3_deadline(const S3Store *s3, uint64_t n_bytes)
{
    return clock_boottime_usec() + s3->options->deadline_usec + n_bytes;
}

/* ---- head, version ---- */

static int request_head(S3Store *s3, const char *key, S3Request *request, Error *err)
{
    S3Name name;
    int r = s3_name(s3, key, &name, err);
    if (r < 0)
        return r;
    *request =
        (S3Request){.method = S3_HEAD, .bucket = s3->bucket, .key = name.text, .repeatable = true};
    if (s3_do(s3->client, request, NULL) < 0)
        return s3_refuse(s3, key, request, "look at", err);
    return 0;
}

static int s3_head(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    S3Request request;
    int r = request_head(s3_store(store), key, &request, err);
    if (r < 0)
        return r;
    if (!request.reply.has_length)
        return error_set(err, -EIO, "%s/%s: the server does not say its size", store->uri, key);
    *ret_bytes = request.reply.length;
    return 0;
}

static int s3_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err)
{
    S3Request request;
    int r = request_head(s3_store(store), key, &request, err);
    if (r < 0)
        return r;
    if (!request.reply.etag[0])
        return error_set(err, -EIO, "%s/%s: the server gives no ETag", store->uri, key);
    memcpy(ret, request.reply.etag, STORE_VERSION_MAX);
    return 0;
}

static int s3_local_path(Store *store, const char *key, char *ret, size_t size, Error *err)
{
    (void)ret;
    (void)size;
    return error_set(err, -EOPNOTSUPP, "%s/%s is not a local file", store->uri, key);
}

/* ---- new, free ---- */

static Store *s3_free(Store *store)
{
    S3Store *s3 = s3_store(store);
    s3->deferral = s3_deferral_free(s3->deferral);
    s3->client = s3_client_close(s3->client);
    (void)pthread_cond_destroy(&s3->finished); /* no thread waits */
    (void)pthread_mutex_destroy(&s3->lock);    /* the lock is not held */
    free(s3->bucket);
    free(s3->prefix);
    free(s3);
    return NULL;
}

static const StoreBackend s3_backend = {
    .free = s3_free,
    .put = s3_put,
    .flush = s3_flush,
    .get = s3_get,
    .get_range = s3_get_range,
    .head = s3_head,
    .list = s3_list,
    .delete = s3_delete,
    .sweep = s3_sweep,
    .local_path = s3_local_path,
    .version = s3_version,
    .puts_if_absent = s3_puts_if_absent,
    .read_begin = s3_read_begin,
    .read_wait = s3_read_wait,
    .read_cancel = s3_read_cancel,
    .delete_many = s3_delete_many,
};

static int open_client(S3Client **ret, Error *err)
{
    S3Options options = {0};
    int r = s3_options_load(&options, err);
    if (r < 0)
        return r;
    r = s3_client_open(&options, ret, err);
    s3_options_clear(&options);
    return r;
}

int s3_store_new(const char *bucket, const char *prefix, Store **ret, Error *err)
{
    S3Store *s3 = memory_new(S3Store);
    s3->store.backend = &s3_backend;
    (void)pthread_mutex_init(&s3->lock, NULL);    /* cannot fail with default attributes */
    (void)pthread_cond_init(&s3->finished, NULL); /* cannot fail */
    s3->bucket = memory_text(bucket);
    s3->prefix = memory_format("%s%s", prefix, *prefix ? "/" : "");
    s3->deferral = s3_deferral_new(s3);
    int r = open_client(&s3->client, err);
    if (r < 0) {
        (void)s3_free(&s3->store); /* the store is only partly initialized */
        return error_prefix(err, r, "store s3://%s/%s", bucket, prefix);
    }
    s3->options = s3_client_options(s3->client);
    *ret = &s3->store;
    return 0;
}
