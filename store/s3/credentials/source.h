/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - a source of credentials: found once, queried again before they expire.
 *
 * Ownership: s3_source_find() gives the caller an S3Source. S3Fetched is a value that the caller wipes.
 * Units:     seconds since 1970.
 * Errors:    as credentials.h. -EHOSTUNREACH is worth another try; the texts hold no secret, whatever
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
    char *name;       /* for messages */
    char *profile;    /* of the shared files */
    char *url;        /* of STS, or of the container; of the instance without a path */
    char *ca_bundle;  /* NULL: the system's */
    char *token;      /* sent to the endpoint, last or next; NULL: none */
    char *token_file; /* the file from which the token is read for each request; NULL: none */
    char *role_arn, *session_name;
    bool answered; /* the endpoint gave credentials at least once */
    S3Http *http;  /* NULL: this kind of source sends no requests */
} S3Source;

typedef struct S3Fetched {
    S3Credentials credentials;
    int64_t server_time; /* of the reply, by the source's clock; 0: unknown */
} S3Fetched;

int s3_source_find(const S3Options *options, S3Source **ret, Error *err);
S3Source *s3_source_free(S3Source *source);
DEFINE_CLEANUP(S3Source, s3_source_free)
int s3_source_fetch(S3Source *source, S3Fetched *ret, Error *err);
/* Ends the fetch under way, and each later one, with -ECANCELED. */
void s3_source_cancel(S3Source *source);

/* ---- the kinds of sources; each pair of functions is in a file of its own ---- */

int source_find_web_identity(S3Source *source, const S3Options *options, const SharedFile *config,
                             const SharedFile *credentials, Error *err);
int source_fetch_web_identity(S3Source *source, S3Fetched *ret, Error *err);
/* -ENOENT if no variable names a container's endpoint. */
int source_find_container(S3Source *source, Error *err);
int source_fetch_container(S3Source *source, S3Fetched *ret, Error *err);
int source_find_instance(S3Source *source);
int source_fetch_instance(S3Source *source, S3Fetched *ret, Error *err);

/* Returns a profile's value from the credentials file, else from the config file; NULL: missing or empty. */
const char *source_profile_value(const SharedFile *config, const SharedFile *credentials,
                                 const char *profile, const char *key);
/* Returns only a URL's scheme, host and port, which name it in messages. The caller frees the text. */
char *source_place(const char *url);
/* Reads the first line of token_file into token; does nothing without a token_file. */
int source_read_token(S3Source *source, Error *err);
/* Copies a key, secret or token if it is not empty, not too long and printable ASCII. `what` is its name at the source.
 */
int source_take(const S3Source *source, const char *what, const char *value, char *ret, size_t size,
                Error *err);
/* Makes a short printable excerpt of an endpoint's answer, for an error's text, without the secrets that it was
 * handed. */
void source_quote(const S3Source *source, const char *text, char *ret, size_t size);
/* Takes out of a text what the endpoint, and a proxy before it, were handed. */
void source_take_out(const S3Source *source, char *text);

/* ---- answers of the endpoints; pure ---- */

/* Parses a container's or an instance's JSON. -EACCES if it gives a reason instead of credentials. */
int credentials_parse_json(const S3Source *source, const char *text, size_t n_bytes,
                           S3Credentials *ret, Error *err);
/* Parses STS's XML. A refusal is -EACCES, with its code in ret_code ("": it has none). */
int credentials_parse_sts(const S3Source *source, const char *text, size_t n_bytes,
                          S3Credentials *ret, char ret_code[64], Error *err);
/* Parses "2026-01-31T12:00:00Z", with or without a fraction of a second. */
int credentials_parse_time(const char *text, int64_t *ret);
