/* reply.h - what an S3 server answers: XML bodies and headers, as values. Pure.
 *
 * Bodies come from a network and are believed in nothing: bounded in size, depth and number, without
 * entities of their own, texts unescaped, unknown elements skipped. What an S3Error or ReplyHeaders
 * holds has no control characters.
 *
 * Ownership: the caller clears what is returned by the function that is named beside it.
 * Units:     bytes; microseconds since 1970.
 * Errors:    -EBADMSG not what it should be, with the line of the body; -ENOMEM.
 * Threads:   any.
 * Source:    Amazon S3 API Reference, ListObjectsV2, CreateMultipartUpload, CompleteMultipartUpload,
 *            ListMultipartUploads, DeleteObjects, Error responses.
 */
#pragma once

#include "base/error.h"
#include "store/store.h"

/* <Error>; texts are cut where they are too long, "" where they are missing. */
typedef struct S3Error {
    char code[64], message[256], request_id[64];
    char region[64], endpoint[256], bucket[64];
    int64_t server_time; /* of RequestTimeTooSkewed; 0: not told */
} S3Error;

/* 0 when the body is an <Error>, -ENOENT when it is another document, or none. */
int reply_error(const char *body, size_t n_bytes, S3Error *ret);

typedef struct ReplyList {
    StoreObject *objects; /* keys as the server has them, decoded from encoding-type=url */
    size_t n_objects;
    char *next; /* continuation token; NULL: the last page */
} ReplyList;

int reply_list(const char *body, size_t n_bytes, ReplyList *ret, Error *err);
void reply_list_clear(ReplyList *list);

typedef struct ReplyUpload {
    char *key, *id;
    uint64_t begun_usec;
} ReplyUpload;

typedef struct ReplyUploads {
    ReplyUpload *uploads;
    size_t n_uploads;
    char *next_key, *next_id; /* NULL: the last page */
} ReplyUploads;

int reply_uploads(const char *body, size_t n_bytes, ReplyUploads *ret, Error *err);
void reply_uploads_clear(ReplyUploads *uploads);

/* <UploadId> of CreateMultipartUpload; the caller frees it. */
int reply_upload_id(const char *body, size_t n_bytes, char **ret, Error *err);
/* <ETag> of CompleteMultipartUpload; -EIO with the server's words when it is an <Error>. */
int reply_complete(const char *body, size_t n_bytes, char ret_etag[STORE_VERSION_MAX], Error *err);

/* DeleteObjects: 0 when all are gone, also those that were not there; -EIO when a key could not be
 * deleted: the first one and why, and the caller frees *ret_key. */
int reply_delete(const char *body, size_t n_bytes, S3Error *ret_first, char **ret_key, Error *err);

/* ---- headers, one line at a time ---- */

typedef struct ReplyHeaders {
    char etag[STORE_VERSION_MAX]; /* without its quotes */
    bool etag_opaque;             /* never an MD5: encrypted with a key of KMS's or the client's */
    char mark[64];                /* x-amz-meta-sdtrain-put: which put made it; see put.c */
    char region[64];              /* x-amz-bucket-region */
    char location[1024];
    char request_id[64];
    bool has_length, has_range, has_crc32c, composite;
    uint64_t length;                        /* Content-Length */
    uint64_t range_first, range_last, size; /* Content-Range; size 0: "*". Of 416 the size alone */
    uint64_t modified_usec;                 /* Last-Modified; 0: none */
    int64_t date;                           /* Date; 0: none */
    int64_t retry_after_sec;                /* -1: none */
    uint32_t crc32c; /* x-amz-checksum-crc32c, unless it is of the parts' (composite) */
} ReplyHeaders;

void reply_headers_init(ReplyHeaders *headers);
/* One header line, with or without its line's end; a status line begins anew. What cannot be parsed
 * is as if it were not there, except a Content-Range or Content-Length: -EBADMSG. */
int reply_headers_add(ReplyHeaders *headers, const char *line, size_t n_bytes);
