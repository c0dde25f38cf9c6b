/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint.c - a saved state is restored on any number of ranks; an error names each damaged object. */
#include "base/fault.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test-checkpoint-XXXXXX";
static Fixture fixture;

static Store *open_store(const char *uri)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    int r = store_open(uri, &store, &err);
    world_check(r == 0, "%s", err.text);
    return store;
}

/* ---- a save on W ranks, each in its own process ---- */

typedef struct SaveCase {
    int64_t step;
    int zero_stage;
    bool ema_active;
    bool chunk_by_chunk; /* the EMA is gathered chunk by chunk */
    bool blocking;
    uint64_t weight_file_bytes;
    const char *fault; /* SDTRAIN_FAULT of rank fault_rank, or NULL */
    int fault_rank;
    char uri[128];
    CheckpointResult result[WORLD_MAX];
    bool saved_again; /* a later save was written after the fault */
} SaveCase;

static int save_rank(World *world, Comm *comm, void *arg)
{
    SaveCase *c = arg;
    Error err = ERROR_INIT;
    if (c->fault && world->rank == c->fault_rank) {
        (void)setenv("SDTRAIN_FAULT", c->fault, 1); /* cannot fail for a valid name */
        world_check(fault_open(&err) == 0, "%s", err.text);
    }
    _cleanup_(store_freep) Store *store = open_store(c->uri);
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, c->step, world->rank, world->size, c->zero_stage, c->ema_active);
    if (c->chunk_by_chunk)
        /* this setting stays until the process ends, which runs no other case */
        snapshot_ema_at_once_bytes = 0;
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, 1, c->weight_file_bytes);
    writer->options.blocking = c->blocking;

    c->result[world->rank] = testing_save(writer, state, 1, 1);
    const bool in_place = c->blocking && device_host_view(state->device, state->weights);
    for (SnapshotKind kind = 0; kind < SNAPSHOT_EMA; kind++)
        world_check(!writer->snapshot.parts[kind].memory == in_place, "what was copied");
    if (c->fault) { /* after a failed save, the next save works */
        CheckpointResult again = testing_save(writer, state, 1, 1);
        c->saved_again = again.phase == CHECKPOINT_WRITTEN;
    }
    return 0;
}

static SaveCase *run_save(int world_size, SaveCase setting)
{
    SaveCase *c = world_share(sizeof(*c));
    *c = setting;
    if (!c->uri[0])
        (void)snprintf(c->uri, sizeof(c->uri), "%s/store", folder);
    World world = {.size = world_size, .run = save_rank, .arg = c};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    return c;
}

static void clear_store(void)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
}

static Manifest *read_result(const CheckpointResult *result, Store **ret_store)
{
    Error err = ERROR_INIT;
    Manifest *manifest = NULL;
    int r = manifest_read_uri(result->uri, &result->hash, ret_store, &manifest, &err);
    world_check(r == 0, "%s", err.text);
    return manifest;
}

/* Restores every rank of a world of that size, one after another. */
static void check_restore(Store *store, const Manifest *manifest, int world_size, int zero_stage,
                          int64_t step, bool ema_active)
{
    for (int rank = 0; rank < world_size; rank++) {
        Error err = ERROR_INIT;
        /* The state begins as that of another step, so that an element that is not restored is noticed. */
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, step + 1, rank, world_size, zero_stage, !ema_active);
        int r = checkpoint_restore(store, NULL, manifest, state, &err);
        world_check(r == 0, "%s", err.text);
        testing_state_check(state, step, ema_active);
    }
}

static void test_roundtrip(void **unused)
{
    (void)unused;
    int64_t step = 7;
    for (int size = 1; size <= 3; size++)
        for (int ema = 0; ema <= 1; ema++)
            for (int zero = 0; zero <= 2; zero++, step++) {
                const uint64_t file_bytes = step % 2 ? 0 : 50000;
                SaveCase *c = run_save(size, (SaveCase){.step = step,
                                                        .zero_stage = zero,
                                                        .ema_active = ema,
                                                        .chunk_by_chunk = zero == 2,
                                                        .weight_file_bytes = file_bytes});
                for (int rank = 0; rank < size; rank++) {
                    assert_int_equal(c->result[rank].phase, CHECKPOINT_WRITTEN);
                    assert_string_equal(c->result[rank].uri, c->result[0].uri);
                    assert_true(hash_equal(c->result[rank].hash, c->result[0].hash));
                    assert_true(
                        hash_equal(c->result[rank].digest, testing_digest(&fixture, step, ema)));
                }

                _cleanup_(store_freep) Store *store = NULL;
                _cleanup_(manifest_freep) Manifest *m = read_result(&c->result[0], &store);
                assert_int_equal(manifest_step(m), step);
                assert_int_equal(manifest_has_ema(m), ema);
                assert_true(hash_equal(manifest_digest(m), c->result[0].digest));
                for (int to = 1; to <= 3; to++)
                    check_restore(store, m, to, (zero + to) % 3, step, ema);

                float *flat;
                Error err = ERROR_INIT;
                assert_int_equal(device_allocate(fixture.device, 50000 * sizeof(float),
                                                 (void **)&flat, &err),
                                 0);
                assert_int_equal(checkpoint_restore_weights(store, m, false, fixture.parameters,
                                                            fixture.device, flat, &err),
                                 0);
                assert_int_equal(checkpoint_restore_weights(store, m, true, fixture.parameters,
                                                            fixture.device, flat, &err),
                                 ema ? 0 : -ENOENT);
                device_release(fixture.device, flat);
            }
    clear_store();
}

static void check_same_objects(const SaveCase *a, const SaveCase *b)
{
    _cleanup_(store_freep) Store *store_a = NULL, *store_b = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&a->result[0], &store_a);
    _cleanup_(manifest_freep) Manifest *n = read_result(&b->result[0], &store_b);
    assert_int_equal(m->n_objects, n->n_objects);
    for (size_t i = 0; i < m->n_objects; i++) {
        assert_string_equal(m->objects[i].key, n->objects[i].key);
        assert_true(hash_equal(m->objects[i].hash, n->objects[i].hash));
        assert_int_equal(m->objects[i].n_bytes, n->objects[i].n_bytes);
    }
    assert_true(hash_equal(manifest_digest(m), manifest_digest(n)));
}

/* A checkpoint that is written directly from the state has the same bytes as a checkpoint that is written from
 * copies. */
static void test_blocking(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 3; size++)
        for (int zero = 0; zero <= 2; zero++) {
            SaveCase c = {.step = 7 + size,
                          .zero_stage = zero,
                          .ema_active = zero != 1 || size > 1,
                          .chunk_by_chunk = zero == 2,
                          .weight_file_bytes = 50000};
            const SaveCase *copied = run_save(size, c);
            c.blocking = true;
            const SaveCase *lent = run_save(size, c);
            assert_int_equal(lent->result[0].phase, CHECKPOINT_WRITTEN);
            assert_true(
                hash_equal(lent->result[0].digest, testing_digest(&fixture, c.step, c.ema_active)));
            assert_true(lent->result[0].blocked_usec >= lent->result[0].write_usec);
            assert_true(lent->result[0].write_usec > 0 && copied->result[0].write_usec > 0);
            check_same_objects(copied, lent);
            _cleanup_(store_freep) Store *store = NULL;
            _cleanup_(manifest_freep) Manifest *m = read_result(&lent->result[0], &store);
            check_restore(store, m, 2, zero, c.step, c.ema_active);
        }
    clear_store();
}

/* ---- damage ---- */

static void path_of(Store *store, const char *key, char path[256])
{
    Error err = ERROR_INIT;
    assert_int_equal(store_local_path(store, key, path, 256, &err), 0);
}

typedef enum Damage { FLIP, TRUNCATE, GROW, REMOVE, DAMAGES } Damage;

/* Damages a file. Returns the undamaged bytes. */
static char *damage(const char *path, Damage how, size_t at, size_t *ret_bytes)
{
    char *bytes;
    assert_int_equal(file_read(path, 1 << 30, &bytes, ret_bytes, NULL), 0);
    _cleanup_free_ char *bad = malloc(*ret_bytes + 1);
    memcpy(bad, bytes, *ret_bytes);
    bad[*ret_bytes] = 'x';
    bad[at] ^= how == FLIP ? 0x10 : 0;
    if (how == REMOVE)
        assert_int_equal(unlink(path), 0);
    else
        assert_int_equal(file_write(path, bad, *ret_bytes - (how == TRUNCATE) + (how == GROW), 0,
                                    NULL),
                         0);
    return bytes;
}

/* Restores on all ranks of a world of two; returns the first error of a rank. */
static int restore_anywhere(Store *store, const Manifest *m, Error *err)
{
    for (int rank = 0; rank < 2; rank++) {
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, 1, rank, 2, 2, true);
        int r = checkpoint_restore(store, NULL, m, state, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void test_damage(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(
        2, (SaveCase){.step = 5, .zero_stage = 1, .ema_active = true, .weight_file_bytes = 50000});
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&c->result[0], &store);
    char name[CHECKPOINT_FOLDER_MAX];
    checkpoint_name_format(&m->name, name);

    for (size_t i = 0; i < m->n_objects; i++)
        for (Damage how = 0; how < DAMAGES; how++) {
            char key[256], path[256];
            (void)snprintf(key, sizeof(key), "%s/%s", name, m->objects[i].key);
            path_of(store, key, path);
            size_t n_bytes;
            const size_t at = (size_t)(m->objects[i].n_bytes * (i % 10) / 10);
            _cleanup_free_ char *good = damage(path, how, at, &n_bytes);
            Error err = ERROR_INIT;
            int r = restore_anywhere(store, m, &err);
            if (r != -EBADMSG || err.code != -EBADMSG)
                fail_msg("%s, damage %d at %zu: %d %s", key, (int)how, at, r, err.text);
            /* A damaged EMA file is reported as a chunk with a wrong hash. */
            if (!strstr(err.text, m->objects[i].key) &&
                !(m->objects[i].kind == OBJECT_EMA_WEIGHTS && strstr(err.text, "chunk")))
                fail_msg("%s: %s", key, err.text);
            assert_int_equal(file_write(path, good, n_bytes, 0, NULL), 0);
        }
    Error err = ERROR_INIT;
    assert_int_equal(restore_anywhere(store, m, &err), 0);
    clear_store();
}

/* The header of an EMA file is read separately from the data, which are verified by the hashes of their chunks. */
static void test_every_byte_of_an_ema_header(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(1, (SaveCase){.step = 5, .ema_active = true});
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&c->result[0], &store);
    char name[CHECKPOINT_FOLDER_MAX], key[256], path[256];
    checkpoint_name_format(&m->name, name);
    size_t i = 0;
    while (m->objects[i].kind != OBJECT_EMA_WEIGHTS)
        i++;
    (void)snprintf(key, sizeof(key), "%s/%s", name, m->objects[i].key);
    path_of(store, key, path);
    log_set_level(LOG_LEVEL_ERROR);
    for (uint64_t at = 0; at < object_header_bytes(&m->objects[i]); at++) {
        size_t n_bytes;
        _cleanup_free_ char *good = damage(path, FLIP, at, &n_bytes);
        Error err = ERROR_INIT;
        assert_int_equal(restore_anywhere(store, m, &err), -EBADMSG);
        assert_non_null(strstr(err.text, m->objects[i].key));
        assert_int_equal(file_write(path, good, n_bytes, 0, NULL), 0);
    }
    log_set_level(LOG_LEVEL_WARNING);
    Error err = ERROR_INIT;
    assert_int_equal(restore_anywhere(store, m, &err), 0);
    clear_store();
}

/* ---- manifests ---- */

/* A changed manifest is refused even without the hash that etcd records, unless only white space has changed. */
static void test_every_byte_of_a_manifest(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(1, (SaveCase){.step = 5, .ema_active = true});
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    assert_int_equal(file_read(c->result[0].uri + strlen("file://"), 1 << 20, &text, &n_bytes,
                               NULL),
                     0);
    for (size_t at = 0; at < n_bytes; at++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        _cleanup_free_ char *again = NULL;
        Error err = ERROR_INIT;
        const char flip = (char)(1 << at % 7);
        text[at] ^= flip;
        int r = manifest_parse("flipped", text, n_bytes, &m, &err);
        text[at] ^= flip;
        if (r < 0)
            continue;
        assert_int_equal(manifest_format(m, &again), 0);
        assert_string_equal(again, text);
    }
    clear_store();
}

static void test_manifest_hash(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(1, (SaveCase){.step = 5});
    const CheckpointResult *result = &c->result[0];
    _cleanup_(store_freep) Store *store = NULL;
    Manifest *m = NULL;
    Error err = ERROR_INIT;
    Hash wrong = result->hash;
    wrong.low ^= 1;
    assert_int_equal(manifest_read_uri(result->uri, &wrong, &store, &m, &err), -EBADMSG);
    char text[HASH_TEXT_BYTES];
    assert_non_null(strstr(err.text, hash_format(wrong, text)));
    assert_non_null(strstr(err.text, hash_format(result->hash, text)));
    assert_non_null(strstr(err.text, result->uri));

    assert_int_equal(manifest_read_uri("/x/manifest", NULL, &store, &m, &err), -EINVAL);
    assert_int_equal(manifest_read_uri("/x/manifest.json", NULL, &store, &m, &err), -EINVAL);
    char gone[CHECKPOINT_URI_MAX];
    (void)snprintf(gone, sizeof(gone), "%s/store/step-0000000009-o1-g1-00000000/manifest.json",
                   folder);
    assert_int_equal(manifest_read_uri(gone, NULL, &store, &m, &err), -ENOENT);
    assert_null(store);
    assert_null(m);

    /* A manifest in the folder of another checkpoint is refused. */
    char from[256], to[256];
    (void)snprintf(to, sizeof(to), "%s/store/step-0000000009-o1-g1-00000000", folder);
    assert_int_equal(folder_make(to, &err), 0);
    (void)snprintf(to, sizeof(to), "%s", gone);
    (void)snprintf(from, sizeof(from), "%s", result->uri + strlen("file://"));
    assert_int_equal(link(from, to), 0);
    assert_int_equal(manifest_read_uri(gone, NULL, &store, &m, &err), -EBADMSG);
    clear_store();
}

/* Sets the value at a path of keys and indices ("objects/3/bytes") to the JSON text; NULL deletes
 * it. */
static void edit(json_t *root, const char *path, const char *value)
{
    char copy[128];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    char *last = strrchr(copy, '/');
    json_t *at = root;
    if (last) {
        *last++ = '\0';
        char *save = NULL;
        for (char *p = strtok_r(copy, "/", &save); p; p = strtok_r(NULL, "/", &save))
            at = json_is_array(at) ? json_array_get(at, strtoul(p, NULL, 10))
                                   : json_object_get(at, p);
    } else {
        last = copy;
    }
    assert_non_null(at);
    if (!value) {
        assert_int_equal(json_is_array(at) ? json_array_remove(at, strtoul(last, NULL, 10))
                                           : json_object_del(at, last),
                         0);
        return;
    }
    json_t *new = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(new);
    assert_int_equal(json_is_array(at) ? json_array_set_new(at, strtoul(last, NULL, 10), new)
                                       : json_object_set_new(at, last, new),
                     0);
}

static void test_manifest_text(void **unused)
{
    (void)unused;
    static const struct {
        const char *path, *value, *says;
        int r;
    } cases[] = {
        {"v", "1", "of version 1, which an older sdtrain wrote", -EPROTONOSUPPORT},
        {"v", "3", "of version 3, which a newer sdtrain wrote", -EPROTONOSUPPORT},
        {"v", NULL, "v: missing", -EBADMSG},
        {"step", "6", "step", -EBADMSG},
        {"step", "\"5\"", "step", -EBADMSG},
        {"generation", "-1", "generation", -EBADMSG},
        {"attempt", "\"0123456G\"", "attempt", -EBADMSG},
        {"digest", "\"00\"", "digest", -EBADMSG},
        {"digest", "\"00000000000000000000000000000000\"", "chunks and scalars give", -EBADMSG},
        {"job", "7", "job", -EBADMSG},
        {"job_identity", NULL, "job_identity", -EBADMSG},
        {"algorithms/digest", "2", "algorithms.digest", -EBADMSG},
        {"layout/n_elements", "0", "layout.n_elements", -EBADMSG},
        {"layout/n_elements", "41042", "objects", -EBADMSG},
        {"layout/chunk_elements", "2048", "objects", -EBADMSG},
        {"ema", "false", "objects", -EBADMSG},
        {"scalars/adam_t", "99", "digest", -EBADMSG},
        {"scalars/loss_scale", "\"0x1p+0x\"", "scalars.loss_scale", -EBADMSG},
        {"scalars/loss_scale", "\"nan\"", "scalars.loss_scale", -EBADMSG},
        {"scalars/n_maxima", "17", "scalars.n_maxima", -EBADMSG},
        {"scalars/n_accepted", "4", "scalars.n_maxima: 5 of 4", -EBADMSG},
        {"scalars/n_accepted", "9223372036854775807", "scalars.n_accepted", -EBADMSG},
        {"scalars/maxima/3", "\"00\"", "scalars.maxima", -EBADMSG},
        {"scalars/maxima/3", NULL, "digest", -EBADMSG},
        {"objects/0", NULL, "unet/config.json", -EBADMSG},
        {"objects/2/key", "\"../../x\"", "objects", -EBADMSG},
        {"objects/2/kind", "\"what\"", "objects[2].kind", -EBADMSG},
        {"objects/2/first", "1", "range", -EBADMSG},
        {"objects/2/count", "41044", "range", -EBADMSG},
        {"objects/2/bytes", "-1", "objects[2].bytes", -EBADMSG},
        {"objects/2/crc32c", "\"zz\"", "objects[2].crc32c", -EBADMSG},
        {"objects/2/header_xxh3_128", NULL, "objects[2].header_xxh3_128", -EBADMSG},
        {"objects/9", NULL, "objects", -EBADMSG},
        {"objects/12/bytes", "12", "range or size", -EBADMSG},
        {"chunks/4", "\"00000000000000000000000000000000\"", "digest", -EBADMSG},
        {"chunks/4", NULL, "chunks", -EBADMSG},
        {"chunks/4", "0", "chunks", -EBADMSG},
        {"metrics/0/first", "2", "metrics[0].key", -EBADMSG},
        {"metrics/0/lines", "6", "metrics[0].lines", -EBADMSG},
        {"metrics/0/level", "17", "metrics[0].level", -EBADMSG},
        {"metrics/0/xxh3_128", "\"00000000000000000000000000000000\"", "hash", -EBADMSG},
        {"metrics_first", "2", "metrics[0].first", -EBADMSG},
        {"metrics_first", "0", "metrics[0].first", -EBADMSG},
        {"metrics_first", NULL, "metrics_first", -EBADMSG},
        {"metrics", "[]", "metrics", -EBADMSG},
        {"numerics", "\"{}\"", "hash", -EBADMSG},
        {"job", "\"another\"", "hash", -EBADMSG},
        {"objects/2/xxh3_128", "\"00000000000000000000000000000000\"", "hash", -EBADMSG},
        {"hash", "\"00000000000000000000000000000000\"", "the rest of it gives", -EBADMSG},
        {"hash", NULL, "hash", -EBADMSG},
        {"metrics/0/key", "\"../x\"", "metrics[0].key", -EBADMSG},
        {"committed", "[\"x\"]", "committed", -EBADMSG},
        {"committed", "[\"step-0000000006-o1-g1-00000000\"]", "committed", -EBADMSG},
    };
    SaveCase *c =
        run_save(1, (SaveCase){.step = 5, .ema_active = true, .weight_file_bytes = 50000});
    const char *path = c->result[0].uri + strlen("file://");

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        _cleanup_json_ json_t *root = NULL;
        assert_int_equal(json_read_file(path, 1 << 20, &root, &err), 0);
        edit(root, cases[i].path, cases[i].value);
        _cleanup_free_ char *text = json_dumps(root, 0);
        Manifest *m = NULL;
        int r = manifest_parse("test.json", text, strlen(text), &m, &err);
        if (r != cases[i].r || err.code != r || !strstr(err.text, cases[i].says) ||
            !strstr(err.text, "test.json"))
            fail_msg("%s = %s: %d %s", cases[i].path, cases[i].value, r, err.text);
        assert_null(m);
    }

    Error err = ERROR_INIT;
    Manifest *m = NULL;
    assert_int_equal(manifest_parse("test.json", "{\"v\":1", 6, &m, &err), -EBADMSG);
    assert_int_equal(manifest_parse("test.json", "", 0, &m, &err), -EBADMSG);
    clear_store();
}

static void test_facts(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(1, (SaveCase){.step = 5});
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&c->result[0], &store);
    CheckpointFacts facts = testing_facts(2);
    Error err = ERROR_INIT;
    assert_int_equal(manifest_check_facts(m, &facts, &err), 0);
    assert_string_equal(manifest_facts(m)->numerics, facts.numerics);
    assert_int_equal(manifest_facts(m)->generation, 1);
    assert_true(hash_equal(manifest_facts(m)->canned_grain, facts.canned_grain));

    facts.job_identity.low++;
    assert_int_equal(manifest_check_facts(m, &facts, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "job identity"));
    facts = testing_facts(2);
    facts.dataset_digest.high++;
    assert_int_equal(manifest_check_facts(m, &facts, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "dataset digest"));
    facts = testing_facts(2);
    facts.order_algorithm++;
    assert_int_equal(manifest_check_facts(m, &facts, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "order algorithm is 1, this job's is 2"));
    clear_store();
}

/* A model with other parameters cannot be restored from this checkpoint. */
static void test_other_model(void **unused)
{
    (void)unused;
    SaveCase *c = run_save(1, (SaveCase){.step = 5});
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&c->result[0], &store);
    Error err = ERROR_INIT;
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 1, 0, 1, 0, false);

    Parameter *p = &fixture.parameters->items[2];
    (void)snprintf(p->name, sizeof(p->name), "other.weight");
    assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "a.weight lies where the model has other.weight"));
    (void)snprintf(p->name, sizeof(p->name), "a.weight");

    p->dims[0] = 50, p->dims[1] = 200;
    assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "shape"));
    p->dims[0] = p->dims[1] = 100;

    state->layout.n_elements--;
    assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "41043 elements"));
    state->layout.n_elements++;
    assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), 0);
    clear_store();
}

/* ---- failures of a save ---- */

static size_t count_checkpoints(const char *uri)
{
    _cleanup_(store_freep) Store *store = open_store(uri);
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(checkpoint_list(store, &list, &err), 0);
    size_t n = list.n_objects;
    store_list_clear(&list);
    return n;
}

/* Counts all objects in the store, whether or not they belong to a checkpoint. */
static size_t count_objects(const char *uri)
{
    _cleanup_(store_freep) Store *store = open_store(uri);
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(store_list(store, "", 10000, &list, &err), 0);
    size_t n = list.n_objects;
    store_list_clear(&list);
    return n;
}

static void test_failed_save(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault;
        int rank;
    } cases[] = {
        {"store.put.half=enospc", 0},          {"store.put.half=enospc@3", 1},
        {"store.put.before=eio@2", 2},         {"store.put.after=enospc@5", 0},
        {"checkpoint.object=enospc@4", 1},     {"checkpoint.gathered=enospc", 0},
        {"checkpoint.manifest.before=eio", 0}, {"checkpoint.manifest.after=eio", 0},
        {"checkpoint.copied=eio", 1},          {"checkpoint.memory=enospc@4", 2},
    };
    SaveCase *good = run_save(3, (SaveCase){.step = 5, .zero_stage = 2, .ema_active = true});
    const size_t n_objects = count_objects(good->uri);
    clear_store();
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        SaveCase *c = run_save(3, (SaveCase){.step = 5,
                                             .zero_stage = 2,
                                             .ema_active = true,
                                             .chunk_by_chunk = i % 2,
                                             .fault = cases[i].fault,
                                             .fault_rank = cases[i].rank});
        const int expected = strstr(cases[i].fault, "enospc") ? -ENOSPC : -EIO;
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(c->result[rank].phase, CHECKPOINT_FAILED);
            assert_int_equal(c->result[rank].error.code, expected);
        }
        assert_true(c->saved_again);
        assert_int_equal(count_checkpoints(c->uri), 1);
        assert_int_equal(count_objects(c->uri), n_objects); /* the objects of the second try */
        clear_store();
    }
}

/* Fills a real disk. The test needs its own mount namespace. */
static int full_disk_child(void)
{
    char disk[128];
    (void)snprintf(disk, sizeof(disk), "%s/disk", folder);
    if (mkdir(disk, 0755) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", disk, "tmpfs", 0, "size=1m") < 0)
        return 77;

    Error err = ERROR_INIT;
    _cleanup_(comm_freep) Comm *comm = NULL;
    world_check(comm_open_self(&comm, &err) == 0, "%s", err.text);
    _cleanup_(store_freep) Store *store = open_store(disk);
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 5, 0, 1, 0, true);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, 1, 0);
    CheckpointResult first = testing_save(writer, state, 1, 1); /* a checkpoint of 660 KB */
    world_check(first.phase == CHECKPOINT_WRITTEN, "%s", first.error.text);
    checkpoint_settle(writer, true);

    state->scalars.step = 6;
    CheckpointResult second = testing_save(writer, state, 1, 6);
    world_check(second.phase == CHECKPOINT_FAILED && second.error.code == -ENOSPC, "%d %s",
                (int)second.phase, second.error.text);
    world_check(strstr(second.error.text, disk), "%s", second.error.text);
    world_check(strstr(second.error.text, "0.3 MB are missing in file://"), "%s",
                second.error.text);
    world_check(strstr(second.error.text, "keep_last (2)"), "%s", second.error.text);
    world_check(count_checkpoints(disk) == 1, "%zu checkpoints", count_checkpoints(disk));

    _cleanup_(store_freep) Store *again = NULL;
    _cleanup_(manifest_freep) Manifest *m = read_result(&first, &again);
    check_restore(again, m, 2, 1, 5, true);
    return 0;
}

static void test_full_disk(void **unused)
{
    (void)unused;
    (void)fflush(NULL); /* otherwise the child writes the parent's buffers again */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(full_disk_child());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip(); /* no permission to mount; store.put.half=enospc above tests the same */
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int setup(void **unused)
{
    (void)unused;
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
        cmocka_unit_test(test_roundtrip),
        cmocka_unit_test(test_blocking),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_every_byte_of_an_ema_header),
        cmocka_unit_test(test_every_byte_of_a_manifest),
        cmocka_unit_test(test_manifest_hash),
        cmocka_unit_test(test_manifest_text),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
