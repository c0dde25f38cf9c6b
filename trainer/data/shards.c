/* shards.c - see shards.h. */
#include "trainer/data/shards.h"

#include "base/log.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

typedef struct Slot {
    Shard *shard; /* NULL: free */
    uint64_t number, used;
} Slot;

struct Shards {
    ShardSource source;
    Index *index;
    Slot slots[SHARDS_OPEN_MAX];
    uint64_t clock;    /* of uses */
    uint8_t *verified; /* one bit a shard: its hashes held once in this process */
    char *buffer;
    size_t room;
};

int shards_new(Store *store, Index *index, const char *cache_dir, uint64_t cache_bytes,
               Shards **ret, Error *err)
{
    Shards *s = calloc(1, sizeof(*s));
    if (s)
        s->verified = calloc(1, index_n_shards(index) / 8 + 1);
    if (!s || !s->verified) {
        free(s);
        return error_set(err, -ENOMEM, "out of memory");
    }
    s->index = index;
    s->source = (ShardSource){.store = store,
                              .compression = index_compression(index),
                              .n_hashes = index_n_hashes(index),
                              .cache_dir = cache_dir,
                              .cache_bytes = cache_bytes};
    for (size_t i = 0; i < s->source.n_hashes; i++)
        s->source.hashes[i] = index_hash_name(index, i);
    (void)hash_format(index_digest(index), s->source.cache_prefix);
    *ret = s;
    return 0;
}

static void slot_clear(Slot *slot)
{
    slot->shard = shard_free(slot->shard);
    *slot = (Slot){0};
}

Shards *shards_free(Shards *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++)
        slot_clear(&s->slots[i]);
    free(s->verified);
    free(s->buffer);
    free(s);
    return NULL;
}

static Slot *oldest(Shards *s, bool in_memory)
{
    Slot *best = NULL;
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++) {
        Slot *slot = &s->slots[i];
        if (slot->shard && (!in_memory || shard_memory_bytes(slot->shard)) &&
            (!best || slot->used < best->used))
            best = slot;
    }
    return best;
}

/* A free slot, with room in memory for one more shard of n_bytes. */
static Slot *make_room(Shards *s, uint64_t n_bytes)
{
    uint64_t held = 0;
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++)
        held += s->slots[i].shard ? shard_memory_bytes(s->slots[i].shard) : 0;
    for (Slot *slot; held > 0 && held + n_bytes > SHARDS_MEMORY_MAX && (slot = oldest(s, true));) {
        held -= shard_memory_bytes(slot->shard);
        slot_clear(slot);
    }
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++)
        if (!s->slots[i].shard)
            return &s->slots[i];
    Slot *slot = oldest(s, false);
    slot_clear(slot);
    return slot;
}

static int open_shard(Shards *s, uint64_t number, Slot **ret, Error *err)
{
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++)
        if (s->slots[i].shard && s->slots[i].number == number) {
            *ret = &s->slots[i];
            return 0;
        }

    IndexShard info;
    int r = index_shard(s->index, number, &info, err);
    if (r < 0)
        return r;
    bool verified = s->verified[number / 8] & 1 << number % 8;
    Slot *slot = make_room(s, info.raw_bytes);
    /* Hashes of samples, checked at each read, do the same at less cost. */
    r = shard_open(&s->source, number, &info, !verified && !index_has_sample_hashes(s->index),
                   &slot->shard, err);
    if (r < 0)
        return r;
    s->verified[number / 8] |= (uint8_t)(1 << number % 8);
    slot->number = number;
    *ret = slot;
    return 0;
}

static int read_once(Shards *s, IndexPlace place, size_t *ret_bytes, Error *err)
{
    Slot *slot;
    int r = open_shard(s, place.shard, &slot, err);
    if (r < 0)
        return r;
    slot->used = ++s->clock;
    r = shard_read(slot->shard, place.sample, &s->buffer, &s->room, ret_bytes, err);
    if (r < 0)
        return r;

    uint64_t wanted;
    r = index_sample_hash(s->index, place, &wanted, err);
    if (r <= 0)
        return r;
    uint64_t found = hash64_bytes(s->buffer, *ret_bytes, 0);
    if (found != wanted)
        return error_set(err, -EBADMSG,
                         "%s[%u] is corrupt: its xxh3_64 is %016" PRIx64
                         ", the index says %016" PRIx64,
                         shard_name(slot->shard), place.sample, found, wanted);
    return 0;
}

/* Drops what a failed read came from, so that the next attempt begins afresh. */
static void forget(Shards *s, uint64_t number)
{
    for (size_t i = 0; i < SHARDS_OPEN_MAX; i++)
        if (s->slots[i].shard && s->slots[i].number == number)
            slot_clear(&s->slots[i]);
    s->verified[number / 8] &= (uint8_t) ~(1 << number % 8);
    shard_forget(&s->source, number);
}

int shards_read(Shards *s, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err)
{
    static const struct timespec pauses[SHARDS_ATTEMPTS - 1] = {{0, 50000000}, {0, 200000000}};
    Error why = ERROR_INIT;
    int r = 0;
    for (int attempt = 0; attempt < SHARDS_ATTEMPTS; attempt++) {
        if (attempt > 0) {
            log_warning("attempt %d failed: %s", attempt, why.text);
            (void)nanosleep(&pauses[attempt - 1], NULL); /* a signal may shorten it */
        }
        r = read_once(s, place, ret_bytes, &why);
        if (r == 0) {
            *ret = s->buffer;
            return 0;
        }
        forget(s, place.shard);
    }

    IndexShard info;
    const char *name = index_shard(s->index, place.shard, &info, NULL) == 0 ? info.raw_name : "?";
    return error_set(err, r, "sample %s[%u], %d attempts: %s", name, place.sample, SHARDS_ATTEMPTS,
                     why.text);
}
