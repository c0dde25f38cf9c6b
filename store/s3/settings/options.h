/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - settings of an S3 store: its address and how to access it; settings of AWS's tools, and some of our own.
 *
 * A setting comes from the environment, or else from the profile (AWS_PROFILE, or else "default") in the shared files
 * AWS_CONFIG_FILE (~/.aws/config) and AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials). An empty variable counts as
 * unset.
 *
 * Ownership: s3_options_load() fills a value that s3_options_clear() empties. A SharedFile owns the
 *            texts that it returns.
 * Units:     bytes, microseconds.
 * Errors:    -EINVAL a wrong value; the text names variable and value, or file, line and key; never a
 *            secret. -errno of a shared file that exists and cannot be read.
 * Threads:   any; reads the environment.
 * Source:    AWS SDKs and Tools Reference Guide: shared config and credentials files, endpoints.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef enum S3Addressing {
    S3_ADDRESS_AUTO,   /* for AWS: the bucket is in the host name; otherwise in the path */
    S3_ADDRESS_PATH,   /* https://endpoint/bucket/key */
    S3_ADDRESS_VIRTUAL /* https://bucket.endpoint/key */
} S3Addressing;

typedef enum S3Switch { S3_AUTO, S3_ON, S3_OFF } S3Switch;

typedef struct S3Options {
    /* "http://host:port" or "https://host": without a path, and without the scheme's default port. From
     * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url (unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is set); else
     * AWS's endpoint of the region. */
    char *endpoint;
    char *region;            /* AWS_REGION, AWS_DEFAULT_REGION, region; else "us-east-1" */
    char *profile;           /* AWS_PROFILE, else "default" */
    char *ca_bundle;         /* AWS_CA_BUNDLE, ca_bundle; NULL: the system's certificates */
    S3Addressing addressing; /* SDTRAIN_S3_ADDRESSING; s3.addressing_style of the profile */

    /* The variables SDTRAIN_S3_<NAME> set the following fields. A number is whole; a number of bytes may end in K, M, G
     * or T (powers of 1024). Each comment has the variable's NAME, the meaning, the default and the bounds. */
    /* PART_BYTES: size of a ranged get, and minimum size of a part in a put; 8M, 5M to 5G. */
    uint64_t part_bytes;
    /* CONNECTIONS: maximum number of requests in progress; 32, 1 to 1024. */
    int64_t connections;
    /* MEMORY_BYTES: maximum size of all buffers of hedged gets; 256M, one part to 1T. */
    uint64_t memory_bytes;
    /* DEADLINE_SEC: time after which an operation is not tried again; 300, 1 to 86,400. */
    uint64_t deadline_usec;
    /* STALL_SEC: a try fails if no byte is transferred for this time; 20, 1 to 3,600. */
    uint64_t stall_usec;
    /* SIGN_PAYLOAD auto|on|off: the signature covers a SHA-256 of the body. auto: on if neither TLS nor the server's
     * check of crc32c protects the body. */
    S3Switch sign_payload;
    /* CHECKSUM auto|on|off: crc32c is sent and requested. auto: on if probe.c finds that the server supports it. */
    S3Switch checksum;
} S3Options;

/* Returns a variable of the environment; NULL: unset or empty. */
const char *s3_variable(const char *name);
int s3_options_load(S3Options *ret, Error *err);
void s3_options_clear(S3Options *options);

/* ---- the shared files, for options and credentials ----
 *
 * "[section]", "key = value", "key =" with indented "key = value" below it; '#' and ';' begin
 * comments. If a section appears twice, both are one section; of a repeated key the last counts. Keys
 * are compared without regard to case, profiles with regard to case. */

typedef struct SharedFile SharedFile;

/* In a config file the section of profile x is "profile x", in a credentials file "x"; both kinds accept
 * "default". */
typedef enum SharedFileKind { SHARED_CONFIG, SHARED_CREDENTIALS } SharedFileKind;

/* Reads the shared file of that kind; a missing file counts as empty. */
int shared_file_load(SharedFileKind kind, SharedFile **ret, Error *err);
/* Parses a copy of text, which shared_file_free() wipes. */
int shared_file_parse(SharedFileKind kind, const char *name, const char *text, SharedFile **ret,
                      Error *err);
SharedFile *shared_file_free(SharedFile *file);
DEFINE_CLEANUP(SharedFile, shared_file_free)
const char *shared_file_name(const SharedFile *file);
bool shared_file_has(const SharedFile *file, const char *profile);
/* Returns the value of a key, NULL if the profile lacks the key. A nested key is written "s3.addressing_style". */
const char *shared_file_get(const SharedFile *file, const char *profile, const char *key);
/* Returns the line of a key, for messages; 0 if the profile lacks the key. */
int shared_file_line(const SharedFile *file, const char *profile, const char *key);
