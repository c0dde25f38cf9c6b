/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the address of an S3 store and the way to talk to it: settings of AWS's own tools, and some of ours.
 *
 * A setting comes from the environment, else from the profile (AWS_PROFILE, else "default") of the shared files
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
    S3_ADDRESS_AUTO,   /* host of AWS: the bucket in the host name, else in the path */
    S3_ADDRESS_PATH,   /* https://endpoint/bucket/key */
    S3_ADDRESS_VIRTUAL /* https://bucket.endpoint/key */
} S3Addressing;

typedef enum S3Switch { S3_AUTO, S3_ON, S3_OFF } S3Switch;

typedef struct S3Options {
    /* "http://host:port" or "https://host": no path, no port that is the scheme's own. From AWS_ENDPOINT_URL_S3,
     * AWS_ENDPOINT_URL, endpoint_url (unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS); else AWS's of the region. */
    char *endpoint;
    char *region;            /* AWS_REGION, AWS_DEFAULT_REGION, region; else "us-east-1" */
    char *profile;           /* AWS_PROFILE, else "default" */
    char *ca_bundle;         /* AWS_CA_BUNDLE, ca_bundle; NULL: the system's */
    S3Addressing addressing; /* SDTRAIN_S3_ADDRESSING; s3.addressing_style of the profile */

    /* The following are SDTRAIN_S3_<NAME>: whole numbers, for bytes with K, M, G or T (powers of 1024). Each comment
     * has the name, the meaning, the default and the bounds. */
    /* PART_BYTES: bytes of a ranged get, and least bytes of a part that is put; 8M, 5M to 5G. */
    uint64_t part_bytes;
    /* CONNECTIONS: most requests under way; 32, 1 to 1024. */
    int64_t connections;
    /* MEMORY_BYTES: most bytes of the buffers of hedged gets; 256M, one part to 1T. */
    uint64_t memory_bytes;
    /* DEADLINE_SEC: an operation is not tried again after it; 300, 1 to 86,400. */
    uint64_t deadline_usec;
    /* STALL_SEC: a try that moves no byte for this time has failed; 20, 1 to 3,600. */
    uint64_t stall_usec;
    /* SIGN_PAYLOAD auto|on|off: the signature covers a SHA-256 of the body. auto: on if neither TLS nor the server's
     * crc32c guards the body. */
    S3Switch sign_payload;
    /* CHECKSUM auto|on|off: crc32c is sent and asked for. auto: if probe.c finds that the server knows it. */
    S3Switch checksum;
} S3Options;

/* Returns a variable of the environment; NULL: unset or empty. */
const char *s3_variable(const char *name);
int s3_options_load(S3Options *ret, Error *err);
void s3_options_clear(S3Options *options);

/* ---- the shared files, for options and credentials ----
 *
 * "[section]", "key = value", "key =" with indented "key = value" below it; '#' and ';' begin
 * comments. Sections and keys may come again: they are one section, and the last key counts. Keys
 * are compared without regard to case, profiles with it. */

typedef struct SharedFile SharedFile;

/* A config file calls a profile's section "profile x", a credentials file "x"; both accept "default". */
typedef enum SharedFileKind { SHARED_CONFIG, SHARED_CREDENTIALS } SharedFileKind;

/* Reads the shared file of that kind; a missing one counts as empty. */
int shared_file_load(SharedFileKind kind, SharedFile **ret, Error *err);
/* Parses a copy of text, which shared_file_free() wipes. */
int shared_file_parse(SharedFileKind kind, const char *name, const char *text, SharedFile **ret,
                      Error *err);
SharedFile *shared_file_free(SharedFile *file);
DEFINE_CLEANUP(SharedFile, shared_file_free)
const char *shared_file_name(const SharedFile *file);
bool shared_file_has(const SharedFile *file, const char *profile);
/* Returns NULL when the profile lacks the key. A nested key is written "s3.addressing_style". */
const char *shared_file_get(const SharedFile *file, const char *profile, const char *key);
/* Returns the line of a key, for messages; 0: the profile lacks the key. */
int shared_file_line(const SharedFile *file, const char *profile, const char *key);
