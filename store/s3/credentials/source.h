/* source.h - one place that credentials come from: found once, asked as often as they
 * expire.
 *
 * Ownership: s3_source_find() gives the caller an S3Source. What was fetched is a value that the
 *            caller wipes.
 * Units:     seconds since 1970.
 * Errors:    as credentials.h. -EHOSTUNREACH is worth another try; the texts hold no secret,
 *            whatever the other side said.
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
    char *name;       /* for people */
    char *profile;    /* of the shared files; also which to ask for web identity */
    char *url;        /* of STS, of the container, of the instance without a path */
    char *ca_bundle;  /* NULL: the system's */
    char *token;      /* that was sent last, or is to be; NULL: none */
    char *token_file; /* where it is read anew each time; NULL: nowhere */
    char *role_arn, *session_name;
    bool answered; /* once at least */
    S3Http *http;  /* NULL where nothing is asked */
} S3Source;

typedef struct S3Fetched {
    S3Credentials credentials;
    int64_t server_time; /* by the source's clock; 0: it did not say */
} S3Fetched;

int s3_source_find(const S3Options *options, S3Source **ret, Error *err);
S3Source *s3_source_free(S3Source *source);
DEFINE_CLEANUP(S3Source, s3_source_free)
int s3_source_fetch(S3Source *source, S3Fetched *ret, Error *err);
/* Ends a fetch that is under way, and every later one, with -ECANCELED. */
void s3_source_cancel(S3Source *source);

/* ---- the parts, each in a file of its own ---- */

int source_find_web_identity(S3Source *source, const S3Options *options, const SharedFile *config,
                             const SharedFile *credentials, Error *err);
int source_fetch_web_identity(S3Source *source, S3Fetched *ret, Error *err);
/* -ENOENT when the variables name none. */
int source_find_container(S3Source *source, Error *err);
int source_fetch_container(S3Source *source, S3Fetched *ret, Error *err);
int source_find_instance(S3Source *source, Error *err);
int source_fetch_instance(S3Source *source, S3Fetched *ret, Error *err);

/* NULL when it is unset or empty. */
const char *source_variable(const char *name);
/* Of the credentials file, else of the config file; NULL when it is in neither, or empty. */
const char *source_profile_value(const SharedFile *config, const SharedFile *credentials,
                                 const char *profile, const char *key);
/* Puts the first line of the token's file into token, where there is a file. */
int source_read_token(S3Source *source, Error *err);
/* Copies a key, secret or token where it is one: not empty, nothing but printable ASCII, not too
 * long. what is its name where it was found. */
int source_take(const S3Source *source, const char *what, const char *value, char *ret, size_t size,
                Error *err);
/* What the other side said, for an error's text: printable, short. */
void source_quote(const char *text, size_t n_bytes, char *ret, size_t size);

/* ---- what the endpoints answer; pure ---- */

/* A container's or an instance's JSON. -EACCES when it says why there are none. */
int credentials_parse_json(const S3Source *source, const char *text, size_t n_bytes,
                           S3Credentials *ret, Error *err);
/* STS's XML: credentials, or, of a refusal, its code (into ret_code, "" when there is none) with
 * -EACCES. */
int credentials_parse_sts(const S3Source *source, const char *text, size_t n_bytes,
                          S3Credentials *ret, char ret_code[64], Error *err);
/* "2026-01-31T12:00:00Z", with or without a fraction. */
int credentials_parse_time(const char *text, int64_t *ret);
