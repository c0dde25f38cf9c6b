/* SPDX-License-Identifier: Apache-2.0 */
/* raw-tar.c - the samples of a tar: members that lie together and have one key. */
#include "base/hash.h"
#include "base/memory.h"
#include "prep/raw/raw-internal.h"
#include "prep/raw/raw-stream.h"
#include "prep/raw/tar-read.h"
#include "prep/raw/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { KEYS_MAX = 1 << 24, JSON_BYTES_MAX = 4 << 20 };

/* The members that count; others (.cls, .npy, ...) belong to the sample and are passed over. */
typedef enum Kind {
    JPG,
    JPEG,
    PNG,
    WEBP,
    N_PICTURES, /* the kinds before are pictures */
    TXT = N_PICTURES,
    JSON,
    N_KINDS,
    NOTHING = N_KINDS
} Kind;
static const char *const extensions[N_KINDS] = {"jpg", "jpeg", "png", "webp", "txt", "json"};

struct RawTar {
    const RawSet *set;
    const char *name;
    RawStream *stream;
    TarReader reader;
    TarMember member; /* the next sample's first one, if has_member */
    bool has_member, ended;
    char *member_key;
    uint64_t *keys; /* hashes of the keys that were met: a table, 0 being empty */
    size_t n_keys, keys_room;
};

static int read_stream(void *context, uint64_t offset, void *buffer, size_t n_bytes, Error *err)
{
    return raw_stream_read(context, offset, buffer, n_bytes, err);
}

int raw_tar_open(RawSet *set, size_t unit, RawTar **ret, Error *err)
{
    _cleanup_(raw_tar_freep) RawTar *tar = memory_new(RawTar);
    const RawUnitInfo *info = &set->units[unit];
    tar->set = set;
    tar->name = info->name;
    int r = raw_stream_new(set->store, info->name, info->n_bytes, &tar->stream, err);
    if (r < 0)
        return r;
    tar_reader_init(&tar->reader, &(TarInput){tar->stream, info->n_bytes, read_stream});
    *ret = TAKE_PTR(tar);
    return 0;
}

RawTar *raw_tar_free(RawTar *tar)
{
    if (!tar)
        return NULL;
    tar_reader_clear(&tar->reader);
    raw_stream_free(tar->stream);
    free(tar->member_key);
    free(tar->keys);
    free(tar);
    return NULL;
}

double raw_tar_done(const RawTar *tar)
{
    uint64_t n_bytes = raw_stream_bytes(tar->stream);
    return n_bytes > 0 ? (double)tar->reader.at / (double)n_bytes : 1;
}

bool raw_tar_damage(const RawTar *tar, char *text, size_t size)
{
    if (tar->reader.n_damaged > 0)
        (void)snprintf(text, size, "%s: no header of a member at byte %" PRIu64 "%s", tar->name,
                       tar->reader.first_damage, tar->reader.n_damaged > 1 ? ", and later" : "");
    return tar->reader.n_damaged > 0;
}

/* ---- keys ---- */

/* Bytes of the key that begins a name; 0: it has none. */
static size_t key_bytes(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name, *dot = strchr(last, '.');
    return dot && dot > last ? (size_t)(dot - name) : 0;
}

static Kind kind_of(const char *extension)
{
    for (Kind kind = 0; kind < N_KINDS; kind++)
        if (strcasecmp(extension, extensions[kind]) == 0)
            return kind;
    return NOTHING;
}

static void put_key(uint64_t *keys, size_t room, uint64_t hash)
{
    size_t at = hash & (room - 1);
    while (keys[at] && keys[at] != hash)
        at = (at + 1) & (room - 1);
    keys[at] = hash;
}

/* 1: the key is new. 0: it was met before. */
static int meet_key(RawTar *tar, const char *key, Error *err)
{
    uint64_t hash = MAX(hash64_bytes(key, strlen(key), 0), UINT64_C(1));
    if (2 * (tar->n_keys + 1) > tar->keys_room) {
        size_t room = MAX(2 * tar->keys_room, (size_t)1024);
        if (tar->n_keys == KEYS_MAX)
            return error_set(err, -EFBIG, "%s: more than %d samples", tar->name, KEYS_MAX);
        uint64_t *grown = calloc(room, sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
        for (size_t i = 0; i < tar->keys_room; i++)
            if (tar->keys[i])
                put_key(grown, room, tar->keys[i]);
        free(tar->keys);
        tar->keys = grown;
        tar->keys_room = room;
    }
    for (size_t at = hash & (tar->keys_room - 1); tar->keys[at];
         at = (at + 1) & (tar->keys_room - 1))
        if (tar->keys[at] == hash)
            return 0;
    put_key(tar->keys, tar->keys_room, hash);
    tar->n_keys++;
    return 1;
}

/* ---- samples ---- */

/* Looks at the next member that has a key. 1 or 0. */
static int look(RawTar *tar, Error *err)
{
    while (!tar->has_member && !tar->ended) {
        int r = tar_next(&tar->reader, &tar->member, err);
        if (r < 0)
            return r;
        tar->ended = r == 0;
        size_t n = r ? key_bytes(tar->member.name) : 0;
        if (n == 0)
            continue;
        free(tar->member_key);
        tar->member_key = memory_bytes(tar->member.name, n);
        tar->has_member = true;
    }
    return tar->has_member;
}

static int read_member(RawTar *tar, size_t limit, RawSample *sample, char **ret, size_t *ret_bytes,
                       Error *err)
{
    const TarMember *m = &tar->member;
    if (m->n_bytes > limit) {
        raw_sample_reject(sample, RAW_TOO_LARGE, "a member of %" PRIu64 " bytes; at most %zu",
                          m->n_bytes, limit);
        return 0;
    }
    char *data = malloc(m->n_bytes + 1);
    if (!data)
        return error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
    int r = tar_read(&tar->reader, m, data, err);
    data[m->n_bytes] = '\0';
    if (r < 0) {
        free(data);
        return r;
    }
    free(*ret);
    *ret = data;
    *ret_bytes = m->n_bytes;
    return 0;
}

typedef struct Group { /* the members of a sample that were met */
    bool have[N_KINDS], lossy;
    char *json;
    size_t n_json;
} Group;

static int take_member(RawTar *tar, bool whole, Group *group, RawSample *sample, Error *err)
{
    const TarMember *m = &tar->member;
    Kind kind = kind_of(m->name + strlen(tar->member_key) + 1);
    group->lossy |= m->fault == TAR_TRUNCATED;
    if (m->fault == TAR_TRUNCATED)
        raw_sample_reject(sample, RAW_TRUNCATED, "the tar ends inside a member");
    if (kind == NOTHING || !whole)
        return 0;
    if (m->fault == TAR_SPARSE)
        raw_sample_reject(sample, RAW_SPARSE, "a sparse member");
    if (group->have[kind])
        raw_sample_reject(sample, RAW_DUPLICATE_KEY, "a second .%s", extensions[kind]);
    for (Kind other = 0; other < N_PICTURES; other++)
        if (kind < N_PICTURES && other != kind && group->have[other])
            raw_sample_reject(sample, RAW_TWO_IMAGES, "a .%s and a .%s", extensions[other],
                              extensions[kind]);
    group->have[kind] = true;
    if (sample->reason != RAW_FINE)
        return 0;
    if (kind < N_PICTURES)
        return read_member(tar, RAW_PICTURE_MAX, sample, &sample->picture, &sample->n_picture, err);
    if (kind == TXT)
        return read_member(tar, RAW_TEXT_MAX, sample, &sample->caption, &sample->n_caption, err);
    return read_member(tar, JSON_BYTES_MAX, sample, &group->json, &group->n_json, err);
}

static int take_group(RawTar *tar, const char *key, bool whole, Group *group, RawSample *sample,
                      Error *err)
{
    int r;
    while ((r = look(tar, err)) > 0 && strcmp(tar->member_key, key) == 0) {
        r = take_member(tar, whole, group, sample, err);
        tar->has_member = false;
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    group->lossy |= r > 0 && tar->member.after_damage;
    group->lossy |= r == 0 && tar->reader.lost;
    return 0;
}

int raw_tar_next(RawTar *tar, bool whole, RawSample *ret, Error *err)
{
    Group group = {0};
    int r = look(tar, err);
    if (r <= 0)
        return r;
    group.lossy = tar->member.after_damage; /* its first members may be what was lost */
    _cleanup_free_ char *key = memory_text(tar->member_key);
    ret->key = utf8_make(key, strlen(key));
    r = ret->key ? meet_key(tar, key, err)
                 : error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
    if (r < 0)
        return r;
    if (r == 0)
        raw_sample_reject(ret, RAW_DUPLICATE_KEY, "an earlier sample has this key");
    r = take_group(tar, key, whole, &group, ret, err);
    if (r == 0 && group.json && ret->reason == RAW_FINE &&
        (tar->set->options.fields || !ret->caption) &&
        raw_sample_take_json(ret, group.json, group.n_json, tar->set->options.caption) < 0)
        r = error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
    free(group.json);
    if (r < 0)
        return r;
    if (!whole)
        return 1;
    /* What is missing where the tar is damaged may have been there. */
    if (group.lossy && (!ret->picture || !ret->caption))
        raw_sample_reject(ret, RAW_TRUNCATED, "the tar is damaged here");
    raw_sample_check(ret, tar->set->options.keep_missing);
    return 1;
}
