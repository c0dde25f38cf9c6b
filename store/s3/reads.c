/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c - reads objects, as ranges that are requested together.
 *
 * A read of more than one range compares the ETags of all answers: if the object changed in
 * between, it is read again. A whole object in one answer is checked against its ETag.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "store/s3/s3-internal.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

enum {
    READ_TRIES = 3,    /* tries to read an object that changes */
    CHECK_TRIES = 5,   /* tries to read an object that does not match its ETag */
    SAME_BELIEVED = 3, /* this number of equal results in a row is accepted despite the ETag */
};

/* A read in progress. */
typedef struct Ranges {
    S3Store *s3;
    StoreRead *read;
    S3Name name;
    size_t n;
    int tries;
    /* guarded by the store's lock: */
    size_t n_left; /* requests in progress */
    int r;         /* the first failure; err has its text */
    Error err;
    S3Request requests[];
} Ranges;

/* Sets the error of a failed request as store.h defines it: a range outside the object is -EIO. */
static int refuse_range(const S3Store *s3, const char *key, const S3Request *request, Error *err)
{
    if (request->status == 416)
        return error_set(err, -EIO, "%s/%s is shorter than %llu bytes", s3->store.uri, key,
                         (unsigned long long)(request->offset + request->n_bytes));
    return s3_refuse(s3, key, request, "read", err);
}

static S3Request range_request(const S3Store *s3, const S3Name *name, uint64_t offset,
                               size_t n_bytes, void *buffer)
{
    return (S3Request){.method = S3_GET,
                       .bucket = s3->bucket,
                       .key = name->text,
                       .repeatable = true,
                       .buffer = buffer,
                       .ranged = true,
                       .offset = offset,
                       .n_bytes = n_bytes,
                       .deadline_usec = s3_deadline(s3, n_bytes)};
}

static void range_done(S3Request *request);

/* Begins all requests. The caller holds the store's lock, so that `done` of one request waits until all have begun. */
static void begin_ranges(Ranges *ranges)
{
    S3Store *s3 = ranges->s3;
    const StoreRead *read = ranges->read;
    const uint64_t part = s3->options->part_bytes;
    ranges->n_left = ranges->n;
    for (size_t i = 0; i < ranges->n; i++) {
        S3Request *request = &ranges->requests[i];
        const uint64_t at = i * part;
        *request = range_request(s3, &ranges->name, read->offset + at,
                                 (size_t)MIN(part, read->n_bytes - at), (char *)read->buffer + at);
        if (read->n_bytes == 0) /* an empty range cannot be requested */
            *request = (S3Request){.method = S3_HEAD,
                                   .bucket = s3->bucket,
                                   .key = ranges->name.text,
                                   .repeatable = true,
                                   .offset = read->offset};
        request->done = range_done;
        request->context = ranges;
        s3_begin(s3->client, request);
    }
}

static void cancel_ranges(Ranges *ranges)
{
    for (size_t i = 0; i < ranges->n; i++)
        s3_cancel(ranges->s3->client, &ranges->requests[i]);
}

static bool is_one_version(const Ranges *ranges)
{
    for (size_t i = 1; i < ranges->n; i++)
        if (strcmp(ranges->requests[i].reply.etag, ranges->requests[0].reply.etag) != 0)
            return false;
    return true;
}

/* Called with the store's lock when the last request is done. Returns false if the read was started again. */
static bool settle(Ranges *ranges)
{
    assert(ranges->n_left == 0);
    const char *uri = ranges->s3->store.uri;
    const StoreRead *read = ranges->read;
    if (ranges->r < 0)
        return true;
    if (!is_one_version(ranges)) {
        if (++ranges->tries < READ_TRIES) {
            begin_ranges(ranges);
            return false;
        }
        ranges->r =
            error_set(&ranges->err, -EIO, "%s/%s changed while it was read", uri, read->key);
    } else if (read->n_bytes == 0 && read->offset > ranges->requests[0].reply.length) {
        ranges->r = error_set(&ranges->err, -EIO, "%s/%s is shorter than %llu bytes", uri,
                              read->key, (unsigned long long)read->offset);
    }
    return true;
}

/* Runs on the client's thread. The first failed request cancels the others. */
static void range_done(S3Request *request)
{
    Ranges *ranges = request->context;
    S3Store *s3 = ranges->s3;
    (void)pthread_mutex_lock(&s3->lock); /* cannot fail for a default mutex */
    if (request->result < 0 && ranges->r == 0) {
        ranges->r = refuse_range(s3, ranges->read->key, request, &ranges->err);
        cancel_ranges(ranges);
    }
    assert(ranges->n_left > 0);
    if (--ranges->n_left == 0 && settle(ranges)) {
        store_read_arrive(ranges->read);
        (void)pthread_cond_broadcast(&s3->finished); /* cannot fail */
    }
    (void)pthread_mutex_unlock(&s3->lock); /* cannot fail; the reader may have freed ranges */
}

int s3_read_begin(Store *store, StoreRead *read, Error *err)
{
    S3Store *s3 = s3_store(store);
    const uint64_t part = s3->options->part_bytes;
    const size_t n = MAX((size_t)DIV_ROUND_UP((uint64_t)read->n_bytes, part), (size_t)1);
    if (read->n_bytes > UINT64_MAX - read->offset)
        return error_set(err, -EIO, "%s/%s is shorter than that", store->uri, read->key);
    Ranges *ranges = calloc(1, sizeof(*ranges) + n * sizeof(S3Request));
    if (!ranges)
        return error_set(err, -ENOMEM, "out of memory reading %s/%s", store->uri, read->key);
    int r = s3_name(s3, read->key, &ranges->name, err);
    if (r < 0) {
        free(ranges);
        return r;
    }
    ranges->s3 = s3;
    ranges->read = read;
    ranges->n = n;
    read->state = ranges;
    (void)pthread_mutex_lock(&s3->lock); /* cannot fail for a default mutex */
    begin_ranges(ranges);
    (void)pthread_mutex_unlock(&s3->lock); /* cannot fail */
    return 0;
}

int s3_read_wait(Store *store, StoreRead *read, Error *err)
{
    S3Store *s3 = s3_store(store);
    Ranges *ranges = read->state;
    (void)pthread_mutex_lock(&s3->lock); /* cannot fail for a default mutex */
    while (!atomic_load(&read->arrived))
        (void)pthread_cond_wait(&s3->finished,
                                &s3->lock); /* cannot fail; each request has a deadline */
    assert(ranges->read == read && ranges->n_left == 0);
    (void)pthread_mutex_unlock(&s3->lock); /* cannot fail */
    int r = ranges->r < 0 ? error_set(err, ranges->r, "%s", ranges->err.text) : 0;
    free(ranges);
    read->state = NULL;
    return r;
}

void s3_read_cancel(Store *store, StoreRead *read)
{
    S3Store *s3 = s3_store(store);
    Ranges *ranges = read->state;
    if (!ranges)
        return;
    (void)pthread_mutex_lock(&s3->lock); /* cannot fail for a default mutex */
    if (ranges->r == 0)
        ranges->r = -ECANCELED;
    cancel_ranges(ranges);
    (void)pthread_mutex_unlock(&s3->lock); /* cannot fail */
    (void)s3_read_wait(store, read, NULL); /* the result is not needed */
}

int s3_get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                 Error *err)
{
    StoreRead read = {.key = key, .offset = offset, .n_bytes = n_bytes, .buffer = buffer};
    int r = s3_read_begin(store, &read, err);
    return r < 0 ? r : s3_read_wait(store, &read, err);
}

/* ---- whole objects ---- */

static int too_big(const Store *store, const char *key, uint64_t n_bytes, size_t max, Error *err)
{
    return error_set(err, -EFBIG, "%s/%s has %llu bytes, more than the %zu read at most",
                     store->uri, key, (unsigned long long)n_bytes, max);
}

/* Reads an object of more than one part: first its size, then its ranges. */
static int get_in_ranges(Store *store, const char *key, size_t max_bytes, char **ret,
                         size_t *ret_bytes, Error *err)
{
    uint64_t n_bytes;
    int r = store->backend->head(store, key, &n_bytes, err);
    if (r < 0)
        return r;
    if (n_bytes > max_bytes)
        return too_big(store, key, n_bytes, max_bytes, err);
    _cleanup_free_ char *data = malloc((size_t)n_bytes + 1);
    if (!data)
        return error_set(err, -ENOMEM, "out of memory reading %s/%s", store->uri, key);
    r = s3_get_range(store, key, 0, (size_t)n_bytes, data, err);
    if (r < 0)
        return r;
    data[n_bytes] = '\0';
    *ret = TAKE_PTR(data);
    *ret_bytes = (size_t)n_bytes;
    return 0;
}

/* Whether the bytes match the ETag. Returns false, and the MD5 of the bytes, only if the ETag looks like an MD5 and
 * differs. The ETag of an unencrypted object that one PUT wrote is its MD5. */
static bool is_of_etag(const char *etag, const char *data, size_t n_bytes, char ret_md5[33])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (strlen(etag) != 32 || EVP_Digest(data, n_bytes, digest, &n, EVP_md5(), NULL) != 1)
        return true; /* EVP_Digest() fails on a machine that forbids MD5 */
    return strcasecmp(etag, hash_format_bytes(digest, n, ret_md5)) == 0;
}

/* Reads an object with one request. If the bytes do not match the ETag, the bytes were damaged in transit, or the
 * ETag is not an MD5 although the server does not say so. So the object is read again; the same bytes three times in a
 * row are accepted. */
static int get_checked(S3Store *s3, S3Request *request)
{
    char md5[33] = "", last[33] = "";
    const S3Request asked = *request;
    for (int tries = 0, same = 0; tries < CHECK_TRIES; tries++) {
        *request = asked;
        int r = s3_do(s3->client, request, NULL);
        if (r < 0 || request->reply.etag_opaque ||
            is_of_etag(request->reply.etag, request->text ? request->text : "", request->n_text,
                       md5))
            return r;
        same = strcmp(md5, last) == 0 ? same + 1 : 1;
        if (same == SAME_BELIEVED)
            return r;
        memcpy(last, md5, sizeof(last));
        free(request->text);
        request->text = NULL;
    }
    request->result = -EIO;
    return error_set(&request->error, -EIO,
                     "read %d times, always with other bytes: MD5 %s, but ETag %s", CHECK_TRIES,
                     last, request->reply.etag);
}

int s3_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
           Error *err)
{
    S3Store *s3 = s3_store(store);
    S3Name name;
    int r = s3_name(s3, key, &name, err);
    if (r < 0)
        return r;
    S3Request request = {.method = S3_GET,
                         .bucket = s3->bucket,
                         .key = name.text,
                         .repeatable = true,
                         .text_max = (size_t)MIN(max_bytes, s3->options->part_bytes)};
    r = get_checked(s3, &request);
    _cleanup_free_ char *text = request.text;
    size_t n_bytes = request.n_text;
    if (r == -EFBIG) {
        r = get_in_ranges(store, key, max_bytes, &text, &n_bytes, err);
        if (r < 0)
            return r;
    } else if (r < 0) {
        return s3_refuse(s3, key, &request, "read", err);
    }
    *ret = text ? TAKE_PTR(text) : memory_text("");
    if (ret_bytes)
        *ret_bytes = n_bytes;
    return 0;
}
