/* SPDX-License-Identifier: Apache-2.0 */
/* s3-internal.h - shared by the files of s3://: the store, an object's name, puts and reads.
 *
 * Ownership: an S3Store holds a reference to its client, which stores with equal options share. A request,
 *            and what it points to, belongs to its caller (client.h).
 * Units:     bytes, microseconds.
 * Errors:    as in store.h; texts name s3://bucket/prefix/key and quote the server's message.
 * Threads:   any, except where a comment says otherwise.
 */
#pragma once

#include "store/backend.h"
#include "store/s3/client/client.h"

#include <pthread.h>

enum {
    S3_NAME_MAX = 1024, /* S3's limit for a key in bytes, prefix included */
    S3_PARTS_MAX = 10000,
    S3_PUT_MARK_BYTES = 33, /* 128 random bits in hexadecimal digits */
};
#define S3_WHOLE_MAX (UINT64_C(5) << 30) /* S3's limit for the bytes of one PUT, and of a part */
#define S3_PUT_MARK_HEADER "x-amz-meta-sdtrain-put"

/* The optional functions that the server has, as found by probe.c. */
typedef struct S3Abilities {
    bool if_absent; /* the server obeys If-None-Match: * on a PUT */
    bool checksum;  /* the server checks x-amz-checksum-crc32c, or the option CHECKSUM is on */
} S3Abilities;

typedef struct S3Deferral S3Deferral; /* see defer.c */

typedef struct S3Store {
    Store store;
    S3Client *client;
    const S3Options *options; /* borrowed from the client */
    char *bucket;
    char *prefix; /* "", or a text that ends in '/' */
    S3Deferral *deferral;

    pthread_mutex_t lock;       /* guards each read's progress in reads.c */
    pthread_cond_t finished;    /* broadcast when a read has arrived */
    atomic_bool ending;         /* store_free() runs: puts in progress are cancelled */
    Error probe_failure;        /* error of the last failed probe; under probe.c's lock */
    uint64_t probe_failed_usec; /* when the last probe failed; under probe.c's lock */
} S3Store;

static inline S3Store *s3_store(Store *store) { return (S3Store *)store; }

/* An object's name in its bucket: prefix and key. */
typedef struct S3Name {
    char text[S3_NAME_MAX + 1];
} S3Name;
/* Makes the name of an object. -EINVAL if it is too long for S3. */
int s3_name(const S3Store *s3, const char *key, S3Name *ret, Error *err);
/* Turns a failed request into an error of store.h. Its text names the failed action `what` ("write") and the key. */
int s3_refuse(const S3Store *s3, const char *key, const S3Request *request, const char *what,
              Error *err);

/* Returns the deadline of a request for n_bytes that begins now: the options' deadline, and one more second per
 * megabyte, since a slow network is not a failure. */
uint64_t s3_deadline(const S3Store *s3, uint64_t n_bytes);

/* ---- put.c ---- */

typedef struct S3Put {
    S3Store *s3;
    const char *key; /* relative to the store; only for error texts */
    S3Name name;
    const struct iovec *parts;
    size_t n_parts;
    uint64_t n_bytes;
    StorePutFlags flags;
    S3Abilities can;
    char mark[S3_PUT_MARK_BYTES]; /* an object with this mark was written by this put */
    uint64_t deadline_usec;       /* after this time, the put does not start again */
} S3Put;

/* Puts an object, and returns only when it is known whether the object was written. */
int s3_put_now(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err);
int s3_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
           StorePutFlags flags, Error *err);
/* Sleeps before the next try; -EHOSTUNREACH without a sleep if the deadline would pass first. */
int s3_pause(unsigned tries, uint64_t deadline_usec);
void s3_random_bytes(void *ret, size_t n_bytes); /* n_bytes <= 256 */

/* ---- multipart.c ---- */

/* Returns whether an object of n_bytes is uploaded in parts. */
bool s3_is_multipart(const S3Options *options, uint64_t n_bytes);
/* Computes the size of each part except the last, which may be smaller. */
int s3_part_bytes(const S3Options *options, uint64_t n_bytes, uint64_t *ret, Error *err);
/* Uploads an object in parts. After -EEXIST and -EAGAIN the caller must check whether the object exists. After a
 * failure the upload is aborted, if the server can be reached. */
int s3_upload(S3Put *put, Error *err);
int s3_abort(S3Store *s3, const char *name, const char *id, Error *err);

/* ---- defer.c ---- */

S3Deferral *s3_deferral_new(S3Store *s3);
S3Deferral *s3_deferral_free(S3Deferral *deferral); /* cancels the puts in progress */
int s3_defer(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err);
int s3_flush(Store *store, Error *err);

/* ---- probe.c ---- */

/* Probes the server once per process, endpoint and bucket. Only for writers: it puts and deletes an object. */
int s3_probe(S3Store *s3, S3Abilities *ret, Error *err);
int s3_puts_if_absent(Store *store, bool *ret, Error *err);

/* ---- reads.c ---- */

int s3_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
           Error *err);
int s3_get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                 Error *err);
int s3_read_begin(Store *store, StoreRead *read, Error *err);
int s3_read_wait(Store *store, StoreRead *read, Error *err);
void s3_read_cancel(Store *store, StoreRead *read);

/* ---- listing.c ---- */

int s3_list(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret,
            Error *err);
int s3_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
             size_t *ret_removed, Error *err);
/* Callback of s3_each_entry(). server_date is the server's time in seconds since 1970; 0: unknown. A negative result
 * ends the enumeration. */
typedef int (*S3EachEntry)(void *context, const ReplyEntry *entry, int64_t server_date, Error *err);
/* Calls `each` for every object, or every unfinished upload, whose name begins with prefix; some servers also list
 * other names. Each request may take patience_usec. */
int s3_each_entry(S3Store *s3, bool uploads, const char *prefix, uint64_t patience_usec,
                  S3EachEntry each, void *context, Error *err);

/* ---- delete.c ---- */

int s3_delete(Store *store, const char *key, Error *err);
int s3_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err);
void s3_xml_escape(FILE *out, const char *text);
