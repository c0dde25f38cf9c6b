/* SPDX-License-Identifier: Apache-2.0 */
/* attempt.c - one try of a request: sets it up in libcurl and sends its bytes. response.c handles the reply. */
#include "store/s3/client/client-internal.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

enum {
    CONNECT_MSEC = 10 * 1000,
    /* Size of the buffer between a try's socket and the request's own buffer. Below 256 KiB, wakeups cost more than
     * copies; above 512 KiB, nothing is gained. */
    BUFFER_LEAST = 16 * 1024,
    BUFFER_MOST = 512 * 1024,
    IDLE_CONNECTION_SEC = 50, /* servers close an idle connection after about a minute */
};

/* ---- sending ---- */

const char *transfer_method(const S3Request *request)
{
    static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    return names[request->method];
}

static bool has_body(const S3Request *request)
{
    return request->method == S3_PUT || request->method == S3_POST;
}

static size_t on_send(char *to, size_t size, size_t n, void *userdata)
{
    S3Try *t = userdata;
    const S3Request *request = t->request;
    size_t room = size * n, used = 0;
    while (used < room && t->part < request->n_body) {
        const struct iovec *part = &request->body[t->part];
        size_t bytes = MIN(room - used, part->iov_len - t->part_offset);
        if (bytes > 0)
            memcpy(to + used, (const uint8_t *)part->iov_base + t->part_offset, bytes);
        used += bytes;
        t->part_offset += bytes;
        if (t->part_offset == part->iov_len) {
            t->part++;
            t->part_offset = 0;
        }
    }
    t->n_given += used;
    return used;
}

/* Called for each connection. libcurl itself repeats a request that got no answer on a reused connection. The second
 * connection is refused, as only the queue may decide whether a repetition is safe. */
static int on_attempt_connected(void *userdata, _unused_ char *their_ip, _unused_ char *our_ip,
                                _unused_ int their_port, _unused_ int our_port)
{
    S3Try *t = userdata;
    return t->connections++ == 0 ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

bool transfer_is_repeatable(const S3Request *request)
{
    return request->repeatable || request->method == S3_GET || request->method == S3_HEAD;
}

bool transfer_is_sent(const S3Try *t)
{
    return t->connections > 0 && t->n_given == t->request->progress.n_body;
}

bool transfer_stalls(S3Try *t, uint64_t now_usec)
{
    curl_off_t in = 0, out = 0;
    long head = 0;
    /* These calls cannot fail; until the connection is made, they return counts of 0. */
    (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &in);
    (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &out);
    (void)curl_easy_getinfo(t->easy, CURLINFO_HEADER_SIZE, &head);
    int64_t moved = (int64_t)in + (int64_t)out + head + (int64_t)t->connections;
    if (moved != t->n_moved) {
        t->n_moved = moved;
        t->moved_usec = now_usec;
    }
    /* moved_usec may be later than the caller's now_usec, so their difference could be negative: it is not computed. */
    return now_usec > t->moved_usec + t->client->options.stall_usec;
}

S3Try *transfer_free(S3Try *t)
{
    if (!t)
        return NULL;
    S3Client *client = t->client;
    if (t->added) {
        curl_off_t in = 0, out = 0;
        (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &in);
        (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &out);
        atomic_fetch_add(&client->bytes_in, (uint64_t)in);
        atomic_fetch_add(&client->bytes_out, (uint64_t)out);
        (void)curl_multi_remove_handle(client->multi, t->easy); /* `multi` has the handle */
    }
    /* A handle that never connected may keep its buffer and then refuse another size: libcurl 7.88 does so after a
     * failed name lookup. */
    if (t->easy && t->connections > 0 && client->n_idle < ENGINE_IDLE_HANDLES) {
        curl_easy_reset(t->easy);
        client->idle[client->n_idle++] = t->easy;
    } else {
        curl_easy_cleanup(t->easy);
    }
    curl_slist_free_all(t->headers);
    if (t->hedge)
        free(t->buffer);
    free(t->text);
    free(t);
    return NULL;
}
DEFINE_CLEANUP(S3Try, transfer_free)

/* ---- begin ---- */

static void add_line(S3Try *t, const char *line)
{
    t->headers = memory_given(curl_slist_append(t->headers, line));
}

static void add_header(S3Try *t, const char *name, const char *value)
{
    _cleanup_free_ char *line = memory_format("%s%s%s", name, *value ? ": " : ";", value);
    add_line(t, line);
}

static long receive_bytes(const S3Try *t)
{
    const S3Request *request = t->request;
    size_t most = request->method == S3_GET ? MAX(request->n_bytes, request->text_max) : 0;
    return (long)CLAMP(most, (size_t)BUFFER_LEAST, (size_t)BUFFER_MOST);
}

static int set_options(S3Try *t, const char *url)
{
    const S3Request *request = t->request;
    const S3Options *options = &t->client->options;
    CURL *easy = t->easy;
    CURLcode r = CURLE_OK;
#define SET(option, value) r = r ? r : curl_easy_setopt(easy, option, value)
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PATH_AS_IS, 1L); /* a key may contain ".." */
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L); /* a signature is valid for one host only */
    SET(CURLOPT_HTTPHEADER, t->headers);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* hides a proxy's headers */
    SET(CURLOPT_USERAGENT, "sdtrain");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a pending name lookup must not delay the cleanup */
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MSEC);
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_MAXAGE_CONN, (long)IDLE_CONNECTION_SEC);
    SET(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    SET(CURLOPT_BUFFERSIZE, receive_bytes(t));
    SET(CURLOPT_WRITEFUNCTION, response_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HEADERFUNCTION, response_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_PREREQFUNCTION, on_attempt_connected);
    SET(CURLOPT_PREREQDATA, t);
    SET(CURLOPT_ERRORBUFFER, t->failure);
    SET(CURLOPT_PRIVATE, t);
    if (options->ca_bundle)
        SET(CURLOPT_CAINFO, options->ca_bundle);
    if (has_body(request)) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER_MOST);
        SET(CURLOPT_READFUNCTION, on_send);
        SET(CURLOPT_READDATA, t);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->progress.n_body);
    }
    if (request->method == S3_HEAD)
        SET(CURLOPT_NOBODY, 1L);
    else if (request->method != S3_GET && request->method != S3_PUT)
        SET(CURLOPT_CUSTOMREQUEST, transfer_method(request));
#undef SET
    return r == CURLE_OK ? 0 : r == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
}

typedef struct Headers {
    S3Pair pairs[S3_HEADERS_MAX + 3];
    size_t n;
    char range[64];
} Headers;

static void gather_headers(const S3Client *client, const S3Request *request, Headers *h)
{
    assert(request->n_headers <= S3_HEADERS_MAX);
    h->n = request->n_headers;
    for (size_t i = 0; i < h->n; i++)
        h->pairs[i] = request->headers[i];
    if (request->ranged) {
        (void)snprintf(h->range, sizeof(h->range), "bytes=%llu-%llu",
                       (unsigned long long)request->offset,
                       (unsigned long long)(request->offset + request->n_bytes - 1));
        h->pairs[h->n++] = (S3Pair){"range", h->range};
    }
    if (request->sent_crc32c[0])
        h->pairs[h->n++] = (S3Pair){"x-amz-checksum-crc32c", request->sent_crc32c};
    bool whole_object = request->method == S3_GET && !request->ranged && request->key[0];
    if (whole_object && atomic_load(&client->knows_checksum))
        h->pairs[h->n++] = (S3Pair){"x-amz-checksum-mode", "ENABLED"};
}

/* Signs the request and sets its headers and URL. */
static int prepare(S3Try *t, const S3Address *address, const S3Credentials *credentials,
                   char **ret_url, Error *err)
{
    const S3Request *request = t->request;
    Headers headers = {0};
    gather_headers(t->client, request, &headers);
    SignRequest sign = {
        .method = transfer_method(request),
        .host = address->host,
        .path = address->path,
        .query = request->query,
        .n_query = request->n_query,
        .headers = headers.pairs,
        .n_headers = headers.n,
        .payload_hash = request->progress.body_hash,
    };
    SignedRequest done = {0};
    t->signed_sec =
        (int64_t)(clock_realtime_usec() / USEC_PER_SEC) + atomic_load(&t->client->clock_offset_sec);
    int r = sign_request(&sign, credentials, t->region, "s3", t->signed_sec, &t->client->sign_cache,
                         &done, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *authorization = done.authorization;

    add_header(t, "Authorization", authorization);
    add_header(t, "x-amz-date", done.date);
    add_header(t, "x-amz-content-sha256", request->progress.body_hash);
    if (credentials->token[0])
        add_header(t, "x-amz-security-token", credentials->token);
    for (size_t i = 0; i < headers.n; i++)
        add_header(t, headers.pairs[i].name, headers.pairs[i].value);
    add_line(t, "Expect:"); /* do not wait for 100 Continue */

    _cleanup_free_ char *query = sign_query(request->query, request->n_query);
    *ret_url = memory_format("%s://%s%s%s%s", address->tls ? "https" : "http", address->host,
                             address->path, *query ? "?" : "", query);
    return 0;
}

int transfer_begin(S3Client *client, S3Request *request, const S3Credentials *credentials,
                   uint64_t serial, uint8_t *buffer, S3Try **ret, Error *err)
{
    _cleanup_(transfer_freep) S3Try *t = memory_new(S3Try);
    t->client = client;
    t->request = request;
    t->serial = serial;
    t->hedge = buffer != NULL;
    t->buffer = buffer ? buffer : request->buffer;
    t->n_buffer = request->n_bytes;
    reply_headers_init(&t->reply);
    (void)snprintf(t->region, sizeof(t->region), "%s",
                   s3_region_cache_find(&client->regions, &client->options, request->bucket));
    t->easy = client->n_idle > 0 ? client->idle[--client->n_idle] : curl_easy_init();
    if (!t->easy)
        return error_set(err, -ENOMEM, "out of memory");

    S3Address address;
    int r = request->progress.location
                ? s3_address_parse(request->progress.location, client->tls, &address, err)
                : s3_address_make(&client->options, t->region, request->bucket, request->key,
                                  &address, err);
    if (r < 0)
        return r;
    t->tls = address.tls;
    _cleanup_free_ char *url = NULL;
    r = prepare(t, &address, credentials, &url, err);
    s3_address_clear(&address);
    if (r < 0)
        return r;
    r = set_options(t, url);
    if (r == 0 && curl_multi_add_handle(client->multi, t->easy) != CURLM_OK)
        r = -ENOMEM;
    if (r < 0)
        return error_errno(err, r, "libcurl does not begin");
    t->added = true;
    t->begun_usec = t->moved_usec = clock_boottime_usec();
    *ret = TAKE_PTR(t);
    return 0;
}
