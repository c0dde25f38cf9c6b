/* SPDX-License-Identifier: Apache-2.0 */
/* room.c - frees space after a save for which the store had no space.
 * Old checkpoints are usually removed after a commit. But a full store accepts no checkpoint that could be committed,
 * so a store full of this job's own old checkpoints would stay full for ever. They are removed here by the same rule as
 * after a commit, and those that evaluations read, too. Nothing else is removed: if this is not enough, only the
 * operator knows what else can be deleted.
 */
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/writer.h"

#include "base/log.h"

#include <string.h>

bool room_is_short(int r) { return r == -ENOSPC || r == -EDQUOT; }

static uint64_t data_bytes(const CheckpointWriter *w, const ObjectRecord *o)
{
    const uint64_t n_bytes = (uint64_t)o->count * sizeof(float);
    switch (o->kind) {
    case OBJECT_MOMENTS:
        return 2 * n_bytes;
    case OBJECT_CONFIG:
    case OBJECT_EMA_CONFIG:
        return strlen(w->options.unet_config);
    case OBJECT_PLANS:
        return strlen(w->options.plans);
    default:
        return n_bytes;
    }
}

/* Returns about how many bytes the next save needs: the sizes of the newest commit, with headers and indexes, if the
 * next save has the same objects; otherwise only the data. */
static uint64_t next_bytes(const CheckpointWriter *w)
{
    const ObjectTable *table = writer_table(w);
    const bool alike = w->latest && w->latest->n_objects == table->n_records;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < table->n_records; i++)
        n_bytes += alike ? w->latest->objects[i].n_bytes : data_bytes(w, &table->records[i]);
    return n_bytes;
}

CheckpointRoom room_measure(const CheckpointWriter *w)
{
    uint64_t n_free;
    Error said = ERROR_INIT; /* some stores cannot report their free space */
    if (store_free_bytes(w->options.store, &n_free, &said) < 0)
        return (CheckpointRoom){0};
    return (CheckpointRoom){.next_bytes = next_bytes(w), .free_bytes = n_free};
}

static double mb(uint64_t n_bytes) { return (double)n_bytes / 1e6; }

void room_make(CheckpointWriter *w, Error *err)
{
    const char *uri = store_uri(w->options.store);
    const long long keep_last = w->options.keep_last;
    const int r = err->code;
    Error said = ERROR_INIT;
    if (w->n_held > 0)
        log_warning("%s has no room for a save: what evaluations read is kept no longer", uri);
    w->n_held = 0;
    /* writer_retire() logs its errors; the free space that is measured next shows the effect */
    (void)writer_retire(w, &said);
    const CheckpointRoom room = room_measure(w);
    if (room.next_bytes == 0)
        (void)error_prefix(err, r,
                           "%.80s has no room for %.1f MB: lower checkpoint.keep_last (%lld) or "
                           "raise its quota",
                           uri, mb(next_bytes(w)), keep_last);
    else if (room.free_bytes >= room.next_bytes)
        (void)error_prefix(err, r,
                           "%.80s has %.1f MB free now, a checkpoint has %.1f MB; if this comes "
                           "again, look for a quota or inodes",
                           uri, mb(room.free_bytes), mb(room.next_bytes));
    else
        (void)error_prefix(err, r,
                           "%.1f MB are missing in %.80s (%.1f MB free, a checkpoint has %.1f MB): "
                           "lower checkpoint.keep_last (%lld) or make room there",
                           mb(room.next_bytes - room.free_bytes), uri, mb(room.free_bytes),
                           mb(room.next_bytes), keep_last);
}
