/* SPDX-License-Identifier: Apache-2.0 */
/* sample-hashes.c - see sample-hashes.h. */
#include "data/stream/sample-hashes.h"

#include "base/macro.h"
#include "base/number/hash.h"

#include <string.h>
#include <xxhash.h>

struct SampleHashes {
    uint64_t n_samples, n_bytes, at; /* at: number of bytes read so far */
    uint64_t next;                   /* number of the next sample */
    size_t table_bytes;
    uint32_t *table; /* the shard's table: n, offset[n + 1] */
    uint64_t *hashes;
    XXH3_state_t *state; /* hash of a sample of which only a part has been added */
    bool broken;
};

SampleHashes *sample_hashes_free(SampleHashes *s)
{
    if (!s)
        return NULL;
    free(s->table);
    free(s->hashes);
    (void)XXH3_freeState(s->state); /* accepts NULL */
    free(s);
    return NULL;
}

int sample_hashes_new(uint64_t n_samples, uint64_t n_bytes, SampleHashes **ret)
{
    _cleanup_(sample_hashes_freep) SampleHashes *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->n_samples = n_samples;
    s->n_bytes = n_bytes;
    s->table_bytes = 4 * (n_samples + 2);
    s->broken = n_samples > n_bytes / 4 || s->table_bytes > n_bytes;
    if (!s->broken) {
        s->table = malloc(s->table_bytes);
        s->hashes = malloc(8 * (n_samples + 1));
        s->state = XXH3_createState();
        if (!s->table || !s->hashes || !s->state)
            return -ENOMEM;
    }
    *ret = TAKE_PTR(s);
    return 0;
}

static bool table_is_good(const SampleHashes *s)
{
    const uint32_t *offsets = s->table + 1;
    if (s->table[0] != s->n_samples || offsets[0] < s->table_bytes ||
        offsets[s->n_samples] != s->n_bytes)
        return false;
    for (uint64_t i = 0; i < s->n_samples; i++)
        if (offsets[i] > offsets[i + 1])
            return false;
    return true;
}

/* Hashes the samples in the shard's bytes pos .. pos + n. */
static void hash_samples(SampleHashes *s, const char *data, uint64_t pos, size_t n)
{
    for (; s->next < s->n_samples; s->next++) {
        const uint64_t begin = s->table[1 + s->next], end = s->table[2 + s->next];
        if (begin >= pos && end <= pos + n) {
            s->hashes[s->next] = hash64_bytes(data + (begin - pos), end - begin, 0);
            continue;
        }
        if (begin >= pos + n)
            return;
        if (begin >= pos)
            (void)XXH3_64bits_reset(s->state); /* fails only on NULL, as do the calls below */
        const uint64_t from = MAX(begin, pos), to = MIN(end, pos + n);
        (void)XXH3_64bits_update(s->state, data + (from - pos), to - from);
        if (end > pos + n)
            return;
        s->hashes[s->next] = XXH3_64bits_digest(s->state);
    }
}

void sample_hashes_add(SampleHashes *s, const void *data, size_t n_bytes)
{
    const uint64_t pos = s->at;
    s->at += n_bytes;
    if (s->broken)
        return;
    if (pos < s->table_bytes) {
        memcpy((char *)s->table + pos, data, MIN(n_bytes, s->table_bytes - (size_t)pos));
        if (s->at < s->table_bytes)
            return;
        s->broken = !table_is_good(s);
    }
    if (!s->broken)
        hash_samples(s, data, pos, n_bytes);
}

uint64_t *sample_hashes_take(SampleHashes *s)
{
    if (s->broken || s->at != s->n_bytes || s->next != s->n_samples)
        return NULL;
    return TAKE_PTR(s->hashes);
}
