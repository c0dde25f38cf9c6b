/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-remote.c - saves and restores through a remote store: puts that end late, reads in parallel, bytes
 * that change on the way, a store that does not answer. */
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "store/test/testing-far.h"
#include "trainer/checkpoint/restore/reader.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <string.h>

static char folder[] = "/tmp/test-remote-XXXXXX";
static Fixture fixture;

static Store *open_store(void)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    char uri[64];
    (void)snprintf(uri, sizeof(uri), "far://%s", folder);
    int r = store_open(uri, &store, &err);
    world_check(r == 0, "%s", err.text);
    return store;
}

/* One rank of one generation. */
typedef struct Life {
    Store *store;
    Comm *comm;
    CheckpointWriter *writer;
} Life;

static void life_begin(Life *l, int64_t generation)
{
    Error err = ERROR_INIT;
    *l = (Life){0};
    far_begin();
    l->store = open_store();
    assert_int_equal(comm_open_self(&l->comm, &err), 0);
    l->writer = testing_writer(&fixture, l->store, l->comm, generation, 50000);
}

static void life_end(Life *l)
{
    l->writer = checkpoint_writer_free(l->writer);
    l->comm = comm_free(l->comm);
    l->store = store_free(l->store);
    assert_int_equal(folder_remove(folder, NULL), 0);
}

static CheckpointResult life_save(Life *l, int64_t step, int64_t metrics_first)
{
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, step, 0, 1, 1, true);
    return testing_save(l->writer, state, 1, metrics_first);
}

/* Commits, and waits until retention has ended, so that afterwards only the test uses the store. */
static void life_commit(Life *l)
{
    checkpoint_settle(l->writer, true);
    while (checkpoint_busy(l->writer))
        (void)usleep(1000); /* if usleep() returns early, the check is only repeated earlier */
}

static Manifest *life_manifest(Life *l, const CheckpointResult *result)
{
    Error err = ERROR_INIT;
    Manifest *m = NULL;
    const char *name = result->uri + strlen(store_uri(l->store)) + 1;
    _cleanup_free_ char *of = strndup(name, strcspn(name, "/"));
    assert_int_equal(result->phase, CHECKPOINT_WRITTEN);
    assert_int_equal(manifest_read(l->store, of, &result->hash, &m, &err), 0);
    return m;
}

/* Restores rank 0 of two. If the restore succeeds, checks that every number is right. */
static int restore(Life *l, const Manifest *m, Error *err)
{
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 1, 0, 2, 2, true);
    int r = checkpoint_restore(l->store, NULL, m, state, err);
    if (r == 0)
        testing_state_check(state, manifest_step(m), true);
    return r;
}

/* One listing gets all sizes, without a request for each object. Many reads run at once, in pieces of any size. */
static void test_reads_together(void **unused)
{
    (void)unused;
    static const size_t pieces[] = {8 << 20, 16384, 4096, 1000, 12};
    Life l;
    life_begin(&l, 1);
    CheckpointResult result = life_save(&l, 5, 1);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &result);
    const size_t usual = reader_piece_bytes;
    for (size_t i = 0; i < ELEMENTSOF(pieces); i++) {
        Error err = ERROR_INIT;
        far_begin();
        reader_piece_bytes = pieces[i];
        if (restore(&l, m, &err) < 0)
            fail_msg("pieces of %zu: %s", pieces[i], err.text);
        assert_int_equal(atomic_load(&far->heads), 0);
        assert_int_equal(atomic_load(&far->lists), 1);
        assert_int_equal(atomic_load(&far->most_under_way), 16);
    }
    reader_piece_bytes = usual;
    life_end(&l);
}

/* One object of each kind, as errors name it. */
static const char *const kinds[] = {
    "unet/config.json",
    "safetensors.index.json",
    "unet/diffusion_pytorch_model-00001",
    "unet/diffusion_pytorch_model-00002",
    "moments/c000002",
    "unet_ema/diffusion_pytorch_model-00001",
};

static void test_wrong_bytes(void **unused)
{
    (void)unused;
    Life l;
    life_begin(&l, 1);
    CheckpointResult result = life_save(&l, 5, 1);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &result);
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        for (int flips = 1; flips <= 3; flips++) {
            Error err = ERROR_INIT;
            far_fault(kinds[i], flips == 3 ? 1000 : flips, 0, 0);
            int r = restore(&l, m, &err);
            if (flips < 3 && r < 0)
                fail_msg("%s, %d wrong reads: %s", kinds[i], flips, err.text);
            if (flips < 3)
                continue;
            if (r != -EBADMSG || err.code != r || !strstr(err.text, kinds[i]))
                fail_msg("%s: %d %s", kinds[i], r, err.text);
            /* The tries of one object are bounded; each try reads one piece. */
            assert_in_range(1000 - atomic_load(&far->fault.times), 3, 9);
        }
    /* Bytes that differ from read to read do not mean that the checkpoint is bad, but the number of reads is
     * bounded. */
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        for (int flips = 5; flips <= 1000; flips += 995) {
            Error err = ERROR_INIT;
            far_fault(kinds[i], flips, 0, 0);
            far->fault.wanders = true;
            int r = restore(&l, m, &err);
            if (r != (flips == 5 ? 0 : -EBADMSG))
                fail_msg("%s, %d different wrong reads: %d %s", kinds[i], flips, r, err.text);
            if (flips == 1000)
                assert_in_range(1000 - atomic_load(&far->fault.times), 12, 36);
        }
    /* The error names the object, the range and both hashes. */
    Error err = ERROR_INIT;
    char want[HASH_TEXT_BYTES];
    far_fault("moments/c000002", 1000, 0, 0);
    assert_int_equal(restore(&l, m, &err), -EBADMSG);
    for (size_t i = 0; i < m->n_objects; i++)
        if (strstr(m->objects[i].key, "moments/c000002"))
            assert_non_null(strstr(err.text, hash_format(m->objects[i].hash, want)));
    assert_non_null(strstr(err.text, "bytes 0 to 32767 have hash "));
    life_end(&l);
}

/* An object may be missing only in a listing that lags behind, or may really be missing. */
static void test_missing(void **unused)
{
    (void)unused;
    Life l;
    life_begin(&l, 1);
    CheckpointResult result = life_save(&l, 5, 1);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &result);
    Error err = ERROR_INIT;
    far_begin();
    far->hidden = "moments/c000002";
    assert_int_equal(restore(&l, m, &err), 0);
    assert_int_equal(atomic_load(&far->heads), 1);

    far->hidden = NULL;
    far_fault("moments/c000002", 2, -ENOENT, 0);
    assert_int_equal(restore(&l, m, &err), 0);
    far_fault("moments/c000002", 1000, -ENOENT, 0);
    assert_int_equal(restore(&l, m, &err), -EBADMSG);
    assert_int_equal(err.code, -EBADMSG);

    char key[READER_KEY_MAX];
    far_begin();
    (void)snprintf(key, sizeof(key), "%s", result.uri + strlen(store_uri(l.store)) + 1);
    (void)snprintf(strrchr(key, '/'), 32, "/moments/c000002.bin");
    assert_int_equal(store_delete(l.store, key, &err), 0);
    assert_int_equal(restore(&l, m, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "missing, the manifest lists it"));
    life_end(&l);
}

/* If the store does not answer, this does not mean that the checkpoint is bad. */
static void test_away(void **unused)
{
    (void)unused;
    Life l;
    life_begin(&l, 1);
    CheckpointResult five = life_save(&l, 5, 1);
    life_commit(&l);
    _cleanup_(manifest_freep) Manifest *m = life_manifest(&l, &five);
    Error err = ERROR_INIT;
    atomic_store(&far->refuses, true);
    assert_int_equal(restore(&l, m, &err), -EHOSTUNREACH);

    CheckpointResult six = life_save(&l, 6, 6); /* puts and flush fail */
    assert_int_equal(six.phase, CHECKPOINT_FAILED);
    assert_int_equal(six.error.code, -EHOSTUNREACH);
    const int lists = atomic_load(&far->lists);
    six = life_save(&l, 6, 6); /* the first request fails */
    assert_int_equal(six.phase, CHECKPOINT_FAILED);
    assert_int_equal(six.error.code, -EHOSTUNREACH);
    assert_int_equal(atomic_load(&far->lists), lists + 1);

    atomic_store(&far->refuses, false);
    six = life_save(&l, 6, 6);
    assert_int_equal(six.phase, CHECKPOINT_WRITTEN);
    life_commit(&l);
    StoreList list;
    assert_int_equal(checkpoint_list(l.store, &list, &err), 0);
    assert_int_equal(list.n_objects, 2);
    store_list_clear(&list);
    assert_int_equal(restore(&l, m, &err), 0);
    life_end(&l);
}

/* If the server has no put-if-absent, this is logged, and saves continue. */
static void test_without_if_absent(void **unused)
{
    (void)unused;
    Life l;
    life_begin(&l, 1);
    atomic_store(&far->no_if_absent, true);
    CheckpointResult five = life_save(&l, 5, 1);
    assert_int_equal(five.phase, CHECKPOINT_WRITTEN);
    assert_true(l.writer->said_absent);
    life_end(&l);
}

/* ---- leftovers ---- */

static void leave(const char *key)
{
    char path[256];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, key);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_make(path, &err), 0);
    *slash = '/';
    if (slash[1]) /* the key is an object's, not a folder's */
        assert_int_equal(file_write(path, "x", 1, 0, &err), 0);
}

static bool is_there(const char *key)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, key);
    return access(path, F_OK) == 0;
}

/* Temporary files of this and older generations are removed; those of newer generations and of other writers are
 * kept. */
static void test_sweep(void **unused)
{
    (void)unused;
    static const char *const ours[] = {
        "step-0000000005-o1-g2-0000abcd/unet/.put-abcdef",
        "step-0000000005-o1-g3-0000abcd/.put-abcdef-manifest.json",
        "metrics/.put-abcdef-metrics-0000000001-0000000005-o1-g3-0000abcd.jsonl",
        ".put-abcdef-metrics.jsonl", "owner/.put-abcdef-2"};
    static const char *const others[] = {
        "step-0000000005-o1-g4-0000abcd/moments/.put-abcdef-c000000.bin",
        "step-0000000005-o2-g1-0000abcd/.put-abcdef-manifest.json",
        "metrics/.put-abcdef-metrics-0000000001-0000000005-o1-g4-0000abcd.jsonl",
        "metrics/.put-abcdef-notes.txt",
        "metrics/.put-abcdef",
        ".put-abcdef",
        "step-5/.put-abcdef",
        "data/.put-abcdef-manifest.json",
        "data/empty/"};
    const char *newer = others[0];
    Life l;
    life_begin(&l, 3);
    Error err = ERROR_INIT;
    CheckpointOwner *owner;
    assert_int_equal(checkpoint_claim(l.writer, &owner, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(ours); i++)
        leave(ours[i]);
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        leave(others[i]);
    assert_int_equal(checkpoint_sweep(l.store, owner, 3, NULL, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(ours); i++)
        assert_false(is_there(ours[i]));
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        if (!is_there(others[i]))
            fail_msg("%s is gone", others[i]);

    /* Once a newer generation has written, nothing is removed. */
    leave(ours[0]);
    leave("step-0000000005-o1-g4-0000abcd/unet/config.json");
    assert_int_equal(checkpoint_sweep(l.store, owner, 3, NULL, &err), 0);
    assert_true(is_there(ours[0]));
    assert_int_equal(checkpoint_sweep(l.store, owner, 4, NULL, &err), 0);
    assert_false(is_there(ours[0]) || is_there(newer));
    life_end(&l);
}

static int setup(void **unused)
{
    (void)unused;
    log_set_level(LOG_LEVEL_ERROR);
    fixture_open(FIXTURE_MEDIUM, &fixture);
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    fixture_close(&fixture);
    return folder_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_together),    cmocka_unit_test(test_wrong_bytes),
        cmocka_unit_test(test_missing),           cmocka_unit_test(test_away),
        cmocka_unit_test(test_without_if_absent), cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
