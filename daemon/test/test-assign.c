/* SPDX-License-Identifier: Apache-2.0 */
/* test-assign.c - each field of a world and of a slot reaches the `assign` message of its rank. All values differ,
 * ranks differ from their slots, and the world begins on another node, with three ranks. */
#include "daemon/test/testing-machine.h"
#include "daemon/world/local-world.h"

#include <string.h>

enum { INCARNATION = 5, GENERATION = 6, STEP = 70, SIZE = 7, FIRST_SLOT = 1, SECOND_SLOT = 3 };

#define SUBMISSION "0123456789abcdef0123456789abcdef"
#define SECRET "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4"

static Workload w;
static Machine home;
static Etcd etcd;
static bool knows_secrets = true;
static const SlotGpus gpus = {.pci = {"0000:10:00", "0000:11:00", "0000:12:00", "0000:13:00"},
                              .n = 4};
static DaemonConfig config = {.cluster = "lab",
                              .node = "n1",
                              .address = "10.9.8.7",
                              .slots = 4,
                              .lease_sec = 10,
                              .fence_sec = 601,
                              .drain_sec = 61,
                              .startup_sec = 403,
                              .save_sec = 605,
                              .hang_floor_sec = 7};

static int set_up(_unused_ void **state)
{
    const WorkloadNeeds needs = {.config = &config,
                                 .etcd = &etcd,
                                 .ranks = &home.ranks,
                                 .timers = &home.timers,
                                 .knows_secrets = &knows_secrets,
                                 .gpus = &gpus,
                                 .incarnation = INCARNATION};
    memory_begin();
    machine_init(&home);
    workload_init(&w, &needs, &unheard_events);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    workload_clear(&w);
    machines_end();
    return 0;
}

static Hash hash_of(char letter)
{
    Hash hash;
    memset(&hash, letter, sizeof(hash));
    return hash;
}

static void put_world(const ResumePoint *resume)
{
    char key[KEY_MAX];
    WorldRun runs[] = {{.node = "n0", .incarnation = 2, .slots = 0x0d},
                       {.node = "n1",
                        .incarnation = INCARNATION,
                        .slots = 1 << FIRST_SLOT | 1 << SECOND_SLOT},
                       {.node = "n2", .incarnation = 3, .slots = 0x03}};
    WorldRecord world = {.generation = GENERATION,
                         .size = SIZE,
                         .runs = runs,
                         .n_runs = ELEMENTSOF(runs),
                         .resume = *resume,
                         .submission = SUBMISSION};
    SpecRecord spec = {.spec = (char *)"{\"the\":\"file\"}", .submission = SUBMISSION};
    (void)snprintf(spec.sources, sizeof(spec.sources), "hashes of the data");
    put_spec(&spec);
    const int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    SecretRecord secret = {.generation = GENERATION, .secret = SECRET};
    _cleanup_free_ char *secret_text = secret_record_encode(&secret, NULL);
    /* Secret and world have one revision, as if they were written in one transaction. */
    change_at(at, key_of("lab", KEY_SECRETS, "a", key), secret_text, 0);
    job_set_world(job_get(&w, "a"), &world, at);
    says(&home, FIRST_SLOT, CHANNEL_HELLO, 0);
    says(&home, SECOND_SLOT, CHANNEL_HELLO, 0);
    answer_all();
}

static void expect(int slot, int rank, const ResumePoint *resume)
{
    const ChannelMessage *m = &home.trainers[slot].assigned;
    assert_int_equal(home.trainers[slot].n_told[CHANNEL_ASSIGN], 1);
    assert_int_equal(m->generation, GENERATION);
    assert_int_equal(m->assign.rank, rank);
    assert_int_equal(m->assign.world_size, SIZE);
    assert_string_equal(m->assign.job, "a");
    assert_string_equal(m->assign.node, "n1");
    assert_string_equal(m->assign.submission, SUBMISSION);
    assert_string_equal(m->assign.sources, "hashes of the data");
    assert_string_equal(m->assign.secret, SECRET);
    assert_string_equal(m->assign.gpu, gpus.pci[slot]);
    assert_string_equal(m->assign.bind_address, config.address);
    assert_int_equal(m->assign.startup_usec, 403 * USEC_PER_SEC);
    assert_int_equal(m->step, resume->step);
    assert_string_equal(m->assign.resume_uri, resume->uri);
    assert_memory_equal(&m->assign.resume_hash, &resume->hash, sizeof(Hash));
    assert_int_equal(m->assign.find, resume->find);
    assert_int_equal(m->assign.adopt, resume->adopt);
    assert_string_equal(m->assign.takes_over, resume->takes_over);
}

static void each_field_reaches_its_rank(_unused_ void **state)
{
    const ResumePoint points[] = {{.step = STEP,
                                   .uri = "file:///c/step-70/manifest.json",
                                   .hash = hash_of('h'),
                                   .find = FIND_MUST,
                                   .takes_over = "r-77"},
                                  {.step = 0,
                                   .uri = "file:///of/another/manifest.json",
                                   .adopt = true},
                                  {.find = FIND_NOTHING}};
    for (size_t i = 0; i < ELEMENTSOF(points); i++) {
        if (i > 0) {
            (void)tear_down(NULL);
            (void)set_up(NULL);
        }
        put_world(&points[i]);
        assert_int_equal(home.n_started, 2);
        expect(FIRST_SLOT, 3, &points[i]); /* n0 has ranks 0 to 2 */
        expect(SECOND_SLOT, 4, &points[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_field_reaches_its_rank, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
