/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h - parses the answers of an S3 server, XML bodies and headers, into values. Pure.
 *
 * A body comes from the network and may be anything. Parsing limits its size, depth and number of elements, refuses
 * entities defined in the body, unescapes texts, and skips unknown elements. No text of an S3Error or ReplyHeaders has
 * a control character.
 *
 * Ownership: the caller clears a value with the function declared beside it.
 * Units:     bytes; microseconds since 1970.
 * Errors:    -EBADMSG the answer is malformed, with the line of the body; -ENOMEM of expat.
 * Threads:   any.
 * Source:    Amazon S3 API Reference, ListObjectsV2, CreateMultipartUpload, CompleteMultipartUpload,
 *            ListMultipartUploads, DeleteObjects, Error responses.
 */
#pragma once

#include "base/error.h"
#include "store/store.h"

/* An <Error>. A text that is too long is cut; a missing text is "". */
typedef struct S3Error {
    char code[64], message[256], request_id[64];
    char region[64], endpoint[256], bucket[64];
    int64_t server_time; /* for RequestTimeTooSkewed: server's time, seconds since 1970; 0: none */
} S3Error;

/* Parses an <Error>; -ENOENT if the body is not an <Error>. */
int reply_error(const char *body, size_t n_bytes, S3Error *ret);

/* An object, or an unfinished upload. */
typedef struct ReplyEntry {
    char *key;                    /* whole name, decoded from encoding-type=url */
    char *id;                     /* an upload's id; NULL: this is an object */
    uint64_t n_bytes;             /* an object's size */
    uint64_t usec;                /* time of the object's put, or of the upload's begin */
    char etag[STORE_VERSION_MAX]; /* an object's ETag, without its quotes; "": the reply has none */
} ReplyEntry;

typedef struct ReplyPage {
    ReplyEntry *entries;
    size_t n_entries;
    /* Continuation token, or markers of key and id, for the next page; NULL: this page is the last. */
    char *next, *next_id;
} ReplyPage;

int reply_list(const char *body, size_t n_bytes, ReplyPage *ret, Error *err);
int reply_uploads(const char *body, size_t n_bytes, ReplyPage *ret, Error *err);
void reply_page_clear(ReplyPage *page);

/* Returns the <UploadId> of CreateMultipartUpload; the caller frees it. */
int reply_upload_id(const char *body, size_t n_bytes, char **ret, Error *err);
/* Returns the <ETag> of CompleteMultipartUpload; -EIO, with the server's message, if the body is an <Error>. */
int reply_complete(const char *body, size_t n_bytes, char ret_etag[STORE_VERSION_MAX], Error *err);

/* Parses the reply of DeleteObjects. Returns 0 if all keys were deleted, -EIO if a key could not be deleted: *ret_first
 * and *ret_key, which the caller frees, describe the first such key. */
int reply_delete(const char *body, size_t n_bytes, S3Error *ret_first, char **ret_key, Error *err);

/* ---- headers, one line at a time ---- */

typedef struct ReplyHeaders {
    char etag[STORE_VERSION_MAX]; /* the ETag without its quotes */
    bool etag_opaque; /* the ETag is not an MD5: the object is encrypted (SSE-KMS, SSE-C) */
    char mark[64]; /* x-amz-meta-sdtrain-put: identifies the put that wrote the object; see put.c */
    char region[64]; /* x-amz-bucket-region */
    char location[1024];
    char request_id[64];
    bool has_length, has_range, has_crc32c, composite;
    uint64_t length; /* Content-Length */
    /* Content-Range; size 0: unknown, sent as "*". A reply 416 has only the size */
    uint64_t range_first, range_last, size;
    uint64_t modified_usec;  /* Last-Modified; 0: none */
    int64_t date;            /* Date; 0: none */
    int64_t retry_after_sec; /* Retry-After; -1: none */
    uint32_t crc32c; /* x-amz-checksum-crc32c of the whole object; see has_crc32c and composite */
} ReplyHeaders;

void reply_headers_init(ReplyHeaders *headers);
/* Adds a header line, with or without its line end; a status line clears all earlier headers. A value that cannot be
 * parsed is ignored, but in Content-Range and Content-Length it is an error, -EBADMSG. */
int reply_headers_add(ReplyHeaders *headers, const char *line, size_t n_bytes);
