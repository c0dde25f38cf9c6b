/* SPDX-License-Identifier: Apache-2.0 */
/* rpc.c - one RPC on one endpoint: its caller's callbacks, and the time since which an answer is due. */
#include "etcd/etcd-internal.h"

#include <string.h>

Rpc *rpc_start(Etcd *etcd, Endpoint *endpoint, const WireMethod *method, const WireRequest *request,
               uint64_t deadline_usec, const RpcEvents *events, void *userdata)
{
    assert(!etcd->closed);
    assert(endpoint >= etcd->endpoints && endpoint < etcd->endpoints + etcd->n_endpoints);
    Rpc *rpc = memory_new(Rpc);
    *rpc = (Rpc){
        .etcd = etcd,
        .endpoint = endpoint,
        .method = method,
        .events = events,
        .userdata = userdata,
        .waiting_usec = clock_boottime_usec(),
    };
    LIST_INSERT_HEAD(&etcd->rpcs, rpc, list);
    rpc->call = wire_call_start(etcd->wire, (size_t)(endpoint - etcd->endpoints), method,
                                etcd->token, request, deadline_usec, rpc);
    etcd_watchdog_arm(etcd);
    return rpc;
}

int rpc_send(Rpc *rpc, const ProtobufCMessage *message)
{
    assert(rpc->events && !rpc->method->unary);
    int r = wire_call_send(rpc->call, message);
    if (r < 0)
        return r;
    if (rpc->waiting_usec == 0)
        rpc->waiting_usec = clock_boottime_usec();
    etcd_watchdog_arm(rpc->etcd);
    return 0;
}

void rpc_cut(Rpc *rpc) { wire_call_cut(rpc->call); }

Rpc *rpc_cancel(Rpc *rpc)
{
    if (rpc) {
        rpc->events = NULL;
        rpc_cut(rpc);
    }
    return NULL;
}

Rpc *rpc_forget(Rpc *rpc)
{
    if (rpc)
        rpc->events = NULL;
    return NULL;
}

/* etcd puts a header into each answer. An answer without a header must be refused: its missing fields read as 0, which
 * would mean "no such key", "compare failed" or "done". */
static bool has_header(const ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "header");
    const void *header;
    assert(field && field->type == PROTOBUF_C_TYPE_MESSAGE);
    memcpy(&header, (const char *)message + field->offset, sizeof(header));
    return header != NULL;
}

void rpc_received(Rpc *rpc, ProtobufCMessage *message)
{
    Etcd *etcd = rpc->etcd;

    assert(!etcd->dispatching);
    rpc->endpoint->heard_usec = clock_boottime_usec();
    rpc->waiting_usec = 0;
    if (!message || (rpc->method->unary && !has_header(message))) {
        message_free(message);
        rpc->undecodable = true;
        rpc_cut(rpc);
        return;
    }
    if (!rpc->events) {
        message_free(message);
        return;
    }
    etcd->dispatching = true;
    rpc->events->message(rpc->userdata, message); /* the callback may cancel rpc */
    etcd->dispatching = false;
}

void rpc_ended(Rpc *rpc, const WireStatus *status)
{
    Etcd *etcd = rpc->etcd;
    const RpcEvents *events = rpc->events;
    void *userdata = rpc->userdata;
    RpcStatus told = {
        .code = rpc->undecodable ? WIRE_INTERNAL : status->code,
        .text = rpc->undecodable ? "the answer is not an etcd message" : status->text,
        .unsent = status->unsent && !rpc->undecodable,
        .endpoint = rpc->endpoint,
        .silent = rpc->silent,
    };

    assert(!etcd->dispatching);
    LIST_REMOVE(rpc, list);
    free(rpc);
    if (!events)
        return;
    etcd->dispatching = true;
    events->ended(userdata, &told);
    etcd->dispatching = false;
}
