/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-mds.c - arbitrary bytes as a shard: its table, its samples, its arrays and numbers. The first byte selects the
 * schema. */
#include "data/stream/shard.h"
#include "data/test/testing-encode.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_field(const MdsColumn *column, MdsField field)
{
    MdsArray array;
    int64_t integer;
    double number;
    if (column->kind == MDS_NDARRAY && mds_array_decode(column, field, &array, NULL) == 0) {
        uint8_t header[ARRAY_HEADER_MAX];
        size_t n;
        /* An array that can be decoded can be encoded, but not always to the same bytes: the stored shape may use more
         * bytes than needed. */
        int r = encode_array(column, &array, header, &n);
        assert(r == 0 && n + array.n_bytes <= field.n_bytes);
    }
    /* Any results are right: the calls must only be safe. */
    (void)mds_integer_decode(column, field, &integer, NULL);
    (void)mds_double_decode(column, field, &number, NULL);
}

/* Uses the bytes as the shard's size and its table: every range that passes the checks is inside the shard. */
static void try_table(const uint8_t *data, size_t n)
{
    const size_t n_words = n / 4;
    if (n_words < 4)
        return;
    uint32_t *words = malloc(4 * n_words);
    assert(words);
    memcpy(words, data, 4 * n_words);
    const uint32_t *table = words + 1;
    const IndexShard info = {.raw_bytes = words[0], .n_samples = n_words - 3};
    assert(shard_table_bytes(info.n_samples) == 4 * (n_words - 1));
    bool good = shard_table_check("fuzz", table, &info, NULL) == 0;
    for (uint32_t i = 0; good && i < info.n_samples; i++) {
        uint32_t range[2];
        if (shard_table_range("fuzz", table, i, &info, range, NULL) == 0)
            assert(range[0] >= 4 * (n_words - 1) && range[0] <= range[1] && range[1] <= words[0]);
    }
    free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const encodings[][4] = {
        {"ndarray", "str_int", "uint8", "bytes"},
        {"ndarray:float16", "str_float", "float16", "json"},
        {"ndarray:float16:2,2", "uint64", "float64", "str"},
        {"ndarray:uint8", "int", "str_decimal", "ndarray"},
    };
    if (n < 1)
        return 0;
    MdsColumn columns[4];
    MdsSchema schema;
    for (int i = 0; i < 4; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        int r = mds_column_init(name, encodings[data[0] % 4][i], &columns[i], NULL);
        assert(r == 0);
    }
    int r = mds_schema_init(columns, 4, &schema, NULL);
    assert(r == 0);

    MdsField fields[4];
    if (mds_sample_split(&schema, data + 1, n - 1, fields, NULL) == 0)
        for (int i = 0; i < 4; i++) {
            const uint8_t *p = fields[i].data;
            assert(p >= data + 1 && p + fields[i].n_bytes <= data + n);
            try_field(&schema.columns[i], fields[i]);
        }
    for (int i = 0; i < 4; i++)
        try_field(&columns[i], (MdsField){data + 1, n - 1});
    try_table(data, n);
    return 0;
}
