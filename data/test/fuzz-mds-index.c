/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-mds-index.c - arbitrary bytes as an index.json. */
#include "data/mds/mds-index.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int check_entry(void *context, size_t shard, const MdsEntry *entry, Error *err)
{
    (void)context;
    (void)shard;
    assert(entry->schema.n_columns >= 1 && entry->schema.n_columns <= MDS_COLUMNS_MAX);
    assert(entry->n_hashes <= MDS_HASHES_MAX && *entry->raw.basename);
    assert(!strstr(entry->raw.basename, "/../") && strncmp(entry->raw.basename, "../", 3) != 0);
    assert(*entry->raw.basename != '/');
    return shard < 1000 ? 0 : error_set(err, -E2BIG, "enough");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    int r = mds_index_walk("index.json", (const char *)data, n, check_entry, NULL, &err);
    assert(r == 0 || err.code == r);
    return 0;
}
