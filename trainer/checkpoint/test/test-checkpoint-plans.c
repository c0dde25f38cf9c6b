/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-plans.c - the plans of a device are an object of its checkpoints. Checkpoints of a device without
 * plans have no such object. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/search.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char plans[] = "{\"conv\":\"a\",\"linear\":[1,2,3]}";
static char folder[] = "/tmp/test-plans-XXXXXX";
static Fixture fixture;

typedef struct Saved {
    Store *store;
    Manifest *manifest;
    char path[256]; /* path of the checkpoint's folder */
} Saved;

/* wanted: the device's plans; NULL: the device has none. */
static CheckpointWriter *open_writer(Store *store, Comm *comm, const char *wanted)
{
    int r = wanted ? setenv("SDTRAIN_TEST_PLANS", wanted, 1) : unsetenv("SDTRAIN_TEST_PLANS");
    assert_int_equal(r, 0);
    return testing_writer(&fixture, store, comm, 1, 50000);
}

static void save(const char *name, const char *wanted, Saved *ret)
{
    char uri[128];
    Error err = ERROR_INIT;
    *ret = (Saved){0};
    (void)snprintf(uri, sizeof(uri), "%s/%s", folder, name);
    assert_int_equal(store_open(uri, &ret->store, &err), 0);
    Comm *comm;
    assert_int_equal(comm_open_self(&comm, &err), 0);
    CheckpointWriter *writer = open_writer(ret->store, comm, wanted);
    TrainState *state = testing_state(&fixture, 5, 0, 1, 0, true);
    const CheckpointResult result = testing_save(writer, state, 1, 1);
    if (result.phase != CHECKPOINT_WRITTEN)
        fail_msg("%s", result.error.text);
    writer = checkpoint_writer_free(writer);
    state = train_state_free(state);
    comm = comm_free(comm);
    Store *again = NULL;
    assert_int_equal(manifest_read_uri(result.uri, &result.hash, &again, &ret->manifest, &err), 0);
    (void)store_free(again);
    (void)snprintf(ret->path, sizeof(ret->path), "%.*s",
                   (int)(strrchr(result.uri, '/') - result.uri - strlen("file://")),
                   result.uri + strlen("file://"));
}

static void saved_close(Saved *s)
{
    s->manifest = manifest_free(s->manifest);
    s->store = store_free(s->store);
}

static char *read_in(const Saved *s, const char *name, size_t *ret_bytes)
{
    char path[300], *text;
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", s->path, name);
    if (file_read(path, 1 << 23, &text, ret_bytes, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

static void write_in(const Saved *s, const char *name, const char *text, size_t n_bytes)
{
    char path[300];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", s->path, name);
    assert_int_equal(file_write(path, text, n_bytes, 0, &err), 0);
}

static int restore(const Saved *s, Error *err)
{
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 6, 0, 1, 0, false);
    int r = checkpoint_restore(s->store, NULL, s->manifest, state, err);
    if (r == 0)
        testing_state_check(state, 5, true);
    return r;
}

static json_t *json_of(const Saved *s)
{
    size_t n;
    Error err = ERROR_INIT;
    json_t *root;
    _cleanup_free_ char *text = read_in(s, "manifest.json", &n);
    assert_int_equal(json_parse("manifest.json", text, n, &root, &err), 0);
    return root;
}

/* ---- cases ---- */

static void they_come_back(void **unused)
{
    (void)unused;
    Saved s;
    size_t n;
    Error err = ERROR_INIT;
    char *back = NULL;
    save("back", plans, &s);
    _cleanup_free_ char *object = read_in(&s, "plans.json", &n);
    assert_int_equal(n, strlen(plans));
    assert_memory_equal(object, plans, n);
    if (checkpoint_restore_plans(s.store, NULL, s.manifest, &back, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(back, plans);
    free(back);
    assert_int_equal(restore(&s, &err), 0);
    const ObjectRecord *objects;
    n = manifest_objects(s.manifest, &objects);
    assert_string_equal(objects[n - 1].key, "plans.json");
    saved_close(&s);
}

/* The fields of the manifest that version 0.2.0 knows are unchanged. That version ignores other fields. */
static void other_checkpoints_are_as_they_were(void **unused)
{
    (void)unused;
    Saved with, without;
    size_t n;
    Error err = ERROR_INIT;
    char *back = (char *)"";
    save("with", plans, &with);
    save("without", NULL, &without);
    assert_int_equal(checkpoint_restore_plans(without.store, NULL, without.manifest, &back, &err),
                     0);
    assert_null(back);
    _cleanup_free_ char *text = read_in(&without, "manifest.json", &n);
    assert_null(memmem(text, n, "plans", 5));

    _cleanup_json_ json_t *a = json_of(&with), *b = json_of(&without);
    assert_non_null(json_object_get(a, "plans"));
    assert_int_equal(json_object_size(a), json_object_size(b) + 1);
    static const char *const same[] = {"v", "digest", "numerics", "objects", "chunks", "scalars"};
    for (size_t i = 0; i < ELEMENTSOF(same); i++)
        assert_true(json_equal(json_object_get(a, same[i]), json_object_get(b, same[i])));
    saved_close(&with);
    saved_close(&without);
}

typedef enum Damage { FLIP, CUT, GROW, REMOVE, DAMAGES } Damage;

static void a_bad_object_is_found(void **unused)
{
    (void)unused;
    Saved s;
    save("damaged", plans, &s);
    log_set_level(LOG_LEVEL_ERROR);
    for (size_t at = 0; at < strlen(plans); at++)
        for (Damage how = at == 0 ? FLIP : REMOVE; how < DAMAGES; how++) {
            char bad[sizeof(plans) + 1] = "", path[300];
            Error err = ERROR_INIT;
            char *back = NULL;
            const Damage which = at == 0 ? how : FLIP;
            memcpy(bad, plans, strlen(plans));
            if (which == FLIP)
                bad[at] ^= (char)(1 << at % 7);
            write_in(&s, "plans.json", bad, strlen(plans) - (which == CUT) + (which == GROW));
            (void)snprintf(path, sizeof(path), "%s/plans.json", s.path);
            if (which == REMOVE)
                assert_int_equal(unlink(path), 0);
            int r = checkpoint_restore_plans(s.store, NULL, s.manifest, &back, &err);
            if (r != -EBADMSG || !strstr(err.text, "plans.json") || back)
                fail_msg("damage %d at %zu: %d %s", (int)which, at, r, err.text);
            assert_int_equal(restore(&s, &err), -EBADMSG);
            assert_non_null(strstr(err.text, "plans.json"));
        }
    log_set_level(LOG_LEVEL_WARNING);
    saved_close(&s);
}

static void a_bad_record_is_refused(void **unused)
{
    (void)unused;
    static const char a_hash[] = "\"xxh3_128\":\"00000000000000000000000000000000\"";
    static const struct {
        const char *record, *says; /* hash: the test appends a_hash and "}" to the record */
        bool hash;
    } cases[] = {
        {"[1]", "plans", false},
        {"\"plans.json\"", "plans", false},
        {"{\"bytes\":5,\"crc32c\":\"00000000\",", "plans.key: missing", true},
        {"{\"key\":\"../plans.json\",\"bytes\":5,\"crc32c\":\"00000000\",",
         "plans.key: ../plans.json should be plans.json", true},
        {"{\"key\":\"plans.json\",\"bytes\":0,\"crc32c\":\"00000000\",", "plans.bytes", true},
        {"{\"key\":\"plans.json\",\"bytes\":4194305,\"crc32c\":\"00000000\",", "plans.bytes", true},
        {"{\"key\":\"plans.json\",\"bytes\":5,\"crc32c\":\"0000000\",", "plans.crc32c", true},
        {"{\"key\":\"plans.json\",\"bytes\":5,\"crc32c\":\"00000000\"}", "plans.xxh3_128: missing",
         false},
        /* a valid record, but the manifest's hash does not match */
        {"{\"key\":\"plans.json\",\"bytes\":5,\"crc32c\":\"00000000\",", "the rest of it gives",
         true},
    };
    Saved s;
    save("records", plans, &s);
    for (size_t i = 0; i < ELEMENTSOF(cases) + 2; i++) {
        Error err = ERROR_INIT;
        Manifest *m = NULL;
        const char *says = i < ELEMENTSOF(cases) ? cases[i].says : "kind";
        _cleanup_json_ json_t *root = json_of(&s);
        if (i < ELEMENTSOF(cases)) {
            char record[256];
            (void)snprintf(record, sizeof(record), "%s%s%s", cases[i].record,
                           cases[i].hash ? a_hash : "", cases[i].hash ? "}" : "");
            json_t *value = json_loads(record, JSON_DECODE_ANY, NULL);
            assert_non_null(value);
            assert_int_equal(json_object_set_new(root, "plans", value), 0);
            /* the record is put among the objects, where it is not allowed */
        } else if (i == ELEMENTSOF(cases)) {
            json_t *o = json_deep_copy(json_object_get(root, "plans"));
            assert_int_equal(json_object_set_new(o, "kind", json_string("plans")), 0);
            assert_int_equal(json_array_append_new(json_object_get(root, "objects"), o), 0);
        } else { /* the record is left out */
            says = "the rest of it gives";
            assert_int_equal(json_object_del(root, "plans"), 0);
        }
        _cleanup_free_ char *text = json_dumps(root, 0);
        int r = manifest_parse("test.json", text, strlen(text), &m, &err);
        if (r != -EBADMSG || !strstr(err.text, says))
            fail_msg("case %zu: %d %s", i, r, err.text);
    }
    saved_close(&s);
}

/* sdtrainer run and sdctl job recover find a checkpoint by this search. */
static void a_search_passes_over_one_without_its_plans(void **unused)
{
    (void)unused;
    Saved s;
    Error err = ERROR_INIT;
    char path[300];
    save("searched", plans, &s);
    (void)snprintf(path, sizeof(path), "%s/plans.json", s.path);
    for (int i = 0; i < 2; i++) {
        CheckpointSearch *search = NULL;
        Manifest *found = NULL;
        const CheckpointFacts own = testing_facts(2);
        const CheckpointPassed *passed;
        assert_int_equal(checkpoint_search_new(s.store, &own, &search, &err), 0);
        assert_int_equal(checkpoint_search_next(search, &found, &err), i == 0);
        assert_int_equal(checkpoint_search_passed(search, &passed), i);
        if (i == 1)
            assert_non_null(strstr(passed[0].why.text, "plans.json"));
        found = manifest_free(found);
        search = checkpoint_search_free(search);
        assert_int_equal(unlink(path), i == 0 ? 0 : -1);
    }
    saved_close(&s);
}

/* Plans may have any size that a device's plans may have. Larger or empty plans are refused before training begins. */
static void sizes_are_bounded(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char *large = malloc(DEVICE_PLANS_MAX + 2), *back = NULL;
    assert_non_null(large);
    memset(large, ' ', DEVICE_PLANS_MAX + 1);
    large[DEVICE_PLANS_MAX + 1] = '\0';
    Comm *comm;
    Store *store;
    char uri[128];
    (void)snprintf(uri, sizeof(uri), "%s/sizes", folder);
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(comm_open_self(&comm, &err), 0);
    const char *const wrong[] = {large, ""};
    for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
        CheckpointWriter *writer = NULL;
        const CheckpointOptions options = {.store = store,
                                           .reports = comm,
                                           .parameters = fixture.parameters,
                                           .unet_config = testing_config,
                                           .plans = wrong[i],
                                           .facts = testing_facts(1),
                                           .keep_last = 2};
        assert_int_equal(checkpoint_writer_new(&options, &writer, &err), -E2BIG);
        assert_non_null(strstr(err.text, "plans"));
    }
    large[DEVICE_PLANS_MAX] = '\0';

    TrainState *state = testing_state(&fixture, 5, 0, 1, 0, true);
    const CheckpointOptions options = {.store = store,
                                       .reports = comm,
                                       .parameters = fixture.parameters,
                                       .unet_config = testing_config,
                                       .plans = large,
                                       .facts = testing_facts(1),
                                       .keep_last = 2};
    CheckpointWriter *writer;
    assert_int_equal(checkpoint_writer_new(&options, &writer, &err), 0);
    const CheckpointResult result = testing_save(writer, state, 1, 1);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    Saved s = {0};
    Store *again = NULL;
    assert_int_equal(manifest_read_uri(result.uri, &result.hash, &again, &s.manifest, &err), 0);
    s.store = again;
    assert_int_equal(checkpoint_restore_plans(s.store, NULL, s.manifest, &back, &err), 0);
    assert_string_equal(back, large);
    assert_int_equal(restore(&s, &err), 0);
    saved_close(&s);
    writer = checkpoint_writer_free(writer);
    state = train_state_free(state);
    comm = comm_free(comm);
    store = store_free(store);
    free(back);
    free(large);
}

static int setup(void **unused)
{
    (void)unused;
    fixture_open(FIXTURE_SMALL, &fixture);
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
        cmocka_unit_test(they_come_back),
        cmocka_unit_test(other_checkpoints_are_as_they_were),
        cmocka_unit_test(a_bad_object_is_found),
        cmocka_unit_test(a_bad_record_is_refused),
        cmocka_unit_test(a_search_passes_over_one_without_its_plans),
        cmocka_unit_test(sizes_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
