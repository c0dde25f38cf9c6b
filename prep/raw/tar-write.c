/* SPDX-License-Identifier: Apache-2.0 */
/* tar-write.c - see tar-write.h. */
#include "prep/raw/tar-write.h"

#include "prep/raw/tar-header.h"

#include <string.h>

static int make_room(TarWriter *tar, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 4 - tar->n_bytes)
        return -ENOMEM;
    if (tar->n_bytes + n_bytes <= tar->room)
        return 0;
    size_t room = MAX(2 * tar->room, tar->n_bytes + n_bytes);
    char *grown = realloc(tar->data, room);
    if (!grown)
        return -ENOMEM;
    tar->data = grown;
    tar->room = room;
    return 0;
}

int tar_writer_add(TarWriter *tar, const char *name, const void *data, size_t n_bytes)
{
    size_t n_name = strlen(name), padded = ROUND_UP(n_bytes, (size_t)TAR_BLOCK);
    if (n_name == 0 || n_name > TAR_NAME_MAX)
        return -EINVAL;
    if (n_bytes >> 33)
        return -EFBIG;
    int r = make_room(tar, TAR_BLOCK + padded);
    if (r < 0)
        return r;

    TarHeader header = {.mode = "0000444",
                        .uid = "0000000",
                        .gid = "0000000",
                        .mtime = "00000000000",
                        .type = '0',
                        .magic = "ustar",
                        .version = {'0', '0'}};
    memcpy(header.name, name, n_name);
    (void)snprintf(header.size, sizeof(header.size), "%011llo", (unsigned long long)n_bytes);
    /* The checksum is computed with blanks in its own field. */
    memset(header.checksum, ' ', sizeof(header.checksum));
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof(header); i++)
        sum += ((const uint8_t *)&header)[i];
    (void)snprintf(header.checksum, sizeof(header.checksum), "%06o", sum);

    memcpy(tar->data + tar->n_bytes, &header, sizeof(header));
    tar->n_bytes += sizeof(header);
    if (n_bytes > 0)
        memcpy(tar->data + tar->n_bytes, data, n_bytes);
    memset(tar->data + tar->n_bytes + n_bytes, 0, padded - n_bytes);
    tar->n_bytes += padded;
    return 0;
}

int tar_writer_finish(TarWriter *tar)
{
    size_t n = (size_t)2 * TAR_BLOCK;
    int r = make_room(tar, n);
    if (r < 0)
        return r;
    memset(tar->data + tar->n_bytes, 0, n);
    tar->n_bytes += n;
    return 0;
}

void tar_writer_reset(TarWriter *tar) { tar->n_bytes = 0; }

void tar_writer_clear(TarWriter *tar)
{
    free(tar->data);
    *tar = (TarWriter){0};
}
