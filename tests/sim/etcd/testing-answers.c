/* SPDX-License-Identifier: Apache-2.0 */
/* testing-answers.c - see testing-answers.h. */
#include "tests/sim/etcd/testing-answers.h"

#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <string.h>

enum { CALLS_MAX = 1024, PATIENCE_SEC = 60, ANSWER_MSEC = 10, RESULTS_MAX = 120 };

const char answers_endpoint[] = "m0:2379", answers_endpoints[] = "m0:2379,m1:2379",
           answers_all_endpoints[] = "m0:2379,m1:2379,m2:2379";

size_t answers_down;
sd_event *event;
Etcd *etcd;
EtcdLease *lease;
EtcdWatch *watch;
EtcdElection *election;
static AskedCall calls[CALLS_MAX];
static size_t n_calls;
static AskedCall *answered;      /* the call that is to be answered; NULL: no call */
static ProtobufCMessage *answer; /* the message to send; NULL: only the status or garbage is sent */
static bool is_garbage;
static WireCode answer_code;
static const char *answer_text;

/* ---- memory that is not freed, in all objects linked into the test ---- */

static long n_allocations;

void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
int __real_vasprintf(char **ret, const char *format, va_list ap) _printf_(2, 0);
void __real_free(void *p);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
int __wrap_vasprintf(char **ret, const char *format, va_list ap) _printf_(2, 0);
int __real___vasprintf_chk(char **ret, int flag, const char *format, va_list ap) _printf_(3, 0);
int __wrap___vasprintf_chk(char **ret, int flag, const char *format, va_list ap) _printf_(3, 0);
void __wrap_free(void *p);

void *__wrap_calloc(size_t n, size_t size)
{
    n_allocations++;
    return __real_calloc(n, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    n_allocations += !p;
    return __real_reallocarray(p, n, size);
}

int __wrap_vasprintf(char **ret, const char *format, va_list ap)
{
    n_allocations++;
    return __real_vasprintf(ret, format, ap);
}

/* The variant of vasprintf() that programs call when they are compiled with _FORTIFY_SOURCE. */
int __wrap___vasprintf_chk(char **ret, int flag, const char *format, va_list ap)
{
    n_allocations++;
    return __real___vasprintf_chk(ret, flag, format, ap);
}

void __wrap_free(void *p)
{
    n_allocations -= p != NULL;
    __real_free(p);
}

/* ---- the members ---- */

static void *on_open(_unused_ void *server, size_t member, const char *path,
                     _unused_ bool hasleader, const char *token, WireCall *wire)
{
    const char *name = strrchr(path, '/') + 1;
    assert_true(n_calls < CALLS_MAX);
    AskedCall *call = &calls[n_calls++];
    *call = (AskedCall){.wire = wire,
                        .member = member,
                        .unary = strcmp(name, "Watch") != 0 && strcmp(name, "LeaseKeepAlive") != 0};
    (void)snprintf(call->method, sizeof(call->method), "%s", name);
    (void)snprintf(call->token, sizeof(call->token), "%s", token ? token : "");
    return call;
}

static ProtobufCMessage *copy_of(const ProtobufCMessage *message)
{
    uint8_t bytes[16384];
    const size_t n = protobuf_c_message_get_packed_size(message);
    assert_true(n <= sizeof(bytes));
    (void)protobuf_c_message_pack(message, bytes);
    ProtobufCMessage *copy = message_unpack(message->descriptor, bytes, n);
    assert_non_null(copy);
    return copy;
}

static void on_send(_unused_ void *server, void *server_call, const ProtobufCMessage *request)
{
    AskedCall *call = server_call;
    call->n_asked++;
    message_free(call->request);
    call->request = copy_of(request);
}

static void on_cancel(_unused_ void *server, void *call)
{
    ((AskedCall *)call)->wire = NULL;
    if (answered == call)
        fail_msg("the client has given up %s", answered->method);
}

static bool is_up(_unused_ void *server, size_t member) { return member != answers_down; }

static void advance(_unused_ void *server, _unused_ uint64_t now_usec)
{
    AskedCall *call = answered;
    if (!call)
        return;
    answered = NULL;
    call->n_answered++;
    if (answer || is_garbage)
        network_answer(call->wire, answer);
    if (call->unary || !(answer || is_garbage)) {
        network_end(call->wire, answer_code, answer_text);
        call->wire = NULL;
    }
}

static uint64_t next_usec(_unused_ void *server)
{
    return answered ? loops_now_usec() : UINT64_MAX;
}

int answers_set_up(_unused_ void **state)
{
    static const char *const addresses[] = {answers_endpoint, "m1:2379", "m2:2379"};
    n_calls = 0;
    n_allocations = 0;
    answers_down = SIZE_MAX;
    answered = NULL;
    loops_open(USEC_PER_SEC);
    network_open(&(NetworkOptions){.addresses = addresses,
                                   .n_members = ELEMENTSOF(addresses),
                                   .n_machines = 1,
                                   .seed = 1,
                                   .server = {.open = on_open,
                                              .send = on_send,
                                              .cancel = on_cancel,
                                              .is_up = is_up,
                                              .advance = advance,
                                              .next_usec = next_usec}});
    return sd_event_new(&event);
}

void open_client(const char *endpoints, const char *user)
{
    const EtcdOptions options = {.endpoints = endpoints,
                                 .user = user,
                                 .password = user ? "secret" : NULL,
                                 .timeout_usec = 5 * USEC_PER_SEC};
    assert_int_equal(etcd_new(event, &options, &etcd, NULL), 0);
}

void close_client(void)
{
    election = etcd_election_free(election);
    lease = etcd_lease_free(lease);
    watch = etcd_watch_free(watch);
    etcd = etcd_free(etcd);
}

int answers_tear_down(_unused_ void **state)
{
    close_client();
    event = sd_event_unref(event);
    for (size_t i = 0; i < n_calls; i++)
        message_free(calls[i].request);
    network_close();
    loops_close();
    if (n_allocations != 0)
        print_error("%ld allocations are left\n", n_allocations);
    return n_allocations != 0;
}

static AskedCall *find_asked(const char *method)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i].wire && calls[i].n_asked > calls[i].n_answered &&
            strcmp(calls[i].method, method) == 0)
            return &calls[i];
    return NULL;
}

bool is_asked(const char *method) { return find_asked(method) != NULL; }

AskedCall *await_asked(const char *method)
{
    const uint64_t until_usec = loops_now_usec() + PATIENCE_SEC * USEC_PER_SEC;
    while (!is_asked(method))
        if (!loops_run(until_usec))
            fail_msg("nobody asks for %s", method);
    return find_asked(method);
}

void pass_usec(uint64_t usec)
{
    const uint64_t until_usec = loops_now_usec() + usec;
    while (loops_run(until_usec))
        ;
}

size_t open_calls(const char *method)
{
    size_t n = 0;
    for (size_t i = 0; i < n_calls; i++)
        n += calls[i].wire && (!method || strcmp(calls[i].method, method) == 0);
    return n;
}

size_t all_calls(const char *method)
{
    size_t n = 0;
    for (size_t i = 0; i < n_calls; i++)
        n += strcmp(calls[i].method, method) == 0;
    return n;
}

static void say(AskedCall *call, ProtobufCMessage *message, bool garbage, WireCode code,
                const char *text)
{
    assert_true(call->wire && !answered);
    answer = message;
    is_garbage = garbage;
    answer_code = code;
    answer_text = text;
    answered = call;
    network_server_changed();
    pass_usec(ANSWER_MSEC * USEC_PER_MSEC);
}

void refuse(AskedCall *call, WireCode code, const char *text)
{
    say(call, NULL, false, code, text);
}

void babble(AskedCall *call) { say(call, NULL, true, WIRE_OK, ""); }

void reply(AskedCall *call, const ProtobufCMessage *message)
{
    assert_true(call->n_asked > call->n_answered);
    say(call, copy_of(message), false, WIRE_OK, "");
}

void reply_and_refuse(AskedCall *call, const ProtobufCMessage *message, WireCode code,
                      const char *text)
{
    say(call, copy_of(message), false, code, text);
}

/* ---- answers ---- */

Pb__ResponseHeader header_of(int64_t revision, uint64_t term)
{
    Pb__ResponseHeader header = PB__RESPONSE_HEADER__INIT;
    header.cluster_id = 7;
    header.revision = revision;
    header.raft_term = term;
    return header;
}

void reply_range(AskedCall *call, int64_t revision, uint64_t term)
{
    Pb__ResponseHeader header = header_of(revision, term);
    Pb__RangeResponse range = PB__RANGE_RESPONSE__INIT;
    range.header = &header;
    reply(call, &range.base);
}

void reply_grant_of(int64_t id, int64_t ttl)
{
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__LeaseGrantResponse grant = PB__LEASE_GRANT_RESPONSE__INIT;
    grant.header = &header;
    grant.id = id;
    grant.ttl = ttl;
    reply(await_asked("LeaseGrant"), &grant.base);
}

void reply_keep_alive(int64_t id, int64_t ttl, uint64_t term)
{
    Pb__ResponseHeader header = header_of(5, term);
    Pb__LeaseKeepAliveResponse keep = PB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    keep.header = &header;
    keep.id = id;
    keep.ttl = ttl;
    reply(await_asked("LeaseKeepAlive"), &keep.base);
}

void reply_txn(void)
{
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__ResponseOp empty = PB__RESPONSE_OP__INIT, *results[RESULTS_MAX];
    Pb__TxnResponse done = PB__TXN_RESPONSE__INIT;
    for (size_t i = 0; i < RESULTS_MAX; i++)
        results[i] = &empty;
    done.header = &header;
    done.succeeded = true;
    done.n_responses = txn_request()->n_success;
    done.responses = results;
    assert_true(done.n_responses <= RESULTS_MAX);
    reply(await_asked("Txn"), &done.base);
}

void reply_created(void)
{
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__WatchResponse created = PB__WATCH_RESPONSE__INIT;
    created.header = &header;
    created.created = true;
    reply(await_asked("Watch"), &created.base);
}

void reply_token(const char *token)
{
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__AuthenticateResponse made = PB__AUTHENTICATE_RESPONSE__INIT;
    made.header = &header;
    made.token = (char *)token;
    reply(await_asked("Authenticate"), &made.base);
}

void reply_page(int64_t revision, bool more, const char *a, const char *b)
{
    Pb__ResponseHeader header = header_of(revision, 2);
    Pb__KeyValue of[2], *kvs[2] = {&of[0], &of[1]};
    Pb__RangeResponse page = PB__RANGE_RESPONSE__INIT;
    const char *keys[] = {a, b};
    for (size_t i = 0; i < 2 && keys[i]; i++, page.n_kvs++) {
        of[i] = (Pb__KeyValue)PB__KEY_VALUE__INIT;
        of[i].key = (ProtobufCBinaryData){.data = (uint8_t *)keys[i], .len = strlen(keys[i])};
        of[i].value = (ProtobufCBinaryData){.data = (uint8_t *)"v", .len = 1};
        of[i].create_revision = 2;
        of[i].mod_revision = 3;
        of[i].version = 4;
        of[i].lease = 77;
    }
    page.header = &header;
    page.more = more;
    page.kvs = kvs;
    reply(await_asked("Range"), &page.base);
}

/* ---- requests ---- */

Pb__RangeRequest *range_request(void) { return (Pb__RangeRequest *)await_asked("Range")->request; }

Pb__TxnRequest *txn_request(void) { return (Pb__TxnRequest *)await_asked("Txn")->request; }

void assert_bytes(ProtobufCBinaryData bytes, const char *wanted, size_t n)
{
    assert_int_equal(bytes.len, n);
    assert_memory_equal(n ? (const char *)bytes.data : "", wanted, n);
}
