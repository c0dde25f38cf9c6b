/* SPDX-License-Identifier: Apache-2.0 */
/* sender.c - see sender.h. The sender has no policy: the notifier decides which messages are sent, and when. */
#include "controller/alerting/sender.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/printable.h"
#include "cluster/keys.h"
#include "controller/alerting/http.h"
#include "controller/alerting/payload.h"
#include "controller/alerting/smtp.h"

#include <string.h>

enum { RETRY_MSEC_MIN = 20, RETRY_DOUBLINGS_MAX = 6, LEFT_OUT_MSEC = 10000 };

/* A message that is being sent. */
typedef struct Message Message;
struct Message {
    Sender *sender;
    Message *next;
    int64_t id;
    int sink;
    char what[RECORD_INCIDENT_MAX + 32]; /* names the message in the log: "trigger a-3" */
    bool heartbeat;
    HttpCall *call;
    SmtpCall *mail;
};

/* A write to etcd that is under way. */
typedef struct RecordWrite RecordWrite;
struct RecordWrite {
    Sender *sender;
    RecordWrite *next;
    int64_t id;
    char key[KEY_MAX];
    Outcome outcome;
    EtcdCall *call;
    sd_event_source *retry;
};

struct Sender {
    SenderOptions options;
    AlertsFile file;
    void *memory; /* the notifier's memory */
    Notifier *notifier;
    Http *http;
    Smtp *smtp;
    sd_event_source *timer;
    bool ailing[NOTIFIER_SINKS_MAX]; /* the sink's last answer was a failure */
    bool stirred; /* run() is due: the notifier has observed an event since the last call */
    int64_t dropped;
    unsigned refusals;
    Message *messages;
    RecordWrite *writes;
};

static void run(Sender *o);

/* ---- messages ---- */

static Message *message_free(Message *m)
{
    for (Message **at = &m->sender->messages; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    m->call = http_call_free(m->call);
    m->mail = smtp_call_cancel(m->mail);
    free(m);
    return NULL;
}

static void cancel_messages(Sender *o)
{
    while (o->messages)
        (void)message_free(o->messages);
}

/* Logs one line when a sink begins to fail, one when it has recovered, and one for each notification accepted. */
static void log_answer(Sender *o, const Message *m, const Answer *answer)
{
    const char *name = o->file.notifier.sinks[m->sink].name;
    bool good = answer->kind == ANSWER_ACCEPTED;
    if (!good && !o->ailing[m->sink])
        log_warning("sink %s %s: %s (%s) SINK=%s", name,
                    answer->kind == ANSWER_REFUSED ? "refuses" : "fails, is tried again",
                    answer->text, m->what, name);
    else if (good && o->ailing[m->sink])
        log_info("sink %s accepts again SINK=%s", name, name);
    o->ailing[m->sink] = !good;
    if (good && !m->heartbeat)
        log_info("told: %s SINK=%s", m->what, name);
}

/* Handles the sink's answer when the call has ended. */
static void take_answer(Message *m, const Answer *answer)
{
    Sender *o = m->sender;
    /* A test may kill the process at this fault point: the mark is then not stored. A failure has no effect. */
    if (answer->kind == ANSWER_ACCEPTED)
        (void)fault("pages.accepted");
    log_answer(o, m, answer);
    int64_t id = m->id;
    (void)message_free(m);
    notifier_answered(o->notifier, id, answer, clock_boottime_usec(), clock_realtime_usec(),
                      arc4random());
    run(o);
}

static void on_reply(const HttpReply *reply, void *userdata)
{
    Message *m = userdata;
    Answer answer;
    _cleanup_(secret_set_clear) SecretSet secrets = {0};
    sink_add_secrets(&m->sender->file.sinks[m->sink], &secrets);
    answer_read(reply, &secrets, &answer);
    m->call = NULL; /* the HttpCall frees itself */
    take_answer(m, &answer);
}

static void on_mail_reply(const MailReply *reply, void *userdata)
{
    Message *m = userdata;
    Answer answer;
    _cleanup_(secret_set_clear) SecretSet secrets = {0};
    sink_add_secrets(&m->sender->file.sinks[m->sink], &secrets);
    answer_read_mail(reply, &secrets, &answer);
    m->mail = NULL; /* the SmtpCall frees itself */
    if (answer.kind == ANSWER_ACCEPTED && reply->words[0]) {
        char words[256];
        (void)snprintf(words, sizeof(words), "%s", reply->words);
        printable_make(words);
        secret_set_take_out(&secrets, words);
        const char *name = m->sender->file.notifier.sinks[m->sink].name;
        log_warning("sink %s took the mail, but not for everybody: %s (%s) SINK=%s", name, words,
                    m->what, name);
    }
    take_answer(m, &answer);
}

static bool may_send(void *userdata)
{
    const Sender *o = userdata;
    return clock_boottime_usec() < etcd_lease_deadline_usec(o->options.lease);
}

static uint64_t sending_ends(void *userdata)
{
    const Sender *o = userdata;
    return etcd_lease_deadline_usec(o->options.lease);
}

static int mail(Message *m, const Sink *sink, const Payload *payload)
{
    Sender *o = m->sender;
    SmtpRequest request = {.url = sink->url,
                           .plain = sink->plain,
                           .user = sink->user,
                           .secret = sink->secret,
                           .ca_file = sink->ca_file[0] ? sink->ca_file : NULL,
                           .from = sink->from,
                           .to = sink->to,
                           .text = payload->body,
                           .timeout_usec = o->file.notifier.timeout_usec};
    return smtp_send(o->smtp, &request, on_mail_reply, m, &m->mail);
}

static int post(Message *m, const NotifierAction *action)
{
    Sender *o = m->sender;
    const Sink *sink = &o->file.sinks[action->sink];
    PayloadCall call = {.cluster = o->options.cluster,
                        .file = &o->file,
                        .sink = action->sink,
                        .message_kind = action->message_kind,
                        .incident = action->incident,
                        .told = action->told,
                        .real_usec = clock_realtime_usec()};
    Payload payload;
    int r = payload_make(&call, &payload);
    if (r < 0)
        return r;
    if (sink->kind == SINK_EMAIL) {
        r = mail(m, sink, &payload);
        payload_clear(&payload);
        return r;
    }
    HttpRequest request = {.url = sink->url,
                           .body = payload.body,
                           .ca_file = sink->ca_file[0] ? sink->ca_file : NULL,
                           .proxy = sink->proxy[0] ? sink->proxy : NULL,
                           .timeout_usec = o->file.notifier.timeout_usec};
    _Static_assert(ELEMENTSOF(request.headers) >= PAYLOAD_HEADERS_MAX, "every header fits");
    for (int i = 0; i < payload.n_headers; i++)
        request.headers[i] = payload.headers[i];
    r = http_post(o->http, &request, on_reply, m, &m->call);
    payload_clear(&payload);
    return r;
}

static void send_message(Sender *o, const NotifierAction *action)
{
    static const char *const tells[] = {"trigger", "resolve", "beat"};
    Message *m = memory_new(Message);
    *m = (Message){.sender = o,
                   .next = o->messages,
                   .id = action->id,
                   .sink = action->sink,
                   .heartbeat = !action->incident};
    (void)snprintf(m->what, sizeof(m->what), "%s %s", tells[action->message_kind],
                   action->incident ? action->incident->id : "of life");
    o->messages = m;
    int r = fault("pages.send");
    r = r < 0 ? r : post(m, action);
    if (r >= 0)
        return;
    (void)message_free(m);
    Answer answer = {.kind = ANSWER_AGAIN};
    (void)snprintf(answer.text, sizeof(answer.text), "cannot send: %s", strerror(-r));
    notifier_answered(o->notifier, action->id, &answer, clock_boottime_usec(),
                      clock_realtime_usec(), arc4random());
}

/* ---- writes ---- */

static RecordWrite *write_free(RecordWrite *w)
{
    for (RecordWrite **at = &w->sender->writes; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    w->call = etcd_call_free(w->call);
    w->retry = sd_event_source_disable_unref(w->retry);
    free(w);
    return NULL;
}

static void finish(RecordWrite *w, Outcome outcome, int64_t revision)
{
    Sender *o = w->sender;
    int64_t id = w->id;
    if (outcome == OUTCOME_DONE)
        o->refusals = 0;
    (void)write_free(w);
    notifier_stored(o->notifier, id, outcome, revision);
    run(o);
}

static void read_again_later(RecordWrite *w);

static void on_mark_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    RecordWrite *w = userdata;
    const SenderOptions *options = &w->sender->options;
    w->call = NULL;
    if (r < 0) {
        log_warning("cannot read %s again: %s", w->key, err->text);
        read_again_later(w);
        return;
    }
    if (range->n_kvs > 0)
        options->on_record(range->kvs[0].key, range->kvs[0].value, range->kvs[0].n_value,
                           range->kvs[0].mod_revision, options->userdata);
    else
        options->on_record(w->key, NULL, 0, range->revision, options->userdata);
    finish(w, w->outcome, 0);
}

static int on_mark_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    RecordWrite *w = userdata;
    w->retry = sd_event_source_disable_unref(w->retry);
    if (etcd_get(w->sender->options.etcd, w->key, false, on_mark_read, w, &w->call) < 0)
        read_again_later(w);
    return 0;
}

static void read_again_after(RecordWrite *w, uint64_t msec)
{
    Sender *o = w->sender;
    int r = sd_event_add_time_relative(o->options.event, &w->retry, CLOCK_BOOTTIME,
                                       msec * USEC_PER_MSEC, 1000, on_mark_retry, w);
    if (r < 0) {
        log_error("cannot set a timer: %s; leaving", strerror(-r));
        (void)sd_event_exit(o->options.event, 1); /* fails only if the loop is exiting already */
    }
}

/* The pause grows with the number of refusals, so that a lasting fault causes no busy loop. */
static void read_again_later(RecordWrite *w)
{
    unsigned doublings = MIN(w->sender->refusals, (unsigned)RETRY_DOUBLINGS_MAX);
    w->sender->refusals++;
    read_again_after(w, RETRY_MSEC_MIN << doublings);
}

static void on_mark_written(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    RecordWrite *w = userdata;
    w->call = NULL;
    if (r == 0 && result->succeeded) {
        finish(w, OUTCOME_DONE, result->revision);
        return;
    }
    w->outcome = r == 0 ? OUTCOME_REFUSED : OUTCOME_UNKNOWN;
    if (r == -EACCES && w->sender->options.rights)
        rights_denied(w->sender->options.rights);
    if (r < 0)
        log_warning("outcome unknown, reading %s again: %s", w->key, err->text);
    read_again_later(w);
}

static int begin_write(RecordWrite *w, const NotifierAction *a)
{
    const SenderOptions *o = &w->sender->options;
    const EtcdCompare compares[] = {
        {.key = o->leader_key,
         .target = ETCD_CREATE_REVISION,
         .equals = a->term}, /* invariant I1: only the present leader writes */
        {.key = w->key, .target = ETCD_MOD_REVISION, .equals = a->revision}};
    const char *old = feed_text(o->feed, w->key);
    _cleanup_free_ char *value = a->request ? request_record_encode(a->request, old)
                                 : a->alert ? alert_record_encode(a->alert, old)
                                            : NULL;
    EtcdOp op = {.kind = value ? ETCD_PUT : ETCD_DELETE, .key = w->key, .value = value};
    return etcd_txn(o->etcd, compares, ELEMENTSOF(compares), &op, 1, on_mark_written, w, &w->call);
}

static void store(Sender *o, const NotifierAction *a)
{
    RecordWrite *w = memory_new(RecordWrite);
    *w = (RecordWrite){.sender = o, .next = o->writes, .id = a->id};
    o->writes = w;
    (void)key_of(o->options.cluster, a->request ? KEY_REQUESTS : KEY_ALERTS, a->name, w->key);
    if (!a->request && rights_leave_out(o->options.rights, KEY_ALERTS)) {
        /* The write counts as refused until the right is granted; rights.c has logged that the right is missing. */
        w->outcome = OUTCOME_REFUSED;
        read_again_after(w, LEFT_OUT_MSEC);
        return;
    }
    int r = begin_write(w, a);
    if (r >= 0)
        return;
    log_error("cannot write %s: %s", w->key, strerror(-r));
    w->outcome = OUTCOME_UNKNOWN;
    read_again_later(w);
}

/* ---- the notifier ---- */

static void arm_timer(Sender *o, uint64_t wake_usec)
{
    int r = 0;
    if (wake_usec != USEC_INFINITY)
        r = sd_event_source_set_time(o->timer, wake_usec);
    if (r >= 0)
        r = sd_event_source_set_enabled(o->timer, wake_usec == USEC_INFINITY ? SD_EVENT_OFF
                                                                             : SD_EVENT_ONESHOT);
    assert(r >= 0); /* cannot fail: a live event source accepts any time */
}

static void run(Sender *o)
{
    NotifierAction action;
    for (;;) {
        notifier_next(o->notifier, clock_boottime_usec(), clock_realtime_usec(),
                      etcd_lease_deadline_usec(o->options.lease), &action);
        if (action.kind == NOTIFIER_REST)
            break;
        if (action.kind == NOTIFIER_SEND)
            send_message(o, &action);
        else
            store(o, &action);
    }
    arm_timer(o, action.wake_usec);
    int64_t dropped = notifier_dropped(o->notifier);
    if (dropped > o->dropped)
        log_warning("%lld incidents find no place for their pages; raise incidents_kept",
                    (long long)dropped);
    o->dropped = dropped;
}

static int on_sender_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    run(userdata);
    return 0;
}

void sender_observe(Sender *o, const Event *event)
{
    if (event->kind == EVENT_LEADING || event->kind == EVENT_DEPOSED)
        cancel_messages(o);
    o->stirred |= notifier_observe(o->notifier, event);
    if (event->more || !o->stirred)
        return;
    o->stirred = false;
    run(o);
}

int sender_count(const Sender *o, int sink, const char **ret_name, SinkCounts *ret)
{
    if (sink < 0 || sink >= o->file.notifier.n_sinks)
        return -ENOENT;
    *ret_name = o->file.notifier.sinks[sink].name;
    notifier_count(o->notifier, sink, ret);
    return 0;
}

/* ---- the whole ---- */

int sender_reload(Sender *o, Error *err)
{
    AlertsFile file;
    int r = alerts_file_read(o->options.alerts_file, &file, err);
    if (r < 0)
        return error_prefix(err, r, "alerts_file");
    cancel_messages(o);
    alerts_file_clear(&o->file);
    o->file = file;
    memset(o->ailing, 0, sizeof(o->ailing));
    notifier_configure(o->notifier, &o->file.notifier);
    run(o);
    return 0;
}

int sender_new(const SenderOptions *options, Sender **ret, Error *err)
{
    _cleanup_(sender_freep) Sender *o = memory_new(Sender);
    o->options = *options;
    int r = alerts_file_read(options->alerts_file, &o->file, err);
    if (r < 0)
        return error_prefix(err, r, "alerts_file");
    o->memory = memory_zeroed(1, notifier_bytes(options->notifications_max));
    o->notifier = notifier_init(o->memory, options->notifications_max, &o->file.notifier);
    r = http_new(options->event, may_send, o, &o->http);
    if (r < 0)
        return error_errno(err, r, "cannot begin to use libcurl");
    r = smtp_new(options->event, sending_ends, o, &o->smtp);
    if (r < 0)
        return error_errno(err, r, "cannot begin to send mails");
    r = sd_event_add_time(options->event, &o->timer, CLOCK_BOOTTIME, 0, 1000, on_sender_timer, o);
    if (r >= 0)
        r = sd_event_source_set_enabled(o->timer, SD_EVENT_OFF);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    *ret = TAKE_PTR(o);
    return 0;
}

Sender *sender_free(Sender *o)
{
    if (!o)
        return NULL;
    cancel_messages(o);
    while (o->writes)
        (void)write_free(o->writes);
    o->http = http_free(o->http);
    o->smtp = smtp_free(o->smtp);
    o->timer = sd_event_source_disable_unref(o->timer);
    alerts_file_clear(&o->file);
    free(o->memory);
    free(o);
    return NULL;
}
