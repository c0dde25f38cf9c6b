/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - the codecs of records, with a cache of their results.
 *
 * Each node, each controller and each checker reads a record, and reads it again when the schedule is played a
 * second time. In programs that play many schedules, the linker calls these functions instead of those of
 * cluster/records.c (--wrap). The result of a read depends only on the text; the result of a write depends only on
 * the record and the old text. So a cached result is the result that the production code gave for the same bytes.
 * Errors name a key and are not cached. */
#include "cluster/records.h"

#include "base/json/field-table.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "cluster/record-tables.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4096, N_TREES = 256 };

typedef int (*Decode)(const char *source, const char *text, size_t n_bytes, void *ret, Error *err);
typedef char *(*Encode)(const void *record, const char *old_text);

typedef struct Codec {
    const char *kind;         /* the kind in record_tables */
    const RecordTable *table; /* NULL until table_of() has looked it up */
    size_t size;
    Decode decode;
    Encode encode;
} Codec;

/* A cached result. For a read, `asked` is the text and `answer` the record. For a write, `asked` is
 * the record with its parts, followed by the old text, and `answer` is the text. */
typedef struct Slot {
    Codec *codec; /* NULL: the slot is empty */
    void *asked, *answer;
    size_t n_asked;
} Slot;

static Slot read_slots[SLOTS], written_slots[SLOTS];
static bool writes_record; /* json_dumps() is being called to write a record */

static const RecordTable *table_of(Codec *codec)
{
    for (size_t i = 0; !codec->table && i < n_record_tables; i++)
        if (strcmp(record_tables[i].kind, codec->kind) == 0)
            codec->table = &record_tables[i];
    assert(codec->table);
    return codec->table;
}

/* ---- parts: the memory that a record has allocated ---- */

typedef struct Part {
    void **at; /* NULL: there are no more parts */
    size_t n_bytes;
} Part;

static Part next_part(const RecordTable *table, void *record, size_t *i)
{
    while (*i < table->n_fields) {
        const Field *f = &table->fields[(*i)++];
        void **at = (void **)((char *)record + f->offset);
        if (f->type == FIELD_STRING && *at)
            return (Part){at, strlen(*at) + 1};
        if (f->type == FIELD_LIST && *at)
            return (Part){at, *(size_t *)((char *)record + f->count_offset) * f->element_bytes};
    }
    return (Part){NULL, 0};
}

static void *bytes_of(const void *bytes, size_t n)
{
    void *copy = memory_resize(NULL, MAX(n, (size_t)1), 1);
    memcpy(copy, bytes, n);
    return copy;
}

static void copy_record(Codec *codec, void *to, const void *from)
{
    const RecordTable *table = table_of(codec);
    size_t i = 0;
    memcpy(to, from, codec->size);
    for (Part part; (part = next_part(table, to, &i)).at;)
        *part.at = bytes_of(*part.at, part.n_bytes);
}

/* ---- slots ---- */

static Slot *slot_for(Slot *slots, const Codec *codec, const void *asked, size_t n_asked)
{
    return &slots[hash64_bytes(asked, n_asked, (uintptr_t)*codec->kind) % SLOTS];
}

static bool is_of(const Slot *slot, const Codec *codec, const void *asked, size_t n_asked)
{
    return slot->codec == codec && slot->n_asked == n_asked &&
           memcmp(slot->asked, asked, n_asked) == 0;
}

static void slot_clear(Slot *slot)
{
    free(slot->asked);
    free(slot->answer);
    *slot = (Slot){0};
}

static int decode(Codec *codec, const char *source, const char *text, size_t n_bytes, void *ret,
                  Error *err)
{
    Slot *slot = slot_for(read_slots, codec, text, n_bytes);
    if (is_of(slot, codec, text, n_bytes)) {
        copy_record(codec, ret, slot->answer);
        return 0;
    }
    const int r = codec->decode(source, text, n_bytes, ret, err);
    if (r < 0)
        return r;
    if (slot->codec) {
        const RecordTable *table = table_of(slot->codec);
        field_table_clear(slot->answer, table->fields, table->n_fields);
    }
    slot_clear(slot);
    *slot = (Slot){.codec = codec,
                   .asked = bytes_of(text, n_bytes),
                   .n_asked = n_bytes,
                   .answer = memory_resize(NULL, 1, codec->size)};
    copy_record(codec, slot->answer, ret);
    return r;
}

/* Appends bytes to `asked`. */
static size_t add(char **asked, size_t *room, size_t n, const void *bytes, size_t n_bytes)
{
    if (n + n_bytes > *room)
        *asked = memory_resize(*asked, *room = 2 * (n + n_bytes), 1);
    memcpy(*asked + n, bytes, n_bytes);
    return n + n_bytes;
}

static char *encode(Codec *codec, const void *record, const char *old_text)
{
    static char *asked;
    static size_t room;
    const RecordTable *table = table_of(codec);
    size_t n = add(&asked, &room, 0, record, codec->size), i = 0;
    for (Part part; (part = next_part(table, asked, &i)).at;) {
        const size_t at = (size_t)((char *)part.at - asked);
        n = add(&asked, &room, n, *part.at, part.n_bytes);
        /* only the existence of a part counts, not its address */
        memset(asked + at, 1, sizeof(void *));
    }
    if (old_text)
        n = add(&asked, &room, n, old_text, strlen(old_text) + 1);
    Slot *slot = slot_for(written_slots, codec, asked, n);
    if (is_of(slot, codec, asked, n))
        return memory_text(slot->answer);
    writes_record = true;
    char *text = codec->encode(record, old_text);
    writes_record = false;
    slot_clear(slot);
    *slot = (Slot){.codec = codec,
                   .asked = bytes_of(asked, n),
                   .n_asked = n,
                   .answer = memory_text(text)};
    return text;
}

/* ---- JSON trees ---- */

/* A record is first read soon after it was written. Then its text need not be parsed, because
 * jansson would make the same tree from the text that was written from a tree. A written record's
 * tree is never changed. */
static struct {
    size_t n_text;
    char *text;
    json_t *root;
} trees[N_TREES];

static size_t tree_slot(const char *text, size_t n) { return hash64_bytes(text, n, 0) % N_TREES; }

char *__real_json_dumps(const json_t *root, size_t flags);
char *__wrap_json_dumps(const json_t *root, size_t flags);
char *__wrap_json_dumps(const json_t *root, size_t flags)
{
    char *text = __real_json_dumps(root, flags);
    if (!text || !writes_record)
        return text;
    const size_t n = strlen(text), i = tree_slot(text, n);
    json_decref(trees[i].root);
    free(trees[i].text);
    trees[i].root = json_incref((json_t *)root);
    trees[i].text = memory_bytes(text, n);
    trees[i].n_text = n;
    return text;
}

json_t *__real_json_loadb(const char *text, size_t n, size_t flags, json_error_t *ret);
json_t *__wrap_json_loadb(const char *text, size_t n, size_t flags, json_error_t *ret);
json_t *__wrap_json_loadb(const char *text, size_t n, size_t flags, json_error_t *ret)
{
    const size_t i = tree_slot(text, n);
    if (trees[i].root && trees[i].n_text == n && memcmp(trees[i].text, text, n) == 0)
        return TAKE_PTR(trees[i].root);
    return __real_json_loadb(text, n, flags, ret);
}

/* ---- the functions ---- */

#define REMEMBER(Type, prefix, its_kind)                                                           \
    int __real_##prefix##_decode(const char *source, const char *text, size_t n_bytes, Type *ret,  \
                                 Error *err);                                                      \
    int __wrap_##prefix##_decode(const char *source, const char *text, size_t n_bytes, Type *ret,  \
                                 Error *err);                                                      \
    char *__real_##prefix##_encode(const Type *record, const char *old_text);                      \
    char *__wrap_##prefix##_encode(const Type *record, const char *old_text);                      \
    static Codec prefix = {its_kind, NULL, sizeof(Type), (Decode)__real_##prefix##_decode,         \
                           (Encode)__real_##prefix##_encode};                                      \
    int __wrap_##prefix##_decode(const char *source, const char *text, size_t n_bytes, Type *ret,  \
                                 Error *err)                                                       \
    {                                                                                              \
        return decode(&prefix, source, text, n_bytes, ret, err);                                   \
    }                                                                                              \
    char *__wrap_##prefix##_encode(const Type *record, const char *old_text)                       \
    {                                                                                              \
        return encode(&prefix, record, old_text);                                                  \
    }

REMEMBER(CheckpointsRecord, checkpoints_record, "checkpoints")
REMEMBER(CordonRecord, cordon_record, "cordons")
REMEMBER(DesiredRecord, desired_record, "desired")
REMEMBER(IncidentRecord, incident_record, "incidents")
REMEMBER(LeaderRecord, leader_record, "leader")
REMEMBER(NodeRecord, node_record, "nodes")
REMEMBER(PhaseRecord, phase_record, "phases")
REMEMBER(ProgressRecord, progress_record, "progress")
REMEMBER(RanksRecord, ranks_record, "ranks")
REMEMBER(RendezvousRecord, rendezvous_record, "rendezvous")
REMEMBER(RequestRecord, request_record, "requests")
REMEMBER(SecretRecord, secret_record, "secrets")
REMEMBER(SpecRecord, spec_record, "specs")
REMEMBER(WorldRecord, world_record, "worlds")
