/* SPDX-License-Identifier: Apache-2.0 */
/* smtp.c - see smtp.h. */
#include "controller/alerting/smtp.h"

#include "base/clock.h"
#include "base/memory.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

enum { DEADLINE_MSEC = 200, ADDRESS_BYTES = 260, WORDS_BYTES = 200 };

struct Smtp {
    sd_event *event;
    sd_event_source *io, *timer;
    int wake_fd; /* the threads write, the loop reads */
    SmtpDeadline deadline;
    void *userdata;
    _Atomic uint64_t deadline_usec; /* the loop writes, the threads read */
    SmtpCall *calls;
};

struct SmtpCall {
    /* Used by the loop only. */
    SmtpCall *next;
    SmtpHandler handler; /* NULL: the call is cancelled */
    void *userdata;
    pthread_t thread;

    /* Used by the loop and by the thread. */
    Smtp *smtp;
    _Atomic bool cancelled, done;

    /* Used by the thread only, until it sets done. */
    CURL *easy;
    struct curl_slist *to;
    char *text;
    size_t n_text, sent;
    uint64_t until_usec;
    int status;
    char failure[CURL_ERROR_SIZE];
    char words[WORDS_BYTES]; /* the last line in which the server refused something */
};

/* ---- what libcurl calls, in the thread ---- */

static size_t on_read(char *to, size_t size, size_t n, void *userdata)
{
    SmtpCall *call = userdata;
    size_t bytes = MIN(size * n, call->n_text - call->sent);
    memcpy(to, call->text + call->sent, bytes);
    call->sent += bytes;
    return bytes;
}

/* libcurl calls this for each line from the server. */
static size_t on_line(const char *line, size_t size, size_t n, void *userdata)
{
    SmtpCall *call = userdata;
    size_t bytes = size * n;
    if (bytes >= 3 && (line[0] == '4' || line[0] == '5')) {
        size_t kept = MIN(bytes, sizeof(call->words) - 1);
        memcpy(call->words, line, kept);
        call->words[kept] = '\0';
        call->words[strcspn(call->words, "\r\n")] = '\0';
    }
    return bytes;
}

static bool is_late(const SmtpCall *call)
{
    return atomic_load(&call->cancelled) || clock_boottime_usec() >= call->until_usec;
}

/* libcurl calls this at least once a second, also while it waits for the server. */
static int on_progress(void *userdata, _unused_ curl_off_t to_get, _unused_ curl_off_t got,
                       _unused_ curl_off_t to_send, _unused_ curl_off_t sent)
{
    return is_late(userdata) ? 1 : 0;
}

/* libcurl calls this before the mail's first command. */
static int on_connected(void *userdata, _unused_ char *their_ip, _unused_ char *our_ip,
                        _unused_ int their_port, _unused_ int our_port)
{
    const SmtpCall *call = userdata;
    bool leads = clock_boottime_usec() < atomic_load(&call->smtp->deadline_usec);
    return leads && !is_late(call) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* ---- the thread ---- */

static const char *words_of(const SmtpCall *call, CURLcode code)
{
    if (code == CURLE_USE_SSL_FAILED)
        return "the server offers no STARTTLS, so nothing was sent; use smtps://, or \"tls\": "
               "\"off\"";
    if (code != CURLE_ABORTED_BY_CALLBACK)
        return curl_easy_strerror(code);
    return is_late(call) ? "timed out: no answer in time" : "the leader's lease is nearly over";
}

/* If the server refused something, its last reply is the result. If the network failed, the last reply was
 * positive and does not explain the failure. */
static void note_result(SmtpCall *call, CURLcode code)
{
    long status = 0;
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE,
                            &status); /* on an error status stays 0 */
    bool refused = status >= 400 && status < 600 && code != CURLE_OPERATION_TIMEDOUT;
    call->status = code == CURLE_OK ? 250 : refused ? (int)status : 0;
    if (!call->failure[0] || code == CURLE_USE_SSL_FAILED || code == CURLE_ABORTED_BY_CALLBACK)
        (void)snprintf(call->failure, sizeof(call->failure), "%s", words_of(call, code));
}

static void *send_in_thread(void *userdata)
{
    SmtpCall *call = userdata;
    note_result(call, curl_easy_perform(call->easy));
    curl_easy_cleanup(call->easy);
    const uint64_t one = 1;
    const int wake_fd = call->smtp->wake_fd;
    atomic_store(&call->done, true); /* the loop may see this before the write below */
    ssize_t n = write(wake_fd, &one, sizeof(one));
    assert(n == sizeof(one)); /* the loop reads the counter, so it is never full */
    return NULL;
}

/* ---- calls ---- */

static void call_free(SmtpCall *call)
{
    for (SmtpCall **at = &call->smtp->calls; *at; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            break;
        }
    curl_slist_free_all(call->to);
    free(call->text);
    free(call);
}

static int on_tick(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Smtp *smtp = userdata;
    atomic_store(&smtp->deadline_usec, smtp->deadline(smtp->userdata));
    int r = sd_event_source_set_time_relative(source, DEADLINE_MSEC * USEC_PER_MSEC);
    if (r >= 0)
        r = sd_event_source_set_enabled(source, smtp->calls ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
    return r;
}

static SmtpCall *find_done(const Smtp *smtp)
{
    for (SmtpCall *call = smtp->calls; call; call = call->next)
        if (atomic_load(&call->done))
            return call;
    return NULL;
}

/* Joins the thread, which has set done or is cancelled, and passes its result to the handler. */
static void finish(SmtpCall *call)
{
    int r = pthread_join(call->thread, NULL);
    assert(r == 0);
    MailReply reply = {.status = call->status, .failure = call->failure, .words = call->words};
    if (call->handler)
        call->handler(&reply, call->userdata);
    call_free(call);
}

static int on_wake(_unused_ sd_event_source *source, int fd, _unused_ uint32_t events,
                   void *userdata)
{
    Smtp *smtp = userdata;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));
    (void)n; /* EAGAIN is harmless: an earlier read has taken the eventfd's whole count */
    SmtpCall *call;
    while ((call = find_done(smtp)))
        finish(call);
    return 0;
}

SmtpCall *smtp_call_cancel(SmtpCall *call)
{
    if (!call)
        return NULL;
    call->handler = NULL;
    atomic_store(&call->cancelled, true);
    return NULL;
}

static int set_options(SmtpCall *call, const SmtpRequest *request)
{
    CURL *easy = call->easy;
    char from[ADDRESS_BYTES];
    long timeout_msec = (long)(request->timeout_usec / USEC_PER_MSEC);
    CURLcode r = CURLE_OK;
    (void)snprintf(from, sizeof(from), "<%s>", request->from);
#define SET(option, value) r = r ? r : curl_easy_setopt(easy, option, value)
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_PROTOCOLS_STR, "smtp,smtps");
    SET(CURLOPT_PROXY, ""); /* no proxy, whatever the environment says: its proxies are for HTTP */
    SET(CURLOPT_USE_SSL, (long)(request->plain ? CURLUSESSL_NONE : CURLUSESSL_ALL));
    SET(CURLOPT_MAIL_FROM, from);
    SET(CURLOPT_MAIL_RCPT, call->to);
    SET(CURLOPT_MAIL_RCPT_ALLLOWFAILS, 1L); /* the other recipients still get the mail */
    SET(CURLOPT_UPLOAD, 1L);
    SET(CURLOPT_READFUNCTION, on_read);
    SET(CURLOPT_READDATA, call);
    SET(CURLOPT_HEADERFUNCTION, on_line);
    SET(CURLOPT_HEADERDATA, call);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, call);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, call);
    SET(CURLOPT_TIMEOUT_MS, timeout_msec);
    SET(CURLOPT_CONNECTTIMEOUT_MS, timeout_msec);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* curl_easy_cleanup() does not wait for a name look-up */
    SET(CURLOPT_ERRORBUFFER, call->failure);
    if (request->ca_file)
        SET(CURLOPT_CAINFO, request->ca_file);
    if (request->user && request->user[0]) {
        SET(CURLOPT_USERNAME, request->user);
        SET(CURLOPT_PASSWORD, request->secret);
    }
#undef SET
    return r == CURLE_OK ? 0 : -EINVAL;
}

/* The thread blocks all signals: the main thread handles them. */
static int start_thread(SmtpCall *call)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* cannot fail */
    int r = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (r == 0) {
        r = pthread_create(&call->thread, NULL, send_in_thread, call);
        (void)pthread_sigmask(SIG_SETMASK, &before,
                              NULL); /* cannot fail: the same call succeeded above */
    }
    return -r;
}

int smtp_send(Smtp *smtp, const SmtpRequest *request, SmtpHandler handler, void *userdata,
              SmtpCall **ret)
{
    int n = 0;
    for (const SmtpCall *call = smtp->calls; call; call = call->next)
        n++;
    if (n >= SMTP_CALLS_MAX)
        return -EAGAIN;
    SmtpCall *call = memory_new(SmtpCall);
    call->smtp = smtp;
    call->handler = handler;
    call->userdata = userdata;
    call->text = memory_text(request->text);
    call->n_text = strlen(call->text);
    call->until_usec = clock_boottime_usec() + request->timeout_usec;
    call->easy = memory_given(curl_easy_init());
    for (size_t i = 0; i < json_array_size(request->to); i++) {
        char to[ADDRESS_BYTES];
        (void)snprintf(to, sizeof(to), "<%s>", json_string_value(json_array_get(request->to, i)));
        call->to = memory_given(curl_slist_append(call->to, to));
    }
    call->next = smtp->calls;
    smtp->calls = call;
    atomic_store(&smtp->deadline_usec, smtp->deadline(smtp->userdata));
    int r = sd_event_source_set_enabled(smtp->timer, SD_EVENT_ONESHOT);
    r = r < 0 ? r : set_options(call, request);
    r = r < 0 ? r : start_thread(call);
    if (r < 0) {
        curl_easy_cleanup(call->easy);
        call_free(call);
        return r;
    }
    *ret = call;
    return 0;
}

/* ---- the whole ---- */

int smtp_new(sd_event *event, SmtpDeadline deadline, void *userdata, Smtp **ret)
{
    static bool global; /* libcurl is initialised once per process; libcurl counts further calls */
    if (!global && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return -EIO;
    global = true;
    _cleanup_(smtp_freep) Smtp *smtp = memory_new(Smtp);
    smtp->event = sd_event_ref(event);
    smtp->deadline = deadline;
    smtp->userdata = userdata;
    smtp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (smtp->wake_fd < 0)
        return -errno;
    int r = sd_event_add_io(event, &smtp->io, smtp->wake_fd, EPOLLIN, on_wake, smtp);
    if (r >= 0)
        r = sd_event_add_time_relative(event, &smtp->timer, CLOCK_BOOTTIME, 0, USEC_PER_SEC / 100,
                                       on_tick, smtp);
    if (r >= 0)
        r = sd_event_source_set_enabled(smtp->timer, SD_EVENT_OFF);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(smtp);
    return 0;
}

Smtp *smtp_free(Smtp *smtp)
{
    if (!smtp)
        return NULL;
    for (SmtpCall *call = smtp->calls; call; call = call->next)
        (void)smtp_call_cancel(call);
    while (smtp->calls)
        finish(smtp->calls);
    smtp->io = sd_event_source_disable_unref(smtp->io);
    smtp->timer = sd_event_source_disable_unref(smtp->timer);
    smtp->wake_fd = fd_close(smtp->wake_fd);
    smtp->event = sd_event_unref(smtp->event);
    free(smtp);
    return NULL;
}
