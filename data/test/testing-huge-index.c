/* SPDX-License-Identifier: Apache-2.0 */
/* testing-huge-index.c - see testing-huge-index.h. */
#include "data/test/testing-huge-index.h"

#include "base/cleanup.h"
#include "data/index/index-format.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { NAME_BYTES = sizeof("shard.0000000.mds") + sizeof("") };

static const char config[] =
    "{\"column_encodings\":[\"bytes\",\"bytes\"],\"column_names\":[\"latents\",\"text\"],"
    "\"column_sizes\":[null,null],\"compression\":\"\",\"hashes\":[]}";

/* ---- writing ---- */

static IndexHeader plan_index(const HugeIndex *what, uint64_t n_shards, uint64_t n_groups,
                              uint64_t *ret_bits)
{
    IndexHeader h = {.version = INDEX_VERSION,
                     .n_columns = 2,
                     .source = what->source,
                     .n_shards = n_shards,
                     .n_samples = HUGE_SAMPLES,
                     .config_bytes = sizeof(config) - 1,
                     .record_bytes = sizeof(IndexRecord),
                     .names_bytes = n_shards * NAME_BYTES};
    memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
    struct {
        uint64_t *offset, n_bytes;
    } sections[] = {
        {&h.config, h.config_bytes},    {&h.columns, h.n_columns * sizeof(IndexColumn)},
        {&h.first, 8 * (n_shards + 1)}, {&h.records, n_shards * h.record_bytes},
        {&h.names, h.names_bytes},      {ret_bits, 8 * n_groups + n_groups * (INDEX_RANK_BITS / 8)},
    };
    for (size_t i = 0; i < ELEMENTSOF(sections); i++) {
        *sections[i].offset = ROUND_UP(h.core_bytes, (uint64_t)64);
        h.core_bytes = *sections[i].offset + sections[i].n_bytes;
    }
    h.core_bytes = h.body_bytes = ROUND_UP(h.core_bytes, (uint64_t)INDEX_BLOCK_BYTES);
    if (what->sample_hashes) {
        h.hashes = h.core_bytes;
        h.body_bytes = ROUND_UP(h.hashes + 8 * HUGE_SAMPLES, (uint64_t)INDEX_BLOCK_BYTES);
    }
    return h;
}

static void fill_shards(const IndexHeader *h, uint64_t raw_bytes, uint8_t *body)
{
    for (uint64_t i = 0; i <= h->n_shards; i++) {
        uint64_t first = MIN(i * HUGE_SHARD_SAMPLES, HUGE_SAMPLES);
        memcpy(body + h->first + 8 * i, &first, sizeof(first));
    }
    for (uint64_t i = 0; i < h->n_shards; i++) {
        IndexRecord record = {.raw_bytes = raw_bytes, .name = i * NAME_BYTES};
        memcpy(body + h->records + i * sizeof(record), &record, sizeof(record));
        (void)snprintf((char *)body + h->names + i * NAME_BYTES, NAME_BYTES, "shard.%07u.mds",
                       (unsigned)i % 10000000);
    }
}

/* Fills the ranks, then the bits. One sample of each 64, chosen by a hash, is empty. */
static uint64_t fill_column(uint8_t *section, uint64_t n_groups)
{
    uint64_t *ranks = (uint64_t *)(void *)section, *bits = ranks + n_groups, valid = 0;
    for (uint64_t w = 0; w < n_groups * (INDEX_RANK_BITS / 64); w++) {
        if (w % (INDEX_RANK_BITS / 64) == 0)
            ranks[w / (INDEX_RANK_BITS / 64)] = valid;
        if (64 * w < HUGE_SAMPLES) /* HUGE_SAMPLES is a multiple of 64 */
            bits[w] = ~(UINT64_C(1) << hash64_bytes(&w, sizeof(w), 0) % 64);
        valid += (unsigned)__builtin_popcountll(bits[w]);
    }
    return valid;
}

/* Behind the core, all blocks of the body are zeros: their hash is computed once, and they are not read. */
static void hash_blocks(const IndexHeader *h, const uint8_t *body, uint64_t *blocks)
{
    static const uint8_t zeros[INDEX_BLOCK_BYTES];
    const uint64_t hole = hash64_bytes(zeros, sizeof(zeros), 0);
    for (size_t i = 0; i < h->body_bytes / INDEX_BLOCK_BYTES; i++)
        blocks[i] = i * INDEX_BLOCK_BYTES < h->core_bytes
                        ? hash64_bytes(body + i * INDEX_BLOCK_BYTES, INDEX_BLOCK_BYTES, 0)
                        : hole;
}

static size_t start_of(const IndexHeader *h)
{
    return ROUND_UP(sizeof(*h) + 8 * (h->body_bytes / INDEX_BLOCK_BYTES),
                    (size_t)INDEX_BLOCK_BYTES);
}

static void finish(IndexHeader *h, uint8_t *map)
{
    const uint64_t *blocks = (const uint64_t *)(const void *)(map + sizeof(*h));
    h->core = index_core_hash(h, blocks);
    h->header = (Hash){0};
    h->header = index_header_hash(h, blocks, h->body_bytes / INDEX_BLOCK_BYTES);
    memcpy(map, h, sizeof(*h));
}

int huge_index_write(const char *path, const HugeIndex *what, Error *err)
{
    uint64_t n_shards = DIV_ROUND_UP(HUGE_SAMPLES, (uint64_t)HUGE_SHARD_SAMPLES), bits;
    uint64_t n_groups = DIV_ROUND_UP(HUGE_SAMPLES, (uint64_t)INDEX_RANK_BITS);
    IndexHeader h = plan_index(what, n_shards, n_groups, &bits);
    size_t start = start_of(&h), n_bytes = start + h.body_bytes;
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)n_bytes) < 0)
        return error_errno(err, -errno, "cannot make %s", path);
    uint8_t *map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return error_errno(err, -errno, "cannot map %s", path);

    uint8_t *body = map + start;
    memcpy(body + h.config, config, h.config_bytes);
    fill_shards(&h, what->raw_bytes, body);
    IndexColumn columns[2] = {{.ranks = bits, .bits = bits + 8 * n_groups},
                              {.n_valid = HUGE_SAMPLES}};
    columns[0].n_valid = fill_column(body + bits, n_groups);
    memcpy(body + h.columns, columns, sizeof(columns));
    hash_blocks(&h, body, (uint64_t *)(void *)(map + sizeof(h)));
    finish(&h, map);
    if (munmap(map, n_bytes) < 0 || fsync(fd) < 0)
        return error_errno(err, -errno, "cannot write %s", path);
    return 0;
}

/* ---- changing ---- */

int huge_index_set_hashes(const char *path, const uint64_t *samples, const uint64_t *hashes,
                          size_t n, Error *err)
{
    IndexHeader h;
    struct stat st;
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h))
        return error_errno(err, -errno, "cannot read %s", path);
    assert(h.hashes > 0);
    uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return error_errno(err, -errno, "cannot map %s", path);
    uint8_t *body = map + start_of(&h);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = h.hashes + 8 * samples[i], block = at / INDEX_BLOCK_BYTES;
        memcpy(body + at, &hashes[i], sizeof(hashes[i]));
        uint64_t hash = hash64_bytes(body + block * INDEX_BLOCK_BYTES, INDEX_BLOCK_BYTES, 0);
        memcpy(map + sizeof(h) + 8 * block, &hash, sizeof(hash));
    }
    finish(&h, map);
    if (munmap(map, (size_t)st.st_size) < 0 || fsync(fd) < 0)
        return error_errno(err, -errno, "cannot write %s", path);
    return 0;
}
