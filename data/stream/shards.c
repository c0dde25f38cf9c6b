/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - see shards.h. */
#include "data/stream/shards.h"

#include "data/stream/shards-internal.h"

enum { PIECE_BYTES = 8 << 20 };

int shards_new(Store *store, Index *index, const ShardsOptions *options, Shards **ret, Error *err)
{
    _cleanup_(shards_freep) Shards *s = calloc(1, sizeof(*s));
    if (s) {
        s->index = index;
        s->verified = calloc(1, index_n_shards(index) / 8 + 1);
        s->hashes = calloc(index_n_shards(index) + 1, sizeof(*s->hashes));
    }
    if (!s || !s->verified || !s->hashes)
        return error_set(err, -ENOMEM, "out of memory");
    if (options) {
        s->options = *options;
    } else {
        int r = event_count_new(&s->own_events);
        if (r < 0)
            return error_errno(err, r, "cannot read shards");
        s->options = (ShardsOptions){.events = s->own_events, .budget = &s->own_budget};
    }
    shard_source_init(&s->source, store, index);
    s->source.cache = s->options.cache;
    s->source.events = s->options.events;
    s->source.piece_bytes =
        CLAMP(s->options.budget->most / 8, (size_t)1 << 18, (size_t)PIECE_BYTES);
    s->source.spare = &s->spare;
    s->source.sample_hashes = !index_has_sample_hashes(index);
    s->local = shard_source_local(&s->source);
    s->in_place = s->local && !*s->source.compression;
    s->ranged = !s->in_place && !*s->source.compression && index_has_sample_hashes(index);
    *ret = TAKE_PTR(s);
    return 0;
}

bool shards_are_local(const Shards *s) { return s->local; }
bool shards_in_place(const Shards *s) { return s->in_place; }
bool shards_by_range(const Shards *s) { return s->ranged; }

Shards *shards_free(Shards *s)
{
    if (!s)
        return NULL;
    sample_read_end(&s->own);
    sample_read_clear(&s->own);
    kept_shards_clear(s);
    piece_buffers_clear(&s->spare);
    (void)event_count_free(s->own_events);
    for (uint64_t i = 0; s->hashes && i < index_n_shards(s->index); i++)
        free(s->hashes[i]);
    free(s->hashes);
    free(s->verified);
    free(s);
    return NULL;
}

int shards_read(Shards *s, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err)
{
    sample_read_end(&s->own);
    sample_read_begin(&s->own, s, place);
    for (;;) {
        uint64_t seen = event_count_read(s->source.events), wake_usec = UINT64_MAX;
        int r = sample_read_poll(&s->own, true, &wake_usec, ret, ret_bytes, err);
        if (r != 0)
            return MIN(r, 0);
        event_count_wait(s->source.events, seen, wake_usec);
    }
}
