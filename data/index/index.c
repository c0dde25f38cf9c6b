/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - reads a compact index; see index.h. index-build.c makes the file, index-open.c finds it. */
#include "data/index/index.h"

#include "base/json/json.h"
#include "data/index/index-format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct Index {
    char *path; /* the file's path, or another name for it in error texts */
    int fd;     /* open while the file is mapped, since its lock shows that the file is in use */
    const uint8_t *map;
    size_t map_bytes;
    IndexHeader header;
    const uint64_t *blocks; /* hashes of the blocks, in the map */
    const uint8_t *body;
    size_t n_blocks;
    atomic_uchar *checked; /* [n_blocks]: 1 once the block was verified */
    MdsSchema schema;
    IndexColumn columns[MDS_COLUMNS_MAX];
    char compression[16];
    size_t n_hashes, hash_bytes;
    char hashes[MDS_HASHES_MAX][CHECKSUM_NAME_MAX];
};

Hash index_header_hash(const IndexHeader *header, const uint64_t *blocks, size_t n_blocks)
{
    IndexHeader bare = *header;
    bare.header = (Hash){0};
    Hash parts[2] = {hash_bytes(&bare, sizeof(bare)), hash_bytes(blocks, 8 * n_blocks)};
    return hash_bytes(parts, sizeof(parts));
}

Hash index_core_hash(const IndexHeader *header, const uint64_t *blocks)
{
    return hash_bytes(blocks, 8 * DIV_ROUND_UP(header->core_bytes, INDEX_BLOCK_BYTES));
}

/* Returns the n_bytes at offset of the body after verifying all of their blocks; NULL, with *err set, if a block does
 * not verify. */
static const void *body_at(Index *index, uint64_t offset, uint64_t n_bytes, Error *err)
{
    uint64_t end;
    if (__builtin_add_overflow(offset, n_bytes, &end) || end > index->header.body_bytes) {
        (void)error_set(err, -EBADMSG, "%s: a section leads out of the file", index->path);
        return NULL;
    }
    for (uint64_t b = offset / INDEX_BLOCK_BYTES; b * INDEX_BLOCK_BYTES < end; b++) {
        if (atomic_load_explicit(&index->checked[b], memory_order_relaxed))
            continue;
        const uint8_t *start = index->body + b * INDEX_BLOCK_BYTES;
        uint64_t n =
            MIN((uint64_t)INDEX_BLOCK_BYTES, index->header.body_bytes - b * INDEX_BLOCK_BYTES);
        if (hash64_bytes(start, n, 0) != index->blocks[b]) {
            (void)error_set(err, -EBADMSG,
                            "%s: block %" PRIu64
                            " is corrupt; remove the file, it will be made anew",
                            index->path, b);
            return NULL;
        }
        atomic_store_explicit(&index->checked[b], 1, memory_order_relaxed);
    }
    return index->body + offset;
}

static int parse_config(Index *index, Error *err)
{
    const IndexHeader *h = &index->header;
    const char *text = body_at(index, h->config, h->config_bytes, err);
    if (!text)
        return -EBADMSG;
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(index->path, text, h->config_bytes, &root, err);
    if (r == 0)
        r = mds_schema_parse(index->path, root, &index->schema, err);
    if (r < 0)
        return r;

    json_t *names = NULL;
    JsonReader j = json_open(index->path, root, JSON_ANY_KEYS, err);
    json_get_text(&j, "compression", JSON_OPTIONAL, index->compression, sizeof(index->compression));
    if (json_get_array(&j, "hashes", JSON_REQUIRED, MDS_HASHES_MAX, &names))
        for (size_t i = 0; i < json_array_size(names); i++) {
            const char *name = json_string_value(json_array_get(names, i));
            int size = name && strlen(name) < CHECKSUM_NAME_MAX ? checksum_size(name) : -EINVAL;
            if (size < 0) {
                json_refuse(&j, "hashes", "element %zu is not known", i);
                break;
            }
            memcpy(index->hashes[index->n_hashes++], name, strlen(name) + 1);
            index->hash_bytes += (size_t)size;
        }
    return json_close(&j);
}

/* Checks the header's offsets and counts, so that lookups need only the checks of body_at(). */
static int check_sections(Index *index, Error *err)
{
    const IndexHeader *h = &index->header;
    /* With these bounds the offsets computed below cannot overflow. */
    if (h->first > h->body_bytes || h->records > h->body_bytes || h->names > h->body_bytes ||
        h->hashes > h->body_bytes || h->n_shards > h->body_bytes || h->n_samples > INT64_MAX / 16)
        return error_set(err, -EBADMSG, "%s: a section leads out of the file", index->path);
    if (index->schema.n_columns != h->n_columns ||
        h->record_bytes != ROUND_UP(sizeof(IndexRecord) + 2 * index->hash_bytes, (size_t)8))
        return error_set(err, -EBADMSG, "%s: its header contradicts its config", index->path);
    const IndexColumn *columns =
        body_at(index, h->columns, h->n_columns * sizeof(IndexColumn), err);
    if (!columns)
        return -EBADMSG;
    memcpy(index->columns, columns, h->n_columns * sizeof(IndexColumn));
    for (uint32_t i = 0; i < h->n_columns; i++) {
        const IndexColumn *c = &index->columns[i];
        if (c->n_valid > h->n_samples || (!c->bits && c->n_valid < h->n_samples) ||
            c->bits > h->body_bytes || c->ranks > h->body_bytes)
            return error_set(err, -EBADMSG, "%s: column %u is broken", index->path, i);
    }
    return 0;
}

static int map_file(Index *index, Error *err)
{
    struct stat st;
    if (fstat(index->fd, &st) < 0)
        return error_errno(err, -errno, "cannot stat %s", index->path);
    if (st.st_size < (off_t)sizeof(IndexHeader))
        return error_set(err, -EBADMSG, "%s: %lld bytes are not a compact index", index->path,
                         (long long)st.st_size);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, index->fd, 0);
    if (map == MAP_FAILED)
        return error_errno(err, -errno, "cannot map %s", index->path);
    index->map = map;
    index->map_bytes = (size_t)st.st_size;
    return 0;
}

static int check_header(Index *index, const Hash *source, Error *err)
{
    IndexHeader *h = &index->header;
    memcpy(h, index->map, sizeof(*h));
    if (memcmp(h->magic, INDEX_MAGIC, sizeof(h->magic)) != 0)
        return error_set(err, -EBADMSG, "%s is not a compact index", index->path);
    if (h->version != INDEX_VERSION)
        return error_set(err, -ESTALE, "%s: version %u is not known, %d is", index->path,
                         h->version, INDEX_VERSION);

    uint64_t n_blocks = DIV_ROUND_UP(h->body_bytes, INDEX_BLOCK_BYTES);
    if (h->body_bytes > index->map_bytes || h->n_columns > MDS_COLUMNS_MAX ||
        h->core_bytes > ROUND_UP(h->body_bytes, INDEX_BLOCK_BYTES))
        return error_set(err, -EBADMSG, "%s: its header is broken", index->path);
    uint64_t start = ROUND_UP(sizeof(*h) + 8 * n_blocks, INDEX_BLOCK_BYTES);
    if (start + h->body_bytes != index->map_bytes)
        return error_set(err, -EBADMSG, "%s: %zu bytes, its header says %" PRIu64, index->path,
                         index->map_bytes, start + h->body_bytes);
    index->n_blocks = n_blocks;
    index->blocks = (const uint64_t *)(const void *)(index->map + sizeof(*h));
    index->body = index->map + start;
    if (!hash_equal(index_header_hash(h, index->blocks, n_blocks), h->header) ||
        !hash_equal(index_core_hash(h, index->blocks), h->core))
        return error_set(err, -EBADMSG,
                         "%s: its header is corrupt; remove the file, it will be made anew",
                         index->path);
    if (source && !hash_equal(h->source, *source))
        return error_set(err, -ESTALE, "%s belongs to another index.json", index->path);
    return 0;
}

int index_map_fd(int fd, const char *name, const Hash *source, Index **ret, Error *err)
{
    _cleanup_(index_freep) Index *index = calloc(1, sizeof(*index));
    if (!index)
        return error_set(err, -ENOMEM, "out of memory");
    index->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (index->fd < 0)
        return error_errno(err, -errno, "cannot map %s", name);
    if (!(index->path = strdup(name)))
        return error_set(err, -ENOMEM, "out of memory");
    int r = map_file(index, err);
    if (r == 0)
        r = check_header(index, source, err);
    if (r < 0)
        return r;
    index->checked = calloc(index->n_blocks + 1, 1);
    if (!index->checked)
        return error_set(err, -ENOMEM, "out of memory");
    r = parse_config(index, err);
    if (r == 0)
        r = check_sections(index, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(index);
    return 0;
}

int index_map(const char *path, const Hash *source, Index **ret, Error *err)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_errno(err, -errno, "cannot open %s", path)
                  : index_map_fd(fd, path, source, ret, err);
}

Index *index_free(Index *index)
{
    if (!index)
        return NULL;
    if (index->map)
        (void)munmap((void *)(uintptr_t)index->map, index->map_bytes); /* fails only on bugs */
    (void)fd_close(index->fd);
    free(index->path);
    free(index->checked);
    free(index);
    return NULL;
}

Hash index_digest(const Index *index)
{
    Hash parts[2] = {index->header.source, index->header.core};
    return hash_bytes(parts, sizeof(parts));
}

Hash index_source(const Index *index) { return index->header.source; }

const MdsSchema *index_schema(const Index *index) { return &index->schema; }
const char *index_compression(const Index *index) { return index->compression; }
size_t index_n_hashes(const Index *index) { return index->n_hashes; }
const char *index_hash_name(const Index *index, size_t i)
{
    assert(i < index->n_hashes);
    return index->hashes[i];
}
uint64_t index_bytes(const Index *index) { return index->map_bytes; }
uint64_t index_n_shards(const Index *index) { return index->header.n_shards; }
uint64_t index_n_samples(const Index *index) { return index->header.n_samples; }
bool index_has_sample_hashes(const Index *index) { return index->header.hashes != 0; }

uint64_t index_n_valid(const Index *index, size_t column)
{
    assert(column < index->schema.n_columns);
    return index->columns[column].n_valid;
}

/* Reads element i of a section of 64-bit words. */
static int word_at(Index *index, uint64_t section, uint64_t i, uint64_t *ret, Error *err)
{
    /* i is limited so that 8 * i cannot overflow; a limited i is out of bounds, too. */
    const void *p = body_at(index, section + 8 * MIN(i, index->header.body_bytes), 8, err);
    if (!p)
        return -EBADMSG;
    memcpy(ret, p, sizeof(*ret));
    return 0;
}

/* Finds the last i in 0 .. n-1 whose word is <= value. The first word is 0, and the words do not decrease. */
static int search(Index *index, uint64_t section, uint64_t n, uint64_t value, uint64_t *ret,
                  Error *err)
{
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2, word;
        int r = word_at(index, section, middle, &word, err);
        if (r < 0)
            return r;
        if (word <= value)
            low = middle;
        else
            high = middle;
    }
    *ret = low;
    return 0;
}

/* Finds the sample whose set bit has `valid` set bits before it. */
static int select_valid(Index *index, const IndexColumn *column, uint64_t valid, uint64_t *ret,
                        Error *err)
{
    uint64_t n_ranks = DIV_ROUND_UP(index->header.n_samples, INDEX_RANK_BITS), group, before;
    int r = search(index, column->ranks, n_ranks, valid, &group, err);
    if (r == 0)
        r = word_at(index, column->ranks, group, &before, err);
    if (r < 0)
        return r;
    valid -= before;
    for (uint64_t w = group * (INDEX_RANK_BITS / 64); w < (group + 1) * (INDEX_RANK_BITS / 64);
         w++) {
        uint64_t bits;
        r = word_at(index, column->bits, w, &bits, err);
        if (r < 0)
            return r;
        unsigned n = (unsigned)__builtin_popcountll(bits);
        if (valid >= n) {
            valid -= n;
            continue;
        }
        for (; valid > 0; valid--)
            bits &= bits - 1;
        *ret = w * 64 + (unsigned)__builtin_ctzll(bits);
        if (*ret < index->header.n_samples)
            return 0;
        break;
    }
    return error_set(err, -EBADMSG, "%s: the ranks of a column contradict its bits", index->path);
}

int index_place(Index *index, uint64_t sample, IndexPlace *ret, Error *err)
{
    assert(sample < index->header.n_samples);
    uint64_t shard = 0, first = 0, next = 0;
    int r = search(index, index->header.first, index->header.n_shards, sample, &shard, err);
    if (r == 0)
        r = word_at(index, index->header.first, shard, &first, err);
    if (r == 0)
        r = word_at(index, index->header.first, shard + 1, &next, err);
    if (r < 0)
        return r;
    if (sample < first || sample >= next || next - first > UINT32_MAX)
        return error_set(err, -EBADMSG, "%s: shard %" PRIu64 " is broken", index->path, shard);
    *ret = (IndexPlace){.shard = shard, .sample = (uint32_t)(sample - first)};
    return 0;
}

int index_locate(Index *index, size_t column, uint64_t valid, IndexPlace *ret, Error *err)
{
    assert(valid < index_n_valid(index, column));
    uint64_t sample = valid;
    if (index->columns[column].bits) {
        int r = select_valid(index, &index->columns[column], valid, &sample, err);
        if (r < 0)
            return r;
    }
    return index_place(index, sample, ret, err);
}

int index_shard(Index *index, uint64_t shard, IndexShard *ret, Error *err)
{
    assert(shard < index->header.n_shards);
    const IndexHeader *h = &index->header;
    uint64_t first, next;
    int r = word_at(index, h->first, shard, &first, err);
    if (r == 0)
        r = word_at(index, h->first, shard + 1, &next, err);
    if (r < 0)
        return r;
    const uint8_t *p = body_at(index, h->records + shard * h->record_bytes, h->record_bytes, err);
    if (!p)
        return -EBADMSG;
    IndexRecord record;
    memcpy(&record, p, sizeof(record));
    if (record.name >= h->names_bytes || next < first)
        return error_set(err, -EBADMSG, "%s: shard %" PRIu64 " is broken", index->path, shard);
    uint64_t room = MIN(h->names_bytes - record.name, (uint64_t)2 * (MDS_BASENAME_MAX + 1));
    const char *name = body_at(index, h->names + record.name, room, err);
    if (!name)
        return -EBADMSG;
    size_t n = strnlen(name, room);
    if (n == room || strnlen(name + n + 1, room - n - 1) == room - n - 1)
        return error_set(err, -EBADMSG, "%s: the name of shard %" PRIu64 " is broken", index->path,
                         shard);

    *ret = (IndexShard){.n_samples = next - first,
                        .raw_bytes = record.raw_bytes,
                        .zip_bytes = record.zip_bytes,
                        .raw_name = name,
                        .zip_name = name + n + 1};
    p += sizeof(record);
    for (size_t i = 0; i < index->n_hashes; i++) {
        ret->raw_hashes[i] = p;
        ret->zip_hashes[i] = p + index->hash_bytes;
        p += checksum_size(index->hashes[i]);
    }
    return 0;
}

int index_sample_hash(Index *index, IndexPlace place, uint64_t *ret, Error *err)
{
    if (!index->header.hashes)
        return 0;
    uint64_t first;
    int r = word_at(index, index->header.first, place.shard, &first, err);
    if (r == 0)
        r = word_at(index, index->header.hashes, first + place.sample, ret, err);
    return r < 0 ? r : 1;
}

int index_check(Index *index, Error *err)
{
    for (uint64_t b = 0; b < index->n_blocks; b++)
        if (!body_at(index, b * INDEX_BLOCK_BYTES, 1, err))
            return -EBADMSG;
    return 0;
}
