/* SPDX-License-Identifier: Apache-2.0 */
/* sign.h - AWS Signature Version 4 in the Authorization header, and S3's encoding of URLs.
 *
 * Ownership: the caller frees returned texts.
 * Units:     time is seconds since 1970.
 * Errors:    -ENOMEM of OpenSSL; -EINVAL a control character in a header, key id, token or region, or a time that
 *            is not a date.
 * Threads:   any; a SignCache belongs to one thread.
 * Source:    AWS General Reference, "Create a signed AWS API request"; S3's exceptions: a path is
 *            encoded once, x-amz-content-sha256 is always sent.
 */
#pragma once

#include "base/error.h"
#include "store/s3/credentials/credentials.h"

#include <sys/uio.h>

typedef struct S3Pair {
    const char *name, *value; /* not encoded; in a query NULL means "" */
} S3Pair;

#define SIGN_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGN_UNSIGNED "UNSIGNED-PAYLOAD"

enum { SIGN_HASH_BYTES = 65 };

typedef struct SignRequest {
    const char *method;
    const char *host; /* as in the Host header: has a port unless it is the scheme's default */
    const char *path; /* encoded, with its leading slash */
    const S3Pair *query;
    size_t n_query; /* number of pairs, which may have any order */
    /* Headers may have any order and case; several headers of one name are in the order in which they are sent. All
     * headers are signed. sign_request() adds, and signs, the headers host, x-amz-date, x-amz-security-token and, for
     * the service "s3", x-amz-content-sha256. */
    const S3Pair *headers;
    size_t n_headers;
    const char *payload_hash; /* 64 hex digits, or SIGN_UNSIGNED */
} SignRequest;

/* The last signing key, which is derived from secret, date, region and service. */
typedef struct SignCache {
    uint8_t scope[32]; /* hash of secret, date, region and service */
    uint8_t key[32];
    bool valid; /* false: no key was derived yet */
} SignCache;

typedef struct SignedRequest {
    char date[17];       /* value of x-amz-date */
    char *authorization; /* value of Authorization; the caller frees it */
} SignedRequest;

int sign_request(const SignRequest *request, const S3Credentials *credentials, const char *region,
                 const char *service, int64_t time, SignCache *cache, SignedRequest *ret,
                 Error *err);

/* Encodes all bytes except letters, digits, "-._~" (and "/" if keep_slash) as %XX (RFC 3986). */
char *sign_encode(const char *text, bool keep_slash);
/* Returns the canonical query string, "a=1&b=": sorted, encoded, each name with "=". */
char *sign_query(const S3Pair *query, size_t n_query);
int sign_payload_hash(const struct iovec *parts, size_t n_parts, char ret[SIGN_HASH_BYTES]);
