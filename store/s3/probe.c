/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - finds out which optional functions a server supports.
 *
 * A writer probes once per process, endpoint and bucket, with an object of its own below the prefix. The object is
 * removed at the end (if the writer crashes, by a sweep, since its name is that of a temporary):
 *
 *   a PUT with a bad x-amz-checksum-crc32c      refused: the server checks the header; otherwise it does not
 *   a PUT with If-None-Match: *                 while there is no object
 *   the same PUT again                          412: the server obeys the header; success, or refused as
 *                                               unknown: it does not
 *
 * The first PUT is omitted if the options set whether to send checksums. If the server cannot be
 * reached, or refuses our identity, the probe fails, and the next put probes again.
 */
#include "base/clock.h"
#include "store/s3/s3-internal.h"

#include <inttypes.h>
#include <string.h>

enum { SITES_MAX = 16 }; /* how many results are stored; further sites are probed each time */
#define BRIEF_USEC (2 * USEC_PER_SEC)

typedef struct Site {
    char *endpoint, *bucket;
    S3Abilities can;
} Site;

static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER; /* held during a probe */
static Site sites[SITES_MAX];
static size_t n_sites;

static const char *endpoint_of(const S3Store *s3)
{
    const S3Options *options = s3->options;
    return options->endpoint ? options->endpoint : options->region;
}

/* Whether the server refused the request because of its checksum. */
static bool is_bad_digest(const S3Request *request)
{
    const char *code = request->refusal.code;
    return strcmp(code, "BadDigest") == 0 || strcmp(code, "XAmzContentChecksumMismatch") == 0;
}

/* Puts the scratch object. -EEXIST: the server refused the put since the object exists. -EBADMSG: the server refused
 * the header as invalid or unknown. */
static int put_scratch(S3Store *s3, const S3Name *name, const S3Pair *header,
                       uint64_t patience_usec, Error *err)
{
    struct iovec body = {(void *)(uintptr_t) "sdtrain", 7}; /* the body is only read */
    S3Request request = {.method = S3_PUT,
                         .bucket = s3->bucket,
                         .key = name->text,
                         .headers = header,
                         .n_headers = 1,
                         .body = &body,
                         .n_body = 1,
                         .repeatable = true,
                         .stop = &s3->ending,
                         .deadline_usec = clock_boottime_usec() + patience_usec};
    int r = s3_do(s3->client, &request, NULL);
    if (r == 0 || r == -EEXIST || r == -EAGAIN)
        return r;
    /* 400 is also the status for expired credentials (-EACCES), and for bodies that arrived slowly. */
    if (r == -EOPNOTSUPP || (r == -EIO && request.status == 400) || is_bad_digest(&request))
        return -EBADMSG;
    return s3_refuse(s3, name->text + strlen(s3->prefix), &request, "write", err);
}

static int try_checksum(S3Store *s3, const S3Name *name, bool *ret, Error *err)
{
    switch (s3->options->checksum) {
    case S3_ON:
    case S3_OFF:
        *ret = s3->options->checksum == S3_ON;
        return 0;
    case S3_AUTO:
        break;
    }
    /* BadDigest is retried, since the network may cause it; so the first deadline is short. */
    const S3Pair header = {"x-amz-checksum-crc32c", "none"};
    int r = put_scratch(s3, name, &header, MIN(BRIEF_USEC, s3->options->deadline_usec), err);
    if (r == -EHOSTUNREACH)
        r = put_scratch(s3, name, &header, s3->options->deadline_usec, err);
    if (r < 0 && r != -EBADMSG)
        return r;
    *ret = r == -EBADMSG;
    return 0;
}

/* Only this process knows the name, so an existing object is ours. Even the first put may find the
 * object, because try_checksum() may have put it. */
static int try_if_absent(S3Store *s3, const S3Name *name, bool *ret, Error *err)
{
    int r = 0;
    for (int i = 0; i < 2 && r == 0; i++)
        r = put_scratch(s3, name, &(S3Pair){"If-None-Match", "*"}, s3->options->deadline_usec, err);
    if (r < 0 && r != -EEXIST && r != -EAGAIN && r != -EBADMSG)
        return r;
    *ret = r == -EEXIST || r == -EAGAIN;
    return 0;
}

static int probe_store(S3Store *s3, S3Abilities *ret, Error *err)
{
    uint64_t random;
    char key[sizeof(STORE_TEMPORARY "probe-0123456789abcdef")];
    S3Name name;
    s3_random_bytes(&random, sizeof(random));
    (void)snprintf(key, sizeof(key), STORE_TEMPORARY "probe-%016" PRIx64, random);
    int r = s3_name(s3, key, &name, err);
    if (r == 0)
        r = try_checksum(s3, &name, &ret->checksum, err);
    if (r == 0)
        r = try_if_absent(s3, &name, &ret->if_absent, err);
    if (r == 0)
        (void)s3_delete(&s3->store, key, NULL); /* on failure, a sweep deletes it */
    return r;
}

static const Site *site_find(const S3Store *s3)
{
    for (size_t i = 0; i < n_sites; i++)
        if (strcmp(sites[i].endpoint, endpoint_of(s3)) == 0 &&
            strcmp(sites[i].bucket, s3->bucket) == 0)
            return &sites[i];
    return NULL;
}

static void site_keep(const S3Store *s3, const S3Abilities *can)
{
    if (n_sites == SITES_MAX)
        return;
    Site site = {.endpoint = strdup(endpoint_of(s3)), .bucket = strdup(s3->bucket), .can = *can};
    if (site.endpoint && site.bucket) {
        sites[n_sites++] = site;
    } else {
        free(site.endpoint);
        free(site.bucket);
    }
}

int s3_probe(S3Store *s3, S3Abilities *ret, Error *err)
{
    int r = 0;
    S3Abilities can = {0};
    const uint64_t begun_usec = clock_boottime_usec();
    (void)pthread_mutex_lock(&sites_lock); /* cannot fail for a default mutex */
    const Site *site = site_find(s3);
    if (site) {
        can = site->can;
    } else if (s3->probe_failed_usec > begun_usec) { /* another thread's probe failed */
        r = error_set(err, s3->probe_failure.code, "%s", s3->probe_failure.text);
    } else if ((r = probe_store(s3, &can, &s3->probe_failure)) == 0) {
        site_keep(s3, &can);
    } else {
        s3->probe_failed_usec = clock_boottime_usec();
        (void)error_set(err, r, "%s", s3->probe_failure.text); /* r is returned below */
    }
    (void)pthread_mutex_unlock(&sites_lock); /* cannot fail */
    if (r < 0)
        return r;
    s3_client_set_checksum(s3->client, can.checksum);
    *ret = can;
    return 0;
}

int s3_puts_if_absent(Store *store, bool *ret, Error *err)
{
    S3Abilities can;
    int r = s3_probe(s3_store(store), &can, err);
    if (r == 0)
        *ret = can.if_absent;
    return r;
}
