/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - the stages of a request: it waits for its turn, is tried, judged, paused and tried again, until it ends.
 * The request that has waited longest is first; a request that was tried before precedes a new request. */
#include "store/s3/client/client-internal.h"

#include "base/clock.h"
#include "base/number/philox.h"
#include "base/probe.h"
#include "base/proxy.h"

#include <errno.h>
#include <string.h>

enum { HEDGES_PERCENT = 5, HEDGES_FREE = 2 };

void queue_put(S3Request *request, S3Queue *queue, bool at_head)
{
    S3Progress *p = &request->progress;
    assert(p->under_way);
    if (p->queue)
        TAILQ_REMOVE(p->queue, request, progress.link);
    p->queue = queue;
    if (at_head)
        TAILQ_INSERT_HEAD(queue, request, progress.link);
    else
        TAILQ_INSERT_TAIL(queue, request, progress.link);
}

static uint64_t draw(S3Client *client)
{
    Philox block = philox4x32(client->random_key, 0, client->random_counter++);
    return (uint64_t)block.word[0] << 32 | block.word[1];
}

/* ---- ends ---- */

static void drop_try(S3Client *client, S3Request *request, size_t i)
{
    S3Try *t = request->progress.tries[i];
    if (!t)
        return;
    assert(t->request == request && t->hedge == (i == 1));
    bool hedge = t->hedge;
    request->progress.tries[i] = transfer_free(t);
    assert(client->n_tries > 0);
    client->n_tries--;
    if (hedge) {
        assert(client->n_hedges > 0);
        client->n_hedges--;
        assert(client->hedge_bytes >= request->n_bytes);
        client->hedge_bytes -= request->n_bytes;
    }
}

/* Writes "GET http://host/bucket/key: <what> (3 tries in 1.2 s)". The request's error holds <what>. */
static void write_error(const S3Client *client, S3Request *request, const char *before)
{
    double took = (double)(clock_boottime_usec() - request->progress.begun_usec) / 1e6;
    char tries[64] = "";
    if (request->tries > 1)
        (void)snprintf(tries, sizeof(tries), " (%u tries in %.1f s)", request->tries, took);
    char who[160] = "";
    if (request->result == -EACCES && request->status != 0)
        (void)snprintf(who, sizeof(who), "; credentials: %s", s3_identity_source(client->identity));
    Error what = request->error;
    secret_set_take_out(&client->secrets, what.text);
    (void)error_set(&request->error, request->result, "%s %.100s/%.63s/%.150s%s: %s%.280s%s%s",
                    transfer_method(request), client->options.endpoint, request->bucket,
                    request->key, request->n_query > 0 ? "?..." : "", before, what.text, tries,
                    who);
}

static bool changes_something(const S3Request *request)
{
    return request->method != S3_GET && request->method != S3_HEAD;
}

/* Fires the probe `get` or `put` with the number of bytes: of a get into a buffer, the requested bytes; of another get,
 * the bytes that arrived; of a put, the bytes of the body. */
static void probe_end(const S3Request *request)
{
    uint64_t took_usec = clock_boottime_usec() - request->progress.begun_usec;
    if (request->method == S3_GET)
        PROBE(get, request->key, request->buffer ? request->n_bytes : request->n_text, took_usec,
              request->result, request->tries);
    else if (request->method == S3_PUT)
        PROBE(put, request->key, request->progress.n_body, took_usec, request->result,
              request->tries);
}

/* Ends a request. The caller must not use it afterwards, as `done` may free it. */
static void end(S3Client *client, S3Request *request, int result, const char *before)
{
    S3Progress *p = &request->progress;
    assert(p->under_way && p->queue);
    for (size_t i = 0; i < ELEMENTSOF(p->tries); i++)
        drop_try(client, request, i);
    TAILQ_REMOVE(p->queue, request, progress.link);
    p->queue = NULL;
    free(TAKE_PTR(p->location));
    request->result = result;
    if (result < 0) {
        request->unknown |= p->undecided && changes_something(request);
        free(TAKE_PTR(request->text));
        request->n_text = 0;
        write_error(client, request, before);
    }
    probe_end(request);

    (void)pthread_mutex_lock(&client->lock);
    p->under_way = false;
    if (p->waiter)
        (void)pthread_cond_signal(p->waiter); /* cannot fail */
    void (*done)(S3Request *) = request->done;
    (void)pthread_mutex_unlock(&client->lock);
    if (done)
        done(request);
}

/* Ends a request without an answer. If a try was sent completely, the server may still execute it. */
static void give_up(S3Client *client, S3Request *request, int result, const char *before)
{
    for (size_t i = 0; i < ELEMENTSOF(request->progress.tries); i++) {
        S3Try *t = request->progress.tries[i];
        if (t && transfer_is_sent(t))
            request->progress.undecided = true;
    }
    if (!request->error.text[0])
        (void)error_set(&request->error, result, "%s",
                        request->progress.queue == &client->active ? "nothing came yet"
                        : client->obstacle.text[0]                 ? client->obstacle.text
                                                                   : "it waited for its turn");
    end(client, request, result, before);
}

void queue_end_all(S3Client *client)
{
    S3Queue *queues[] = {&client->active, &client->paused, &client->waiting};
    for (size_t i = 0; i < ELEMENTSOF(queues); i++)
        while (!TAILQ_EMPTY(queues[i]))
            give_up(client, TAILQ_FIRST(queues[i]), -ECANCELED, "the client is closed; ");
}

/* Ends the cancelled requests. `next` stays valid: the `done` of a request may begin or cancel other requests, but a
 * new request is put into another queue, and a request that is cancelled ends only here. */
void queue_cancel(S3Client *client)
{
    S3Queue *queues[] = {&client->active, &client->paused, &client->waiting};
    for (size_t i = 0; i < ELEMENTSOF(queues); i++) {
        S3Request *request, *next;
        for (request = TAILQ_FIRST(queues[i]); request; request = next) {
            next = TAILQ_NEXT(request, progress.link);
            if (atomic_load(&request->progress.cancelled))
                give_up(client, request, -ECANCELED, "cancelled; ");
        }
    }
}

/* ---- begin ---- */

static void read_secrets(S3Client *client, const S3Credentials *credentials, uint64_t serial)
{
    if (client->secrets_serial == serial)
        return;
    proxy_add_secrets(&client->secrets);
    secret_set_add(&client->secrets, credentials->secret_key);
    secret_set_add(&client->secrets, credentials->token);
    client->secrets_serial = serial;
}

/* Begins a try. -EAGAIN: neither this request nor any other can begin now. */
static int begin_try(S3Client *client, S3Request *request, uint8_t *buffer)
{
    S3Credentials credentials;
    uint64_t serial;
    Error err = ERROR_INIT;
    int r = s3_identity_get(client->identity, &credentials, &serial, &err);
    if (r < 0) {
        free(buffer);
        (void)error_set(&client->obstacle, r, "no credentials: %s", err.text);
        if (r == -EAGAIN || r == -EHOSTUNREACH)
            return -EAGAIN;
        request->error = client->obstacle;
        return r;
    }
    client->obstacle = ERROR_INIT;
    read_secrets(client, &credentials, serial);

    size_t slot = buffer ? 1 : 0;
    assert(!request->progress.tries[slot]);
    r = transfer_begin(client, request, &credentials, serial, buffer,
                       &request->progress.tries[slot], &err);
    explicit_bzero(&credentials, sizeof(credentials));
    if (r < 0) {
        request->error = err;
        return r == -EAGAIN ? -EIO : r;
    }
    client->n_tries++;
    return 0;
}

void queue_start(S3Client *client)
{
    S3Request *request;
    while (client->n_tries < client->limit.now && (request = TAILQ_FIRST(&client->waiting))) {
        assert(!request->progress.tries[0] && !request->progress.tries[1]);
        int r = request->progress.unfit;
        if (r < 0)
            (void)error_errno(&request->error, r, "its body cannot be hashed");
        else
            r = begin_try(client, request, NULL);
        if (r == -EAGAIN)
            return; /* tried again at each tick, and when credentials arrive */
        if (r < 0) {
            end(client, request, r, "");
            continue;
        }
        if (request->tries++ > 0)
            atomic_fetch_add(&client->retries, 1);
        client->ranged_gets += request->ranged && request->tries == 1;
        queue_put(request, &client->active, false);
    }
}

/* ---- time ---- */

/* Hedges may slightly exceed the limit of tries, unless the server has reported overload. */
static bool may_hedge(const S3Client *client, const S3Request *request)
{
    const RetryLimit *limit = &client->limit;
    uint64_t hedges = atomic_load(&client->hedges);
    return request->ranged && request->progress.tries[0] && !request->progress.tries[1] &&
           (client->n_tries < limit->now || limit->now == limit->most) &&
           client->n_hedges * 100 <= limit->now * HEDGES_PERCENT &&
           hedges * 100 < client->ranged_gets * HEDGES_PERCENT + HEDGES_FREE * 100;
}

static void hedge(S3Client *client, S3Request *request, uint64_t now_usec)
{
    if (!may_hedge(client, request))
        return;
    const RetryLatency *latency = &client->latencies[retry_size_class(request->n_bytes)];
    uint64_t begun_usec = request->progress.tries[0]->begun_usec;
    uint64_t after_usec = retry_hedge_after_usec(latency);
    if (after_usec == UINT64_MAX || now_usec < begun_usec + after_usec ||
        client->hedge_bytes + request->n_bytes > client->options.memory_bytes)
        return;
    uint8_t *buffer = malloc(request->n_bytes);
    if (!buffer || begin_try(client, request, buffer) < 0)
        return; /* the first try continues alone */
    client->n_hedges++;
    client->hedge_bytes += request->n_bytes;
    atomic_fetch_add(&client->hedges, 1);
}

static void pause_request(S3Client *client, S3Request *request)
{
    assert(!request->progress.tries[0] && !request->progress.tries[1]);
    request->progress.due_usec =
        clock_boottime_usec() +
        retry_pause_usec(request->tries, request->reply.retry_after_sec, draw(client));
    PROBE(retry, request->key, request->status, request->tries,
          request->progress.due_usec - clock_boottime_usec(), request->error.text);
    queue_put(request, &client->paused, false);
}

static void check_stalls(S3Client *client, S3Request *request, uint64_t now_usec)
{
    for (size_t i = 0; i < ELEMENTSOF(request->progress.tries); i++) {
        S3Try *t = request->progress.tries[i];
        if (!t || !transfer_stalls(t, now_usec))
            continue;
        t->unusable = true;
        (void)error_set(&t->reason, -EIO, "not a byte for %.1f s",
                        (double)client->options.stall_usec / 1e6);
        queue_end_try(client, t, CURLE_OPERATION_TIMEDOUT);
        return; /* the request may be freed now */
    }
}

static void tick_queue(S3Client *client, S3Queue *queue, uint64_t now_usec)
{
    S3Request *request, *next;
    for (request = TAILQ_FIRST(queue); request; request = next) {
        next = TAILQ_NEXT(request, progress.link);
        if (request->stop && atomic_load(request->stop)) {
            give_up(client, request, -ECANCELED, "cancelled; ");
        } else if (now_usec >= request->deadline_usec) {
            char before[64];
            (void)snprintf(before, sizeof(before), "no usable answer in %.0f s; the last: ",
                           (double)(now_usec - request->progress.begun_usec) / 1e6);
            give_up(client, request, -EHOSTUNREACH, before);
        } else if (queue == &client->paused && now_usec >= request->progress.due_usec) {
            queue_put(request, &client->waiting, true);
        } else if (queue == &client->active) {
            hedge(client, request, now_usec);
            check_stalls(client, request, now_usec);
        }
    }
}

void queue_tick(S3Client *client, uint64_t now_usec)
{
    tick_queue(client, &client->waiting, now_usec);
    tick_queue(client, &client->paused, now_usec);
    tick_queue(client, &client->active, now_usec);
}

/* ---- judging replies ---- */

static void observe_try(S3Client *client, const S3Try *t)
{
    if (!t->request->ranged)
        return;
    RetryLatency *latency = &client->latencies[retry_size_class(t->request->n_bytes)];
    retry_latency_add(latency, clock_boottime_usec() - t->begun_usec);
}

/* Gives the answer of a successful try to its request. */
static void adopt(S3Client *client, S3Request *request, S3Try *t)
{
    retry_limit_success(&client->limit);
    if (t->hedge) {
        atomic_fetch_add(&client->hedges_won, 1);
        if (request->progress.tries[0])
            /* The slow try would have taken at least the time that it has run. */
            observe_try(client, request->progress.tries[0]);
        drop_try(client, request, 0); /* the slow try writes to the buffer, too */
        memcpy(request->buffer, t->buffer, request->n_bytes);
    }
    observe_try(client, t);
    if (t->text_must_fit) {
        request->text = TAKE_PTR(t->text);
        request->n_text = t->n_text;
    }
}

static void correct(S3Client *client, S3Request *request, const S3Try *t, RetryAction action)
{
    S3Progress *p = &request->progress;
    atomic_fetch_add(&client->resigned, 1);
    switch (action) {
    case RETRY_CLOCK: {
        int64_t theirs = t->reply.date > 0 ? t->reply.date : request->refusal.server_time;
        if (theirs > 0)
            atomic_store(&client->clock_offset_sec,
                         theirs - (int64_t)(clock_realtime_usec() / USEC_PER_SEC));
        p->clock_corrected = true;
        return;
    }
    case RETRY_REGION:
        s3_region_cache_note(&client->regions, request->bucket,
                             *request->refusal.region ? request->refusal.region : t->reply.region);
        p->region_corrected = true;
        return;
    case RETRY_REDIRECT:
        free(p->location);
        p->location = strdup(t->reply.location);
        p->redirects++; /* without memory, the old URL is tried again, a bounded number of times */
        return;
    default:
        assert(action == RETRY_CREDENTIALS);
        s3_identity_reject(client->identity, t->serial);
        p->credentials_renewed = true;
    }
}

static void obey(S3Client *client, S3Request *request, S3Try *t, const RetryVerdict *verdict)
{
    size_t mine = t->hedge ? 1 : 0;
    bool other = request->progress.tries[!mine] != NULL;
    switch (verdict->action) {
    case RETRY_DONE:
        adopt(client, request, t);
        end(client, request, 0, "");
        return;
    case RETRY_FAIL:
        request->unknown = verdict->unknown;
        end(client, request, verdict->result, "");
        return;
    case RETRY_SLOWER:
        atomic_fetch_add(&client->slow_downs, 1);
        retry_limit_slow_down(&client->limit, clock_boottime_usec());
        break;
    case RETRY_AGAIN:
        break;
    default:
        correct(client, request, t, verdict->action);
        drop_try(client, request, mine);
        if (!other)
            queue_put(request, &client->waiting, true);
        return;
    }
    drop_try(client, request, mine);
    if (!other)
        pause_request(client, request);
}

void queue_end_try(S3Client *client, S3Try *t, CURLcode code)
{
    S3Request *request = t->request;
    assert(request->progress.queue == &client->active && request->progress.tries[t->hedge] == t);
    RetryReply reply;
    response_judge(t, code, &reply, &request->refusal);
    request->reply = t->reply;
    request->status = t->status;
    request->error = t->reason;
    RetryVerdict verdict = retry_judge(&reply);
    bool no_answer = reply.failed || reply.status >= 500;
    request->progress.undecided |= reply.sent && no_answer;
    obey(client, request, t, &verdict);
    atomic_store(&client->concurrency, client->limit.now);
}
