/* s3-internal.h - what the parts of s3:// share: the store, an object's name, requests that can be ended.
 *
 * Ownership: an S3Store holds its client, shared with others of the same options. Requests and what
 *            they point to are their caller's, as client.h says.
 * Units:     bytes, microseconds.
 * Errors:    as store.h; texts name s3://bucket/prefix/key and what the server said.
 * Threads:   any, unless said.
 */
#pragma once

#include "store/backend.h"
#include "store/s3/client/client.h"

#include <pthread.h>

enum {
    S3_NAME_MAX = 1024, /* S3's own bound of a key, prefix included */
    S3_PARTS_MAX = 10000,
    S3_MARK_BYTES = 33, /* 128 random bits in hexadecimal digits */
};
#define S3_WHOLE_MAX (UINT64_C(5) << 30) /* of one PUT, and of a part */
#define S3_MARK_HEADER "x-amz-meta-sdtrain-put"

/* What the server was found to do; see probe.c. */
typedef struct S3Abilities {
    bool if_absent; /* If-None-Match: * on a PUT is obeyed */
    bool checksum;  /* x-amz-checksum-crc32c is checked, or the options say so */
} S3Abilities;

/* A request that store_free() can end. */
typedef struct S3Call {
    S3Request request;
    struct S3Call *next, **at; /* of S3Store.flights */
} S3Call;

typedef struct S3Deferral S3Deferral; /* defer.c */

typedef struct S3Store {
    Store store;
    S3Client *client;
    const S3Options *options; /* the client's */
    char *bucket;
    char *prefix; /* "" or with its last slash */
    S3Deferral *deferral;

    pthread_mutex_t lock;
    pthread_cond_t finished; /* a read */
    S3Call *calls;
    bool ending;         /* what begins now is cancelled */
    Error probe_failure; /* the last one, and when; probe.c's lock guards them */
    uint64_t probe_failed_usec;
} S3Store;

static inline S3Store *s3_store(Store *store) { return (S3Store *)store; }

/* The object's name in the bucket; -EINVAL when it is too long for S3. */
typedef struct S3Name {
    char text[S3_NAME_MAX + 1];
} S3Name;
int s3_name(const S3Store *s3, const char *key, S3Name *ret, Error *err);
/* What is in the way of doing `what` ("write") to key: the request's error as store.h has it. */
int s3_refuse(const S3Store *s3, const char *key, const S3Request *request, const char *what,
              Error *err);

/* From now, of a request that moves so many bytes: the options', and a second more for each megabyte,
 * since a slow network is no failure. */
uint64_t s3_deadline(const S3Store *s3, uint64_t n_bytes);

/* As s3_begin() and s3_wait(), for what store_free() may have to end. */
void s3_call_begin(S3Store *s3, S3Call *call);
int s3_call_wait(S3Store *s3, S3Call *call);
int s3_call_run(S3Store *s3, S3Call *call); /* both */
void s3_end_calls(S3Store *s3);

/* ---- put.c ---- */

typedef struct S3Put {
    S3Store *s3;
    const char *key; /* relative, for texts */
    S3Name name;
    const struct iovec *parts;
    size_t n_parts;
    uint64_t n_bytes;
    StorePutFlags flags;
    S3Abilities can;
    char mark[S3_MARK_BYTES]; /* an object that has it is this put's */
    uint64_t deadline_usec;   /* it does not begin anew after it */
} S3Put;

/* Blocks until the object is there, or is not. */
int s3_put_now(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err);
int s3_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
           StorePutFlags flags, Error *err);
/* Sleeps before the next try; -EHOSTUNREACH when the deadline is over first. */
int s3_pause(unsigned tries, uint64_t deadline_usec);
void s3_random_bytes(void *ret, size_t n_bytes); /* random bytes */

/* ---- multipart.c ---- */

/* Whether an object of n_bytes goes in parts, and how large they are: equal, the last one smaller. */
bool s3_is_multipart(const S3Options *options, uint64_t n_bytes);
int s3_part_bytes(const S3Options *options, uint64_t n_bytes, uint64_t *ret, Error *err);
/* -EEXIST and -EAGAIN: the caller looks what is there. No upload is left open, if the server can be
 * reached. */
int s3_upload(S3Put *put, Error *err);
int s3_abort(S3Store *s3, const char *name, const char *id, Error *err);

/* ---- defer.c ---- */

int s3_deferral_new(S3Store *s3, S3Deferral **ret, Error *err);
S3Deferral *s3_deferral_free(S3Deferral *deferral); /* ends what is under way */
int s3_defer(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err);
int s3_flush(Store *store, Error *err);

/* ---- probe.c ---- */

/* Asks the server once per process, endpoint and bucket. Writers alone: it puts and deletes. */
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
int s3_fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err);

/* ---- listing.c ---- */

int s3_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
int s3_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
             size_t *ret_removed, Error *err);
/* Every unfinished upload of a name that begins with prefix; `each` < 0 ends it. An answer comes
 * within patience_usec. */
typedef int (*S3EachUpload)(void *context, const ReplyUpload *upload, int64_t server_date,
                            Error *err);
int s3_each_upload(S3Store *s3, const char *prefix, uint64_t patience_usec, S3EachUpload each,
                   void *context, Error *err);

/* ---- delete.c ---- */

int s3_delete(Store *store, const char *key, Error *err);
int s3_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err);
void s3_xml_escape(FILE *out, const char *text);
