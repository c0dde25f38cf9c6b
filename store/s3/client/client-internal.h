/* SPDX-License-Identifier: Apache-2.0 */
/* client-internal.h - the inside of an S3Client, shared by client.c, loop.c, queue.c, attempt.c and response.c.
 *
 * A request in progress is in exactly one queue: incoming (any thread begins it), waiting (for its turn), paused (until
 * due_usec) or active (one or two tries are running). Only the client's thread moves it to the next queue.
 *
 * Ownership: an S3Try belongs to its request.
 * Units:     microseconds of CLOCK_BOOTTIME.
 * Errors:    as in client.h.
 * Threads:   the client's thread, except where a member says otherwise.
 */
#pragma once

#include "base/text/secret-set.h"
#include "store/s3/client/address.h"
#include "store/s3/client/client.h"
#include "store/s3/client/retry.h"

#include <curl/curl.h>

enum {
    ENGINE_TICK_USEC = 50 * 1000, /* resolution of deadlines, stalls, pauses and hedges */
    ENGINE_IDLE_HANDLES = 64,     /* libcurl handles kept for later tries */
};

typedef struct S3Try S3Try;
typedef struct S3Queue S3Queue;
TAILQ_HEAD(S3Queue, S3Request);

struct S3Client {
    /* These fields are constant. */
    S3Options options;
    bool tls; /* the endpoint's scheme is https */
    int epoll_fd, wake_fd;
    pthread_t thread;
    S3Identity *identity;
    CURLM *multi; /* used only by the client's thread */

    /* Any thread uses these fields. */
    atomic_bool knows_checksum; /* the server checks crc32c */
    atomic_bool cancels;        /* a request was cancelled since the client's thread last checked */
    atomic_bool closing;        /* the last reference was released */
    atomic_uint_least64_t requests, retries, slow_downs, hedges, hedges_won, bytes_in, bytes_out,
        resigned;
    atomic_int_least64_t concurrency;
    atomic_int_least64_t clock_offset_sec; /* the server's clock minus ours */
    pthread_mutex_t lock; /* guards incoming, and S3Progress.under_way and waiter */
    S3Queue incoming;

    /* The lock of the table of clients guards these fields. */
    S3Client *next;
    unsigned references;
    pid_t pid; /* the process in which the thread runs; a child of fork() lacks the thread */

    /* Only the client's thread uses these fields. */
    S3Queue waiting, paused, active;
    Error obstacle;         /* why no try can begin now; empty text: tries can begin */
    int64_t n_tries;        /* tries in progress, hedges included */
    int64_t n_hedges;       /* hedges in progress */
    uint64_t hedge_bytes;   /* bytes in the buffers of hedges; at most the options' memory_bytes */
    uint64_t ranged_gets;   /* gets of a range that were begun */
    uint64_t curl_due_usec; /* when libcurl must be called next; USEC_INFINITY: no such time */
    uint64_t tick_due_usec; /* time of the next queue_tick() */
    RetryLimit limit;
    RetryLatency latencies[RETRY_SIZE_CLASSES];
    S3RegionCache regions;
    SignCache sign_cache;
    SecretSet secrets;                   /* secrets that were sent to the server or a proxy */
    uint64_t secrets_serial;             /* serial of the credentials in `secrets`; 0: none yet */
    uint64_t random_key, random_counter; /* state of the random numbers for pauses */
    CURL *idle[ENGINE_IDLE_HANDLES];     /* the first n_idle are valid */
    size_t n_idle;
};

/* One try of a request. */
struct S3Try {
    S3Client *client;
    S3Request *request;
    CURL *easy;
    bool added; /* `easy` is in the client's multi handle */
    struct curl_slist *headers;
    bool hedge;      /* this is the request's second try, which owns `buffer` */
    uint8_t *buffer; /* where a get's bytes go: the request's buffer, or the hedge's own buffer */
    size_t n_buffer;
    uint64_t begun_usec;
    int64_t signed_sec;         /* time in the signature */
    uint64_t serial;            /* serial of the credentials used */
    char region[S3_REGION_MAX]; /* region for which the try was signed */
    bool tls;                   /* the scheme of the try's URL is https */

    /* Connections on which the try was begun. A second connection, which libcurl would make by itself, is refused. */
    unsigned connections;
    /* the next byte of the body: index into the iovecs, and offset within that iovec */
    size_t part, part_offset;
    uint64_t n_given; /* bytes of the body that libcurl took */

    uint64_t moved_usec; /* when progress of the bytes was last seen */
    int64_t n_moved;     /* bytes transferred until moved_usec, in both directions */

    ReplyHeaders reply;
    long status;
    bool head_ended;  /* the empty line after the reply's headers has arrived */
    bool judged;      /* judge_head() has examined the reply's head */
    bool into_buffer; /* the body goes into `buffer`, not into `text` */
    size_t received;  /* bytes of the body that have arrived */
    uint32_t crc32c;  /* checksum of the bytes that have arrived */
    char *text;
    size_t n_text, text_size, text_max; /* bytes in `text`, its size, and its limit */
    bool text_must_fit;                 /* a longer text is a failure; false: its end is cut off */
    int hopeless;  /* -errno: the reply makes another try useless; 0: another try may help */
    bool unusable; /* the reply is of no use, but another try may succeed */
    Error reason;  /* why the reply is hopeless or unusable */
    char failure[CURL_ERROR_SIZE]; /* libcurl's error text */
};

/* ---- attempt.c ---- */

/* Signs a request and begins to send it. buffer: NULL, or a hedge's own buffer, which the try frees. */
int transfer_begin(S3Client *client, S3Request *request, const S3Credentials *credentials,
                   uint64_t serial, uint8_t *buffer, S3Try **ret, Error *err);
/* Ends a try in any state and frees it. */
S3Try *transfer_free(S3Try *t);
/* Returns whether no byte was transferred for the options' stall_usec. */
bool transfer_stalls(S3Try *t, uint64_t now_usec);
/* Returns whether all bytes of the request's body were given to libcurl. */
bool transfer_is_sent(const S3Try *t);
const char *transfer_method(const S3Request *request);
bool transfer_is_repeatable(const S3Request *request);

/* ---- response.c ---- */

/* Callbacks of libcurl. */
size_t response_header(char *line, size_t size, size_t n, void *t);
size_t response_body(char *data, size_t size, size_t n, void *t);
/* Describes the outcome of a try for retry_judge(); writes the error's text to t->reason. */
void response_judge(S3Try *t, CURLcode code, RetryReply *ret, S3Error *ret_refusal);

/* ---- queue.c ---- */

void queue_put(S3Request *request, S3Queue *queue, bool at_head);
/* Begins tries of waiting requests, up to the limit. */
void queue_start(S3Client *client);
/* Ends pauses that are over, requests whose deadline passed and stalled tries; begins hedges. */
void queue_tick(S3Client *client, uint64_t now_usec);
void queue_cancel(S3Client *client); /* ends requests that were cancelled */
void queue_end_try(S3Client *client, S3Try *t, CURLcode code);
/* Ends all requests with -ECANCELED. */
void queue_end_all(S3Client *client);

/* ---- loop.c ---- */

int loop_open(S3Client *client, Error *err);
void *s3_loop_run(void *client);
void loop_close(S3Client *client);
void loop_wake(S3Client *client); /* may be called by any thread */
