/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. libcurl's multi interface names the sockets and the timeout to wait for; the event loop waits
 * for them and reports each event to libcurl. */
#include "controller/alerting/http.h"

#include "base/memory.h"
#include "base/proxy.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

enum {
    BODY_KEPT_MAX = 4096,
    BODY_BYTES_MAX = 1 << 20, /* a reply with a longer body is cut off */
    CONNECTIONS_MAX = 64,
    MSEC_PER_SEC = 1000,
};

struct Http {
    sd_event *event;
    CURLM *multi;
    sd_event_source *timer;
    HttpMaySend may_send;
    void *userdata;
    HttpCall *calls;
};

struct HttpCall {
    Http *http;
    HttpCall *next;
    CURL *easy;
    struct curl_slist *headers;
    char *request; /* the body, which libcurl does not copy */
    char body[BODY_KEPT_MAX];
    size_t n_body, received;
    bool has_proxy; /* the request names a proxy: the environment's proxy is not used */
    char failure[CURL_ERROR_SIZE];
    HttpHandler handler;
    void *userdata;
};

HttpCall *http_call_free(HttpCall *call)
{
    if (!call)
        return NULL;
    for (HttpCall **at = &call->http->calls; *at; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            break;
        }
    if (call->easy) {
        /* fails if the handle was never added */
        (void)curl_multi_remove_handle(call->http->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    if (call->request)
        explicit_bzero(call->request, strlen(call->request));
    free(call->request);
    free(call);
    return NULL;
}

/* ---- replies ---- */

static void finish(Http *http, CURL *easy, CURLcode code)
{
    HttpCall *call = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call) != CURLE_OK || !call)
        return; /* http_post() has not begun this transfer */
    long status = 0;
    curl_off_t retry_after = 0;
    (void)http;
    if (code ==
        CURLE_OK) { /* both calls fail if libcurl lacks the option; the value then stays 0 */
        (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
    }
    char failure[CURL_ERROR_SIZE + PROXY_TEXT_BYTES], proxy[PROXY_TEXT_BYTES] = "";
    const char *url = NULL;
    if (!call->has_proxy && curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK &&
        url)
        (void)proxy_named(url, proxy);
    (void)snprintf(failure, sizeof(failure), "%s%s",
                   call->failure[0] ? call->failure : curl_easy_strerror(code), proxy);
    HttpReply reply = {.status = (int)status,
                       .failure = code == CURLE_OK ? "the reply has no status" : failure,
                       .retry_after_sec = retry_after,
                       .body = call->body,
                       .n_body = call->n_body};
    call->handler(&reply, call->userdata);
    (void)http_call_free(call);
}

static void read_finished(Http *http)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(http->multi, &left)))
        if (message->msg == CURLMSG_DONE)
            finish(http, message->easy_handle, message->data.result);
}

/* ---- what libcurl calls ---- */

static int on_http_io(_unused_ sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    Http *http = userdata;
    int what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
               (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    int running;
    if (curl_multi_socket_action(http->multi, fd, what, &running) == CURLM_OK)
        read_finished(http);
    return 0;
}

static int on_http_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Http *http = userdata;
    int running;
    if (curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running) == CURLM_OK)
        read_finished(http);
    return 0;
}

static int on_http_socket(_unused_ CURL *easy, curl_socket_t fd, int what, void *userdata,
                          void *attached)
{
    Http *http = userdata;
    sd_event_source *source = attached;
    if (what == CURL_POLL_REMOVE) {
        (void)sd_event_source_disable_unref(source);
        (void)curl_multi_assign(http->multi, fd,
                                NULL); /* cannot fail: libcurl has just named this socket */
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    if (source)
        return sd_event_source_set_io_events(source, events) < 0 ? -1 : 0;
    if (sd_event_add_io(http->event, &source, fd, events, on_http_io, http) < 0)
        return -1; /* libcurl then fails the transfer with its own error */
    return curl_multi_assign(http->multi, fd, source) == CURLM_OK ? 0 : -1;
}

static int on_http_timeout(_unused_ CURLM *multi, long timeout_msec, void *userdata)
{
    Http *http = userdata;
    int r = 0;
    if (timeout_msec >= 0)
        r = sd_event_source_set_time_relative(http->timer, (uint64_t)timeout_msec * USEC_PER_MSEC);
    if (r >= 0)
        r = sd_event_source_set_enabled(http->timer,
                                        timeout_msec < 0 ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
    return r < 0 ? -1 : 0;
}

static size_t on_http_body(char *data, size_t size, size_t n, void *userdata)
{
    HttpCall *call = userdata;
    size_t bytes = size * n, kept = MIN(bytes, sizeof(call->body) - call->n_body);
    memcpy(call->body + call->n_body, data, kept);
    call->n_body += kept;
    call->received += bytes;
    return call->received > BODY_BYTES_MAX ? 0 : bytes;
}

static int on_http_connected(void *userdata, _unused_ char *their_ip, _unused_ char *our_ip,
                             _unused_ int their_port, _unused_ int our_port)
{
    const HttpCall *call = userdata;
    return call->http->may_send(call->http->userdata) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* ---- calls ---- */

static void add_headers(HttpCall *call, const HttpRequest *request)
{
    static const char no_expect[] = "Expect:"; /* do not wait for a "100 Continue" */
    for (size_t i = 0; i < ELEMENTSOF(request->headers) + 1; i++) {
        const char *header = i == 0 ? no_expect : request->headers[i - 1];
        if (!header)
            break;
        call->headers = memory_given(curl_slist_append(call->headers, header));
    }
}

static int set_options(HttpCall *call, const HttpRequest *request)
{
    CURL *easy = call->easy;
    long timeout_msec = (long)(request->timeout_usec / USEC_PER_MSEC);
    CURLcode r = CURLE_OK;
#define SET(option, value) r = r ? r : curl_easy_setopt(easy, option, value)
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_POSTFIELDS, call->request);
    SET(CURLOPT_HTTPHEADER, call->headers);
    SET(CURLOPT_USERAGENT, "sdtrain");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_TIMEOUT_MS, timeout_msec);
    SET(CURLOPT_CONNECTTIMEOUT_MS, timeout_msec);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* http_call_free() does not wait for a name look-up */
    SET(CURLOPT_WRITEFUNCTION, on_http_body);
    SET(CURLOPT_WRITEDATA, call);
    SET(CURLOPT_PREREQFUNCTION, on_http_connected);
    SET(CURLOPT_PREREQDATA, call);
    SET(CURLOPT_ERRORBUFFER, call->failure);
    SET(CURLOPT_PRIVATE, call);
    if (request->ca_file)
        SET(CURLOPT_CAINFO, request->ca_file);
    if (request->proxy)
        SET(CURLOPT_PROXY, request->proxy);
#undef SET
    return r == CURLE_OK ? 0 : -EINVAL;
}

int http_post(Http *http, const HttpRequest *request, HttpHandler handler, void *userdata,
              HttpCall **ret)
{
    HttpCall *call = memory_new(HttpCall);
    call->http = http;
    call->handler = handler;
    call->userdata = userdata;
    call->has_proxy = request->proxy != NULL;
    call->next = http->calls;
    http->calls = call;
    call->easy = memory_given(curl_easy_init());
    call->request = memory_text(request->body);
    add_headers(call, request);
    int r = set_options(call, request);
    if (r == 0 && curl_multi_add_handle(http->multi, call->easy) != CURLM_OK)
        r = -EIO;
    if (r < 0) {
        (void)http_call_free(call);
        return r;
    }
    *ret = call;
    return 0;
}

/* ---- the whole ---- */

int http_new(sd_event *event, HttpMaySend may_send, void *userdata, Http **ret)
{
    /* Calls of curl_global_init() are counted, and none is undone here: one per process is enough. */
    static bool global;
    if (!global && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return -EIO;
    global = true;
    _cleanup_(http_freep) Http *http = memory_new(Http);
    http->multi = memory_given(curl_multi_init());
    http->event = sd_event_ref(event);
    http->may_send = may_send;
    http->userdata = userdata;
    int r = sd_event_add_time(event, &http->timer, CLOCK_MONOTONIC, 0, 1000, on_http_timer, http);
    if (r >= 0)
        r = sd_event_source_set_enabled(http->timer, SD_EVENT_OFF);
    if (r < 0)
        return r;
    CURLMcode code = CURLM_OK;
#define SET(option, value) code = code ? code : curl_multi_setopt(http->multi, option, value)
    SET(CURLMOPT_SOCKETFUNCTION, on_http_socket);
    SET(CURLMOPT_SOCKETDATA, http);
    SET(CURLMOPT_TIMERFUNCTION, on_http_timeout);
    SET(CURLMOPT_TIMERDATA, http);
    SET(CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CONNECTIONS_MAX);
#undef SET
    if (code != CURLM_OK)
        return -EIO;
    *ret = TAKE_PTR(http);
    return 0;
}

Http *http_free(Http *http)
{
    if (!http)
        return NULL;
    while (http->calls)
        (void)http_call_free(http->calls);
    if (http->multi)
        (void)curl_multi_cleanup(http->multi); /* cannot fail: no transfer is left */
    http->timer = sd_event_source_disable_unref(http->timer);
    http->event = sd_event_unref(http->event);
    free(http);
    return NULL;
}
