/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - see wire.h: the calls of clients, and the connections that carry them. */
#include "tests/sim/seams/wire.h"
#include "base/memory.h"
#include "base/number/philox.h"
#include "tests/sim/seams/loop.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <time.h>

enum {
    DESCRIPTORS_FROM = 1 << 20, /* no real descriptor has such a high number */
    DELAY_MIN_USEC = 200,
    DELAY_MAX_USEC = 2000,
    /* the values that etcd/grpc/wire.c sets for gRPC: */
    CONNECT_MSEC = 2000,
    RETRY_MIN_MSEC = 100,
    RETRY_MAX_MSEC = 500,
    PING_WAIT_MSEC = 2000,
    PING_LATEST_MSEC = 6000 + PING_WAIT_MSEC, /* the client sends a ping every 6 s */
};

typedef struct Path {
    bool cut[NETWORK_WAYS];
    uint64_t clog_usec;
} Path;

/* A client's connection to a member. */
typedef struct Link {
    LIST_ENTRY(Link) list; /* list of all links */
    Wire *wire;
    Path *path;
    size_t member;
    bool connected;
    uint64_t retry_usec; /* no connection attempt before this time */
    sd_event_source *connecting, *pinging;
    uint64_t last_usec[NETWORK_WAYS];     /* when the last message of each way arrives */
    uint64_t released_usec[NETWORK_WAYS]; /* as last_usec, only of messages that were held */
} Link;

typedef struct Arrival {
    TAILQ_ENTRY(Arrival) next;
    WireCall *call;
    bool end;
    ProtobufCMessage *message; /* NULL, if `end` is false: bytes that are not a message */
    WireStatus status;         /* set only if `end` is true */
} Arrival;

struct Wire {
    sd_event *loop;
    sd_event_source *wake;
    int fd;
    Link *links;
    size_t n_links;
    TAILQ_HEAD(CallQueue, WireCall) calls; /* calls whose client has not ended, oldest first */
    TAILQ_HEAD(ArrivalQueue, Arrival) arrivals;
};

struct WireRequest {
    unsigned n_references;
    ProtobufCMessage *message;
};

/* A call has two ends: the client's end exists while `wire` is set, the server's end while `server_call` is set. */
struct WireCall {
    LIST_ENTRY(WireCall) list;  /* list of all calls */
    TAILQ_ENTRY(WireCall) next; /* list of its wire's calls */
    Wire *wire;
    Rpc *rpc;
    Link *link; /* valid while wire is set */
    Path *path;
    size_t member;
    const WireMethod *method;
    char *token;
    WireRequest *first; /* the first request, until the connection is up */
    sd_event_source *deadline;
    void *server_call;
    bool ended;       /* the call's end is among the client's arrivals */
    bool gone;        /* the server must be told that the client has ended */
    bool broken;      /* the connection is reset: packets in flight are lost */
    size_t n_packets; /* packets in flight */
};

typedef enum PacketKind {
    PACKET_OPEN,
    PACKET_REQUEST,
    PACKET_CANCEL,
    PACKET_ANSWER,
    PACKET_END
} PacketKind;

typedef struct Packet {
    LIST_ENTRY(Packet) list;  /* list of all packets */
    TAILQ_ENTRY(Packet) next; /* queue of held packets */
    bool held;
    PacketKind kind;
    WireCall *call;
    sd_event_source *timer;
    WireRequest *request;
    ProtobufCMessage *message;
    WireCode code;
    char *text;
} Packet;

static struct {
    bool opened;
    NetworkOptions options;
    NetworkServer server;
    sd_event *loop;
    sd_event_source *tick;
    uint64_t n_draws;
    int n_descriptors;
    size_t n_wires;
    Path *paths;          /* [machine][member] */
    bool *frozen;         /* [member] */
    uint64_t *heard_usec; /* [machine] time of the machine's last message */
    LIST_HEAD(, Link) links;
    LIST_HEAD(, WireCall) calls;
    LIST_HEAD(, Packet) packets;
    TAILQ_HEAD(PacketQueue, Packet) held;
} net;

/* ---- draws and paths ---- */

uint64_t network_draw(uint64_t n)
{
    assert(n > 0);
    Philox block = philox4x32(net.options.seed, 0, net.n_draws++);
    return (((uint64_t)block.word[0] << 32) | block.word[1]) % n;
}

static uint64_t between(uint64_t low, uint64_t high) { return low + network_draw(high - low + 1); }

static Path *path_of(size_t machine, size_t member)
{
    assert(machine < net.options.n_machines && member < net.options.n_members);
    return &net.paths[machine * net.options.n_members + member];
}

static bool blocked(const Path *path, size_t member, NetworkWay way)
{
    return path->cut[way] || net.frozen[member];
}

static bool silent(const Path *path, size_t member)
{
    return blocked(path, member, NETWORK_TO_MEMBER) || blocked(path, member, NETWORK_TO_CLIENT);
}

/* ---- the server's time ---- */

static void arm(sd_event_source *timer, uint64_t at_usec)
{
    (void)sd_event_source_set_time(timer, at_usec);
    (void)sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static void server_run(void)
{
    net.server.advance(net.server.server, loops_now_usec());
    arm(net.tick, net.server.next_usec(net.server.server));
}

static int on_tick(sd_event_source *source _unused_, uint64_t usec _unused_,
                   void *userdata _unused_)
{
    server_run();
    return 0;
}

void network_server_changed(void) { arm(net.tick, loops_now_usec()); }

/* ---- the two ends of a call ---- */

static void call_check(WireCall *call)
{
    if (call->wire || call->server_call || call->n_packets > 0)
        return;
    LIST_REMOVE(call, list);
    free(call->token);
    free(call);
}

static void arrival_free(Arrival *arrival)
{
    message_free(arrival->message);
    free((char *)arrival->status.text);
    free(arrival);
}

static void arrive(Arrival *arrival)
{
    Wire *wire = arrival->call->wire;
    if (!wire || arrival->call->ended) {
        arrival_free(arrival);
        return;
    }
    arrival->call->ended = arrival->end;
    TAILQ_INSERT_TAIL(&wire->arrivals, arrival, next);
    loop_set_ready(wire->loop, wire->fd, EPOLLIN);
}

static void client_message(WireCall *call, ProtobufCMessage *message)
{
    Arrival *arrival = memory_new(Arrival);
    *arrival = (Arrival){.call = call, .message = message};
    arrive(arrival);
}

static void client_end(WireCall *call, WireCode code, const char *text, bool unsent)
{
    const WireStatus status = {.code = code, .text = memory_text(text), .unsent = unsent};
    Arrival *arrival = memory_new(Arrival);
    *arrival = (Arrival){.call = call, .end = true, .status = status};
    arrive(arrival);
}

/* ---- packets ---- */

static int on_packet(sd_event_source *source, uint64_t usec, void *userdata);

static void packet_free(Packet *packet)
{
    LIST_REMOVE(packet, list);
    if (packet->held)
        TAILQ_REMOVE(&net.held, packet, next);
    sd_event_source_disable_unref(packet->timer);
    (void)wire_request_free(packet->request);
    message_free(packet->message);
    free(packet->text);
    packet->call->n_packets--;
    call_check(packet->call);
    free(packet);
}

static NetworkWay packet_way(const Packet *packet)
{
    return packet->kind < PACKET_ANSWER ? NETWORK_TO_MEMBER : NETWORK_TO_CLIENT;
}

/* Schedules a packet. The packet waits for a held packet that was sent earlier, so that the two arrive in order. */
static void packet_schedule(Packet *packet, bool was_held)
{
    WireCall *call = packet->call;
    NetworkWay way = packet_way(packet);
    uint64_t at = loops_now_usec() + call->path->clog_usec +
                  between(net.options.delay_min_usec, net.options.delay_max_usec);
    if (call->link) {
        at = MAX(at, call->link->last_usec[way]);
        call->link->last_usec[way] = at;
        if (was_held)
            call->link->released_usec[way] = at;
    }
    arm(packet->timer, at);
}

static Packet *packet_send(WireCall *call, PacketKind kind)
{
    Packet *packet = memory_new(Packet);
    *packet = (Packet){.kind = kind, .call = call};
    call->n_packets++;
    LIST_INSERT_HEAD(&net.packets, packet, list);
    (void)sd_event_add_time(net.loop, &packet->timer, CLOCK_BOOTTIME, 0, 1, on_packet, packet);
    packet_schedule(packet, false);
    return packet;
}

static bool client_is_dead(const WireCall *call)
{
    return call->wire && loop_is_dead(call->wire->loop);
}

static void request_send(WireCall *call, PacketKind kind, WireRequest *request)
{
    if (client_is_dead(call))
        return;
    Packet *packet = packet_send(call, kind);
    packet->request = request;
    request->n_references++;
}

static void link_break(Link *link, const char *text);

static void server_cancel(WireCall *call)
{
    if (call->server_call)
        net.server.cancel(net.server.server, call->server_call);
    call->server_call = NULL;
}

static void packet_to_member(Packet *packet)
{
    WireCall *call = packet->call;
    if (packet->kind == PACKET_CANCEL) {
        call->gone = true;
    } else if (!net.server.is_up(net.server.server, call->member)) {
        if (call->link)
            link_break(call->link, "Connection reset by peer");
        return;
    } else {
        if (packet->kind == PACKET_OPEN)
            call->server_call = net.server.open(net.server.server, call->member, call->method->path,
                                                !call->method->leaderless, call->token, call);
        if (call->server_call)
            net.server.send(net.server.server, call->server_call, packet->request->message);
    }
    if (call->gone) /* the client has ended: its held requests are carried out before this cancel */
        server_cancel(call);
    server_run();
}

static int on_packet(sd_event_source *source _unused_, uint64_t usec, void *userdata)
{
    Packet *packet = userdata;
    WireCall *call = packet->call;
    if (call->link && usec < call->link->released_usec[packet_way(packet)]) {
        arm(packet->timer, call->link->released_usec[packet_way(packet)]);
        return 0;
    }
    if (blocked(call->path, call->member, packet_way(packet)) && !call->broken) {
        packet->held = true;
        TAILQ_INSERT_TAIL(&net.held, packet, next);
        return 0;
    }
    if (packet->kind == PACKET_CANCEL || (!call->broken && packet->kind < PACKET_ANSWER))
        packet_to_member(packet);
    else if (!call->broken && packet->kind == PACKET_ANSWER)
        client_message(call, TAKE_PTR(packet->message));
    else if (!call->broken)
        client_end(call, packet->code, packet->text, false);
    packet_free(packet);
    return 0;
}

void network_answer(WireCall *call, ProtobufCMessage *message)
{
    packet_send(call, PACKET_ANSWER)->message = message;
}

void network_end(WireCall *call, WireCode code, const char *text)
{
    Packet *packet = packet_send(call, PACKET_END);
    packet->code = code;
    packet->text = memory_text(text);
    call->server_call = NULL;
}

/* Detaches the client, which has received the end or has ended. If the server has the call, notifies the server. */
static void call_leave(WireCall *call)
{
    if (!call->broken && (call->server_call || call->n_packets > 0))
        (void)packet_send(call, PACKET_CANCEL);
    TAILQ_REMOVE(&call->wire->calls, call, next);
    call->wire = NULL;
    call->link = NULL;
    call->first = wire_request_free(call->first);
    call->deadline = sd_event_source_disable_unref(call->deadline);
    call_check(call);
}

/* ---- connections ---- */

/* Sends the calls that wait for the connection, or ends them if there is a failure. */
static void link_settle(Link *link, const char *failure)
{
    WireCall *call;
    TAILQ_FOREACH(call, &link->wire->calls, next)
    {
        if (call->link != link || !call->first)
            continue;
        if (failure)
            client_end(call, WIRE_UNAVAILABLE, failure, true);
        else if (!call->ended)
            request_send(call, PACKET_OPEN, call->first);
        call->first = wire_request_free(call->first);
    }
}

static int on_connecting(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    Link *link = userdata;
    if (loops_now_usec() < link->retry_usec) {
        link_settle(link, "failed to connect to all addresses"); /* the last attempt's error */
        return 0;
    }
    if (silent(link->path, link->member) || !net.server.is_up(net.server.server, link->member)) {
        link->retry_usec =
            loops_now_usec() + between(RETRY_MIN_MSEC, RETRY_MAX_MSEC) * USEC_PER_MSEC;
        link_settle(link, "failed to connect to all addresses");
        return 0;
    }
    link->connected = true;
    link_settle(link, NULL);
    return 0;
}

static void link_connect(Link *link)
{
    int enabled;
    if (sd_event_source_get_enabled(link->connecting, &enabled) > 0)
        return;
    uint64_t delay =
        link->path->clog_usec + 2 * between(net.options.delay_min_usec, net.options.delay_max_usec);
    if (silent(link->path, link->member))
        delay = CONNECT_MSEC * USEC_PER_MSEC;
    uint64_t at = loops_now_usec() + delay;
    if (loops_now_usec() < link->retry_usec)
        at = loops_now_usec() + 1;
    arm(link->connecting, at);
}

static void link_break(Link *link, const char *text)
{
    WireCall *call;
    link->connected = false;
    (void)sd_event_source_set_enabled(link->pinging, SD_EVENT_OFF);
    TAILQ_FOREACH(call, &link->wire->calls, next)
    {
        if (call->link != link || call->first)
            continue;
        call->broken = true;
        server_cancel(call);
        client_end(call, WIRE_UNAVAILABLE, text, false);
    }
}

static int on_pinging(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    Link *link = userdata;
    if (silent(link->path, link->member))
        link_break(link, "keepalive watchdog timeout");
    return 0;
}

/* After a path has changed, starts or stops the timers that end connections without pings. */
static void path_changed(void)
{
    Link *link;
    int enabled;
    LIST_FOREACH(link, &net.links, list)
    {
        bool pings = sd_event_source_get_enabled(link->pinging, &enabled) > 0;
        bool missed = link->connected && silent(link->path, link->member);
        if (missed && !pings)
            arm(link->pinging,
                loops_now_usec() + between(PING_WAIT_MSEC, PING_LATEST_MSEC) * USEC_PER_MSEC);
        else if (pings && !missed)
            (void)sd_event_source_set_enabled(link->pinging, SD_EVENT_OFF);
    }
    struct PacketQueue held = TAILQ_HEAD_INITIALIZER(held);
    TAILQ_CONCAT(&held, &net.held, next);
    Packet *packet;
    while ((packet = TAILQ_FIRST(&held))) {
        TAILQ_REMOVE(&held, packet, next);
        packet->held = blocked(packet->call->path, packet->call->member, packet_way(packet));
        if (packet->held)
            TAILQ_INSERT_TAIL(&net.held, packet, next);
        else
            packet_schedule(packet, true);
    }
}

/* ---- faults ---- */

void network_cut(size_t machine, size_t member, NetworkWay way, bool cut)
{
    path_of(machine, member)->cut[way] = cut;
    path_changed();
}

void network_clog(size_t machine, size_t member, uint64_t extra_usec)
{
    path_of(machine, member)->clog_usec = extra_usec;
}

void network_freeze(size_t member, bool frozen)
{
    assert(member < net.options.n_members);
    net.frozen[member] = frozen;
    path_changed();
}

void network_reset(size_t machine, size_t member)
{
    Link *link;
    LIST_FOREACH(link, &net.links, list)
    if (link->path == path_of(machine, member))
        link_break(link, "Connection reset by peer");
}

/* ---- etcd/wire.h ---- */

static int on_wake(sd_event_source *source _unused_, int fd _unused_, uint32_t revents _unused_,
                   void *userdata)
{
    Wire *wire = userdata;
    Arrival *arrival, *last = TAILQ_LAST(&wire->arrivals, ArrivalQueue);
    /* Handles only the present arrivals: a callback may end calls, whose arrivals are handled next time. */
    for (bool more = last; more && !loop_is_dead(wire->loop);) {
        arrival = TAILQ_FIRST(&wire->arrivals);
        TAILQ_REMOVE(&wire->arrivals, arrival, next);
        more = arrival != last;
        WireCall *call = arrival->call;
        if (!arrival->end) {
            net.heard_usec[network_machine(call)] = loops_now_usec();
            rpc_received(call->rpc, TAKE_PTR(arrival->message));
        } else {
            Rpc *rpc = call->rpc;
            call_leave(call);
            rpc_ended(rpc, &arrival->status);
        }
        arrival_free(arrival);
    }
    if (TAILQ_EMPTY(&wire->arrivals))
        loop_set_ready(wire->loop, wire->fd, 0);
    return 0;
}

static void link_open(Link *link, Wire *wire, const char *address)
{
    size_t member = 0;
    while (member < net.options.n_members && strcmp(net.options.addresses[member], address))
        member++;
    *link =
        (Link){.wire = wire, .member = member, .path = path_of(loop_machine(wire->loop), member)};
    (void)sd_event_add_time(net.loop, &link->connecting, CLOCK_BOOTTIME, 0, 1, on_connecting, link);
    (void)sd_event_add_time(net.loop, &link->pinging, CLOCK_BOOTTIME, 0, 1, on_pinging, link);
    (void)sd_event_source_set_enabled(link->connecting, SD_EVENT_OFF);
    (void)sd_event_source_set_enabled(link->pinging, SD_EVENT_OFF);
    LIST_INSERT_HEAD(&net.links, link, list);
}

int wire_new(sd_event *event, const EtcdOptions *options, const char *const *addresses,
             size_t n_addresses, Wire **ret, Error *err _unused_)
{
    assert(net.opened && !options->ca_file);
    Wire *wire = memory_new(Wire);
    *wire = (Wire){.loop = sd_event_ref(event), .fd = DESCRIPTORS_FROM + net.n_descriptors++};
    TAILQ_INIT(&wire->arrivals);
    TAILQ_INIT(&wire->calls);
    int r = sd_event_add_io(event, &wire->wake, wire->fd, EPOLLIN, on_wake, wire);
    assert(r >= 0);
    r = sd_event_source_set_priority(wire->wake, SD_EVENT_PRIORITY_NORMAL - 10);
    assert(r >= 0);
    wire->links = memory_zeroed(n_addresses, sizeof(Link));
    for (; wire->n_links < n_addresses; wire->n_links++)
        link_open(&wire->links[wire->n_links], wire, addresses[wire->n_links]);
    net.n_wires++;
    *ret = wire;
    return 0;
}

size_t wire_draw(Wire *wire) { return network_draw(wire->n_links); }

Wire *wire_free(Wire *wire)
{
    if (!wire)
        return NULL;
    Arrival *arrival;
    WireCall *call;
    while ((arrival = TAILQ_FIRST(&wire->arrivals))) {
        TAILQ_REMOVE(&wire->arrivals, arrival, next);
        arrival_free(arrival);
    }
    while ((call = TAILQ_FIRST(&wire->calls))) {
        Rpc *rpc = call->rpc;
        call_leave(call);
        rpc_ended(rpc, &(WireStatus){.code = WIRE_CANCELLED, .text = "CANCELLED"});
    }
    for (size_t i = 0; i < wire->n_links; i++) {
        LIST_REMOVE(&wire->links[i], list);
        sd_event_source_disable_unref(wire->links[i].connecting);
        sd_event_source_disable_unref(wire->links[i].pinging);
    }
    sd_event_source_disable_unref(wire->wake);
    sd_event_unref(wire->loop);
    free(wire->links);
    free(wire);
    net.n_wires--;
    return NULL;
}

WireRequest *wire_request_new(const ProtobufCMessage *message)
{
    WireRequest *request = memory_new(WireRequest);
    size_t n = protobuf_c_message_get_packed_size(message);
    _cleanup_free_ uint8_t *bytes = memory_resize(NULL, n + 1, 1);
    (void)protobuf_c_message_pack(message, bytes); /* the return value is n */
    *request =
        (WireRequest){.n_references = 1, .message = message_unpack(message->descriptor, bytes, n)};
    assert(request->message);
    return request;
}

WireRequest *wire_request_free(WireRequest *request)
{
    if (request && --request->n_references == 0) {
        message_free(request->message);
        free(request);
    }
    return NULL;
}

static int on_deadline(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    client_end(userdata, WIRE_DEADLINE_EXCEEDED, "Deadline Exceeded", false);
    return 0;
}

WireCall *wire_call_start(Wire *wire, size_t endpoint, const WireMethod *method, const char *token,
                          const WireRequest *request, uint64_t deadline_usec, Rpc *rpc)
{
    assert(endpoint < wire->n_links);
    Link *link = &wire->links[endpoint];
    WireCall *call = memory_new(WireCall);
    *call = (WireCall){.wire = wire,
                       .rpc = rpc,
                       .link = link,
                       .path = link->path,
                       .member = link->member,
                       .method = method,
                       .token = token && *token ? memory_text(token) : NULL,
                       .first = (WireRequest *)request};
    call->first->n_references++;
    LIST_INSERT_HEAD(&net.calls, call, list);
    TAILQ_INSERT_TAIL(&wire->calls, call, next);
    if (deadline_usec != USEC_INFINITY)
        (void)sd_event_add_time(net.loop, &call->deadline, CLOCK_BOOTTIME, deadline_usec, 1,
                                on_deadline, call);
    if (link->connected && !net.server.is_up(net.server.server, link->member))
        link_break(link, "Socket closed");
    if (link->connected)
        link_settle(link, NULL);
    else
        link_connect(link);
    return call;
}

int wire_call_send(WireCall *call, const ProtobufCMessage *message)
{
    if (call->first)
        return -EBUSY;
    if (call->ended)
        return 0;
    _cleanup_(wire_request_freep) WireRequest *request = wire_request_new(message);
    request_send(call, PACKET_REQUEST, request);
    return 0;
}

void wire_call_cut(WireCall *call) { client_end(call, WIRE_CANCELLED, "CANCELLED", false); }
uint64_t network_heard_usec(size_t machine) { return net.heard_usec[machine]; }

size_t network_machine(const WireCall *call)
{
    return (size_t)(call->path - net.paths) / net.options.n_members;
}

/* ---- open and close ---- */

void network_open(const NetworkOptions *options)
{
    assert(!net.opened && options->n_members > 0 && options->n_machines > 0);
    memset(&net, 0, sizeof(net));
    net.opened = true;
    net.options = *options;
    net.server = options->server;
    if (net.options.delay_max_usec == 0) {
        net.options.delay_min_usec = DELAY_MIN_USEC;
        net.options.delay_max_usec = DELAY_MAX_USEC;
    }
    assert(net.options.delay_min_usec <= net.options.delay_max_usec);
    net.paths = memory_zeroed(options->n_members * options->n_machines, sizeof(Path));
    net.frozen = memory_zeroed(options->n_members, sizeof(bool));
    net.heard_usec = memory_zeroed(options->n_machines, sizeof(uint64_t));
    TAILQ_INIT(&net.held);
    (void)sd_event_new(&net.loop);
    (void)sd_event_add_time(net.loop, &net.tick, CLOCK_BOOTTIME, loops_now_usec(), 1, on_tick,
                            NULL);
}

void network_close(void)
{
    assert(net.opened && net.n_wires == 0);
    Packet *packet;
    while ((packet = LIST_FIRST(&net.packets)))
        packet_free(packet);
    WireCall *call;
    while ((call = LIST_FIRST(&net.calls))) { /* only the server's end of the call is left */
        server_cancel(call);
        call_check(call);
    }
    sd_event_source_disable_unref(net.tick);
    sd_event_unref(net.loop);
    free(net.paths);
    free(net.frozen);
    free(net.heard_usec);
    net.opened = false;
}
