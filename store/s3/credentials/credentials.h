/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.h - the credentials for S3: found in the same places as by AWS's tools, and renewed before they expire.
 *
 * The sources, in this order: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN) in the environment; web
 * identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, or the profile's web_identity_token_file,
 * role_arn) by STS; the profile in the shared files; the container's endpoint
 * (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI); the instance's metadata (IMDSv2), unless
 * AWS_EC2_METADATA_DISABLED. The first source that is configured is used; its failure is an error, and no
 * other source is tried.
 *
 * A thread renews credentials well before they expire, so that requests need not wait for them. No text ever holds a
 * secret or token, and their memory is wiped before it is freed.
 *
 * Ownership: s3_identity_new() gives the caller an S3Identity. S3Credentials are values.
 * Units:     seconds since 1970.
 * Errors:    -EACCES no source has credentials, or the source refused; -EHOSTUNREACH the source did not
 *            answer; -EINVAL the source is misconfigured; -EAGAIN credentials are being fetched. The text
 *            names the source and what to check.
 * Threads:   any; an S3Identity has a thread of its own.
 * Source:    AWS SDKs and Tools Reference Guide: credential provider chain; IMDSv2; EKS Pod Identity.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct S3Options S3Options;

enum { S3_TOKEN_MAX = 8192 };

typedef struct S3Credentials {
    char access_key[256], secret_key[256];
    char token[S3_TOKEN_MAX]; /* token of the session; "": none */
    int64_t expires;          /* when the credentials expire; 0: never */
} S3Credentials;

typedef struct S3Identity S3Identity;

/* Finds the configured source, and starts the thread that fetches credentials from it. The thread calls ready(context)
 * whenever s3_identity_get() would return new credentials or a new failure. */
int s3_identity_new(const S3Options *options, void (*ready)(void *context), void *context,
                    S3Identity **ret, Error *err);
S3Identity *s3_identity_free(S3Identity *identity);
DEFINE_CLEANUP(S3Identity, s3_identity_free)
/* Returns the credentials; never waits. -EAGAIN while the first credentials, or new credentials after
 * s3_identity_reject(), are being fetched. A failure is returned until a later attempt succeeds; the attempts never
 * end. *ret_serial grows with each new set of credentials. */
int s3_identity_get(S3Identity *identity, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* Reports that the server called the credentials with this serial expired or unknown. New credentials are
 * fetched, unless newer credentials are there already, or the source is the environment, which has no others. */
void s3_identity_reject(S3Identity *identity, uint64_t serial);
/* Returns the name of the source: "the environment", "profile x of /home/u/.aws/credentials", "the metadata of the
 * instance", ... */
const char *s3_identity_source(const S3Identity *identity);
