/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-s3-headers.c - parses any lines as the headers of a reply. */
#include "store/s3/protocol/reply.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void assert_printable(const char *text, size_t size)
{
    assert(strnlen(text, size) < size);
    for (; *text; text++)
        assert((uint8_t)*text >= 0x20 && *text != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ReplyHeaders h;
    reply_headers_init(&h);
    const char *p = (const char *)data, *end = p + size;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = newline ? (size_t)(newline - p) + 1 : (size_t)(end - p);
        int r = reply_headers_add(&h, p, n);
        assert(r == 0 || r == -EBADMSG);
        p += n;
    }
    assert_printable(h.etag, sizeof(h.etag));
    assert_printable(h.region, sizeof(h.region));
    assert_printable(h.location, sizeof(h.location));
    assert_printable(h.request_id, sizeof(h.request_id));
    assert(!h.has_range || (h.range_first <= h.range_last && (!h.size || h.range_last < h.size)));
    assert(!(h.has_crc32c && h.composite));
    assert(h.date >= 0 && h.retry_after_sec >= -1);
    return 0;
}
