/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c - see reader.h: a ring of slots, each with a piece that is being read. */
#include "trainer/checkpoint/restore/reader.h"

#include "trainer/state/device-patience.h"

enum { SLOTS = 16 };

size_t reader_piece_bytes = 8 << 20; /* S3 serves reads of this size well */

typedef struct ReaderSlot {
    ReaderPiece piece;
    char *buffer; /* owned, kept from piece to piece */
    size_t buffer_bytes;
    StoreRead read;
    bool local;
} ReaderSlot;

struct Reader {
    Store *store;
    const CheckpointLocal *local;
    Device *device;
    const ReaderRange *ranges;
    size_t n_ranges;
    size_t range; /* range and offset of the next piece to begin */
    uint64_t at;
    size_t n_slots;
    size_t first, n; /* slots in use: n slots from `first` on */
    bool taken;      /* the caller has the piece of the first slot */
    ReaderSlot slots[SLOTS];
};

int reader_new(Store *store, const CheckpointLocal *local, Device *device,
               const ReaderRange *ranges, size_t n_ranges, Reader **ret, Error *err)
{
    char path[4096];
    Reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return error_set(err, -ENOMEM, "out of memory reading from %s", store_uri(store));
    reader->store = store;
    reader->local = local;
    reader->device = device;
    reader->ranges = ranges;
    reader->n_ranges = n_ranges;
    /* Files are read only when the caller waits for a piece. So one buffer is enough, and it stays in the processor's
     * cache. */
    const bool files =
        n_ranges == 0 || store_local_path(store, ranges[0].key, path, sizeof(path), NULL) == 0;
    reader->n_slots = files ? 1 : SLOTS;
    *ret = reader;
    return 0;
}

static ReaderSlot *slot_at(Reader *r, size_t i) { return &r->slots[(r->first + i) % r->n_slots]; }

static void drop_first(Reader *r)
{
    ReaderSlot *slot = slot_at(r, 0);
    if (!r->taken && !slot->local)
        store_read_cancel(r->store, &slot->read);
    r->taken = false;
    r->first = (r->first + 1) % r->n_slots;
    r->n--;
}

/* Releases the slot's buffer. A device that hangs may still read the piece: then the memory is kept. */
static void slot_release(const Reader *r, ReaderSlot *slot, bool idle)
{
    if (r->device && idle)
        device_host_release(r->device, slot->buffer);
    else if (!r->device)
        free(slot->buffer);
    slot->buffer = NULL;
    slot->buffer_bytes = 0;
}

Reader *reader_free(Reader *reader)
{
    if (!reader)
        return NULL;
    while (reader->n > 0)
        drop_first(reader);
    const bool idle = !reader->device || device_is_idle(reader->device);
    for (size_t i = 0; i < ELEMENTSOF(reader->slots); i++)
        slot_release(reader, &reader->slots[i], idle);
    free(reader);
    return NULL;
}

void reader_rewind(Reader *reader, size_t range)
{
    assert(range < reader->n_ranges);
    while (reader->n > 0)
        drop_first(reader);
    reader->range = range;
    reader->at = 0;
}

static int slot_reserve(Reader *r, ReaderSlot *slot, size_t n_bytes, Error *err)
{
    void *buffer = NULL;
    int q = 0;
    if (slot->buffer_bytes >= n_bytes)
        return 0;
    /* the caller that took the piece has waited until the device received it */
    slot_release(r, slot, true);
    if (r->device)
        q = device_host_allocate(r->device, n_bytes, &buffer, err);
    else
        buffer = malloc(n_bytes);
    if (q < 0 || !buffer)
        return error_set(err, -ENOMEM, "out of memory for a piece of %zu bytes", n_bytes);
    slot->buffer = buffer;
    slot->buffer_bytes = n_bytes;
    return 0;
}

/* Begins to read the next piece, which is being read when the function returns 0. */
static int begin_piece(Reader *r, Error *err)
{
    const ReaderRange *range = &r->ranges[r->range];
    ReaderSlot *slot = slot_at(r, r->n);
    slot->piece =
        (ReaderPiece){.range = r->range,
                      .at = r->at,
                      .n_bytes = (size_t)MIN(range->n_bytes - r->at, (uint64_t)reader_piece_bytes)};
    int q = slot_reserve(r, slot, slot->piece.n_bytes, err);
    if (q < 0)
        return q;
    slot->piece.data = slot->buffer;
    slot->local = range->local;
    slot->read = (StoreRead){.key = range->key,
                             .offset = range->offset + r->at,
                             .n_bytes = slot->piece.n_bytes,
                             .buffer = slot->buffer};
    q = slot->local ? 0 : store_read_begin(r->store, &slot->read, err);
    if (q < 0)
        return q;
    r->n++;
    r->at += slot->piece.n_bytes;
    if (r->at == range->n_bytes) {
        r->range++;
        r->at = 0;
    }
    return 0;
}

int reader_next(Reader *r, ReaderPiece *ret, Error *err)
{
    if (r->taken)
        drop_first(r);
    while (r->n < r->n_slots && r->range < r->n_ranges) {
        int q = begin_piece(r, err);
        if (q < 0) {
            *ret = (ReaderPiece){.range = r->range};
            return q;
        }
    }
    if (r->n == 0)
        return 0;

    ReaderSlot *slot = slot_at(r, 0);
    r->taken = true; /* the call below ends the read, whether or not the call fails */
    *ret = slot->piece;
    int q = slot->local ? checkpoint_local_read(r->local, slot->read.key, slot->read.offset,
                                                slot->read.n_bytes, slot->buffer, err)
                        : store_read_wait(r->store, &slot->read, err);
    return q < 0 ? q : 1;
}
