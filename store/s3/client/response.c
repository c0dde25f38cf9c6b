/* SPDX-License-Identifier: Apache-2.0 */
/* response.c - the reply to a try: stores the bytes of the reply, and checks that it is complete and matches the
 * request. */
#include "store/s3/client/client-internal.h"

#include "base/number/hash.h"
#include "base/proxy.h"

#include <errno.h>
#include <string.h>

enum {
    ERROR_BODY_MAX = 64 * 1024,
    SKEW_MAX_SEC = 14 * 60, /* S3 accepts 15 minutes */
};

/* ---- bytes ---- */

static int refuse(S3Try *t, int hopeless, const char *why)
{
    t->hopeless = hopeless;
    t->unusable = hopeless == 0;
    return error_set(&t->reason, hopeless ? hopeless : -EIO, "%ld with %s", t->status, why);
}

static int expect_range(S3Try *t)
{
    const S3Request *request = t->request;
    const ReplyHeaders *reply = &t->reply;
    uint64_t end = request->offset + request->n_bytes;
    char why[200];

    if (t->status != 206) {
        if (request->offset == 0 && reply->has_length && reply->length == request->n_bytes)
            return 0;
        if (reply->has_length && reply->length < end) {
            (void)snprintf(why, sizeof(why),
                           "an object of %llu bytes, of which %llu to %llu were asked",
                           (unsigned long long)reply->length, (unsigned long long)request->offset,
                           (unsigned long long)end - 1);
            return refuse(t, -EIO, why);
        }
        return refuse(t, 0, "more than the range that was asked");
    }
    if (reply->has_range && reply->range_first == request->offset && reply->range_last == end - 1)
        return 0;
    if (!reply->has_range)
        return refuse(t, 0, "no Content-Range");
    bool shorter = reply->size > 0 && reply->size < end;
    (void)snprintf(why, sizeof(why), "bytes %llu to %llu of %llu, asked were %llu to %llu",
                   (unsigned long long)reply->range_first, (unsigned long long)reply->range_last,
                   (unsigned long long)reply->size, (unsigned long long)request->offset,
                   (unsigned long long)end - 1);
    return refuse(t, shorter ? -EIO : 0, why);
}

static int expect_whole(S3Try *t)
{
    char why[120];
    if (!t->reply.has_length || t->reply.length == t->request->n_bytes)
        return 0;
    (void)snprintf(why, sizeof(why), "an object of %llu bytes, expected were %zu",
                   (unsigned long long)t->reply.length, t->request->n_bytes);
    return refuse(t, -EIO, why);
}

/* Examines the head of the reply, and chooses the destination of the body. */
static int judge_head(S3Try *t)
{
    const S3Request *request = t->request;
    t->judged = true;
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status); /* 0 without a reply */
    if (t->unusable)
        return -EIO;
    bool got = request->method == S3_GET && t->status >= 200 && t->status < 300;
    if (got && request->buffer) {
        t->into_buffer = true;
        return request->ranged ? expect_range(t) : expect_whole(t);
    }
    t->text_must_fit = got || (request->text_max > 0 && t->status >= 200 && t->status < 300);
    t->text_max = t->text_must_fit ? request->text_max : ERROR_BODY_MAX;
    if (t->text_must_fit && request->method != S3_HEAD && t->reply.has_length &&
        t->reply.length > t->text_max)
        return refuse(t, -EFBIG, "more bytes than there may be");
    return 0;
}

static int text_add(S3Try *t, const char *data, size_t n_bytes)
{
    if (n_bytes > t->text_max - t->n_text) {
        if (t->text_must_fit)
            return refuse(t, -EFBIG, "more bytes than there may be");
        n_bytes = t->text_max - t->n_text; /* the end of a long error text may be missing */
    }
    if (t->n_text + n_bytes + 1 > t->text_size) {
        size_t size = MAX(2 * t->text_size, t->n_text + n_bytes + 1);
        if (t->text_must_fit && t->reply.has_length)
            size = MAX(size, t->reply.length + 1);
        char *more = realloc(t->text, size);
        if (!more)
            return refuse(t, -ENOMEM, "more bytes than there is memory");
        t->text = more;
        t->text_size = size;
    }
    memcpy(t->text + t->n_text, data, n_bytes);
    t->n_text += n_bytes;
    t->text[t->n_text] = '\0';
    return 0;
}

size_t response_body(char *data, size_t size, size_t n, void *userdata)
{
    S3Try *t = userdata;
    size_t bytes = size * n;
    if (!t->judged && judge_head(t) < 0)
        return CURL_WRITEFUNC_ERROR;
    if (t->into_buffer) {
        if (bytes > t->n_buffer - t->received) {
            (void)refuse(t, 0, "more bytes than were asked");
            return CURL_WRITEFUNC_ERROR;
        }
        memcpy(t->buffer + t->received, data, bytes);
    } else if (text_add(t, data, bytes) < 0) {
        return CURL_WRITEFUNC_ERROR;
    }
    t->received += bytes;
    if (t->reply.has_crc32c && !t->request->ranged)
        t->crc32c = crc32c(t->crc32c, data, bytes); /* now, while the CPU's cache has the data */
    return bytes;
}

size_t response_header(char *line, size_t size, size_t n, void *userdata)
{
    S3Try *t = userdata;
    if (size * n <= 2) /* "\r\n": the line is empty */
        t->head_ended = true;
    else if (size * n > 5 && memcmp(line, "HTTP/", 5) == 0)
        t->head_ended = false;
    if (reply_headers_add(&t->reply, line, size * n) < 0 && !t->unusable) {
        t->unusable = true;
        char said[100];
        (void)snprintf(said, sizeof(said), "%.*s", (int)MIN(size * n, sizeof(said) - 1), line);
        secret_set_take_out(&t->client->secrets, said);
        (void)error_set(&t->reason, -EIO, "a reply with a bad header: %s", said);
    }
    return size * n;
}

/* ---- judging the outcome ---- */

static int hopeless_of(CURLcode code)
{
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return -EACCES;
    case CURLE_URL_MALFORMAT:
        return -EINVAL;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    default:
        return 0;
    }
}

/* Checks a complete successful reply: whether its bytes are those that were requested. */
static void judge_bytes(S3Try *t)
{
    const S3Request *request = t->request;
    char why[120];
    if (!t->head_ended) { /* libcurl accepts a cut head as complete, and then expects no body */
        (void)refuse(t, 0, "a head that ends too soon");
        return;
    }
    if (!t->judged && judge_head(t) < 0)
        return;
    /* An empty body gives an empty text. */
    if (!t->into_buffer && t->text_must_fit && text_add(t, "", 0) < 0)
        return;
    if (t->into_buffer && t->received != t->n_buffer) {
        (void)snprintf(why, sizeof(why), "%zu bytes, expected were %zu", t->received, t->n_buffer);
        (void)refuse(t, 0, why);
    } else if (request->method == S3_GET && !request->ranged && t->status == 200 &&
               t->reply.has_crc32c && t->crc32c != t->reply.crc32c) {
        (void)snprintf(why, sizeof(why), "bytes whose crc32c is %08x, the server's is %08x",
                       t->crc32c, t->reply.crc32c);
        (void)refuse(t, 0, why);
    }
}

/* Whether the body may be an <Error>. A successful GET of an object returns the user's bytes; any other reply, even a
 * successful one, may hold an error. */
static bool may_be_error(const S3Try *t)
{
    bool success = t->status >= 200 && t->status < 300;
    return !success || t->request->method != S3_GET || t->request->key[0] == '\0';
}

static void report_failure(S3Try *t, CURLcode code)
{
    const char *what = t->connections > 1 ? "the connection was closed without a reply"
                       : t->failure[0]    ? t->failure
                                          : curl_easy_strerror(code);
    char proxy[PROXY_TEXT_BYTES];
    const char *url = NULL;
    if (curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &url) != CURLE_OK || !url)
        url = "";
    t->hopeless = hopeless_of(code);
    t->unusable = true;
    (void)error_set(&t->reason, -EIO, "%s%s%s", what, proxy_named(url, proxy),
                    t->hopeless == -EACCES ? "; whom to trust, AWS_CA_BUNDLE says" : "");
    secret_set_take_out(&t->client->secrets, t->reason.text);
}

/* Reports a refusal: "503 SlowDown: Please reduce your request rate. [request 4442587FB7D0A2F9]". The server's support
 * needs the request's number. */
static void report_refusal(S3Try *t, const S3Error *refusal)
{
    S3Error said = *refusal; /* a copy: callers need the unchanged code */
    char id[sizeof(t->reply.request_id)];
    (void)snprintf(id, sizeof(id), "%s",
                   *refusal->request_id ? refusal->request_id : t->reply.request_id);
    char *const texts[] = {said.code, said.message, id};
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        /* Each text is handled alone: a text may have been cut, so that it ends with a part of a secret. */
        secret_set_take_out(&t->client->secrets, texts[i]);
    (void)error_set(&t->reason, -EIO, "%ld%s%s%s%.120s%s%s%s", t->status, *said.code ? " " : "",
                    said.code, *said.message ? ": " : "", said.message, *id ? " [request " : "", id,
                    *id ? "]" : "");
}

void response_judge(S3Try *t, CURLcode code, RetryReply *ret, S3Error *ret_refusal)
{
    const S3Progress *progress = &t->request->progress;
    *ret_refusal = (S3Error){0};
    if (code == CURLE_OK)
        judge_bytes(t);
    else if (!t->unusable && t->hopeless == 0)
        report_failure(t, code);
    bool failed = t->unusable || t->hopeless != 0;
    if (!failed && t->n_text > 0 && may_be_error(t))
        /* -ENOENT: the text is not an <Error>. */
        (void)reply_error(t->text, t->n_text, ret_refusal);
    if (!failed)
        report_refusal(t, ret_refusal);

    const char *region = *ret_refusal->region ? ret_refusal->region : t->reply.region;
    S3Address place = {0};
    bool names_place =
        t->reply.location[0] && s3_address_parse(t->reply.location, t->tls, &place, NULL) == 0;
    s3_address_clear(&place);
    int64_t skew = t->reply.date - t->signed_sec;
    *ret = (RetryReply){
        .sent = transfer_is_sent(t),
        .failed = failed,
        .hopeless = t->hopeless,
        .status = t->status,
        .error = ret_refusal,
        .conditional = progress->conditional,
        .repeatable = transfer_is_repeatable(t->request),
        .skewed = t->reply.date > 0 && (skew > SKEW_MAX_SEC || skew < -SKEW_MAX_SEC),
        .names_region = *region && strcmp(region, t->region) != 0,
        .names_place = names_place,
        .clock_corrected = progress->clock_corrected,
        .region_corrected = progress->region_corrected,
        .credentials_renewed = progress->credentials_renewed,
        .redirects = progress->redirects,
    };
}
