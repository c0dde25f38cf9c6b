/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. It uses libcurl's multi interface even for one request, because a thread that waits in this
 * interface can be woken up: so freeing an identity need not wait for a silent endpoint. */
#include "store/s3/credentials/http.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/proxy.h"
#include "base/text/secret.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <strings.h>

enum { POLL_MSEC = 1000 };

struct S3Http {
    CURLM *multi;
    atomic_bool cancelled;
    bool too_long, head_ended;
    int64_t date;
    size_t n_body;
    char body[S3_HTTP_REPLY_MAX + 1];
};

S3Http *s3_http_new(void)
{
    S3Http *http = memory_new(S3Http);
    http->multi = memory_given(curl_multi_init());
    return http;
}

S3Http *s3_http_free(S3Http *http)
{
    if (!http)
        return NULL;
    if (http->multi)
        (void)curl_multi_cleanup(http->multi); /* cannot fail: no transfer is left */
    secret_free(http);
    return NULL;
}

void s3_http_cancel(S3Http *http)
{
    atomic_store(&http->cancelled, true);
    (void)curl_multi_wakeup(http->multi); /* else the thread wakes within POLL_MSEC */
}

static size_t on_credentials_body(char *data, _unused_ size_t one, size_t n, void *userdata)
{
    S3Http *http = userdata;
    if (n > S3_HTTP_REPLY_MAX - http->n_body) {
        http->too_long = true;
        return 0;
    }
    memcpy(http->body + http->n_body, data, n);
    http->n_body += n;
    http->body[http->n_body] = '\0';
    return n;
}

static size_t on_header(char *line, _unused_ size_t one, size_t n, void *userdata)
{
    S3Http *http = userdata;
    char date[64];
    if (n <= 2) /* "\r\n": the line is empty */
        http->head_ended = true;
    else if (n > 5 && memcmp(line, "HTTP/", 5) == 0)
        http->head_ended = false;
    if (n > 5 && n - 5 < sizeof(date) && strncasecmp(line, "date:", 5) == 0) {
        memcpy(date, line + 5, n - 5);
        date[n - 5] = '\0';
        http->date = MAX(curl_getdate(date, NULL), 0);
    }
    return n;
}

static void headers_free(struct curl_slist **headers)
{
    for (struct curl_slist *one = *headers; one; one = one->next)
        explicit_bzero(one->data, strlen(one->data));
    curl_slist_free_all(*headers);
}

static void header_add(struct curl_slist **headers, const char *line)
{
    *headers = memory_given(curl_slist_append(*headers, line));
}

/* Sets the options of a request; returns false if libcurl refused one. */
static bool prepare(S3Http *http, CURL *easy, const S3HttpRequest *request,
                    struct curl_slist **headers, char failure[CURL_ERROR_SIZE])
{
    header_add(headers, "Accept: */*");
    for (size_t i = 0; i < S3_HTTP_HEADERS_MAX && request->headers[i]; i++)
        header_add(headers, request->headers[i]);

    bool good = true;
#define SET(option, value) good = good && curl_easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_CUSTOMREQUEST, request->method);
    SET(CURLOPT_HTTPHEADER, *headers);
    if (request->body) {
        SET(CURLOPT_POSTFIELDS, request->body);
        SET(CURLOPT_POSTFIELDSIZE, (long)strlen(request->body));
    }
    if (request->ca_bundle)
        SET(CURLOPT_CAINFO, request->ca_bundle);
    if (request->direct)
        SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_CONNECTTIMEOUT_MS, request->connect_msec);
    SET(CURLOPT_TIMEOUT_MS, request->whole_msec);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a silent name server must not delay the end */
    SET(CURLOPT_ERRORBUFFER, failure);
    SET(CURLOPT_WRITEFUNCTION, on_credentials_body);
    SET(CURLOPT_WRITEDATA, http);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, http);
#undef SET
    return good;
}

/* Runs the transfer and returns its result; CURLE_ABORTED_BY_CALLBACK: it was cancelled. */
static CURLcode drive(S3Http *http)
{
    for (;;) {
        int running, left;
        if (atomic_load(&http->cancelled))
            return CURLE_ABORTED_BY_CALLBACK;
        if (curl_multi_perform(http->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        for (CURLMsg *m; (m = curl_multi_info_read(http->multi, &left));)
            if (m->msg == CURLMSG_DONE)
                return m->data.result;
        if (curl_multi_poll(http->multi, NULL, 0, POLL_MSEC, NULL) != CURLM_OK)
            return CURLE_FAILED_INIT;
    }
}

static void easy_cleanup(CURL **easy) { curl_easy_cleanup(*easy); }

int s3_http_request(S3Http *http, const S3HttpRequest *request, S3HttpReply *ret, Error *err)
{
    char failure[CURL_ERROR_SIZE] = "";
    _cleanup_(headers_free) struct curl_slist *headers = NULL;
    _cleanup_(easy_cleanup) CURL *easy = curl_easy_init(); /* is freed before `headers` */

    http->n_body = 0;
    http->date = 0;
    http->too_long = http->head_ended = false;
    explicit_bzero(http->body, sizeof(http->body));
    if (!easy || !prepare(http, easy, request, &headers, failure))
        return error_set(err, -ENOMEM, "libcurl cannot prepare the request");
    if (curl_multi_add_handle(http->multi, easy) != CURLM_OK)
        return error_set(err, -ENOMEM, "libcurl cannot begin the request");
    CURLcode code = drive(http);
    long status = 0;
    if (code == CURLE_OK && curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status) != CURLE_OK)
        code = CURLE_FAILED_INIT;
    (void)curl_multi_remove_handle(http->multi, easy); /* the handle was added */

    if (atomic_load(&http->cancelled))
        return error_set(err, -ECANCELED, "cancelled");
    if (http->too_long)
        return error_set(err, -EBADMSG, "it answered more than %d bytes", S3_HTTP_REPLY_MAX);
    if (code != CURLE_OK) {
        char proxy[PROXY_TEXT_BYTES];
        return error_set(err, -EHOSTUNREACH, "%s%s",
                         failure[0] ? failure : curl_easy_strerror(code),
                         request->direct ? "" : proxy_named(request->url, proxy));
    }
    if (!http->head_ended) /* libcurl accepts a cut head as a whole reply */
        return error_set(err, -EHOSTUNREACH, "its reply ends too soon");
    *ret = (S3HttpReply){.status = status,
                         .date = http->date,
                         .body = http->body,
                         .n_body = http->n_body};
    return 0;
}
