/* SPDX-License-Identifier: Apache-2.0 */
/* put.c - puts an object exactly once, even if answers are lost.
 *
 * Every put has a mark of its own, 128 random bits in S3_PUT_MARK_HEADER. It may be unknown whether a put was
 * done: its answer was lost, and the next try found an object, a conflict or no upload. Then
 * a HEAD request decides: an object with our mark and our size was written by this put; without an object, the put
 * starts again; an object with another mark was written by another writer first.
 *
 * STORE_IF_ABSENT is If-None-Match: * if the server obeys it (probe.c), in the PUT, or in the
 * completion of an upload in parts. Before an upload in parts, and always if the server does not
 * obey it, the put first checks with a HEAD that there is no object.
 *
 * Fault points: store.put.before, store.put.half (between the parts and their completion; before a
 * single PUT), store.put.parts (at the same point as store.put.half, only for parts), store.put.after.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "store/s3/client/retry.h"
#include "store/s3/s3-internal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void s3_random_bytes(void *ret, size_t n_bytes)
{
    assert(n_bytes <= 256); /* getrandom() returns up to 256 bytes in one piece */
    ssize_t n = getrandom(ret, n_bytes, 0);
    assert(n == (ssize_t)n_bytes);
}

int s3_pause(unsigned tries, uint64_t deadline_usec)
{
    uint64_t random;
    s3_random_bytes(&random, sizeof(random));
    const uint64_t pause_usec = retry_pause_usec(tries, -1, random);
    if (clock_boottime_usec() + pause_usec >= deadline_usec)
        return -EHOSTUNREACH;
    const struct timespec pause = {.tv_sec = (time_t)(pause_usec / USEC_PER_SEC),
                                   .tv_nsec = (long)(pause_usec % USEC_PER_SEC * NSEC_PER_USEC)};
    (void)nanosleep(&pause, NULL); /* a shorter pause does no harm */
    return 0;
}

/* Returns 0 if this put wrote the existing object, -EEXIST if another writer did, -ENOENT if no object exists. */
static int look(const S3Put *put, Error *err)
{
    S3Request head = {.method = S3_HEAD,
                      .bucket = put->s3->bucket,
                      .key = put->name.text,
                      .repeatable = true,
                      .stop = &put->s3->ending};
    if (s3_do(put->s3->client, &head, NULL) < 0)
        return s3_refuse(put->s3, put->key, &head, "look at", err);
    if (strcmp(head.reply.mark, put->mark) == 0 && head.reply.has_length &&
        head.reply.length == put->n_bytes)
        return 0;
    return error_set(err, -EEXIST, "%s/%s exists already", put->s3->store.uri, put->key);
}

static int put_whole(const S3Put *put, Error *err)
{
    S3Pair headers[2] = {{S3_PUT_MARK_HEADER, put->mark}};
    size_t n_headers = 1;
    if ((put->flags & STORE_IF_ABSENT) && put->can.if_absent)
        headers[n_headers++] = (S3Pair){"If-None-Match", "*"};
    S3Request request = {.method = S3_PUT,
                         .bucket = put->s3->bucket,
                         .key = put->name.text,
                         .headers = headers,
                         .n_headers = n_headers,
                         .body = put->parts,
                         .n_body = put->n_parts,
                         .checksum = true,
                         .repeatable = true, /* the mark shows which put wrote the object */
                         .stop = &put->s3->ending,
                         .deadline_usec = s3_deadline(put->s3, put->n_bytes)};
    int r = fault("store.put.half");
    if (r < 0)
        return error_errno(err, r, "cannot write %s/%s", put->s3->store.uri, put->key);
    r = s3_do(put->s3->client, &request, NULL);
    return r < 0 ? s3_refuse(put->s3, put->key, &request, "write", err) : 0;
}

static int put_until_known(S3Put *put, Error *err)
{
    const bool in_parts = s3_is_multipart(put->s3->options, put->n_bytes);
    const bool if_absent = put->flags & STORE_IF_ABSENT;
    for (unsigned tries = 1;; tries++) {
        if (if_absent && (in_parts || !put->can.if_absent)) {
            int seen = look(put, err);
            if (seen != -ENOENT)
                return seen;
        }
        int r = in_parts ? s3_upload(put, err) : put_whole(put, err);
        if (r != -EEXIST && r != -EAGAIN)
            return r;

        Error found = ERROR_INIT;
        int seen = look(put, &found);
        if (seen == 0)
            return 0; /* an earlier try, whose answer was lost, succeeded */
        if (seen != -ENOENT && (if_absent || seen != -EEXIST))
            return error_set(err, seen, "%s", found.text);
        if (s3_pause(tries, put->deadline_usec) < 0)
            return error_prefix(err, -EHOSTUNREACH, "given up");
    }
}

int s3_put_now(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err)
{
    S3Put put = {.s3 = s3, .key = key, .parts = parts, .n_parts = n_parts, .flags = flags};
    int r = s3_name(s3, key, &put.name, err);
    if (r == 0 && (r = s3_probe(s3, &put.can, err)) < 0)
        return error_prefix(err, r, "%s/%s", s3->store.uri, key);
    if (r < 0)
        return r;

    for (size_t i = 0; i < n_parts; i++)
        put.n_bytes += parts[i].iov_len;
    uint64_t random[2];
    s3_random_bytes(random, sizeof(random));
    (void)snprintf(put.mark, sizeof(put.mark), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    put.deadline_usec = s3_deadline(s3, put.n_bytes);

    r = put_until_known(&put, err);
    if (r < 0)
        return r;
    r = fault("store.put.after");
    return r < 0 ? error_errno(err, r, "cannot write %s/%s", s3->store.uri, key) : 0;
}

int s3_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
           StorePutFlags flags, Error *err)
{
    int r = fault("store.put.before");
    if (r < 0)
        return error_errno(err, r, "cannot write %s/%s", store->uri, key);
    return flags & STORE_DEFER ? s3_defer(s3_store(store), key, parts, n_parts, flags, err)
                               : s3_put_now(s3_store(store), key, parts, n_parts, flags, err);
}
