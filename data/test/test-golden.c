/* SPDX-License-Identifier: Apache-2.0 */
/* test-golden.c - datasets that mosaicml-streaming wrote (tests/golden/make-mds.py): index and shards read the same
 * values, and mds-writer.h writes the same bytes. */
#include "data/index-open.h"
#include "data/mds/npy.h"
#include "data/stream/shards.h"
#include "data/test/testing-encode.h"
#include "data/test/testing-scratch.h"

#include <inttypes.h>
#include <unistd.h>

typedef struct Golden {
    Store *store;
    Scratch scratch; /* holds the compact index */
    Index *index;
    Shards *shards;
    const MdsSchema *schema;
    const void *sample;
    size_t n_bytes;
    MdsField fields[MDS_COLUMNS_MAX];
} Golden;

static Golden golden_open(const char *name)
{
    Golden g = {.scratch = scratch_make()};
    Error err = ERROR_INIT;
    char folder[PATH_MAX];
    const char *source = getenv("SDTRAIN_SOURCE");
    (void)snprintf(folder, sizeof(folder), "%.2000s/tests/golden/mds/%s", source ? source : ".",
                   name);
    assert_good(store_open(folder, &g.store, &err), err);
    char path[PATH_MAX], *bytes;
    size_t n;
    assert_good(index_build(g.store, false, NULL, NULL, &bytes, &n, &err), err);
    assert_good(file_write(scratch_path(&g.scratch, "i", path), bytes, n, 0, &err), err);
    free(bytes);
    assert_good(index_map(path, NULL, &g.index, &err), err);
    assert_good(shards_new(g.store, g.index, NULL, &g.shards, &err), err);
    g.schema = index_schema(g.index);
    return g;
}

static void golden_close(Golden *g)
{
    g->shards = shards_free(g->shards);
    g->index = index_free(g->index);
    g->store = store_free(g->store);
    scratch_remove(&g->scratch);
}

/* Reads sample i, counted over all shards of the dataset. */
static void golden_read(Golden *g, uint64_t i)
{
    Error err = ERROR_INIT;
    IndexPlace place = {0};
    IndexShard shard;
    for (place.shard = 0;; place.shard++) {
        assert_good(index_shard(g->index, place.shard, &shard, &err), err);
        if (i < shard.n_samples)
            break;
        i -= shard.n_samples;
    }
    place.sample = (uint32_t)i;
    assert_good(shards_read(g->shards, place, &g->sample, &g->n_bytes, &err), err);
    assert_good(mds_sample_split(g->schema, g->sample, g->n_bytes, g->fields, &err), err);
}

static const MdsColumn *column_of(const Golden *g, const char *name, MdsField *ret)
{
    Error err = ERROR_INIT;
    int i = mds_schema_find(g->schema, name, &err);
    assert_good(i, err);
    *ret = g->fields[i];
    return &g->schema->columns[i];
}

static int64_t integer_of(const Golden *g, const char *name)
{
    Error err = ERROR_INIT;
    MdsField field;
    int64_t value;
    const MdsColumn *column = column_of(g, name, &field);
    assert_good(mds_integer_decode(column, field, &value, &err), err);
    if (column->kind == MDS_SCALAR) { /* encoding the value gives the same bytes */
        uint8_t bytes[8];
        assert_int_equal(encode_integer(column, value, bytes), 0);
        assert_memory_equal(bytes, field.data, field.n_bytes);
    }
    return value;
}

static double double_of(const Golden *g, const char *name)
{
    Error err = ERROR_INIT;
    MdsField field;
    double value;
    const MdsColumn *column = column_of(g, name, &field);
    assert_good(mds_double_decode(column, field, &value, &err), err);
    uint8_t bytes[8];
    if (encode_double(column, value, bytes) == 0)
        assert_memory_equal(bytes, field.data, field.n_bytes);
    return value;
}

static void assert_text(const Golden *g, const char *name, const char *wanted)
{
    MdsField field;
    (void)column_of(g, name, &field);
    assert_int_equal(field.n_bytes, strlen(wanted));
    assert_memory_equal(field.data, wanted, field.n_bytes);
}

static void scalars_are_read(void **state)
{
    (void)state;
    Golden g = golden_open("scalars");
    assert_int_equal(index_n_samples(g.index), 30);
    for (int64_t i = 0; i < 30; i++) {
        golden_read(&g, (uint64_t)i);
        assert_int_equal(integer_of(&g, "a_int"), -i * INT64_C(1000000000000));
        assert_int_equal(integer_of(&g, "b_u8"), i);
        assert_int_equal(integer_of(&g, "b_u16"), i * 257);
        assert_int_equal(integer_of(&g, "b_u32"), i * 65537);
        assert_int_equal(integer_of(&g, "b_u64"), i << 40);
        assert_int_equal(integer_of(&g, "c_i8"), -i);
        assert_int_equal(integer_of(&g, "c_i16"), -i * 100);
        assert_int_equal(integer_of(&g, "c_i32"), -i * 1000000);
        assert_int_equal(integer_of(&g, "c_i64"), -i * INT64_C(1000000000000));
        assert_int_equal(integer_of(&g, "e_int"), i * INT64_C(1000000000000000));
        assert_true(double_of(&g, "d_f16") == (double)i / 8);
        assert_true(double_of(&g, "d_f32") == (double)(float)((double)i / 3));
        assert_true(double_of(&g, "d_f64") == (double)i / 7);
        assert_true(double_of(&g, "e_float") == (double)i / 7);
        assert_true(double_of(&g, "e_decimal") == (double)i / 8);
        assert_true(double_of(&g, "c_i32") == (double)(-i * 1000000));
        char text[64];
        (void)snprintf(text, sizeof(text), "k\xc3\xa4se\t\"%d\"", (int)i);
        assert_text(&g, "f_str", text);
        (void)snprintf(text, sizeof(text), "{\"i\": %d, \"\\u00fc\": [1, null]}", (int)i);
        assert_text(&g, "g_json", text);
        MdsField field;
        (void)column_of(&g, "h_bytes", &field);
        assert_int_equal(field.n_bytes, i);
        for (size_t k = 0; k < field.n_bytes; k++)
            assert_int_equal(((const uint8_t *)field.data)[k], k);
        int64_t integer;
        double number;
        assert_int_equal(mds_integer_decode(column_of(&g, "f_str", &field), field, &integer, NULL),
                         -EBADMSG);
        assert_int_equal(mds_double_decode(column_of(&g, "h_bytes", &field), field, &number, NULL),
                         -EBADMSG);
    }
    golden_close(&g);
}

static double element(const MdsArray *a, size_t i)
{
    MdsColumn scalar = {.kind = MDS_SCALAR,
                        .number = a->number,
                        .size = (uint32_t)mds_number_size(a->number)};
    double value;
    MdsField field = {(const uint8_t *)a->values + i * scalar.size, scalar.size};
    assert_int_equal(mds_double_decode(&scalar, field, &value, NULL), 0);
    return value;
}

/* Decodes an array column; encoding it must give the same header. */
static MdsArray array_of(const Golden *g, const char *name)
{
    Error err = ERROR_INIT;
    MdsField field;
    MdsArray array;
    const MdsColumn *column = column_of(g, name, &field);
    assert_good(mds_array_decode(column, field, &array, &err), err);
    uint8_t header[ARRAY_HEADER_MAX];
    size_t n = 0;
    assert_int_equal(encode_array(column, &array, header, &n), 0);
    assert_int_equal(n + array.n_bytes, field.n_bytes);
    assert_memory_equal(header, field.data, n);
    return array;
}

static void arrays_are_read(void **state)
{
    (void)state;
    static const MdsNumber numbers[] = {MDS_UINT8,   MDS_INT8,   MDS_UINT16, MDS_INT16,
                                        MDS_FLOAT16, MDS_UINT32, MDS_INT32,  MDS_FLOAT32,
                                        MDS_UINT64,  MDS_INT64,  MDS_FLOAT64};
    static const struct {
        int n;
        uint64_t dims[3];
    } shapes[] = {{1, {6}}, {2, {2, 3}}, {3, {1, 3, 2}}};
    Golden g = golden_open("arrays");
    for (size_t i = 0; i < 12; i++) {
        golden_read(&g, i);
        MdsArray any = array_of(&g, "any");
        assert_int_equal(any.number, numbers[i % ELEMENTSOF(numbers)]);
        assert_int_equal(any.n_dims, shapes[i % 3].n);
        assert_memory_equal(any.dims, shapes[i % 3].dims, (size_t)any.n_dims * 8);
        MdsArray fixed = array_of(&g, "fixed");
        assert_int_equal(fixed.number, MDS_FLOAT16);
        for (size_t k = 0; k < 6; k++) {
            assert_true(element(&any, k) == (double)(k + i));
            assert_true(element(&fixed, k) == (double)(k + i));
        }
        MdsArray typed = array_of(&g, "typed");
        assert_int_equal(typed.n_dims, 1);
        assert_int_equal(typed.dims[0], 1 + 100 * i);
        assert_true(element(&typed, 100 * i) == (double)i);
        MdsArray umlaut = array_of(&g, "\xc3\xbcmlaut");
        assert_true(element(&umlaut, 0) == (double)i);
        MdsField field;
        (void)column_of(&g, "jpeg", &field);
        assert_int_equal(field.n_bytes, 2 + i);
        assert_memory_equal(field.data, "\xff\xd8", 2);
    }
    golden_close(&g);
}

static void latents_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t width;
        uint64_t n;
    } sets[] = {{"half", 2, 40}, {"single", 4, 10}, {"zstd", 2, 40}};
    for (size_t s = 0; s < ELEMENTSOF(sets); s++) {
        Golden g = golden_open(sets[s].name);
        Error err = ERROR_INIT;
        int column = mds_schema_find(g.schema, "latents_256", &err);
        assert_good(column, err);
        assert_int_equal(index_n_samples(g.index), sets[s].n);
        assert_int_equal(index_n_valid(g.index, (size_t)column), sets[s].n - sets[s].n / 5);
        uint64_t valid = 0;
        for (uint64_t i = 0; i < sets[s].n; i++) {
            golden_read(&g, i);
            MdsField field;
            (void)column_of(&g, "latents_256", &field);
            assert_int_equal(field.n_bytes, i % 5 == 3 ? 0 : 16 * sets[s].width);
            char text[32];
            (void)snprintf(text, sizeof(text), "picture %" PRIu64, i);
            assert_text(&g, "caption", text);
            if (i % 5 == 3)
                continue;
            /* The lookup by number among the valid samples must find this sample. */
            IndexPlace place;
            const void *bytes;
            size_t n;
            assert_good(index_locate(g.index, (size_t)column, valid++, &place, &err), err);
            assert_good(shards_read(g.shards, place, &bytes, &n, &err), err);
            MdsField fields[MDS_COLUMNS_MAX];
            assert_good(mds_sample_split(g.schema, bytes, n, fields, &err), err);
            assert_memory_equal(fields[0].data, text, strlen(text));
            for (size_t k = 0; k < 16; k++) {
                MdsArray a = {.number = sets[s].width == 2 ? MDS_FLOAT16 : MDS_FLOAT32,
                              .values = fields[2].data};
                assert_true(element(&a, k) == ((double)k - 8 + (double)(i % 3)) / 4);
            }
        }
        golden_close(&g);
    }
}

static void assert_same_file(const char *a, const char *b)
{
    Error err = ERROR_INIT;
    char *x, *y;
    size_t n, m;
    assert_good(file_read(a, 1 << 24, &x, &n, &err), err);
    assert_good(file_read(b, 1 << 24, &y, &m, &err), err);
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ", a, n, b, m);
    free(x);
    free(y);
}

/* Reads a golden dataset and writes it again: every file must be the same. */
static void write_again(const char *name, const char *const *hashes, size_t n_hashes,
                        const char *compression, uint64_t size_limit)
{
    Golden g = golden_open(name);
    Error err = ERROR_INIT;
    Store *out;
    MdsWriter *writer;
    char folder[PATH_MAX];
    assert_good(store_open(scratch_path(&g.scratch, "out", folder), &out, &err), err);
    MdsWriterOptions options = {.compression = compression,
                                .hashes = hashes,
                                .n_hashes = n_hashes,
                                .size_limit = size_limit};
    assert_good(mds_writer_new(out, g.schema, &options, &writer, &err), err);
    for (uint64_t i = 0; i < index_n_samples(g.index); i++) {
        golden_read(&g, i);
        assert_good(mds_writer_add(writer, g.fields, &err), err);
    }
    assert_good(mds_writer_finish(writer, &err), err);
    assert_int_equal(mds_writer_new(out, g.schema, &options, &writer, &err), -EEXIST);
    mds_writer_free(writer);

    for (uint64_t i = 0; i <= index_n_shards(g.index); i++) {
        IndexShard shard;
        char a[PATH_MAX], b[PATH_MAX];
        const char *file = "index.json";
        if (i < index_n_shards(g.index)) {
            assert_good(index_shard(g.index, i, &shard, &err), err);
            file = shard.raw_name;
        }
        assert_int_equal(store_local_path(g.store, file, a, sizeof(a), &err), 0);
        assert_int_equal(store_local_path(out, file, b, sizeof(b), &err), 0);
        if (!compression)
            assert_same_file(a, b);
    }
    /* The bytes of zstd depend on its version, so the hashes of the unpacked bytes are compared. */
    if (compression) {
        Index *index;
        Shards *shards;
        assert_good(index_open(out, NULL, &index, &err), err);
        assert_good(shards_new(out, index, NULL, &shards, &err), err);
        for (uint64_t i = 0; i < index_n_shards(index); i++) {
            IndexShard x, y;
            assert_good(index_shard(index, i, &x, &err), err);
            assert_good(index_shard(g.index, i, &y, &err), err);
            assert_memory_equal(x.raw_hashes[0], y.raw_hashes[0], 20);
            const void *bytes;
            size_t n;
            assert_good(shards_read(shards, (IndexPlace){i, 0}, &bytes, &n, &err), err);
        }
        shards_free(shards);
        index_free(index);
    }
    store_free(out);
    golden_close(&g);
}

static void the_same_bytes_are_written(void **state)
{
    (void)state;
    static const char *const all[] = {"blake2s", "md5",   "sha1",    "sha256", "sha3_256",
                                      "xxh128",  "xxh32", "xxh3_64", "xxh64"};
    static const char *const xxh3[] = {"xxh3_64"}, *const two[] = {"sha1", "xxh3_64"};
    write_again("scalars", all, ELEMENTSOF(all), NULL, 3000);
    write_again("arrays", NULL, 0, NULL, 0);
    write_again("half", NULL, 0, NULL, 1000);
    write_again("single", xxh3, 1, NULL, MDS_SIZE_LIMIT_DEFAULT);
    write_again("large", NULL, 0, NULL, 300);
    write_again("zstd", two, 2, "zstd:7", 2000);
}

static void npy_files_are_read_and_written(void **state)
{
    (void)state;
    static const char *const names[] = {"half", "single"};
    for (size_t s = 0; s < 2; s++) {
        Error err = ERROR_INIT;
        char path[PATH_MAX], *file, *again;
        size_t n, m;
        const char *source = getenv("SDTRAIN_SOURCE");
        (void)snprintf(path, sizeof(path), "%.2000s/tests/golden/mds/%s/empty.npy",
                       source ? source : ".", names[s]);
        assert_good(file_read(path, 1 << 20, &file, &n, &err), err);
        MdsArray array;
        assert_good(npy_parse(path, file, n, &array, &err), err);
        assert_int_equal(array.number, s == 0 ? MDS_FLOAT16 : MDS_FLOAT32);
        assert_int_equal(array.n_dims, 2);
        assert_int_equal(array.dims[0], 3);
        assert_int_equal(array.dims[1], 8);
        for (size_t k = 0; k < 24; k++)
            assert_true(element(&array, k) == (s == 0 ? (double)k / 16 : 0));
        assert_int_equal(npy_format(&array, &again, &m), 0);
        assert_int_equal(m, n);
        assert_memory_equal(again, file, n);
        for (size_t cut = 0; cut < n; cut++)
            assert_true(npy_parse(path, file, cut, &array, &err) < 0);
        free(file);
        free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_are_read),
        cmocka_unit_test(arrays_are_read),
        cmocka_unit_test(latents_are_read),
        cmocka_unit_test(the_same_bytes_are_written),
        cmocka_unit_test(npy_files_are_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
