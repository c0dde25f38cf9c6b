/* SPDX-License-Identifier: Apache-2.0 */
/* testing-answers.c - see testing-answers.h. */
#include "tests/sim/etcd/testing-answers.h"

#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <string.h>

enum { CALLS_MAX = 64, PATIENCE_SEC = 60, ANSWER_MSEC = 10 };

const char answers_endpoint[] = "m0:2379", answers_endpoints[] = "m0:2379,m1:2379";

size_t answers_down;
static AskedCall calls[CALLS_MAX];
static size_t n_calls;
static AskedCall *answered; /* NULL: nothing is to be said */
static ProtobufCMessage *answer;

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

static void on_send(_unused_ void *server, void *call, _unused_ const ProtobufCMessage *request)
{
    ((AskedCall *)call)->n_asked++;
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
    network_answer(call->wire, answer);
    if (call->unary) {
        network_end(call->wire, WIRE_OK, "");
        call->wire = NULL;
    }
}

static uint64_t next_usec(_unused_ void *server)
{
    return answered ? loops_now_usec() : UINT64_MAX;
}

void answers_open(sd_event **ret_event)
{
    static const char *const addresses[] = {answers_endpoint, "m1:2379"};
    n_calls = 0;
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
    assert_int_equal(sd_event_new(ret_event), 0);
}

void answers_close(sd_event *event)
{
    (void)sd_event_unref(event);
    network_close();
    loops_close();
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

void reply(AskedCall *call, const ProtobufCMessage *message)
{
    uint8_t bytes[1024];
    assert_true(call->wire && !answered && call->n_asked > call->n_answered);
    const size_t n = protobuf_c_message_get_packed_size(message);
    assert_true(n <= sizeof(bytes));
    (void)protobuf_c_message_pack(message, bytes);
    answer = message_unpack(message->descriptor, bytes, n);
    assert_non_null(answer);
    answered = call;
    network_server_changed();
    pass_usec(ANSWER_MSEC * USEC_PER_MSEC);
}
