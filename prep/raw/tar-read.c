/* SPDX-License-Identifier: Apache-2.0 */
/* tar-read.c - see tar-read.h. */
#include "prep/raw/tar-read.h"

#include "prep/raw/tar-header.h"

#include <string.h>

void tar_reader_init(TarReader *tar, const TarInput *input) { *tar = (TarReader){.input = *input}; }

void tar_reader_clear(TarReader *tar)
{
    free(tar->name);
    free(tar->long_name);
    *tar = (TarReader){0};
}

int tar_read(const TarReader *tar, const TarMember *member, void *buffer, Error *err)
{
    assert(member->fault == TAR_GOOD);
    return member->n_bytes == 0
               ? 0
               : tar->input.read(tar->input.context, member->offset, buffer, member->n_bytes, err);
}

/* ---- one header ---- */

static bool is_empty(const TarHeader *h)
{
    const uint8_t *bytes = (const uint8_t *)h;
    for (size_t i = 0; i < sizeof(*h); i++)
        if (bytes[i])
            return false;
    return true;
}

/* Parses a field: octal digits after blanks, up to a blank or NUL; or, if its first bit is set, a binary number (of 95
 * bits in a field of 12 bytes). */
static bool parse_number(const char *field, size_t n, uint64_t *ret)
{
    const uint8_t *p = (const uint8_t *)field;
    uint64_t value = 0;
    size_t i = 0;
    if (p[0] & 0x80) {
        value = p[0] & 0x7f;
        for (i = 1; i < n; i++) {
            if (value >> 55)
                return false; /* the number has more than 63 bits, or is negative */
            value = value << 8 | p[i];
        }
        *ret = value;
        return true;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(p[i] - '0'); /* 12 octal digits are 36 bits */
    for (; i < n; i++)
        if (p[i] != ' ' && p[i] != 0)
            return false;
    *ret = value;
    return true;
}

/* Compares the checksum: the sum of the header's bytes, where the checksum field counts as blanks. Some old tars sum
 * signed bytes. */
static bool checksum_holds(const TarHeader *h)
{
    int64_t plain = 0, with_sign = 0;
    uint64_t wanted;
    const size_t first = offsetof(TarHeader, checksum), last = first + sizeof(h->checksum);
    for (size_t i = 0; i < sizeof(*h); i++) {
        uint8_t byte = i >= first && i < last ? ' ' : ((const uint8_t *)h)[i];
        plain += byte;
        with_sign += (int8_t)byte;
    }
    return parse_number(h->checksum, sizeof(h->checksum), &wanted) &&
           ((int64_t)wanted == plain || (int64_t)wanted == with_sign);
}

static bool is_ustar(const TarHeader *h) { return memcmp(h->magic, "ustar", 5) == 0; }

/* ---- extension headers ---- */

static void forget(TarReader *tar)
{
    free(TAKE_PTR(tar->long_name));
    tar->has_size = tar->sparse = false;
}

static void lose_way(TarReader *tar, uint64_t at, uint64_t n_bytes)
{
    if (tar->n_damaged++ == 0)
        tar->first_damage = at;
    tar->lost_bytes += n_bytes;
    tar->lost = true;
    forget(tar);
}

static int keep_name(TarReader *tar, const char *name, size_t n)
{
    char *copy = strndup(name, n);
    if (!copy)
        return -ENOMEM;
    free(tar->long_name);
    tar->long_name = copy;
    return 0;
}

static bool has_key(const char *record, const char *equals, const char *key)
{
    size_t n = strlen(key);
    return (size_t)(equals - record) == n && memcmp(record, key, n) == 0;
}

/* Parses pax records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. -EBADMSG: the bytes do not have this
 * form. */
static int take_pax(TarReader *tar, const char *p, const char *end)
{
    while (p < end) {
        size_t length = 0, digits = 0;
        while (p + digits < end && p[digits] >= '0' && p[digits] <= '9' && digits < 8)
            length = length * 10 + (size_t)(p[digits++] - '0');
        if (digits == 0 || p + digits >= end || p[digits] != ' ' || length < digits + 2 ||
            length > (size_t)(end - p) || p[length - 1] != '\n')
            return -EBADMSG;
        const char *record = p + digits + 1, *close = p + length - 1;
        const char *equals = record < close ? memchr(record, '=', (size_t)(close - record)) : NULL;
        if (!equals)
            return -EBADMSG;
        const char *value = equals + 1;
        p += length;
        if (has_key(record, equals, "path")) {
            int r = keep_name(tar, value, (size_t)(close - value));
            if (r < 0)
                return r;
        } else if (has_key(record, equals, "size")) {
            uint64_t size = 0;
            for (const char *q = value; q < close; q++) {
                if (*q < '0' || *q > '9' || size > UINT64_MAX / 100)
                    return -EBADMSG;
                size = size * 10 + (uint64_t)(*q - '0');
            }
            tar->has_size = value < close;
            tar->size = size;
        } else if (equals - record > 11 && memcmp(record, "GNU.sparse.", 11) == 0) {
            tar->sparse = true;
        }
    }
    return 0;
}

/* Reads a pax header or a long name of n_bytes at offset. 1: it is too long, cut off or malformed. */
static int take_extension(TarReader *tar, char type, uint64_t offset, uint64_t n_bytes, Error *err)
{
    if (n_bytes > TAR_NAMES_MAX || n_bytes > tar->input.n_bytes - offset)
        return 1;
    _cleanup_free_ char *text = malloc(n_bytes + 1);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory reading a tar");
    int r = n_bytes ? tar->input.read(tar->input.context, offset, text, n_bytes, err) : 0;
    if (r < 0)
        return r;
    text[n_bytes] = '\0';
    r = type == 'L' ? keep_name(tar, text, n_bytes) : take_pax(tar, text, text + n_bytes);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory reading a tar");
    return r < 0;
}

/* ---- members ---- */

static int take_name(TarReader *tar, const TarHeader *h)
{
    char text[sizeof(h->prefix) + 1 + sizeof(h->name) + 1];
    free(TAKE_PTR(tar->name));
    if (tar->long_name) {
        tar->name = TAKE_PTR(tar->long_name);
        return 0;
    }
    /* GNU's own magic ends with blanks; such a header has other fields in the place of the prefix. */
    if (memcmp(h->magic, "ustar", 6) == 0 && *h->prefix)
        (void)snprintf(text, sizeof(text), "%.*s/%.*s", (int)sizeof(h->prefix), h->prefix,
                       (int)sizeof(h->name), h->name);
    else
        (void)snprintf(text, sizeof(text), "%.*s", (int)sizeof(h->name), h->name);
    tar->name = strdup(text);
    return tar->name ? 0 : -ENOMEM;
}

/* GNU's old sparse files have blocks of a map between header and payload; a flag in each block is set if another
 * block follows. */
static int skip_sparse_map(TarReader *tar, const TarHeader *h, Error *err)
{
    bool more = ((const char *)h)[482] != 0;
    for (; more && tar->at + TAR_BLOCK <= tar->input.n_bytes; tar->frame_bytes += TAR_BLOCK) {
        char block[TAR_BLOCK];
        int r = tar->input.read(tar->input.context, tar->at, block, sizeof(block), err);
        if (r < 0)
            return r;
        tar->at += TAR_BLOCK;
        more = block[504] != 0;
    }
    return 0;
}

/* Skips n_bytes of payload and the padding of the last block, but not beyond the end of the tar. Returns how many bytes
 * of the payload are in the tar. */
static uint64_t pass(TarReader *tar, uint64_t n_bytes)
{
    const uint64_t left = tar->input.n_bytes - tar->at, there = MIN(n_bytes, left);
    const uint64_t padding = MIN((TAR_BLOCK - n_bytes % TAR_BLOCK) % TAR_BLOCK, left - there);
    tar->at += there + padding;
    tar->frame_bytes += padding;
    return there;
}

/* Interprets the header at tar->at - TAR_BLOCK. 1: *ret is a file. 0: there is no file here; the caller reads the next
 * block. */
static int take_header(TarReader *tar, const TarHeader *h, TarMember *ret, Error *err)
{
    uint64_t n_bytes, header = tar->at - TAR_BLOCK;
    int r;
    if (!checksum_holds(h) || !parse_number(h->size, sizeof(h->size), &n_bytes)) {
        lose_way(tar, header, TAR_BLOCK);
        return 0;
    }
    r = h->type == 'x' || h->type == 'L' ? take_extension(tar, h->type, tar->at, n_bytes, err) : 0;
    if (r > 0) {
        lose_way(tar, header, TAR_BLOCK);
        return 0;
    }
    if (r < 0)
        return r;
    tar->frame_bytes += TAR_BLOCK;
    switch (h->type) {
    case 'x':
    case 'L':
    case 'g':
    case 'K':
        tar->frame_bytes += pass(tar, n_bytes);
        return 0;
    case '1' ... '6': /* links, devices, folders, pipes: no payload follows */
        forget(tar);
        return 0;
    default:
        break;
    }
    if (tar->has_size)
        n_bytes = tar->size;
    bool sparse = tar->sparse || h->type == 'S';
    bool file = h->type == '0' || h->type == '7' || h->type == '\0' || sparse;
    r = h->type == 'S' ? skip_sparse_map(tar, h, err) : 0;
    if (r == 0 && take_name(tar, h) < 0)
        r = error_set(err, -ENOMEM, "out of memory reading a tar");
    if (r < 0)
        return r;
    forget(tar);
    size_t n_name = strlen(tar->name);
    file &= n_name > 0 && tar->name[n_name - 1] != '/'; /* an old tar marks a folder so */
    *ret = (TarMember){.name = tar->name,
                       .offset = tar->at,
                       .n_bytes = n_bytes,
                       .fault = n_bytes > tar->input.n_bytes - tar->at ? TAR_TRUNCATED
                                : sparse                               ? TAR_SPARSE
                                                                       : TAR_GOOD,
                       .after_damage = tar->lost};
    ret->n_there = pass(tar, n_bytes);
    if (!file)
        tar->frame_bytes += ret->n_there;
    tar->lost &= !file;
    return file;
}

/* Looks for a header behind the end, and counts all bytes that are left. */
static int pass_end(TarReader *tar, Error *err)
{
    const uint64_t n_left = tar->input.n_bytes - tar->at, n_looked = MIN(n_left, TAR_TAIL_MAX);
    uint64_t n_padding = n_left;
    for (uint64_t n = 0; n + TAR_BLOCK <= n_looked && n_padding == n_left; n += TAR_BLOCK) {
        TarHeader h;
        int r = tar->input.read(tar->input.context, tar->at + n, &h, sizeof(h), err);
        if (r < 0)
            return r;
        if (is_ustar(&h) && checksum_holds(&h))
            n_padding = n;
    }
    if (n_padding < n_left) {
        tar->has_members_left = tar->n_damaged == 0;
        lose_way(tar, tar->at + n_padding, n_left - n_padding);
        tar->lost = false; /* what lies before the end is whole */
    }
    tar->frame_bytes += n_padding;
    tar->at = tar->input.n_bytes;
    tar->has_end = true;
    return 0;
}

int tar_next(TarReader *tar, TarMember *ret, Error *err)
{
    bool empty_before = false;
    while (tar->at + TAR_BLOCK <= tar->input.n_bytes) {
        TarHeader h;
        int r = tar->input.read(tar->input.context, tar->at, &h, sizeof(h), err);
        if (r < 0)
            return r;
        tar->at += TAR_BLOCK;
        if (is_empty(&h)) {
            *(tar->lost ? &tar->lost_bytes : &tar->frame_bytes) += TAR_BLOCK;
            if (empty_before && !tar->lost)
                return pass_end(tar, err);
            empty_before = true;
            continue;
        }
        empty_before = false;
        if (tar->lost && !(is_ustar(&h) && checksum_holds(&h))) {
            tar->lost_bytes += TAR_BLOCK;
            continue; /* a run of bad blocks counts as one damaged place */
        }
        r = take_header(tar, &h, ret, err);
        if (r != 0)
            return r;
    }
    const uint64_t rest = tar->input.n_bytes - tar->at; /* an incomplete block at the end */
    if (rest > 0 && !tar->lost)
        lose_way(tar, tar->at, rest);
    else
        tar->lost_bytes += rest;
    tar->at = tar->input.n_bytes;
    tar->has_end |= empty_before && rest == 0;
    return 0;
}
