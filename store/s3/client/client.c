/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - see client.h. This file has the functions that run on callers' threads; the others are in loop.c, queue.c
 * (the queues of requests), attempt.c and response.c (one try). */
#include "store/s3/client/client-internal.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number/hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

/* ---- the table of clients ---- */

static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static S3Client *clients;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_options(const S3Options *a, const S3Options *b)
{
    return same_text(a->endpoint, b->endpoint) && same_text(a->region, b->region) &&
           same_text(a->profile, b->profile) && same_text(a->ca_bundle, b->ca_bundle) &&
           a->addressing == b->addressing && a->part_bytes == b->part_bytes &&
           a->connections == b->connections && a->memory_bytes == b->memory_bytes &&
           a->deadline_usec == b->deadline_usec && a->stall_usec == b->stall_usec &&
           a->sign_payload == b->sign_payload && a->checksum == b->checksum;
}

static char *copy_text(const char *text) { return text ? memory_text(text) : NULL; }

static S3Options copy_options(const S3Options *options)
{
    S3Options copy = *options;
    copy.endpoint = copy_text(options->endpoint);
    copy.region = copy_text(options->region);
    copy.profile = copy_text(options->profile);
    copy.ca_bundle = copy_text(options->ca_bundle);
    return copy;
}

static void on_credentials(void *context) { loop_wake(context); }

static S3Client *client_free(S3Client *client)
{
    if (!client)
        return NULL;
    assert(client->references == 0 && client->n_tries == 0 && client->n_hedges == 0 &&
           client->hedge_bytes == 0);
    assert(TAILQ_EMPTY(&client->incoming) && TAILQ_EMPTY(&client->waiting) &&
           TAILQ_EMPTY(&client->paused) && TAILQ_EMPTY(&client->active));
    client->identity = s3_identity_free(client->identity);
    loop_close(client);
    (void)pthread_mutex_destroy(&client->lock); /* no thread can hold it any more */
    s3_options_clear(&client->options);
    secret_set_clear(&client->secrets);
    free(client);
    return NULL;
}
DEFINE_CLEANUP(S3Client, client_free)

static int start_thread(S3Client *client, Error *err)
{
    /* Only the program's own threads should handle signals. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&client->thread, NULL, s3_loop_run, client);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0)
        return error_errno(err, r, "S3 client: no thread");
    (void)pthread_setname_np(client->thread, "s3"); /* the name helps people who debug */
    return 0;
}

static int client_new(const S3Options *options, S3Client **ret, Error *err)
{
    int r = s3_endpoint_check(options->endpoint, err);
    if (r < 0)
        return r;
    /* libcurl counts these calls; Debian's build allows them from several threads. */
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, -ENOMEM, "libcurl does not begin");

    _cleanup_(client_freep) S3Client *client = memory_new(S3Client);
    client->pid = getpid();
    client->epoll_fd = client->wake_fd = -EBADF;
    (void)pthread_mutex_init(&client->lock, NULL); /* cannot fail on Linux */
    TAILQ_INIT(&client->incoming);
    TAILQ_INIT(&client->waiting);
    TAILQ_INIT(&client->paused);
    TAILQ_INIT(&client->active);
    client->options = copy_options(options);
    client->tls = strncasecmp(options->endpoint, "https:", 6) == 0;
    atomic_store(&client->knows_checksum, options->checksum == S3_ON);
    retry_limit_init(&client->limit, options->connections);
    atomic_store(&client->concurrency, options->connections);
    if (getrandom(&client->random_key, sizeof(client->random_key), 0) < 0)
        client->random_key = clock_realtime_usec();

    r = loop_open(client, err);
    r = r < 0 ? r
              : s3_identity_new(&client->options, on_credentials, client, &client->identity, err);
    r = r < 0 ? r : start_thread(client, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(client);
    return 0;
}

int s3_client_open(const S3Options *options, S3Client **ret, Error *err)
{
    (void)pthread_mutex_lock(&clients_lock);
    S3Client *client = clients;
    while (client && (client->pid != getpid() || !same_options(&client->options, options)))
        client = client->next;
    int r = 0;
    if (!client) {
        r = client_new(options, &client, err);
        if (r == 0) {
            client->next = clients;
            clients = client;
        }
    }
    if (r == 0) {
        client->references++;
        *ret = client;
    }
    (void)pthread_mutex_unlock(&clients_lock);
    return r;
}

S3Client *s3_client_close(S3Client *client)
{
    if (!client || client->pid != getpid()) /* after fork(), the parent's client is left alone */
        return NULL;
    (void)pthread_mutex_lock(&clients_lock);
    assert(client->references > 0);
    bool last = --client->references == 0;
    for (S3Client **at = &clients; last && *at; at = &(*at)->next)
        if (*at == client) {
            *at = client->next;
            break;
        }
    (void)pthread_mutex_unlock(&clients_lock);
    if (last) {
        atomic_store(&client->closing, true);
        loop_wake(client);
        (void)pthread_join(client->thread, NULL); /* fails only for an invalid thread */
        (void)client_free(client);
    }
    return NULL;
}

const S3Options *s3_client_options(const S3Client *client) { return &client->options; }

void s3_client_set_checksum(S3Client *client, bool knows_crc32c)
{
    if (client->options.checksum == S3_AUTO)
        atomic_store(&client->knows_checksum, knows_crc32c);
}

/* ---- requests ---- */

static void format_crc32c(uint32_t crc, char ret[S3_CRC32C_BYTES])
{
    const unsigned char big[] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
                                 (unsigned char)(crc >> 8), (unsigned char)crc};
    EVP_EncodeBlock((unsigned char *)ret, big, sizeof(big));
}

/* Computes the body's length, checksum and hash once for all tries, on the thread that begins the request. */
static int describe_body(S3Client *client, S3Request *request)
{
    S3Progress *p = &request->progress;
    bool has_body = request->method == S3_PUT || request->method == S3_POST;
    for (size_t i = 0; has_body && i < request->n_body; i++)
        p->n_body += request->body[i].iov_len;

    const bool sends_crc32c = has_body && request->checksum && atomic_load(&client->knows_checksum);
    uint32_t crc = 0;
    for (size_t i = 0; sends_crc32c && i < request->n_body; i++)
        crc = crc32c(crc, request->body[i].iov_base, request->body[i].iov_len);
    request->sent_crc32c[0] = '\0';
    if (sends_crc32c)
        format_crc32c(crc, request->sent_crc32c);

    S3Switch sign = client->options.sign_payload;
    bool guarded = client->tls || sends_crc32c;
    if (p->n_body > 0 && (sign == S3_ON || (sign == S3_AUTO && !guarded)))
        return sign_payload_hash(request->body, request->n_body, p->body_hash);
    (void)snprintf(p->body_hash, sizeof(p->body_hash), "%s",
                   p->n_body == 0 ? SIGN_EMPTY_HASH : SIGN_UNSIGNED);
    return 0;
}

static bool is_conditional(const S3Request *request)
{
    for (size_t i = 0; i < request->n_headers; i++)
        if (strcasecmp(request->headers[i].name, "if-none-match") == 0 ||
            strcasecmp(request->headers[i].name, "if-match") == 0)
            return true;
    return false;
}

void s3_begin(S3Client *client, S3Request *request)
{
    assert(!request->ranged || (request->buffer && request->n_bytes > 0));
    S3Progress *p = &request->progress;
    assert(!p->under_way && !p->queue);
    *p = (S3Progress){.begun_usec = clock_boottime_usec(), .conditional = is_conditional(request)};
    request->result = 0;
    request->error = ERROR_INIT;
    request->status = 0;
    request->unknown = false;
    request->refusal = (S3Error){0};
    request->text = NULL;
    request->n_text = 0;
    request->tries = 0;
    reply_headers_init(&request->reply);
    if (request->deadline_usec == 0)
        request->deadline_usec = p->begun_usec + client->options.deadline_usec;
    p->unfit = describe_body(client, request);
    atomic_fetch_add(&client->requests, 1);

    (void)pthread_mutex_lock(&client->lock);
    bool first = TAILQ_EMPTY(&client->incoming);
    p->under_way = true;
    queue_put(request, &client->incoming, false);
    (void)pthread_mutex_unlock(&client->lock);
    if (first)
        loop_wake(client);
}

int s3_wait(S3Client *client, S3Request *request, Error *err)
{
    assert(!request->done);
    pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
    (void)pthread_mutex_lock(&client->lock);
    request->progress.waiter = &ended;
    while (request->progress.under_way) /* the client's thread ends the request at its deadline */
        (void)pthread_cond_wait(&ended, &client->lock);
    request->progress.waiter = NULL;
    (void)pthread_mutex_unlock(&client->lock);
    (void)pthread_cond_destroy(&ended);
    if (request->result < 0 && err)
        *err = request->error;
    return request->result;
}

void s3_cancel(S3Client *client, S3Request *request)
{
    atomic_store(&request->progress.cancelled, true);
    atomic_store(&client->cancels, true);
    loop_wake(client);
}

int s3_do(S3Client *client, S3Request *request, Error *err)
{
    s3_begin(client, request);
    return s3_wait(client, request, err);
}
