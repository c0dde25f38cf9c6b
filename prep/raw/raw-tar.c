/* SPDX-License-Identifier: Apache-2.0 */
/* raw-tar.c - reads the samples of a tar. A sample is a run of consecutive members with the same key. */
#include "base/file-kind.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "prep/raw/raw-internal.h"
#include "prep/raw/raw-stream.h"
#include "prep/raw/tar-read.h"
#include "prep/raw/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum {
    KEYS_MAX = 1 << 24,
    JSON_BYTES_MAX = 4 << 20,
    /* Flags of a key: which members its first sample had. */
    HAD_PICTURE = 1,
    HAD_CAPTION = 2, /* a caption, or a .json that may hold one */
    IS_APART = 4,    /* members that the first sample lacked came later in the tar */
    KEY_BITS = HAD_PICTURE | HAD_CAPTION | IS_APART,
};

/* Members are numbered: first the pictures, then the captions, in the recipe's order; then a .json that holds no
 * caption. Other members (.cls, .npy, ...) belong to the sample but are not read. */
enum { N_MEMBERS_MAX = 2 * RECIPE_MEMBERS_MAX + 1, NOTHING = N_MEMBERS_MAX };

struct RawTar {
    const RawSet *set;
    const RecipeMembers *members; /* owned by the set */
    const char *name;
    Prover *prover;
    RawStream *stream;
    TarReader reader;
    TarMember member; /* the first member of the next sample, if has_member */
    bool has_member, ended;
    char *member_key;
    /* hash table of the keys met so far; the low bits of an entry are flags such as HAD_PICTURE; 0: free */
    uint64_t *keys;
    size_t n_keys, keys_room;
    RawCounts counts; /* without the counts that `reader` holds */
};

static int read_stream(void *context, uint64_t offset, void *buffer, size_t n_bytes, Error *err)
{
    return raw_stream_read(context, offset, buffer, n_bytes, err);
}

/* A file that starts like another format (gzip, zip, HTML, ...) is not searched for members. */
static int check_beginning(const RawTar *tar, uint64_t n_bytes, Error *err)
{
    char front[FILE_KIND_BYTES];
    const size_t n = MIN(n_bytes, sizeof(front));
    int r = raw_stream_read(tar->stream, 0, front, n, err);
    const char *kind = r == 0 ? file_kind_of(front, n) : NULL;
    return kind ? error_set(err, -EBADMSG, "%s: is not a tar but %s", tar->name, kind) : r;
}

int raw_tar_open(RawSet *set, size_t unit, Prover *prover, RawTar **ret, Error *err)
{
    _cleanup_(raw_tar_freep) RawTar *tar = memory_new(RawTar);
    const RawUnitInfo *info = &set->units[unit];
    tar->set = set;
    tar->members = &set->members;
    tar->prover = prover;
    tar->name = info->name;
    if (info->n_bytes == 0)
        return error_set(err, -EBADMSG, "%s: has no bytes", info->name);
    int r = raw_stream_new(set->store, info->name, info->n_bytes, &tar->stream, err);
    if (r == 0)
        r = check_beginning(tar, info->n_bytes, err);
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

RawState raw_tar_state(const RawTar *tar, char *text, size_t size)
{
    const TarReader *reader = &tar->reader;
    if (reader->n_damaged > 0) {
        if (reader->has_members_left)
            (void)snprintf(text, size,
                           "%s: members follow its end, at byte %" PRIu64
                           ", and are not read; tars that were joined must be split",
                           tar->name, reader->first_damage);
        else
            (void)snprintf(text, size, "%s: no header of a member at byte %" PRIu64 "%s", tar->name,
                           reader->first_damage, reader->n_damaged > 1 ? ", and later" : "");
        return RAW_DAMAGED;
    }
    if (!reader->has_end) {
        (void)snprintf(text, size, "%s: has no end; its writer may have been killed", tar->name);
        return RAW_CUT;
    }
    return RAW_WHOLE;
}

RawCounts raw_tar_counts(const RawTar *tar)
{
    RawCounts counts = tar->counts;
    counts.frame_bytes = tar->reader.frame_bytes;
    counts.lost_bytes = tar->reader.lost_bytes;
    return counts;
}

/* ---- keys ---- */

/* Returns the length of the key at the start of name; 0: the name has no key. */
static size_t key_bytes(const RawTar *tar, const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    const char *dot = tar->members->key_ends_last ? strrchr(last, '.') : strchr(last, '.');
    return dot && dot > last ? (size_t)(dot - name) : 0;
}

static const char *member_name(const RecipeMembers *m, size_t number)
{
    if (number < m->image.n)
        return m->image.names[number];
    number -= m->image.n;
    return number < m->caption.n ? m->caption.names[number] : recipe_json_member(m);
}

static size_t number_of(const RecipeMembers *m, const char *extension)
{
    for (size_t i = 0; i <= m->image.n + m->caption.n; i++)
        if (strcasecmp(extension, member_name(m, i)) == 0)
            return i;
    return NOTHING;
}

static bool is_picture(const RecipeMembers *m, size_t number) { return number < m->image.n; }
static bool is_caption(const RecipeMembers *m, size_t number)
{
    return number >= m->image.n && number < m->image.n + m->caption.n;
}
static bool is_json(const RecipeMembers *m, size_t number)
{
    return strcasecmp(member_name(m, number), recipe_json_member(m)) == 0;
}

static uint64_t key_hash(const char *key)
{
    return MAX(hash64_bytes(key, strlen(key), 0) & ~(uint64_t)KEY_BITS, (uint64_t)KEY_BITS + 1);
}

/* Returns the table's entry with this hash, or the free entry where the hash belongs. */
static uint64_t *find_key(uint64_t *keys, size_t room, uint64_t hash)
{
    size_t at = (hash >> 3) & (room - 1);
    while (keys[at] && (keys[at] & ~(uint64_t)KEY_BITS) != hash)
        at = (at + 1) & (room - 1);
    return &keys[at];
}

/* Adds a key to the table. 1: the key is new. 0: it was met before, and *ret_had has its flags. */
static int meet_key(RawTar *tar, const char *key, unsigned *ret_had, Error *err)
{
    const uint64_t hash = key_hash(key);
    if (2 * (tar->n_keys + 1) > tar->keys_room) {
        size_t room = MAX(2 * tar->keys_room, (size_t)1024);
        if (tar->n_keys == KEYS_MAX)
            return error_set(err, -EFBIG, "%s: more than %d samples", tar->name, KEYS_MAX);
        uint64_t *grown = calloc(room, sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
        for (size_t i = 0; i < tar->keys_room; i++)
            if (tar->keys[i])
                *find_key(grown, room, tar->keys[i] & ~(uint64_t)KEY_BITS) = tar->keys[i];
        free(tar->keys);
        tar->keys = grown;
        tar->keys_room = room;
    }
    uint64_t *at = find_key(tar->keys, tar->keys_room, hash);
    const bool is_new = *at == 0;
    *ret_had = (unsigned)(*at & KEY_BITS);
    tar->n_keys += is_new;
    if (is_new)
        *at = hash;
    return is_new;
}

static void note_key(const RawTar *tar, const char *key, unsigned had)
{
    *find_key(tar->keys, tar->keys_room, key_hash(key)) |= had;
}

/* ---- samples ---- */

static void count_member(RawCounts *counts, const TarMember *member, bool has_key)
{
    *(has_key ? &counts->n_members : &counts->n_strays) += 1;
    *(has_key ? &counts->member_bytes : &counts->stray_bytes) += member->n_there;
}

/* Reads on to the next member that has a key. 1: tar->member is that member. 0: there are no more. */
static int look(RawTar *tar, Error *err)
{
    while (!tar->has_member && !tar->ended) {
        int r = tar_next(&tar->reader, &tar->member, err);
        if (r < 0)
            return r;
        tar->ended = r == 0;
        if (r == 0 && tar->counts.n_members + tar->counts.n_strays == 0 &&
            tar->reader.n_damaged > 0 && tar->reader.first_damage == 0)
            return error_set(err, -EBADMSG, "%s: is not a tar: no header of a member is in it",
                             tar->name);
        size_t n = r ? key_bytes(tar, tar->member.name) : 0;
        if (r > 0)
            count_member(&tar->counts, &tar->member, n > 0);
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
    prover_bytes(tar->prover, data, m->n_bytes);
    free(*ret);
    *ret = data;
    *ret_bytes = m->n_bytes;
    return 0;
}

typedef struct Group { /* the members of one sample */
    bool have[N_MEMBERS_MAX], lossy;
    unsigned had;
    char there[100]; /* the members' extensions, for messages */
    char *text;      /* text of the caption member that the recipe lists first */
    size_t n_text, text_number;
    char *json;
    size_t n_json, json_number;
} Group;

static void name_member(Group *group, const char *extension)
{
    const size_t used = strlen(group->there);
    if (used + strlen(extension) + sizeof(", ., ...") <= sizeof(group->there))
        (void)snprintf(group->there + used, sizeof(group->there) - used, "%s.%s", used ? ", " : "",
                       extension);
    else if (used >= 3 && strcmp(group->there + used - 3, "...") != 0)
        (void)snprintf(group->there + used, sizeof(group->there) - used, ", ...");
}

/* Reads a picture, a caption or a .json. If there are several captions, the one that the recipe lists first is kept. */
static int take_bytes(RawTar *tar, size_t number, Group *group, RawSample *sample, Error *err)
{
    const RecipeMembers *m = tar->members;
    if (is_picture(m, number))
        return read_member(tar, RAW_PICTURE_MAX, sample, &sample->picture, &sample->n_picture, err);
    if (is_json(m, number)) {
        group->json_number = number;
        return read_member(tar, JSON_BYTES_MAX, sample, &group->json, &group->n_json, err);
    }
    if (group->text && group->text_number < number)
        return 0;
    group->text_number = number;
    return read_member(tar, RAW_TEXT_MAX, sample, &group->text, &group->n_text, err);
}

static int take_member(RawTar *tar, bool whole, Group *group, RawSample *sample, Error *err)
{
    const RecipeMembers *members = tar->members;
    const TarMember *m = &tar->member;
    const char *extension = m->name + strlen(tar->member_key) + 1;
    const size_t number = number_of(members, extension);
    prover_member(tar->prover, m->name, m->offset, m->n_bytes);
    group->lossy |= m->fault == TAR_TRUNCATED;
    if (m->fault == TAR_TRUNCATED)
        raw_sample_reject(sample, RAW_TRUNCATED, "the tar ends inside a member");
    name_member(group, extension);
    if (number == NOTHING)
        return 0;
    group->had |= is_picture(members, number)   ? HAD_PICTURE
                  : is_caption(members, number) ? HAD_CAPTION
                                                : 0;
    if (!whole)
        return 0;
    if (m->fault == TAR_SPARSE)
        raw_sample_reject(sample, RAW_SPARSE, "a sparse member");
    if (group->have[number])
        raw_sample_reject(sample, RAW_DUPLICATE_KEY, "a second .%s", member_name(members, number));
    for (size_t other = 0; is_picture(members, number) && other < members->image.n; other++)
        if (other != number && group->have[other])
            raw_sample_reject(sample, RAW_TWO_IMAGES, "a .%s and a .%s",
                              member_name(members, other), member_name(members, number));
    group->have[number] = true;
    return sample->reason == RAW_FINE ? take_bytes(tar, number, group, sample, err) : 0;
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
    group->lossy |= r == 0 && (tar->reader.lost || !tar->reader.has_end);
    return 0;
}

/* Rejects a sample whose key was met before. If it has members that the first sample with this key lacked, that first
 * sample was incomplete. With keep_missing the first sample may have been returned already without its caption, so the
 * whole unit fails. */
static int reject_again(const RawTar *tar, const char *key, unsigned had, const Group *group,
                        RawSample *sample, Error *err)
{
    if (!(had & IS_APART) && (group->had & ~had) == 0) {
        raw_sample_reject(sample, RAW_DUPLICATE_KEY, "an earlier sample has this key");
        return 0;
    }
    if (tar->set->options.keep_missing)
        return error_set(err, -EBADMSG,
                         "%s: the members of %.200s do not lie together; sort the tar by name",
                         tar->name, sample->key);
    note_key(tar, key, IS_APART);
    sample->reason = RAW_FINE; /* RAW_APART replaces an earlier reason */
    raw_sample_reject(sample, RAW_APART,
                      "the members of %.100s do not lie together; sort the tar by name",
                      sample->key);
    return 0;
}

static bool holds(const char *text, const char *extension)
{
    const char *at = strcasestr(text, extension);
    return at && (at[strlen(extension)] == ',' || at[strlen(extension)] == '\0');
}

/* Formats the names as ".jpg, .jpeg, .png or .webp". */
static const char *name_pictures(const RecipeNames *image, char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < image->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s.%s",
                              i == 0              ? ""
                              : i + 1 == image->n ? " or "
                                                  : ", ",
                              image->names[i]);
    return text;
}

static void reject_without_picture(const RawTar *tar, RawSample *sample, const Group *group)
{
    static const char *const others[] = {".gif", ".bmp", ".avif", ".tif", ".tiff", ".heic"};
    const char *other = NULL;
    char wanted[60];
    for (size_t i = 0; i < ELEMENTSOF(others) && !other; i++)
        other = holds(group->there, others[i]) ? others[i] : NULL;
    raw_sample_reject(sample, RAW_NO_IMAGE, "no %s among: %s%s%s%s",
                      name_pictures(&tar->members->image, wanted, sizeof(wanted)), group->there,
                      other ? "; " : "", other ? other : "",
                      other ? " is not read, convert it" : "");
}

static void take_text(Group *group, RawSample *sample)
{
    sample->caption = TAKE_PTR(group->text);
    sample->n_caption = group->n_text;
}

/* Sets the sample's caption, and its fields if there is a .json. */
static int take_caption(const RawTar *tar, Group *group, RawSample *ret)
{
    const RawOptions *options = &tar->set->options;
    const bool holds_caption = is_caption(tar->members, group->json_number);
    const bool text_first =
        group->text && !(group->json && holds_caption && group->json_number < group->text_number);
    if (text_first)
        take_text(group, ret);
    if (group->json && ret->reason == RAW_FINE &&
        (options->fields || (holds_caption && !ret->caption)) &&
        raw_sample_take_json(ret, group->json, group->n_json,
                             holds_caption ? options->caption : NULL) < 0)
        return -ENOMEM;
    /* There is no caption yet if the recipe lists the .json first, but the .json has no caption. */
    if (group->text && !ret->caption) {
        take_text(group, ret);
        if (ret->reason == RAW_NO_CAPTION)
            ret->reason = RAW_FINE;
    }
    return 0;
}

/* Completes a sample, or rejects it, after its members were read. */
static int end_sample(const RawTar *tar, Group *group, RawSample *ret, Error *err)
{
    if (take_caption(tar, group, ret) < 0)
        return error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
    /* A missing member may have been in the damaged part of the tar. */
    if (group->lossy && (!ret->picture || !ret->caption))
        raw_sample_reject(ret, RAW_TRUNCATED, "the tar is damaged or ends here");
    if (!ret->picture)
        reject_without_picture(tar, ret, group);
    raw_sample_check(ret, tar->set->options.keep_missing);
    return 0;
}

int raw_tar_next(RawTar *tar, bool whole, RawSample *ret, Error *err)
{
    Group group = {0};
    unsigned had = 0;
    int r = look(tar, err);
    if (r <= 0)
        return r;
    group.lossy = tar->member.after_damage; /* first members of the sample may be lost */
    _cleanup_free_ char *key = memory_text(tar->member_key);
    ret->key = utf8_make(key, strlen(key));
    int is_new = ret->key ? meet_key(tar, key, &had, err)
                          : error_set(err, -ENOMEM, "out of memory reading %s", tar->name);
    if (is_new < 0)
        return is_new;
    r = take_group(tar, key, whole && is_new, &group, ret, err);
    if (r == 0 && !is_new)
        r = reject_again(tar, key, had, &group, ret, err);
    if (r == 0 && is_new)
        note_key(tar, key, group.had);
    if (r == 0 && is_new && whole)
        r = end_sample(tar, &group, ret, err);
    free(group.text);
    free(group.json);
    return r < 0 ? r : 1;
}
