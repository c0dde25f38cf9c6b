/* SPDX-License-Identifier: Apache-2.0 */
/* testing-mesh.c - see testing-mesh.h. */

#include "trainer/comm/test/testing-mesh.h"

#include "base/memory.h"
#include "base/number/hash.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/gloo-shim.h"
#include "trainer/comm/rendezvous-client.h"

#include <string.h>

enum { FD_OF_RANK_0 = 100000 };

Mesh mesh;
MeshStore mesh_store;

#define must(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s: ", #condition);                                             \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fputc('\n', stderr);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

void mesh_reset(void)
{
    free(mesh.messages);
    mesh = (Mesh){.least_deadline = UINT64_MAX};
    mesh_store.n = 0;
    mesh_store.bad[0] = '\0';
}

/* ---- gloo-shim.h ---- */

typedef struct Pending {
    uint64_t slot, hash;
    char *at;
    size_t n_bytes;
} Pending;

/* A first-in, first-out queue. */
typedef struct Queue {
    Pending *items;
    size_t first, end, capacity;
} Queue;

struct GlooBuffer {
    int peer;
    char *memory;
    size_t n_bytes;
    Queue sends, receives;
    GlooMesh *mesh;
};

struct GlooMesh {
    int rank, size;
    size_t n_posted; /* posted receives of messages from rank 0 that were not yet waited for */
    bool *adopted;
};

static int call(Error *err)
{
    if (++mesh.n_calls != mesh.fail_at)
        return 0;
    return error_set(err, -ECONNRESET, "rank 1 is gone");
}

int gloo_mesh_new(int rank, int size, GlooMesh **ret, Error *err)
{
    if (call(err) < 0)
        return -ECONNRESET;
    *ret = calloc(1, sizeof(**ret));
    assert(*ret);
    **ret = (GlooMesh){.rank = rank, .size = size, .adopted = calloc((size_t)size, 1)};
    mesh.n_meshes++;
    return 0;
}

GlooMesh *gloo_mesh_free(GlooMesh *m)
{
    if (!m)
        return NULL;
    must(mesh.n_buffers == 0, "%zu are left when the mesh goes", mesh.n_buffers);
    free(m->adopted);
    free(m);
    mesh.n_meshes--;
    return NULL;
}

int gloo_mesh_adopt(GlooMesh *m, int peer, int fd, Error *err)
{
    must(peer >= 0 && peer < m->size && peer != m->rank, "%d", peer);
    must(fd == FD_OF_RANK_0 + peer && !m->adopted[peer], "%d of %d", fd, peer);
    m->adopted[peer] = true;
    mesh.n_adopted++;
    return call(err);
}

void gloo_mesh_abort(_unused_ GlooMesh *m) { mesh.n_aborted++; }

int gloo_buffer_new(GlooMesh *m, int peer, void *memory, size_t n_bytes, GlooBuffer **ret,
                    Error *err)
{
    must(peer >= 0 && peer < m->size && m->adopted[peer], "%d", peer);
    if (call(err) < 0)
        return -ECONNRESET;
    *ret = calloc(1, sizeof(**ret));
    assert(*ret);
    **ret = (GlooBuffer){.peer = peer, .memory = memory, .n_bytes = n_bytes, .mesh = m};
    mesh.n_buffers++;
    return 0;
}

GlooBuffer *gloo_buffer_free(GlooBuffer *buffer)
{
    if (!buffer)
        return NULL;
    mesh.n_buffers--;
    mesh.n_waiting += buffer->sends.end - buffer->sends.first;
    mesh.n_waiting += buffer->receives.end - buffer->receives.first;
    free(buffer->sends.items);
    free(buffer->receives.items);
    free(buffer);
    return NULL;
}

static void add(Queue *queue, const Pending *item, const GlooBuffer *buffer)
{
    must(item->n_bytes > 0 && item->at >= buffer->memory &&
             item->at + item->n_bytes <= buffer->memory + buffer->n_bytes,
         "%zu bytes at %td of %zu", item->n_bytes, item->at - buffer->memory, buffer->n_bytes);
    for (size_t i = queue->first; i < queue->end && queue == &buffer->receives; i++) {
        const Pending *p = &queue->items[i];
        must(item->at + item->n_bytes <= p->at || p->at + p->n_bytes <= item->at,
             "rank %d, slots %d and %d", buffer->peer, (int)item->slot, (int)p->slot);
    }
    queue->items = memory_grow(queue->items, queue->end, &queue->capacity, sizeof(*item));
    queue->items[queue->end++] = *item;
}

static void note(const GlooBuffer *buffer, const Pending *item, bool sent)
{
    mesh.messages =
        memory_grow(mesh.messages, mesh.n_messages, &mesh.max_messages, sizeof(*mesh.messages));
    mesh.messages[mesh.n_messages++] = (MeshMessage){.peer = buffer->peer,
                                                     .sent = sent,
                                                     .slot = item->slot,
                                                     .n_bytes = item->n_bytes,
                                                     .hash = item->hash};
}

static uint64_t hash_of(const Pending *item) { return hash64_bytes(item->at, item->n_bytes, 0); }

int gloo_buffer_send(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes, Error *err)
{
    Pending item = {.slot = slot, .at = buffer->memory + offset, .n_bytes = n_bytes};
    if (call(err) < 0)
        return -ECONNRESET;
    item.hash = hash_of(&item);
    add(&buffer->sends, &item, buffer);
    note(buffer, &item, true);
    return 0;
}

static void arrive(const GlooBuffer *buffer, Pending *item)
{
    if (!mesh.lowest || item->at < mesh.lowest)
        mesh.lowest = item->at;
    if (item->at + item->n_bytes > mesh.highest)
        mesh.highest = item->at + item->n_bytes;
    mesh.fill(buffer->peer, item->at, item->n_bytes);
    item->hash = hash_of(item);
    note(buffer, item, false);
}

int gloo_buffer_receive(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes,
                        Error *err)
{
    Pending item = {.slot = slot, .at = buffer->memory + offset, .n_bytes = n_bytes};
    if (call(err) < 0)
        return -ECONNRESET;
    add(&buffer->receives, &item, buffer);
    buffer->mesh->n_posted += buffer->peer == 0;
    mesh.n_behind = MAX(mesh.n_behind, buffer->mesh->n_posted);
    if (!mesh.late)
        arrive(buffer, &item);
    return 0;
}

static Pending take(Queue *queue, const GlooBuffer *buffer)
{
    must(queue->first < queue->end, "a wait for nothing, rank %d", buffer->peer);
    return queue->items[queue->first++];
}

static int wait_until(uint64_t deadline_usec, Error *err)
{
    mesh.least_deadline = MIN(mesh.least_deadline, deadline_usec);
    mesh.most_deadline = MAX(mesh.most_deadline, deadline_usec);
    return call(err);
}

int gloo_buffer_wait_sent(GlooBuffer *buffer, uint64_t deadline_usec, Error *err)
{
    int r = wait_until(deadline_usec, err);
    if (r < 0)
        return r;
    Pending item = take(&buffer->sends, buffer);
    must(hash_of(&item) == item.hash, "what rank %d gets changed", buffer->peer);
    return 0;
}

int gloo_buffer_wait_received(GlooBuffer *buffer, uint64_t deadline_usec, Error *err)
{
    int r = wait_until(deadline_usec, err);
    if (r < 0)
        return r;
    Pending item = take(&buffer->receives, buffer);
    buffer->mesh->n_posted -= buffer->peer == 0;
    if (mesh.late)
        arrive(buffer, &item);
    return 0;
}

/* ---- connector.h ---- */

struct Connector {
    const CommOptions *options;
    char address[MESH_NAME];
    bool held;
};

void mesh_address(int rank, char ret[MESH_NAME])
{
    (void)snprintf(ret, MESH_NAME, "10.0.%d.%d:7", rank >> 8, rank & 255); /* the text fits */
}

int connector_open(const CommOptions *options, Connector **ret, _unused_ Error *err)
{
    *ret = calloc(1, sizeof(**ret));
    assert(*ret);
    (*ret)->options = options;
    mesh_address(options->rank, (*ret)->address);
    mesh.n_meetings++;
    return 0;
}

Connector *connector_free(Connector *meeting)
{
    if (meeting)
        mesh.n_meetings--;
    free(meeting);
    return NULL;
}

const char *connector_address(const Connector *meeting) { return meeting->address; }

int connector_call(Connector *meeting, int peer, const char *address, Error *err)
{
    char wanted[MESH_NAME];
    mesh_address(peer, wanted);
    must(strcmp(address, wanted) == 0, "%s for rank %d", address, peer);
    must(peer == mesh.n_called++ && peer < meeting->options->rank, "%d is called", peer);
    if (peer == 3 && mesh.call_fails)
        return error_set(err, mesh.call_fails, "no address");
    return 0;
}

int connector_hold(Connector *meeting, uint64_t deadline_usec, int *ret_peer, Error *err)
{
    must(mesh.n_called == meeting->options->rank, "%d were called", mesh.n_called);
    mesh.least_deadline = MIN(mesh.least_deadline, deadline_usec);
    mesh.most_deadline = MAX(mesh.most_deadline, deadline_usec);
    meeting->held = true;
    *ret_peer = mesh.hold_peer;
    return mesh.hold_fails ? error_set(err, mesh.hold_fails, "nobody came") : 0;
}

int connector_take(Connector *meeting, int peer)
{
    must(meeting->held, "rank %d has not come", peer);
    return FD_OF_RANK_0 + peer;
}

/* ---- rendezvous-client.h ---- */

static const char *look_for(const char *name)
{
    for (size_t i = 0; i < mesh_store.n; i++)
        if (strcmp(mesh_store.names[i], name) == 0)
            return mesh_store.values[i];
    return NULL;
}

const char *mesh_published(const char *name) { return look_for(name); }

void mesh_publish(const char *name, const char *value)
{
    must(mesh_store.n < MESH_KEYS && !look_for(name), "%s", name);
    (void)snprintf(mesh_store.names[mesh_store.n], MESH_NAME, "%s", name);   /* the text fits */
    (void)snprintf(mesh_store.values[mesh_store.n], MESH_NAME, "%s", value); /* the text fits */
    mesh_store.n++;
}

static int asked(const char *address, const CommKey *key, const char *name, uint64_t deadline_usec,
                 Error *err)
{
    must(strcmp(address, "store:1") == 0 && key->generation == 7, "%s, generation %d", address,
         (int)key->generation);
    mesh.least_deadline = MIN(mesh.least_deadline, deadline_usec);
    mesh.most_deadline = MAX(mesh.most_deadline, deadline_usec);
    return strcmp(name, mesh_store.bad) == 0 ? error_set(err, mesh_store.answer, "bad key %s", name)
                                             : 0;
}

int rendezvous_set(const char *address, const CommKey *key, const char *name, const void *value,
                   size_t n_bytes, uint64_t deadline_usec, Error *err)
{
    char text[MESH_NAME];
    int r = asked(address, key, name, deadline_usec, err);
    if (r < 0)
        return r;
    must(n_bytes < sizeof(text), "%s", name);
    memcpy(text, value, n_bytes);
    text[n_bytes] = '\0';
    mesh_publish(name, text);
    return 0;
}

int rendezvous_look(const char *address, const CommKey *key, const char *name, void *ret,
                    size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    int r = asked(address, key, name, deadline_usec, err);
    const char *value = look_for(name);
    if (r < 0)
        return r;
    if (!value)
        return error_set(err, -ENOENT, "no rank set %s", name);
    *ret_bytes = strlen(value);
    must(*ret_bytes <= max_bytes, "%s", name);
    memcpy(ret, value, *ret_bytes);
    return 0;
}

int rendezvous_get(const char *address, const CommKey *key, const char *name, void *ret,
                   size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    int r = rendezvous_look(address, key, name, ret, max_bytes, ret_bytes, deadline_usec, err);
    return r == -ENOENT ? error_set(err, -ETIMEDOUT, "no rank set %s in time", name) : r;
}
