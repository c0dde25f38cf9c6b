/* SPDX-License-Identifier: Apache-2.0 */
/* test-loader.c - dataset and loader: the right samples in the right layout, for any shards, cache and position; and
 * each fault of the data ends with an error that names it. */
#include "base/fault.h"
#include "data/dataset-internal.h"
#include "data/dataset-look.h"
#include "data/index-open.h"
#include "data/test/testing-loader.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static void samples_come_right(void **state)
{
    (void)state;
    ScratchData sets[4] = {plain, plain, plain, plain};
    sets[1].latents = "bytes";
    sets[1].channels = 4, sets[1].height = sets[1].width = 4;
    sets[1].missing = 3;
    sets[2].compression = "zstd:1";
    sets[3].latents = "ndarray";
    sets[3].hash = NULL;
    for (size_t i = 0; i < ELEMENTSOF(sets); i++)
        for (int cached = 0; cached < 2; cached++) {
            ScratchData data = sets[i];
            if (i == 3) /* an array without a shape in its encoding would need a header */
                data.latents = "ndarray:float16:4,6,3";
            Fixture f;
            fixture_make(&f, &data);
            if (cached) {
                f.job.data.cache_dir = f.cache;
                f.job.data.cache_bytes = 40000; /* the cache has room for a few shards */
            }
            f.job.data.latent_scale = i == 0 ? 0.75 : 1;
            Dataset *dataset = open_dataset(&f);
            assert_non_null(dataset_empty_text(dataset));
            assert_int_equal(dataset_shape(dataset)->text_dim, 7);
            assert_int_equal(dataset_reads_ahead(dataset), 1); /* all streams are local */
            check_steps(&f, dataset, 0, 50, 0, 6, 1); /* over two passes, with a ring of one step */
            check_steps(&f, dataset, 11, 20, 2, 3, 1 << 20);
            check_steps(&f, dataset, 997, 3, 5, 1, 1 << 30); /* loads up to the last step */
            dataset_free(dataset);
            scratch_remove(&f.scratch);
        }
}

static void streams_are_mixed(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    ScratchData second = plain;
    second.n_samples = 37;
    second.scale = 0.5;
    add_stream(&f, &second, 0.25);
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 40, 0, 6, 1 << 16);
    int counts[2] = {0};
    for (int64_t p = 0; p < 1000; p++)
        counts[order_at(dataset_order(dataset), p).stream]++;
    assert_int_equal(counts[1], 200);

    Error err = ERROR_INIT;
    char name[64], *caption;
    OrderSample sample = {.stream = 1, .sample = 36};
    assert_good(dataset_read(dataset, sample, NULL, NULL, &caption, &err), err);
    assert_string_equal(caption, "sample 36");
    assert_int_equal(strncmp(dataset_sample_name(dataset, sample, name, sizeof(name)),
                             "1:shard.0000", 12),
                     0);
    free(caption);
    Hash digest = dataset_digest(dataset);
    dataset_free(dataset);

    f.job.data.n_streams = 1;
    dataset = open_dataset(&f);
    assert_false(hash_equal(digest, dataset_digest(dataset)));
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void open_refused(Fixture *f, int code, const char *word, const char *word2)
{
    Error err = ERROR_INIT;
    Dataset *dataset = NULL;
    int r = dataset_open(&f->job, &dataset, &err);
    if (r != code)
        fail_msg("%d (%s) instead of %d", r, err.text, code);
    assert_names(err, word);
    assert_names(err, word2);
}

static void bad_jobs_are_refused_by_name(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    char missing[PATH_MAX];

    f.job.data.streams[0].uri = scratch_path(&f.scratch, "nowhere", missing);
    open_refused(&f, -EINVAL, "data.streams[0]", "nowhere holds no MDS dataset");
    f.job.data.streams[0].uri = f.folders[0];
    f.job.data.latents = (char *)(uintptr_t) "latents_256";
    open_refused(&f, -EINVAL, "data.latents", "there are caption, latents, text");
    f.job.data.latents = (char *)(uintptr_t) "caption";
    open_refused(&f, -EINVAL, "data.latents", "column caption is str");
    f.job.data.latents = (char *)(uintptr_t) "latents";
    f.job.data.text = (char *)(uintptr_t) "latents";
    open_refused(&f, -EINVAL, "column latents", "text needs two dimensions");
    f.job.data.text = (char *)(uintptr_t) "text";
    f.job.data.empty_text_uri = scratch_path(&f.scratch, "none.npy", missing);
    open_refused(&f, -EINVAL, "data.empty_text", "none.npy");
    f.job.data.empty_text_uri = NULL;
    open_refused(&f, -EINVAL, "data.empty_text: missing", "train.caption_drop 0.1 needs it");
    f.job.train.caption_drop = 0;
    Dataset *dataset = open_dataset(&f);
    assert_null(dataset_empty_text(dataset));
    assert_int_equal(dataset_shape(dataset)->text_tokens, 5);
    dataset_free(dataset);

    /* The second stream has other shapes. */
    ScratchData other = plain;
    other.latents = "ndarray:float16:4,3,6";
    other.height = 3, other.width = 6;
    add_stream(&f, &other, 1);
    open_refused(&f, -EINVAL, "data.streams[1]", "4x3x6, but those of data.streams[0] are 4x6x3");
    scratch_remove(&f.scratch);

    /* The latents are the raw latents of a VAE, or were scaled twice. */
    for (int i = 0; i < 2; i++) {
        ScratchData wide = plain;
        wide.scale = i ? 5.5F : 0.18F;
        fixture_make(&f, &wide);
        open_refused(&f, -EINVAL, "data.latent_scale", "standard deviation");
        f.job.data.latent_scale = i ? 0.18215 : 5;
        dataset_free(open_dataset(&f));
        scratch_remove(&f.scratch);
    }
}

/* Checks the error that the loop gets at the position of the fault; earlier grains are good. */
static void loader_fails(Fixture *f, Dataset *dataset, int code, const char *word,
                         const char *word2)
{
    Error err = ERROR_INIT;
    Loader *loader = NULL;
    LoaderGrain grain;
    assert_good(loader_new(dataset, &f->job, 0, 0, 6, 1 << 16, &loader, &err), err);
    int r = 0;
    for (int64_t step = 0; r == 0 && step < 100; step++) {
        for (int64_t g = 0; r == 0 && g < 6; g++)
            r = loader_get(loader, step, g, 30 * USEC_PER_SEC, &grain, &err);
        if (r == 0)
            loader_release(loader, step);
    }
    if (r != code)
        fail_msg("%d (%s) instead of %d", r, err.text, code);
    assert_names(err, "position ");
    assert_names(err, "3 attempts");
    assert_names(err, word);
    assert_names(err, word2);
    /* The error stays the same for later requests. */
    Error again = ERROR_INIT;
    int64_t step = 0;
    (void)sscanf(strstr(err.text, "position "), "position %" SCNd64, &step);
    assert_int_equal(loader_get(loader, step / 24, 5, 0, &grain, &again), code);
    assert_string_equal(again.text, err.text);
    loader_free(loader);
}

static void faulty_shards_stop_clearly(void **state)
{
    (void)state;
    char path[PATH_MAX];
    /* Shards are read in place, then unpacked to memory, then unpacked to a cache. */
    for (int zip = 0; zip < 3; zip++) {
        ScratchData data = plain;
        data.compression = zip ? "zstd:3" : NULL;
        const char *victim = zip ? "first/shard.00007.mds.zstd" : "first/shard.00007.mds";
        for (int fault_kind = 0; fault_kind < 3; fault_kind++) {
            Fixture f;
            fixture_make(&f, &data);
            if (zip == 2)
                f.job.data.cache_dir = f.cache;
            Dataset *dataset = open_dataset(&f);
            (void)scratch_path(&f.scratch, victim, path);
            if (fault_kind == 0) {
                assert_int_equal(truncate(path, 300), 0);
                loader_fails(&f, dataset, -EBADMSG, "shard.00007.mds", "truncated");
            } else if (fault_kind == 1) {
                scratch_flip(path, -100);
                loader_fails(&f, dataset, -EBADMSG, "shard.00007.mds", "its xxh3_64 is ");
            } else {
                assert_int_equal(unlink(path), 0);
                loader_fails(&f, dataset, -ENOENT, "shard.00007.mds", "o such ");
            }
            dataset_free(dataset);
            scratch_remove(&f.scratch);
        }
    }
}

static void replace_in_file(const char *path, const char *from, const char *to)
{
    Error err = ERROR_INIT;
    char *text;
    size_t n;
    assert_good(file_read(path, 1 << 24, &text, &n, &err), err);
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    assert_good(file_write(path, text, n, 0, &err), err);
    free(text);
}

static void a_wrong_hash_in_index_json_stops(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    char path[PATH_MAX], *text, digest[17];
    Error err = ERROR_INIT;
    (void)scratch_path(&f.scratch, "first/index.json", path);
    assert_good(file_read(path, 1 << 24, &text, NULL, &err), err);
    char *entry = strstr(strstr(text, "shard.00005.mds"), "\"xxh3_64\": \"") + 12;
    memcpy(digest, entry, 16);
    digest[16] = '\0';
    replace_in_file(path, digest, "0123456789abcdef");
    Dataset *dataset = open_dataset(&f);
    loader_fails(&f, dataset, -EBADMSG, digest, "index.json says 0123456789abcdef");
    dataset_free(dataset);
    free(text);
    scratch_remove(&f.scratch);
}

/* An offset that leads out of a shard, in a shard without a recorded hash, is reported. */
static void broken_offsets_stop(void **state)
{
    (void)state;
    ScratchData data = plain;
    data.hash = NULL;
    Fixture f;
    fixture_make(&f, &data);
    Dataset *dataset = open_dataset(&f);
    char path[PATH_MAX];
    (void)scratch_path(&f.scratch, "first/shard.00004.mds", path);
    scratch_flip(path, 4 + 4 * 3 + 2); /* flips a bit of an offset's third byte */
    loader_fails(&f, dataset, -EBADMSG, "shard.00004.mds[", "offsets");
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void sample_hashes_find_what_no_shard_hash_would(void **state)
{
    (void)state;
    ScratchData data = plain;
    data.hash = NULL;
    Fixture f;
    fixture_make(&f, &data);
    Error err = ERROR_INIT;
    Store *store;
    char path[PATH_MAX], *bytes;
    size_t n;
    assert_good(store_open(f.folders[0], &store, &err), err);
    assert_good(index_build(store, true, NULL, NULL, &bytes, &n, &err), err);
    assert_good(file_write(scratch_path(&f.scratch, "first/" INDEX_NAME, path), bytes, n, 0, &err),
                err);
    free(bytes);
    store_free(store);
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 5, 0, 6, 1 << 16);
    scratch_flip(scratch_path(&f.scratch, "first/shard.00006.mds", path), -20);
    loader_fails(&f, dataset, -EBADMSG, "shard.00006.mds[", "the index says ");
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* A shard is damaged after it was opened and verified: the next read finds the damage. */
static void what_rots_after_it_was_verified_is_found(void **state)
{
    (void)state;
    static const struct {
        int at;
        const char *word;
    } places[] = {{-20, "shard.00006.mds"},
                  {4 + 4 * 3, "shard.00006.mds"},
                  {-1, "shard.00006.mds"}};
    Fixture f;
    char path[PATH_MAX];
    fixture_make(&f, &plain);
    (void)scratch_path(&f.scratch, "first/shard.00006.mds", path);
    Dataset *dataset = open_dataset(&f);
    Hash digest = dataset_digest(dataset);
    for (size_t i = 0; i < ELEMENTSOF(places); i++) {
        check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
        scratch_flip(path, places[i].at);
        loader_fails(&f, dataset, -EBADMSG, places[i].word, "index.json says");
        scratch_flip(path, places[i].at); /* the byte is restored: the sample is accepted again */
    }
    check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
    assert_true(hash_equal(digest, dataset_digest(dataset)));
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* sdctl inspects a dataset, and a rank opens it with the hashes that sdctl noted. */
static void a_look_sees_what_a_rank_sees(void **state)
{
    (void)state;
    /* If the encoding does not give the shapes, the first sample that has latents does. */
    ScratchData bytes = plain;
    bytes.latents = "bytes";
    bytes.height = bytes.width = 5;
    bytes.missing = 3;
    ScratchData zipped = bytes;
    zipped.compression = "zstd:1";
    const ScratchData *const all[] = {&plain, &bytes, &zipped};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        Fixture f;
        Error err = ERROR_INIT;
        DatasetLook look;
        Dataset *dataset;
        char text[JOB_SOURCES_MAX], path[PATH_MAX];
        fixture_make(&f, all[i]);
        assert_good(dataset_look(&f.job, &look, &err), err);
        assert_int_equal(access(scratch_path(&f.scratch, "first/" INDEX_NAME, path), F_OK), -1);
        assert_true(look.sides_known);
        (void)dataset_sources_format(&look.sources, text);
        assert_good(dataset_open_submitted(&f.job, text, &dataset, &err), err);
        assert_memory_equal(dataset_shape(dataset), &look.shape, sizeof(look.shape));
        dataset_free(dataset);

        for (size_t at = 0; text[at]; at += 33) { /* changes each of the two hashes in turn */
            text[at] = text[at] == 'a' ? 'b' : 'a';
            assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EBADMSG);
            assert_names(err, at ? "data.streams[0]: " : "data.empty_text: ");
            assert_names(err, at ? "first/index.json is not what" : "empty.npy is not what");
            (void)dataset_sources_format(&look.sources, text);
        }
        static const char *const bad[] = {"-", " ", "x", "- 12", "- ", "-  -"};
        for (size_t k = 0; k < ELEMENTSOF(bad); k++) {
            assert_int_equal(dataset_open_submitted(&f.job, bad[k], &dataset, &err), -EINVAL);
            assert_names(err, "the job's record: sources: ");
        }
        scratch_remove(&f.scratch);
    }
}

static void set_faults(const char *faults)
{
    Error err = ERROR_INIT;
    assert_int_equal(setenv("SDTRAIN_FAULT", faults, 1), 0);
    assert_good(fault_open(&err), err);
}

/* If one or two attempts of a read fail, the read only pauses; if all attempts fail, the loader returns the error. */
static void passing_faults_are_retried(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    Dataset *dataset = open_dataset(&f);
    set_faults("data.open=eio@2,data.open=eio@3,data.read=eio@100");
    check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
    set_faults("data.read=eio@*");
    loader_fails(&f, dataset, -EIO, "cannot read", "Input/output error");
    set_faults("data.none=eio");
    check_steps(&f, dataset, 0, 3, 0, 6, 1 << 16);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void the_cache_stays_within_its_bound(void **state)
{
    (void)state;
    ScratchData data = plain;
    data.compression = "zstd";
    Fixture f;
    fixture_make(&f, &data);
    f.job.data.cache_dir = f.cache;
    f.job.data.cache_bytes = 45000;
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
    uint64_t total = 0;
    int n = 0;
    DIR *dir = opendir(f.cache);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strstr(e->d_name, ".mds"))
            continue;
        assert_int_equal(fstatat(dirfd(dir), e->d_name, &st, 0), 0);
        total += (uint64_t)st.st_size;
        n++;
    }
    assert_int_equal(closedir(dir), 0);
    assert_true(n >= 2 && total <= 45000);
    dataset_free(dataset);

    /* A later process uses the cached files; a corrupt file is fetched again. */
    dir = opendir(f.cache);
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".mds")) {
            char path[PATH_MAX], name[300];
            (void)snprintf(name, sizeof(name), "cache/%s", e->d_name);
            scratch_flip(scratch_path(&f.scratch, name, path), -5);
        }
    assert_int_equal(closedir(dir), 0);
    dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* Returns the error of the first step that cannot be read. */
static int failure_of(Fixture *f, Dataset *dataset, Error *err)
{
    Loader *loader;
    LoaderGrain grain;
    assert_good(loader_new(dataset, &f->job, 0, 0, 6, 1 << 16, &loader, err), *err);
    int r = 0;
    for (int64_t step = 0; r == 0 && step < 30; step++) {
        r = loader_get(loader, step, 5, 30 * USEC_PER_SEC, &grain, err);
        if (r == 0)
            loader_release(loader, step);
    }
    loader_free(loader);
    return r;
}

/* Changes, in index.json, the hash of the unpacked bytes of each shard except the first. */
static void change_unpacked_hashes(const char *path)
{
    char *text;
    size_t n;
    int n_shards = 0;
    Error err = ERROR_INIT;
    assert_good(file_read(path, 1 << 24, &text, &n, &err), err);
    for (char *at = text; (at = strstr(at, "\"raw_data\"")); n_shards++) {
        assert_non_null(at = strstr(at, "\"xxh3_64\": \""));
        at += strlen("\"xxh3_64\": \"");
        if (n_shards > 0) /* the first shard is read when the dataset is opened */
            *at = *at == '0' ? '1' : '0';
    }
    assert_true(n_shards > 3);
    assert_good(file_write(path, text, n, 0, &err), err);
    free(text);
}

/* The shard that was fetched is intact, but its unpacked bytes do not have the hash in index.json: they are not
 * returned from memory or from a file of the cache, and the cache does not keep them. */
static void what_is_unpacked_has_hashes_of_its_own(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        ScratchData data = plain;
        data.compression = "zstd:1";
        data.hash = "xxh3_64";
        Fixture f;
        Error err = ERROR_INIT;
        char path[PATH_MAX];
        fixture_make(&f, &data);
        if (cached)
            f.job.data.cache_dir = f.cache;
        change_unpacked_hashes(scratch_path(&f.scratch, "first/index.json", path));
        Dataset *dataset = open_dataset(&f);
        assert_int_equal(failure_of(&f, dataset, &err), -EBADMSG);
        assert_names(err, ".mds is corrupt: its xxh3_64 is ");
        dataset_free(dataset);
        DIR *folder = cached ? opendir(f.cache) : NULL;
        for (struct dirent *e; folder && (e = readdir(folder));)
            assert_true(!strstr(e->d_name, ".mds") || strstr(e->d_name, "-0.mds"));
        assert_int_equal(folder ? closedir(folder) : 0, 0);
        assert_int_equal(folder != NULL, cached);
        scratch_remove(&f.scratch);
    }
}

static void not_finite_values_stop(void **state)
{
    (void)state;
    ScratchData data = plain;
    data.hash = NULL;
    Fixture f;
    fixture_make(&f, &data);
    Dataset *dataset = open_dataset(&f);
    char path[PATH_MAX];
    FILE *file = fopen(scratch_path(&f.scratch, "first/shard.00003.mds", path), "r+b");
    assert_non_null(file);
    /* The last bytes are the end of the last sample's text; they become a NaN. */
    assert_int_equal(fseek(file, -2, SEEK_END), 0);
    assert_int_equal(fwrite("\xff\x7f", 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
    Error err = ERROR_INIT;
    assert_int_equal(failure_of(&f, dataset, &err), -EBADMSG);
    assert_names(err, "shard.00003.mds[");
    assert_names(err, "column text holds a value that is not finite");
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void waits_are_bounded(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    Dataset *dataset = open_dataset(&f);
    Error err = ERROR_INIT;
    Loader *loader;
    LoaderGrain grain;
    assert_good(loader_new(dataset, &f.job, 4, 0, 6, 1, &loader, &err), err);
    assert_good(loader_get(loader, 4, 0, 30 * USEC_PER_SEC, &grain, &err), err);
    assert_int_equal(loader_get(loader, 5, 0, 30 * USEC_PER_SEC, &grain, &err), -EDEADLK);
    assert_names(err, "before step 4 is released");
    loader_free(loader);

    /* If a read does not finish, the wait ends at its own timeout. */
    set_faults("data.read=eio@*");
    assert_good(loader_new(dataset, &f.job, 0, 0, 6, 1, &loader, &err), err);
    /* The read is still being retried. */
    assert_int_equal(loader_get(loader, 0, 0, 1000, &grain, &err), -ETIMEDOUT);
    loader_free(loader);
    set_faults("data.none=eio");
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

typedef struct Reader {
    const Fixture *fixture;
    Dataset *dataset;
    int64_t first;
    int failures;
} Reader;

static void *read_along(void *argument)
{
    Reader *reader = argument;
    float latents[4 * 6 * 3], text[5 * 7];
    for (int64_t i = 0; i < 300; i++) {
        OrderSample sample = {.sample = (reader->first + i * 7) % 500};
        if (dataset_read(reader->dataset, sample, latents, text, NULL, NULL) < 0 ||
            latents[0] != scratch_latent(&reader->fixture->data[0], (int)sample.sample, 0))
            reader->failures++;
    }
    return NULL;
}

static void several_threads_may_read(void **state)
{
    (void)state;
    Fixture f;
    fixture_make(&f, &plain);
    Dataset *dataset = open_dataset(&f);
    Reader readers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        readers[i] = (Reader){&f, dataset, i * 100, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_along, &readers[i]), 0);
    }
    check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].failures, 0);
    }
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_right),
        cmocka_unit_test(streams_are_mixed),
        cmocka_unit_test(bad_jobs_are_refused_by_name),
        cmocka_unit_test(faulty_shards_stop_clearly),
        cmocka_unit_test(a_wrong_hash_in_index_json_stops),
        cmocka_unit_test(broken_offsets_stop),
        cmocka_unit_test(sample_hashes_find_what_no_shard_hash_would),
        cmocka_unit_test(a_look_sees_what_a_rank_sees),
        cmocka_unit_test(what_rots_after_it_was_verified_is_found),
        cmocka_unit_test(passing_faults_are_retried),
        cmocka_unit_test(the_cache_stays_within_its_bound),
        cmocka_unit_test(what_is_unpacked_has_hashes_of_its_own),
        cmocka_unit_test(not_finite_values_stop),
        cmocka_unit_test(waits_are_bounded),
        cmocka_unit_test(several_threads_may_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
