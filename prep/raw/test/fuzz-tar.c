/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-tar.c - runs the tar reader on arbitrary bytes: members must lie in the tar, one after another, and be readable.
 * Blocks with an odd first byte get a valid checksum first; otherwise almost no header would be accepted. */
#include "prep/raw/tar-header.h"
#include "prep/raw/tar-read.h"

#include <string.h>

typedef struct Bytes {
    const uint8_t *data;
    size_t n;
} Bytes;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int read_bytes(void *context, uint64_t offset, void *buffer, size_t n_bytes, Error *err)
{
    const Bytes *bytes = context;
    (void)err;
    assert(offset <= bytes->n && n_bytes <= bytes->n - offset);
    memcpy(buffer, bytes->data + offset, n_bytes);
    return 0;
}

static void mend_checksums(uint8_t *data, size_t n)
{
    for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
        TarHeader *h = (TarHeader *)(void *)(data + at);
        if (!(data[at] & 1))
            continue;
        unsigned sum = 0;
        memset(h->checksum, ' ', sizeof(h->checksum));
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += data[at + i];
        (void)snprintf(h->checksum, sizeof(h->checksum), "%06o", sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n + 1);
    char *payload = malloc(n + 1);
    assert(copy && payload);
    if (n > 0)
        memcpy(copy, data, n);
    mend_checksums(copy, n);

    Bytes bytes = {copy, n};
    Error err = ERROR_INIT;
    TarReader tar;
    TarMember member;
    tar_reader_init(&tar, &(TarInput){&bytes, n, read_bytes});
    uint64_t end = 0;
    int r;
    while ((r = tar_next(&tar, &member, &err)) > 0) {
        assert(member.name && *member.name && member.offset >= end + TAR_BLOCK);
        assert(member.offset <= n);
        assert(member.fault == TAR_TRUNCATED || member.n_bytes <= n - member.offset);
        if (member.fault == TAR_GOOD)
            assert(tar_read(&tar, &member, payload, &err) == 0);
        end = member.fault == TAR_TRUNCATED ? n : member.offset + member.n_bytes;
    }
    assert(r == 0);
    tar_reader_clear(&tar);
    free(copy);
    free(payload);
    return 0;
}
