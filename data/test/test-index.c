/* SPDX-License-Identifier: Apache-2.0 */
/* test-index.c - the compact index: lookup against brute force, deterministic bytes, staleness, and detection of every
 * corruption. */
#include "base/json/json.h"
#include "data/index-open.h"
#include "data/index/index-format.h"
#include "data/mds/mds-writer.h"
#include "data/stream/shards.h"
#include "data/test/testing-scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static const ScratchData small = {.n_samples = 3000,
                                  .channels = 1,
                                  .height = 2,
                                  .width = 2,
                                  .tokens = 1,
                                  .dim = 2,
                                  .latents = "bytes",
                                  .missing = 3,
                                  .hash = "xxh3_64",
                                  .size_limit = 2000,
                                  .scale = 1};

typedef struct Fixture {
    Scratch scratch;
    Store *store;
    /* Paths of the dataset's folder and of its compact index. */
    char data[PATH_MAX], file[PATH_MAX];
} Fixture;

static Fixture fixture_make(const ScratchData *data)
{
    Fixture f = {.scratch = scratch_make()};
    Error err = ERROR_INIT;
    scratch_dataset(scratch_path(&f.scratch, "data", f.data), data);
    (void)scratch_path(&f.scratch, "data/" INDEX_NAME, f.file);
    assert_good(store_open(f.data, &f.store, &err), err);
    return f;
}

static void fixture_end(Fixture *f)
{
    f->store = store_free(f->store);
    scratch_remove(&f->scratch);
}

static Index *open_index(Fixture *f)
{
    Error err = ERROR_INIT;
    Index *index = NULL;
    assert_good(index_open(f->store, NULL, &index, &err), err);
    return index;
}

static void lookup_equals_brute_force(void **state)
{
    (void)state;
    Fixture f = fixture_make(&small);
    Error err = ERROR_INIT;
    Index *index = open_index(&f);
    int column = mds_schema_find(index_schema(index), "latents", &err);
    int text = mds_schema_find(index_schema(index), "text", &err);
    assert_int_equal(index_n_samples(index), 3000);
    assert_int_equal(index_n_valid(index, (size_t)column), 2000);
    assert_int_equal(index_n_valid(index, (size_t)text), 3000);
    assert_true(index_n_shards(index) > 10);

    uint64_t number = 0, valid = 0;
    for (uint64_t s = 0; s < index_n_shards(index); s++) {
        IndexShard shard;
        assert_good(index_shard(index, s, &shard, &err), err);
        char name[32];
        (void)snprintf(name, sizeof(name), "shard.%05d.mds", (int)s);
        assert_string_equal(shard.raw_name, name);
        assert_string_equal(shard.zip_name, "");
        for (uint32_t k = 0; k < shard.n_samples; k++, number++) {
            IndexPlace place;
            assert_good(index_locate(index, (size_t)text, number, &place, &err), err);
            assert_true(place.shard == s && place.sample == k);
            if (number % 3 == 1)
                continue;
            assert_good(index_locate(index, (size_t)column, valid++, &place, &err), err);
            assert_true(place.shard == s && place.sample == k);
        }
    }
    assert_int_equal(valid, 2000);
    index_free(index);
    fixture_end(&f);
}

static void the_bytes_depend_on_the_dataset_alone(void **state)
{
    (void)state;
    Fixture a = fixture_make(&small), b = fixture_make(&small);
    Error err = ERROR_INIT;
    char *x, *y, *z;
    size_t n, m, k;
    assert_good(index_build(a.store, false, NULL, NULL, &x, &n, &err), err);
    assert_good(index_build(b.store, false, NULL, NULL, &y, &m, &err), err);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);

    /* Hashes of samples make the file larger, but the dataset's digest stays the same. */
    Index *plain = open_index(&a);
    assert_good(index_build(b.store, true, NULL, NULL, &z, &k, &err), err);
    assert_true(k > n);
    assert_good(file_write(b.file, z, k, 0, &err), err);
    Index *hashed = open_index(&b);
    assert_true(index_has_sample_hashes(hashed) && !index_has_sample_hashes(plain));
    assert_true(hash_equal(index_digest(plain), index_digest(hashed)));
    uint64_t hash;
    assert_int_equal(index_sample_hash(hashed, (IndexPlace){1, 0}, &hash, &err), 1);
    assert_int_equal(index_sample_hash(plain, (IndexPlace){1, 0}, &hash, &err), 0);

    /* Another dataset has another digest, even if only one more sample is missing. */
    ScratchData other = small;
    other.missing = 4;
    Fixture c = fixture_make(&other);
    Index *third = open_index(&c);
    assert_false(hash_equal(index_digest(plain), index_digest(third)));

    free(x), free(y), free(z);
    index_free(plain), index_free(hashed), index_free(third);
    fixture_end(&a), fixture_end(&b), fixture_end(&c);
}

static void a_stale_index_is_made_anew(void **state)
{
    (void)state;
    Fixture f = fixture_make(&small);
    Error err = ERROR_INIT;
    Index *index = open_index(&f);
    Hash before = index_digest(index);
    index_free(index);

    /* The dataset is replaced under the same name. */
    ScratchData other = small;
    other.n_samples = 2500;
    assert_int_equal(access(f.file, F_OK), 0);
    char keep[PATH_MAX], *bytes;
    size_t n;
    assert_good(file_read(f.file, 1 << 24, &bytes, &n, &err), err);
    assert_good(folder_remove(f.data, &err), err);
    scratch_dataset(f.data, &other);
    assert_good(file_write(f.file, bytes, n, 0, &err), err);
    (void)scratch_path(&f.scratch, "data/index.json", keep);
    Hash wrong = {1, 2};
    assert_int_equal(index_map(f.file, &wrong, &index, &err), -ESTALE);
    index = open_index(&f);
    assert_int_equal(index_n_samples(index), 2500);
    assert_false(hash_equal(before, index_digest(index)));
    index_free(index);
    free(bytes);
    fixture_end(&f);
}

/* Any flipped byte of the file is found: when the file is opened, or when the part with the byte is used. */
static void every_flipped_byte_is_found(void **state)
{
    (void)state;
    Fixture f = fixture_make(&small);
    Error err = ERROR_INIT;
    Index *index = open_index(&f);
    uint64_t n_shards = index_n_shards(index);
    index_free(index);
    char *bytes;
    size_t n;
    assert_good(file_read(f.file, 1 << 24, &bytes, &n, &err), err);

    for (size_t at = 0; at < n; at += at < 1000 ? 3 : 997) {
        IndexHeader h;
        memcpy(&h, bytes, sizeof(h));
        size_t body = n - h.body_bytes;
        size_t table = sizeof(h) + 8 * DIV_ROUND_UP(h.body_bytes, INDEX_BLOCK_BYTES);
        if (at >= table && at < body)
            continue; /* the byte is padding that nothing reads */
        bytes[at] ^= 16;
        assert_good(file_write(f.file, bytes, n, 0, &err), err);
        bytes[at] ^= 16;
        int r = index_map(f.file, NULL, &index, &err);
        if (r < 0) {
            assert_true(r == -EBADMSG || r == -ESTALE || r == -EINVAL);
            continue;
        }
        IndexPlace place;
        IndexShard shard;
        for (uint64_t s = 0; r == 0 && s < n_shards; s++)
            r = index_shard(index, s, &shard, &err);
        for (uint64_t i = 0; r == 0 && i < 2000; i += 100)
            r = index_locate(index, 1, i, &place, &err);
        assert_true(r == -EBADMSG || at >= body + h.columns); /* the core's padding is not read */
        index_free(index);
    }
    /* An index that does not verify is made again. */
    bytes[100] ^= 1;
    assert_good(file_write(f.file, bytes, n, 0, &err), err);
    index = open_index(&f);
    index_free(index);
    for (size_t cut = 0; cut < n; cut += 5003) {
        assert_good(file_write(f.file, bytes, cut, 0, &err), err);
        assert_true(index_map(f.file, NULL, &index, &err) < 0);
    }
    free(bytes);
    fixture_end(&f);
}

static void a_folder_that_cannot_be_written_uses_the_cache(void **state)
{
    (void)state;
    Fixture f = fixture_make(&small);
    Error err = ERROR_INIT;
    Index *index = NULL;
    char folder[PATH_MAX];
    _cleanup_(cache_freep) Cache *cache = NULL;
    assert_good(cache_new(scratch_path(&f.scratch, "cache", folder), 0, &cache, &err), err);
    /* A folder with the name of the index prevents writing the index, even for root. */
    assert_int_equal(mkdir(f.file, 0755), 0);
    for (int again = 0; again < 2; again++) {
        assert_good(index_open(f.store, cache, &index, &err), err);
        assert_int_equal(index_n_samples(index), 3000);
        index_free(index);
    }
    fixture_end(&f);
}

static bool is_there(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void a_folder_that_cannot_be_written_needs_no_cache(void **state)
{
    (void)state;
    Fixture f = fixture_make(&small);
    Error err = ERROR_INIT;
    char folder[PATH_MAX], folders[PATH_MAX + 16], name[CACHE_NAME_MAX + 1], hash[HASH_TEXT_BYTES];
    (void)scratch_path(&f.scratch, "service", folder);
    (void)snprintf(folders, sizeof(folders), "%s:/elsewhere", folder);
    assert_int_equal(mkdir(f.file, 0755), 0);

    /* The service's folder keeps the index for the next start. */
    assert_int_equal(setenv("CACHE_DIRECTORY", folders, 1), 0);
    Index *index = open_index(&f);
    assert_int_equal(index_n_samples(index), 3000);
    (void)index_cache_name(f.store, hash_format(index_source(index), hash), name);
    index_free(index);
    assert_true(is_there(folder, name));
    index_free(open_index(&f));

    /* CACHE_DIRECTORY is a dataset, is a file, or is not set: the index is made for this process only. */
    for (int i = 0; i < 3; i++) {
        char in_file[PATH_MAX + 16];
        (void)snprintf(in_file, sizeof(in_file), "%s/index.json", f.data);
        assert_int_equal(i < 2 ? setenv("CACHE_DIRECTORY", i == 0 ? f.data : in_file, 1)
                               : unsetenv("CACHE_DIRECTORY"),
                         0);
        index = open_index(&f);
        assert_int_equal(index_n_samples(index), 3000);
        index_free(index);
    }
    assert_false(is_there(f.data, name));

    /* There is no folder in which the index can be kept. */
    _cleanup_free_ char *kept = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
    assert_int_equal(index_open(f.store, NULL, &index, &err), -ENOTDIR);
    assert_names(err, "set data.cache_dir");
    assert_int_equal(kept ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
    fixture_end(&f);
}

static void bad_index_json_is_refused_by_name(void **state)
{
    (void)state;
#define COLUMNS                                                                                    \
    "\"column_names\": [\"a\"], \"column_encodings\": [\"bytes\"], \"column_sizes\": [null]"
#define RAW "\"raw_data\": {\"basename\": \"s\", \"bytes\": 9, \"hashes\": {}}"
#define REST                                                                                       \
    "\"compression\": null, \"format\": \"mds\", \"hashes\": [], \"samples\": 1, \"version\": 2, " \
    "\"zip_data\": null"
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "expected a JSON object"},
        {"[]", "expected a JSON object"},
        {"{}", "expected a key"},
        {"{\"version\": 2}", "shards: missing"},
        {"{\"shards\": []}", "version: missing"},
        {"{\"shards\": [], \"version\": 2}", "no samples"},
        {"{\"shards\": [], \"version\": 3}", "version: 3 is not known"},
        {"{\"shards\": [], \"version\": 22}", "version: 22 is not known"},
        {"{\"shards\": {}, \"version\": 2}", "shards: expected an array"},
        {"{\"shards\": [7], \"version\": 2}", "shards[0]"},
        {"{\"shards\": [{\"a\": 1, ", "shards[0]: the file ends inside"},
        {"{\"shards\": [{]}], \"version\": 2}", "shards[0]"},
        {"{\"shards\": [{" COLUMNS ", " RAW ", " REST "}, {}], \"version\": 2}", "shards[1]: "},
        {"{\"shards\": [{" COLUMNS ", " RAW ", " REST "}], \"version\": 2} x", "behind its end"},
        {"{\"shards\": [{" COLUMNS ", " RAW ", \"compression\": \"gz\", \"format\": \"mds\", "
         "\"samples\": 1, \"version\": 2}], \"version\": 2}",
         "compression: \"gz\" is not supported"},
        {"{\"shards\": [{" COLUMNS ", " RAW
         ", \"format\": \"csv\", \"samples\": 1, \"version\": 2}], "
         "\"version\": 2}",
         "format: \"csv\" is not supported"},
        {"{\"shards\": [{" COLUMNS ", " RAW
         ", \"format\": \"mds\", \"samples\": 1, \"version\": 2, "
         "\"hashes\": [\"crc\"]}], \"version\": 2}",
         "\"crc\" is not a hash algorithm"},
        {"{\"shards\": [{" COLUMNS ", " RAW
         ", \"format\": \"mds\", \"samples\": 1, \"version\": 2, "
         "\"hashes\": [\"md5\"]}], \"version\": 2}",
         "raw_data.hashes.md5: missing"},
        {"{\"shards\": [{" COLUMNS ", \"raw_data\": {\"basename\": \"../s\", \"bytes\": 9, "
         "\"hashes\": {}}, " REST "}], \"version\": 2}",
         "leads out of the dataset"},
        {"{\"shards\": [{\"column_names\": [\"a\"], \"column_encodings\": [\"pkl\"], "
         "\"column_sizes\": [null], " RAW ", " REST "}], \"version\": 2}",
         "pkl is refused"},
        {"{\"shards\": [{\"column_names\": [\"a\"], \"column_encodings\": [\"int\"], "
         "\"column_sizes\": [4], " RAW ", " REST "}], \"version\": 2}",
         "has 4, its encoding says 8"},
        {"{\"shards\": [{\"column_names\": [\"a\", \"a\"], \"column_encodings\": [\"int\", "
         "\"int\"], "
         "\"column_sizes\": [8, 8], " RAW ", " REST "}], \"version\": 2}",
         "a is there twice"},
    };
    Scratch scratch = scratch_make();
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        Store *store;
        char path[PATH_MAX], *bytes = NULL;
        size_t n;
        assert_good(file_write(scratch_path(&scratch, "index.json", path), cases[i].text,
                               strlen(cases[i].text), 0, &err),
                    err);
        assert_good(store_open(scratch.path, &store, &err), err);
        assert_true(index_build(store, false, NULL, NULL, &bytes, &n, &err) < 0);
        assert_names(err, "index.json");
        assert_names(err, cases[i].word);
        store_free(store);
    }
    Error err = ERROR_INIT;
    Store *store;
    Index *index;
    char path[PATH_MAX];
    assert_good(store_open(scratch_path(&scratch, "nothing", path), &store, &err), err);
    assert_int_equal(index_open(store, NULL, &index, &err), -EINVAL);
    assert_names(err, "holds no MDS dataset");
    store_free(store);
    scratch_remove(&scratch);
}

/* Columns may be in any order, and the hash algorithms may be any that Streaming knows. */
static void what_streaming_reads_is_read(void **state)
{
    (void)state;
    static const char columns[] =
        "{\"column_names\": [\"text\", \"caption\", \"latents\"],"
        " \"column_encodings\": [\"ndarray:float16:2\", \"str\", \"bytes\"],"
        " \"column_sizes\": [4, null, null]}";
    static const char *const hashes[] = {"blake2b",  "blake2s", "md5",      "sha1",     "sha224",
                                         "sha256",   "sha384",  "sha3_224", "sha3_256", "sha3_384",
                                         "sha3_512", "sha512",  "xxh128",   "xxh32",    "xxh3_128",
                                         "xxh3_64",  "xxh64"};
    Scratch scratch = scratch_make();
    Error err = ERROR_INIT;
    MdsSchema schema;
    MdsWriter *writer;
    Store *store;
    Index *index;
    Shards *shards;
    json_t *json = json_loads(columns, 0, NULL);
    assert_good(mds_schema_parse("test", json, &schema, &err), err);
    json_decref(json);
    assert_good(store_open(scratch.path, &store, &err), err);
    const MdsWriterOptions options = {.hashes = hashes,
                                      .n_hashes = ELEMENTSOF(hashes),
                                      .size_limit = 2000};
    assert_good(mds_writer_new(store, &schema, &options, &writer, &err), err);
    for (int i = 0; i < 40; i++) {
        char caption[16], latents[8];
        memset(latents, i, sizeof(latents));
        int n = snprintf(caption, sizeof(caption), "number %d", i);
        const MdsField fields[] = {{latents, 4}, {caption, (size_t)n}, {latents, sizeof(latents)}};
        assert_good(mds_writer_add(writer, fields, &err), err);
    }
    assert_good(mds_writer_finish(writer, &err), err);
    writer = mds_writer_free(writer);

    assert_good(index_open(store, NULL, &index, &err), err);
    assert_int_equal(index_n_hashes(index), ELEMENTSOF(hashes));
    assert_string_equal(index_schema(index)->columns[0].name, "text");
    assert_good(shards_new(store, index, NULL, &shards, &err), err);
    for (uint64_t i = 0; i < 40; i++) {
        IndexPlace place;
        const void *bytes;
        size_t n;
        char caption[16];
        MdsField fields[MDS_COLUMNS_MAX];
        assert_good(index_place(index, i, &place, &err), err);
        assert_good(shards_read(shards, place, &bytes, &n, &err), err);
        assert_good(mds_sample_split(index_schema(index), bytes, n, fields, &err), err);
        (void)snprintf(caption, sizeof(caption), "number %d", (int)i);
        assert_int_equal(fields[1].n_bytes, strlen(caption));
        assert_memory_equal(fields[1].data, caption, strlen(caption));
        assert_int_equal(fields[2].n_bytes, 8);
        assert_int_equal(*(const char *)fields[2].data, (int)i);
    }
    shards_free(shards);
    index_free(index);
    store_free(store);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_equals_brute_force),
        cmocka_unit_test(the_bytes_depend_on_the_dataset_alone),
        cmocka_unit_test(a_stale_index_is_made_anew),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(a_folder_that_cannot_be_written_uses_the_cache),
        cmocka_unit_test(a_folder_that_cannot_be_written_needs_no_cache),
        cmocka_unit_test(what_streaming_reads_is_read),
        cmocka_unit_test(bad_index_json_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
