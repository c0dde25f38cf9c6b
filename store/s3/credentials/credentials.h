/* credentials.h - who we are to S3: found where AWS's tools look, and renewed before it expires.
 *
 * In this order: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN) in the environment; web
 * identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, or the profile's web_identity_token_file,
 * role_arn) by STS; the profile in the shared files; the container's endpoint
 * (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI); the instance's metadata (IMDSv2), unless
 * AWS_EC2_METADATA_DISABLED. The first that is set up is taken; when it fails, that is told, and no
 * other is tried.
 *
 * A thread renews them well before they expire; who has good ones never waits. Secrets and tokens
 * are in no text, ever, and are wiped when they are let go.
 *
 * Ownership: s3_identity_new() gives the caller an S3Identity. S3Credentials are values.
 * Units:     seconds since 1970.
 * Errors:    -EACCES there are none, or their source refused; -EHOSTUNREACH their source did not
 *            answer; -EINVAL a source that is set up wrong; -EAGAIN they are being fetched. One text
 *            for each, that names the source and what to look at.
 * Threads:   any; one of its own.
 * Source:    AWS SDKs and Tools Reference Guide: credential provider chain; IMDSv2; EKS Pod Identity.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct S3Options S3Options;

enum { S3_TOKEN_MAX = 8192 };

typedef struct S3Credentials {
    char access_key[256], secret_key[256];
    char token[S3_TOKEN_MAX]; /* "": none */
    int64_t expires;          /* 0: never */
} S3Credentials;

typedef struct S3Identity S3Identity;

/* Finds out which source is set up; fetches nothing. ready(context) is called from the identity's
 * thread whenever new credentials, or a new failure, can be read: the client wakes its loop. */
int s3_identity_new(const S3Options *options, void (*ready)(void *context), void *context,
                    S3Identity **ret, Error *err);
S3Identity *s3_identity_free(S3Identity *identity);
DEFINE_CLEANUP(S3Identity, s3_identity_free)
/* Never waits. -EAGAIN while the first are, or after s3_identity_reject() new ones are, being
 * fetched; a failure is told until a later attempt (with pauses, for ever) succeeds. *ret_serial
 * grows with each new set. */
int s3_identity_get(S3Identity *identity, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* The server called those of serial expired or unknown: new ones are fetched, unless they are there
 * already. From a source that has no others (environment) they stay as they are. */
void s3_identity_reject(S3Identity *identity, uint64_t serial);
/* "the environment", "profile x of /home/u/.aws/credentials", "the metadata of the instance", ... */
const char *s3_identity_source(const S3Identity *identity);
