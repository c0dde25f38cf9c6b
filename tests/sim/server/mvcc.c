/* SPDX-License-Identifier: Apache-2.0 */
/* mvcc.c - keys, their versions by revision, and the history that watches read.
 *
 * A key keeps its versions, newest first; the history lists the same versions by revision. A compaction visits only
 * the versions that it removes from the history, never all keys. As in etcd 3.4, a compaction also removes the
 * deletes of its own revision: a watch from exactly that revision sees only the puts. */
#include "tests/sim/server/server-internal.h"

#include <string.h>

ProtobufCBinaryData bytes_copy(Bytes bytes)
{
    if (bytes.n == 0)
        return (ProtobufCBinaryData){0};
    return (ProtobufCBinaryData){.len = bytes.n,
                                 .data = (uint8_t *)memory_bytes(bytes.data, bytes.n)};
}

KeyRange key_range(ProtobufCBinaryData key, ProtobufCBinaryData range_end)
{
    return (KeyRange){
        .begin = bytes_from(key),
        .end = bytes_from(range_end),
        .single = range_end.len == 0,
        .endless = range_end.len == 1 && range_end.data[0] == 0,
    };
}

void mvcc_init(Mvcc *mvcc) { *mvcc = (Mvcc){.revision = 1, .compacted = -1, .first = 2}; }

static void version_drop(Mvcc *mvcc, Version *version)
{
    Key *key = version->key;

    if (version->older)
        version->older->newer = version->newer;
    if (version->newer)
        version->newer->older = version->older;
    else
        key->newest = version->older;
    mvcc->live_bytes -= sizeof(*version) + version->n_value;
    free(version);
    if (key->newest)
        return;
    assert(!key->lease); /* a key without versions was deleted, so it has no lease */
    tree_remove(&mvcc->keys, &key->node);
    free(key);
}

static Revision *history_at(const Mvcc *mvcc, int64_t revision)
{
    if (revision < mvcc->first || revision >= mvcc->first + (int64_t)mvcc->n_history)
        return NULL;
    return &mvcc->history[revision - mvcc->first];
}

const Revision *mvcc_changes(const Mvcc *mvcc, int64_t revision)
{
    return history_at(mvcc, revision);
}

void mvcc_clear(Mvcc *mvcc)
{
    for (TreeNode *node; (node = tree_first(&mvcc->keys));) {
        Key *key = (Key *)node;
        Version *version = key->newest;
        if (key->lease)
            lessor_attach(key, NULL);
        for (Version *older; version; version = older) {
            older = version->older;
            version_drop(mvcc, version); /* dropping the last version frees the key */
        }
    }
    for (size_t i = 0; i < mvcc->n_history; i++)
        free(mvcc->history[i].changes);
    free(mvcc->history);
    mvcc_init(mvcc);
}

/* ---- reads ---- */

const Version *mvcc_at(const Key *key, int64_t revision)
{
    const Version *version = key->newest;

    while (version && version->mod_revision > revision)
        version = version->older;
    return version && !version->deleted ? version : NULL;
}

const Version *mvcc_get(const Mvcc *mvcc, Bytes name, int64_t revision)
{
    const Key *key = (const Key *)tree_find(&mvcc->keys, name);
    return key ? mvcc_at(key, revision) : NULL;
}

typedef struct Look {
    int64_t revision;
    VersionVisitor visit;
    void *userdata;
} Look;

static bool look(TreeNode *node, void *userdata)
{
    const Look *at = userdata;
    const Version *version = mvcc_at((const Key *)node, at->revision);
    return !version || at->visit(version, at->userdata);
}

void mvcc_visit(const Mvcc *mvcc, const KeyRange *range, int64_t revision, VersionVisitor visit,
                void *userdata)
{
    Look at = {.revision = revision, .visit = visit, .userdata = userdata};
    TreeNode *node;

    if (!range->single)
        tree_visit(&mvcc->keys, range->begin, range->end, range->endless, look, &at);
    /* the range is a single key, so whether to continue does not matter */
    else if ((node = tree_find(&mvcc->keys, range->begin)))
        (void)look(node, &at);
}

/* ---- writes ---- */

int64_t mvcc_revision(const Server *server)
{
    const Mvcc *mvcc = &server->mvcc;
    return mvcc->revision + (mvcc->writing && history_at(mvcc, mvcc->revision + 1) ? 1 : 0);
}

void mvcc_begin(Server *server)
{
    assert(!server->mvcc.writing);
    server->mvcc.writing = true;
}

static Revision *revision_new(Mvcc *mvcc)
{
    mvcc->history =
        memory_grow(mvcc->history, mvcc->n_history, &mvcc->history_room, sizeof(*mvcc->history));
    mvcc->history[mvcc->n_history] = (Revision){0};
    return &mvcc->history[mvcc->n_history++];
}

static void write_version(Server *server, Key *key, Bytes value, int64_t lease, bool deleted)
{
    Mvcc *mvcc = &server->mvcc;
    Revision *revision = history_at(mvcc, mvcc->revision + 1);
    Version *older = key->newest, *version = memory_zeroed(1, sizeof(*version) + value.n + 1);

    assert(mvcc->writing);
    if (!revision)
        revision = revision_new(mvcc);
    bool first = !older || older->deleted;
    version->key = key;
    version->older = older;
    version->mod_revision = mvcc->revision + 1;
    version->deleted = deleted;
    if (!deleted) {
        version->create_revision = first ? version->mod_revision : older->create_revision;
        version->version = first ? 1 : older->version + 1;
        version->lease = lease;
    }
    version->n_value = value.n;
    if (value.n > 0)
        memcpy(version->value, value.data, value.n);
    if (older)
        older->newer = version;
    key->newest = version;
    mvcc->live_bytes += sizeof(*version) + value.n;
    revision->changes =
        memory_grow(revision->changes, revision->n_changes, &revision->room, sizeof(Version *));
    revision->changes[revision->n_changes++] = version;
}

void mvcc_put(Server *server, Bytes name, Bytes value, int64_t lease)
{
    Mvcc *mvcc = &server->mvcc;
    Key *key = (Key *)tree_find(&mvcc->keys, name);

    if (!key) {
        key = memory_zeroed(1, sizeof(*key) + name.n + 1);
        memcpy(key->name, name.data, name.n);
        key->node.begin = (Bytes){.data = (uint8_t *)key->name, .n = name.n};
        tree_insert(&mvcc->keys, &key->node);
    }
    write_version(server, key, value, lease, false);
    lessor_attach(key, lease ? lessor_find(server, lease) : NULL);
}

typedef struct Found {
    Key **keys;
    size_t n, room;
} Found;

static bool collect(const Version *version, void *userdata)
{
    Found *found = userdata;
    found->keys = memory_grow(found->keys, found->n, &found->room, sizeof(Key *));
    found->keys[found->n++] = version->key;
    return true;
}

int64_t mvcc_delete(Server *server, const KeyRange *range)
{
    Found found = {0};

    mvcc_visit(&server->mvcc, range, mvcc_revision(server), collect, &found);
    for (size_t i = 0; i < found.n; i++) {
        write_version(server, found.keys[i], (Bytes){0}, 0, true);
        lessor_attach(found.keys[i], NULL);
    }
    free(found.keys);
    return (int64_t)found.n;
}

static void tell(const Server *server, const Revision *revision)
{
    if (!server->options.on_commit)
        return;
    ServerChange *changes = memory_zeroed(revision->n_changes, sizeof(*changes));
    for (size_t i = 0; i < revision->n_changes; i++) {
        const Version *now = revision->changes[i];
        const Version *old = now->older && !now->older->deleted ? now->older : NULL;
        changes[i] = (ServerChange){
            .key = now->key->name,
            .n_key = now->key->node.begin.n,
            .value = now->deleted ? NULL : now->value,
            .n_value = now->n_value,
            .create_revision = now->create_revision,
            .version = now->version,
            .lease = now->lease,
            .old_value = old ? old->value : NULL,
            .n_old_value = old ? old->n_value : 0,
            .old_create_revision = old ? old->create_revision : 0,
            .old_mod_revision = old ? old->mod_revision : 0,
        };
    }
    server->options.on_commit(server->mvcc.revision, changes, revision->n_changes,
                              server->options.userdata);
    free(changes);
}

void mvcc_end(Server *server)
{
    Mvcc *mvcc = &server->mvcc;
    Revision *revision = history_at(mvcc, mvcc->revision + 1);

    assert(mvcc->writing);
    mvcc->writing = false;
    if (!revision)
        return;
    revision->committed_usec = server->now_usec;
    mvcc->revision++;
    tell(server, revision);
    raft_committed(server);
}

/* ---- compaction ---- */

Refusal mvcc_compact(Mvcc *mvcc, int64_t at)
{
    if (at <= mvcc->compacted)
        return (Refusal){SERVER_OUT_OF_RANGE,
                         "etcdserver: mvcc: required revision has been compacted"};
    if (at > mvcc->revision)
        return (Refusal){SERVER_OUT_OF_RANGE,
                         "etcdserver: mvcc: required revision is a future revision"};

    size_t n_gone = at > mvcc->first ? (size_t)(at - mvcc->first) : 0;
    for (int64_t r = mvcc->first; r <= at; r++) {
        Revision *revision = history_at(mvcc, r);
        size_t n_left = 0;
        for (size_t i = 0; revision && i < revision->n_changes; i++) {
            Version *version = revision->changes[i];
            while (version->older)
                version_drop(mvcc, version->older);
            /* A version that a later change of the same revision replaced is dropped with that change. */
            if (version->deleted)
                version_drop(mvcc, version);
            else if (!version->newer || version->newer->mod_revision > r)
                revision->changes[n_left++] = version;
        }
        if (revision)
            revision->n_changes = n_left;
    }
    for (size_t i = 0; i < n_gone; i++)
        free(mvcc->history[i].changes);
    if (n_gone > 0) {
        mvcc->n_history -= n_gone;
        memmove(mvcc->history, mvcc->history + n_gone, mvcc->n_history * sizeof(*mvcc->history));
        mvcc->first = at;
    }
    mvcc->compacted = at;
    return REFUSAL_NONE;
}

/* ---- copies ---- */

typedef struct Copy {
    Mvcc *to;
    Version **of; /* pairs of a version and its copy, in the order in which the keys are visited */
    size_t n, room;
} Copy;

static void remember(Copy *copy, Version *version)
{
    copy->of = memory_grow(copy->of, copy->n, &copy->room, sizeof(Version *));
    copy->of[copy->n++] = version;
}

static int by_address(const void *a, const void *b)
{
    Version *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool copy_key(TreeNode *node, void *userdata)
{
    Copy *copy = userdata;
    const Key *from = (const Key *)node;
    Key *key = memory_zeroed(1, sizeof(*key) + from->node.begin.n + 1);

    memcpy(key->name, from->name, from->node.begin.n);
    key->node.begin = (Bytes){.data = (uint8_t *)key->name, .n = from->node.begin.n};
    tree_insert(&copy->to->keys, &key->node);
    Version **at = &key->newest, *newer = NULL;
    for (Version *v = from->newest; v; v = v->older) {
        Version *version = (Version *)memory_bytes(v, sizeof(*v) + v->n_value);
        version->key = key;
        version->newer = newer;
        version->older = NULL;
        *at = newer = version;
        at = &version->older;
        remember(copy, v);
        remember(copy, version);
    }
    return true;
}

void mvcc_copy(const Mvcc *from, Mvcc *to)
{
    Copy copy = {.to = to};

    *to = (Mvcc){
        .revision = from->revision,
        .compacted = from->compacted,
        .first = from->first,
        .live_bytes = from->live_bytes,
    };
    tree_visit(&from->keys, (Bytes){0}, (Bytes){0}, true, copy_key, &copy);
    qsort(copy.of, copy.n / 2, 2 * sizeof(Version *), by_address);
    for (size_t i = 0; i < from->n_history; i++) {
        const Revision *old = &from->history[i];
        Revision *revision = revision_new(to);
        revision->committed_usec = old->committed_usec;
        revision->n_changes = revision->room = old->n_changes;
        revision->changes = memory_zeroed(old->n_changes, sizeof(Version *));
        for (size_t j = 0; j < old->n_changes; j++) {
            Version **pair =
                bsearch(&old->changes[j], copy.of, copy.n / 2, 2 * sizeof(Version *), by_address);
            assert(pair);
            revision->changes[j] = pair[1];
        }
    }
    free(copy.of);
}
