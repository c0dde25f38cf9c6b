/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-unpack.c - unpacks arbitrary bytes as a compressed shard, in memory and through the cache. The first two bytes
 * of the input are the shard's unpacked size in the index. The shard is refused with a text, or has that size. */
#include "data/stream/cache.h"
#include "data/stream/fetch.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static char folder[] = "/dev/shm/fuzz-unpack-XXXXXX";
static Store *store;
static Cache *cache;
static EventCount *events;

static void begin(void)
{
    char cache_folder[64];
    Error err = ERROR_INIT;
    assert(mkdtemp(folder));
    (void)snprintf(cache_folder, sizeof(cache_folder), "%s/cache", folder);
    int r = store_open(folder, &store, &err);
    if (r == 0)
        r = cache_new(cache_folder, 16 << 20, &cache, &err);
    if (r == 0)
        r = event_count_new(&events);
    assert(r == 0);
}

static void try_source(const ShardSource *source, const IndexShard *info, uint64_t number)
{
    Error err = ERROR_INIT;
    _cleanup_(shard_freep) Shard *shard = NULL;
    int r = shard_fetch(source, number, info, &shard, &err);
    assert(r == 0 ? shard != NULL : err.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static uint64_t number;
    if (!store)
        begin();
    if (n_bytes < 3)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/shard.zstd", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert(fd >= 0 && write(fd, data + 2, n_bytes - 2) == (ssize_t)n_bytes - 2);
    (void)close(fd); /* cannot fail: the file is in memory */
    const IndexShard info = {.n_samples = 1,
                             .raw_bytes = (uint64_t)data[0] << 8 | data[1],
                             .zip_bytes = n_bytes - 2,
                             .raw_name = "shard",
                             .zip_name = "shard.zstd"};
    ShardSource source = {.store = store,
                          .compression = "zstd",
                          .events = events,
                          .piece_bytes = 1 << 20};
    try_source(&source, &info, 0);
    source.cache = cache;
    (void)snprintf(source.cache_prefix, sizeof(source.cache_prefix), "%032d", 1);
    try_source(&source, &info, ++number);
    return 0;
}
