/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - a source of credentials: found once, and queried again before the credentials expire.
 *
 * Ownership: s3_source_find() gives the caller an S3Source. S3Fetched is a value that the caller wipes.
 * Units:     seconds since 1970.
 * Errors:    as in credentials.h. After -EHOSTUNREACH another try may help; the texts hold no secret, whatever
 *            the endpoint answered.
 * Threads:   one at a time, except s3_source_cancel().
 */
#pragma once

#include "store/s3/credentials/credentials.h"
#include "store/s3/credentials/http.h"
#include "store/s3/settings/options.h"

typedef enum S3SourceKind {
    S3_SOURCE_ENVIRONMENT,
    S3_SOURCE_WEB_IDENTITY,
    S3_SOURCE_PROFILE,
    S3_SOURCE_CONTAINER,
    S3_SOURCE_INSTANCE,
    S3_SOURCE_NONE
} S3SourceKind;

typedef struct S3Source {
    S3SourceKind kind;
    char *name;       /* name of the source, for messages */
    char *profile;    /* name of the profile in the shared files */
    char *url;        /* URL of STS or of a container's endpoint; an instance's URL has no path */
    char *ca_bundle;  /* NULL: the system's certificates */
    char *token;      /* token sent last or to be sent next; NULL: none */
    char *token_file; /* file from which the token is read before each request; NULL: none */
    char *role_arn, *session_name;
    bool answered; /* the endpoint gave credentials at least once */
    S3Http *http;  /* NULL: this kind of source sends no requests */
} S3Source;

typedef struct S3Fetched {
    S3Credentials credentials;
    int64_t server_time; /* when the reply was sent, by the source's clock; 0: unknown */
} S3Fetched;

int s3_source_find(const S3Options *options, S3Source **ret, Error *err);
S3Source *s3_source_free(S3Source *source);
DEFINE_CLEANUP(S3Source, s3_source_free)
int s3_source_fetch(S3Source *source, S3Fetched *ret, Error *err);
/* Ends the fetch in progress, and each later one, with -ECANCELED. */
void s3_source_cancel(S3Source *source);

/* ---- the kinds of sources; each pair of functions is in a file of its own ---- */

int source_find_web_identity(S3Source *source, const S3Options *options, const SharedFile *config,
                             const SharedFile *credentials, Error *err);
int source_fetch_web_identity(S3Source *source, S3Fetched *ret, Error *err);
/* Returns -ENOENT if no variable names a container's endpoint. */
int source_find_container(S3Source *source, Error *err);
int source_fetch_container(S3Source *source, S3Fetched *ret, Error *err);
int source_find_instance(S3Source *source);
int source_fetch_instance(S3Source *source, S3Fetched *ret, Error *err);

/* Returns a profile's value from the credentials file, or else from the config file; NULL: missing or empty. */
const char *source_profile_value(const SharedFile *config, const SharedFile *credentials,
                                 const char *profile, const char *key);
/* Returns only the scheme, host and port of a URL, for messages. The caller frees the text. */
char *source_place(const char *url);
/* Reads the first line of token_file into token; does nothing without a token_file. */
int source_read_token(S3Source *source, Error *err);
/* Copies a key, secret or token. Refuses an empty value (-EACCES), and a value that is too long or not printable ASCII
 * (-EINVAL). `what` is the value's name at the source. */
int source_take(const S3Source *source, const char *what, const char *value, char *ret, size_t size,
                Error *err);
/* Makes a short printable excerpt of an endpoint's answer, for an error text, without the secrets that were sent to the
 * endpoint. */
void source_quote(const S3Source *source, const char *text, char *ret, size_t size);
/* Removes the secrets that were sent to the endpoint, or to a proxy before it, from a text. */
void source_take_out(const S3Source *source, char *text);

/* ---- answers of the endpoints; pure ---- */

/* Parses a container's or an instance's JSON. -EACCES if it has the reason of a refusal instead of credentials. */
int credentials_parse_json(const S3Source *source, const char *text, size_t n_bytes,
                           S3Credentials *ret, Error *err);
/* Parses STS's XML. A refusal is -EACCES, with its code in ret_code ("": the refusal has none). */
int credentials_parse_sts(const S3Source *source, const char *text, size_t n_bytes,
                          S3Credentials *ret, char ret_code[64], Error *err);
/* Parses "2026-01-31T12:00:00Z", with or without a fraction of a second. */
int credentials_parse_time(const char *text, int64_t *ret);
