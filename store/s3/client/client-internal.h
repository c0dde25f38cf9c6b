/* client-internal.h - the inside of an S3Client: what client.c, loop.c, queue.c, attempt.c and
 * response.c share.
 *
 * A request is in one queue: incoming (begun by any thread), waiting (for its turn), paused (until
 * due_usec) or active (one try, or two, under way). Only the client's thread moves it on.
 *
 * Ownership: an S3Try belongs to its request while it is under way.
 * Units:     microseconds of CLOCK_BOOTTIME.
 * Errors:    as client.h.
 * Threads:   the client's thread, except where a member says otherwise.
 */
#pragma once

#include "store/s3/client/address.h"
#include "store/s3/client/budget.h"
#include "store/s3/client/client.h"
#include "store/s3/client/retry.h"

#include <curl/curl.h>

enum {
    ENGINE_TICK_USEC = 50 * 1000, /* deadlines, stalls, pauses and hedges are this exact */
    ENGINE_IDLE_HANDLES = 64,
};

typedef struct S3Try S3Try;
typedef struct S3Queue S3Queue;
TAILQ_HEAD(S3Queue, S3Request);

struct S3Client {
    /* constant */
    S3Options options;
    bool tls;
    int epoll_fd, wake_fd;
    pthread_t thread;
    S3Identity *identity;
    CURLM *multi; /* the client's thread */

    /* any thread */
    Budget budget;
    atomic_bool knows_checksum, cancels, closing;
    atomic_uint_least64_t requests, retries, slow_downs, hedges, hedges_won, bytes_in, bytes_out,
        resigned;
    atomic_int_least64_t concurrency;
    atomic_int_least64_t clock_offset_sec; /* the server's clock, minus ours */
    pthread_mutex_t lock;
    S3Queue incoming; /* under the lock */

    /* the table of clients, under its lock */
    S3Client *next;
    unsigned references;
    pid_t pid; /* whose thread it has: a child of fork() has none */

    /* the client's thread */
    S3Queue waiting, paused, active;
    Error obstacle;  /* why nothing can be begun now; no text: it can */
    int64_t n_tries; /* under way, hedges too */
    int64_t n_hedges;
    uint64_t ranged_gets; /* that were begun */
    uint64_t curl_due_usec, tick_due_usec;
    RetryLimit limit;
    RetryLatency latencies[RETRY_SIZE_CLASSES];
    S3RegionCache regions;
    SignCache sign_cache;
    uint64_t random_key, random_counter;
    CURL *idle[ENGINE_IDLE_HANDLES];
    size_t n_idle;
};

/* One sending of a request. */
struct S3Try {
    S3Client *client;
    S3Request *request;
    CURL *easy;
    bool added; /* to the multi handle */
    struct curl_slist *headers;
    bool hedge;
    uint8_t *buffer; /* where a get's bytes go: the request's, or the hedge's own */
    size_t n_buffer;
    uint64_t begun_usec;
    int64_t signed_sec; /* the time that its signature says */
    uint64_t serial;    /* of its credentials */
    char region[S3_REGION_MAX];
    bool tls;

    unsigned connections; /* over which it was begun: libcurl would try a second time */
    size_t part, part_offset;
    uint64_t n_given; /* of the body, to libcurl */

    uint64_t moved_usec; /* when bytes were last seen to move */
    int64_t n_moved;

    ReplyHeaders reply;
    long status;
    bool head_ended; /* of the reply: its empty line came */
    bool judged;     /* it was looked at */
    bool into_buffer;
    size_t received;
    uint32_t crc32c;
    char *text;
    size_t n_text, text_size, text_max;
    bool text_must_fit;
    int hopeless;  /* the reply is no use, for good */
    bool unusable; /* the reply is no use, this time */
    Error reason;  /* why */
    char failure[CURL_ERROR_SIZE];
};

/* ---- attempt.c ---- */

/* Signs and begins. buffer: NULL, or a hedge's own, which becomes the try's. */
int transfer_begin(S3Client *client, S3Request *request, const S3Credentials *credentials,
                   uint64_t serial, uint8_t *buffer, S3Try **ret, Error *err);
/* Ends it wherever it is. */
S3Try *transfer_free(S3Try *t);
/* Whether no byte has moved for so long. */
bool transfer_stalls(S3Try *t, uint64_t now_usec);
/* All of its request left us. */
bool transfer_is_sent(const S3Try *t);
const char *transfer_method(const S3Request *request);
bool transfer_is_repeatable(const S3Request *request);

/* ---- response.c ---- */

/* libcurl's callbacks. */
size_t response_header(char *line, size_t size, size_t n, void *t);
size_t response_body(char *data, size_t size, size_t n, void *t);
/* What came of it. Its text goes into t->reason. */
void response_judge(S3Try *t, CURLcode code, RetryReply *ret, S3Error *ret_refusal);

/* ---- queue.c ---- */

void queue_put(S3Request *request, S3Queue *queue, bool at_head);
/* Begins what may be begun. */
void queue_start(S3Client *client);
/* Pauses that are over, deadlines, stalls, hedges. */
void queue_tick(S3Client *client, uint64_t now_usec);
void queue_cancel(S3Client *client);
void queue_end_try(S3Client *client, S3Try *t, CURLcode code);
/* Ends all that there are. */
void queue_end_all(S3Client *client);

/* ---- loop.c ---- */

int loop_open(S3Client *client, Error *err);
void *s3_loop_run(void *client);
void loop_close(S3Client *client);
void loop_wake(S3Client *client); /* any thread */
