/* SPDX-License-Identifier: Apache-2.0 */
/* event-file.c - see event-file.h. */
#include "ctl/job/results/event-file.h"

#include "base/cleanup.h"
#include "base/number/hash.h"

#include <endian.h>
#include <math.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* protobuf's wire types */
enum { TAG_MAX = 63, VALUE_MAX = TAG_MAX + 16, EVENT_MAX = EVENT_SCALARS_MAX * VALUE_MAX + 64 };

typedef struct Message {
    uint8_t bytes[EVENT_MAX];
    size_t n;
} Message;

static void put_bytes(Message *m, const void *bytes, size_t n)
{
    assert(m->n + n <= sizeof(m->bytes));
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_varint(Message *m, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
        put_bytes(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_key(Message *m, unsigned field, unsigned type) { put_varint(m, field << 3 | type); }

static void put_double(Message *m, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = htole64(bits);
    put_key(m, field, FIXED64);
    put_bytes(m, &bits, sizeof(bits));
}

static void put_float(Message *m, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = htole32(bits);
    put_key(m, field, FIXED32);
    put_bytes(m, &bits, sizeof(bits));
}

static void put_counted(Message *m, unsigned field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    put_bytes(m, bytes, n);
}

/* Returns a masked CRC: rotated and offset, because a CRC of data that contains CRCs is weak. */
static uint32_t masked(const void *bytes, size_t n)
{
    uint32_t crc = crc32c(0, bytes, n);
    return htole32((crc >> 15 | crc << 17) + UINT32_C(0xa282ead8));
}

static void write_record(FILE *to, const Message *m)
{
    uint64_t length = htole64(m->n);
    uint32_t of_length = masked(&length, sizeof(length)), of_bytes = masked(m->bytes, m->n);
    (void)fwrite(&length, sizeof(length), 1, to); /* the caller checks ferror() for all writes */
    (void)fwrite(&of_length, sizeof(of_length), 1, to);
    (void)fwrite(m->bytes, m->n, 1, to);
    (void)fwrite(&of_bytes, sizeof(of_bytes), 1, to);
}

void event_file_begin(FILE *to, double wall_sec)
{
    static const char version[] = "brain.Event:2";
    Message m = {0};
    put_double(&m, 1, wall_sec);
    put_counted(&m, 3, version, sizeof(version) - 1);
    write_record(to, &m);
}

void event_file_add(FILE *to, double wall_sec, int64_t step, const EventScalar *scalars, size_t n)
{
    Message event = {0}, summary = {0};
    assert(n <= EVENT_SCALARS_MAX);
    for (size_t i = 0; i < n; i++) {
        Message value = {0};
        if (isnan(scalars[i].value))
            continue;
        put_counted(&value, 1, scalars[i].tag, strnlen(scalars[i].tag, TAG_MAX));
        put_float(&value, 2, (float)scalars[i].value);
        put_counted(&summary, 1, value.bytes, value.n);
    }
    put_double(&event, 1, wall_sec);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_counted(&event, 5, summary.bytes, summary.n);
    write_record(to, &event);
}
