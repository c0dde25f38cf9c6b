/* options.h - where an S3 store is and how it is spoken to: the settings that AWS's own tools read,
 * and a few of ours.
 *
 * Looked up in this order: the environment, then the profile (AWS_PROFILE, else "default") of the
 * shared files AWS_CONFIG_FILE (~/.aws/config) and AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials).
 * A variable that is empty is as one that is not set.
 *
 * Ownership: s3_options_load() fills a value that s3_options_clear() empties. The shared file's
 *            texts belong to the SharedFile.
 * Units:     bytes, microseconds.
 * Errors:    -EINVAL a value that is wrong; the text names variable and value, or file, line and
 *            key; never a secret. -ENOMEM; -errno of a shared file that is there and cannot be read.
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
    char *endpoint;  /* "http://host:port", "https://host"; no path, no port that is the scheme's
                        own. From AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url (unless
                        AWS_IGNORE_CONFIGURED_ENDPOINT_URLS); else AWS's of the region */
    char *region;    /* AWS_REGION, AWS_DEFAULT_REGION, region; else "us-east-1" */
    char *profile;   /* AWS_PROFILE, else "default" */
    char *ca_bundle; /* AWS_CA_BUNDLE, ca_bundle; NULL: the system's */
    S3Addressing addressing; /* SDTRAIN_S3_ADDRESSING; s3.addressing_style of the profile */
    /* Ours: SDTRAIN_S3_<NAME>, in whole numbers, with K, M, G or T (powers of 1024) for bytes. */
    uint64_t
        part_bytes; /* PART_BYTES: of a ranged get, of a multipart's part at least; 8M, 5M to 5G */
    int64_t connections;    /* CONNECTIONS: requests under way at most; 32, 1 to 1024 */
    uint64_t memory_bytes;  /* MEMORY_BYTES: buffers of the store's own at most; 256M, from one part
                               to 1T */
    uint64_t deadline_usec; /* DEADLINE_SEC: an operation is tried again for so long; 300, 1 to
                               86,400 */
    uint64_t stall_usec;    /* STALL_SEC: a request without a byte for so long is given up; 20, 1 to
                               3,600 */
    S3Switch sign_payload;  /* SIGN_PAYLOAD auto|on|off: SHA-256 of what is put. auto: on where
                               neither TLS nor the server's crc32c guards it */
    S3Switch checksum;      /* CHECKSUM auto|on|off: crc32c sent and asked for. auto: as probed */
} S3Options;

int s3_options_load(S3Options *ret, Error *err);
void s3_options_clear(S3Options *options);

/* ---- the shared files, for options and credentials ----
 *
 * "[section]", "key = value", "key =" with indented "key = value" below it; '#' and ';' begin
 * comments. Sections and keys may come again: they are one section, and the last key counts. Keys
 * are compared without regard to case, profiles with it. */

typedef struct SharedFile SharedFile;

/* They differ in how a section is called: "profile x" and "x"; "default" is good in both. */
typedef enum SharedFileKind { SHARED_CONFIG, SHARED_CREDENTIALS } SharedFileKind;

/* A missing file is an empty one. */
int shared_file_load(SharedFileKind kind, SharedFile **ret, Error *err);
/* The text is copied; the copy is wiped when the file is freed. */
int shared_file_parse(SharedFileKind kind, const char *name, const char *text, SharedFile **ret,
                      Error *err);
SharedFile *shared_file_free(SharedFile *file);
DEFINE_CLEANUP(SharedFile, shared_file_free)
const char *shared_file_name(const SharedFile *file);
bool shared_file_has(const SharedFile *file, const char *profile);
/* NULL when there is none. A nested key is "s3.addressing_style". */
const char *shared_file_get(const SharedFile *file, const char *profile, const char *key);
/* Where it stands, for messages; 0: nowhere. */
int shared_file_line(const SharedFile *file, const char *profile, const char *key);
