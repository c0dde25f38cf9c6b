/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-settings.c - each setting of ranks and of their node takes effect when the node starts and at a reload,
 * in an idle node, too. A reload's values count for ranks that run, or for ranks that are started next.
 *
 * The page of settings lists the settings that a reload changes. The test fails for a setting of that list without a
 * test in this file or in another file. */
#include "base/file.h"
#include "base/json/json.h"
#include "daemon/test/testing-node.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- no setting is without a test ---- */

typedef struct Tested {
    const char *key, *by; /* by: the file with the test; NULL: this file */
} Tested;

static const Tested tested[] = {
    {"fence_sec", NULL},
    {"drain_sec", NULL},
    {"log_bytes", NULL},
    {"trainer", NULL},
    {"hang_floor_sec", NULL},
    {"hang_factor", NULL},
    {"startup_sec", NULL},
    {"save_sec", NULL},
    {"trainer_environment", NULL},
    {"paths_read", NULL},
    {"paths_write", NULL},
    {"labels", NULL},
    {"allow_exec", NULL},
    {"exec_secrets", "test-program-worlds"},
    {"health_sec", "test-daemon-health"},
    {"probe_sec", "test-daemon-health"},
    {"disk_min_bytes", "test-daemon-health"},
    {"xid_actions", "test-daemon-health"},
    {"spot_endpoint", "test-daemon-health"},
};

static bool is_tested(const char *key)
{
    char file[PATH_MAX];
    for (size_t i = 0; i < ELEMENTSOF(tested); i++) {
        if (strcmp(tested[i].key, key) != 0)
            continue;
        if (!tested[i].by)
            return true;
        _cleanup_free_ char *text = NULL;
        (void)snprintf(file, sizeof(file), "%s/daemon/test/%s.c", getenv("SDTRAIN_SOURCE"),
                       tested[i].by);
        assert_int_equal(file_read(file, 1 << 20, &text, NULL, NULL), 0);
        return strstr(text, key) != NULL;
    }
    return false;
}

static void each_setting_that_a_reload_changes_is_tested(_unused_ void **state)
{
    char file[PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    assert_non_null(getenv("SDTRAIN_SOURCE"));
    (void)snprintf(file, sizeof(file), "%s/docs/reference/settings.md", getenv("SDTRAIN_SOURCE"));
    assert_int_equal(file_read(file, 1 << 20, &text, NULL, NULL), 0);
    char *end = strstr(text, "\n## sdcontroller");
    assert_non_null(end);
    *end = '\0';
    for (char *line = strstr(text, "\n## sdtraind"); line; line = strchr(line + 1, '\n')) {
        char key[64];
        const char *last = strchr(line + 1, '\n');
        const size_t length = last ? (size_t)(last - line) : strlen(line);
        if (sscanf(line, "\n| `%63[a-z_0-9]` |", key) != 1 ||
            strncmp(line + length - 7, "| yes |", 7) != 0)
            continue;
        n++;
        if (!is_tested(key))
            fail_msg("a reload changes %s, and no test says that it reaches its user", key);
    }
    assert_int_equal(n, ELEMENTSOF(tested));
}

/* ---- the node ---- */

/* Does what sdtraind.c does once the new settings are in place. */
static void reload(void)
{
    node_touch(&n1.manager->node);
    settle();
}

static json_t *labels_of(const char *disk, const char *price)
{
    return json_pack("{s:s, s:s}", "disk", disk, "price", price);
}

static void labels_and_start_are_in_the_record_of_an_idle_node(_unused_ void **state)
{
    n1.config.labels = labels_of("nvme", "a");
    n1.config.startup_sec = 401;
    join(&n1);
    assert_non_null(strstr(node_key(&n1)->value, "nvme"));
    NodeRecord record = node_record(&n1);
    assert_int_equal(record.startup_usec, 401 * USEC_PER_SEC);
    assert_string_equal(record.price_class, "a");
    node_record_clear(&record);

    json_decref(n1.config.labels);
    n1.config.labels = labels_of("sata", "b");
    n1.config.startup_sec = 402;
    reload();
    assert_null(strstr(node_key(&n1)->value, "nvme"));
    assert_non_null(strstr(node_key(&n1)->value, "sata"));
    record = node_record(&n1);
    assert_int_equal(record.startup_usec, 402 * USEC_PER_SEC);
    assert_string_equal(record.price_class, "b");
    node_record_clear(&record);
    json_decref(n1.config.labels);
    n1.config.labels = NULL;
    reload();
    assert_null(strstr(node_key(&n1)->value, "sata"));
}

/* A node says that it runs programs only if it may read them, too. */
static void allow_exec_is_in_the_record(_unused_ void **state)
{
    char key[KEY_MAX];
    (void)key_of("lab", KEY_PROGRAMS, ".rights", key);
    join(&n1);
    NodeRecord record = node_record(&n1);
    assert_false(node_knows(&record, FEATURE_PROGRAMS));
    n1.config.allow_exec = true;
    node_touch(&n1.manager->node);
    answer(under_way(&n1.etcd, key), DENIED);
    settle();
    record = node_record(&n1);
    assert_false(node_knows(&record, FEATURE_PROGRAMS));
    reload(); /* it asks again after a while, not at once */
    assert_false(is_under_way(&n1.etcd, key));
    pass(60 * USEC_PER_SEC);
    renew(&n1.etcd);
    settle();
    record = node_record(&n1);
    assert_true(node_knows(&record, FEATURE_PROGRAMS));
    n1.config.allow_exec = false;
    reload();
    record = node_record(&n1);
    assert_false(node_knows(&record, FEATURE_PROGRAMS));
}

static void fence_sec_counts_for_ranks_that_run(_unused_ void **state)
{
    for (int later = 0; later < 2; later++) {
        n1.config.fence_sec = 40;
        join(&n1);
        run_world("a", 1, 1, 0);
        n1.etcd.is_cut = true;
        pass(35 * USEC_PER_SEC);
        if (later) {
            n1.config.fence_sec = 60;
            reload();
        }
        pass(10 * USEC_PER_SEC); /* etcd has now been silent for 45 s */
        assert_killed(&n1, 0, !later);
        pass(20 * USEC_PER_SEC); /* etcd has now been silent for 65 s */
        assert_killed(&n1, 0, true);
        nodes_end();
        (void)nodes_set_up(NULL);
    }
}

static void drain_sec_counts_for_the_next_drain(_unused_ void **state)
{
    n1.config.drain_sec = 20;
    join(&n1);
    run_world("a", 1, 1, 0);
    n1.config.drain_sec = 50;
    reload();
    drain_signal(n1.manager, "SIGTERM");
    for (int i = 0; i < 45; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
    assert_killed(&n1, 0, false);
    pass(6 * USEC_PER_SEC);
    assert_killed(&n1, 0, true);
}

/* ---- ranks that are started next ---- */

static const char *expected[8]; /* variables that must be set; those with "!" must not */
static const char *expected_trainer;
static int n_checked;

static bool has(char *const *environment, const char *variable)
{
    for (; *environment; environment++)
        if (strcmp(*environment, variable) == 0)
            return true;
    return false;
}

static void check_program(const ProcessProgram *program, _unused_ int slot)
{
    assert_string_equal(program->argv[0], expected_trainer);
    for (size_t i = 0; i < ELEMENTSOF(expected) && expected[i]; i++)
        if (has(program->environment, expected[i] + (*expected[i] == '!')) == (*expected[i] == '!'))
            fail_msg("environment: %s", expected[i]);
    n_checked++;
}

static void set_ranks(const char *value)
{
    char text[64];
    json_decref(n1.config.trainer_environment);
    json_decref(n1.config.paths_read);
    json_decref(n1.config.paths_write);
    (void)snprintf(text, sizeof(text), "MINE=%s", value);
    n1.config.trainer_environment = json_pack("[s]", text);
    (void)snprintf(text, sizeof(text), "/read/%s", value);
    n1.config.paths_read = json_pack("[s]", text);
    (void)snprintf(text, sizeof(text), "/write/%s", value);
    n1.config.paths_write = json_pack("[s]", text);
}

static void a_rank_is_started_by_the_newest_settings(_unused_ void **state)
{
    n_checked = 0;
    n1.machine.check_program = check_program;
    expected[0] = "MINE=1";
    expected[1] = "SDTRAIN_PATHS_READ=[\"/read/1\"]";
    expected[2] = "SDTRAIN_PATHS_WRITE=[\"/write/1\"]";
    expected_trainer = "/opt/first";
    (void)snprintf(n1.config.trainer, sizeof(n1.config.trainer), "/opt/first");
    (void)snprintf(n1.config.log_dir, sizeof(n1.config.log_dir), "/log/first");
    n1.config.log_bytes = 70001;
    set_ranks("1");
    join(&n1);
    run_world("a", 1, 1, 0);
    assert_int_equal(n_checked, 1);
    assert_string_equal(newest_log_dir, "/log/first");
    assert_int_equal(newest_log_bytes, 70001);

    expected[0] = "MINE=2";
    expected[1] = "SDTRAIN_PATHS_READ=[\"/read/2\"]";
    expected[2] = "SDTRAIN_PATHS_WRITE=[\"/write/2\"]";
    expected[3] = "!MINE=1";
    expected_trainer = "/opt/second";
    (void)snprintf(n1.config.trainer, sizeof(n1.config.trainer), "/opt/second");
    n1.config.log_bytes = 70002;
    set_ranks("2");
    reload();
    (void)decide("a", 2, 0, 1);
    settle();
    dies(&n1.machine, 0);
    settle();
    run_world("a", 3, 1, 0);
    assert_int_equal(n_checked, 2);
    assert_int_equal(newest_log_bytes, 70002);
    json_decref(n1.config.trainer_environment);
    json_decref(n1.config.paths_read);
    json_decref(n1.config.paths_write);
}

/* ---- the watchdog of ranks that run ---- */

static void pass_in_contact(uint64_t sec)
{
    for (uint64_t i = 0; i < sec; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
}

static void say_stage(int64_t step, TrainStage stage)
{
    writes_message(&n1.machine, 0,
                   (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = stage});
    const FakeTrainer *t = trainer_in(&n1.machine, 0);
    t->process->events.heard(t->process->events.userdata);
    settle();
}

static void train_some_steps(void)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    for (int64_t step = 1; step <= 1 + WATCHDOG_STEPS_MIN; step++) {
        say_stage(step, STAGE_COMPUTING);
        pass_in_contact(1);
    }
    say_stage(2 + WATCHDOG_STEPS_MIN, STAGE_COMPUTING);
}

/* Before change() a silence of `first` seconds would end the rank; afterwards only a silence of `second` seconds
 * does. */
static void expect_silence(void (*change)(void), uint64_t first, uint64_t second)
{
    assert_true(second > first + 4);
    pass_in_contact(first - 2);
    assert_killed(&n1, 0, false);
    change();
    reload();
    pass_in_contact(second - first);
    assert_killed(&n1, 0, false);
    pass_in_contact(4);
    assert_killed(&n1, 0, true);
}

static void raise_floor(void) { n1.config.hang_floor_sec = 30; }

static void hang_floor_sec_counts_at_once(_unused_ void **state)
{
    n1.config.hang_floor_sec = 20;
    n1.config.hang_factor = 2;
    train_some_steps();
    expect_silence(raise_floor, 20, 30);
}

static void raise_factor(void) { n1.config.hang_factor = 30; }

static void hang_factor_counts_at_once(_unused_ void **state)
{
    n1.config.hang_floor_sec = 1;
    n1.config.hang_factor = 20; /* the steps take one second */
    train_some_steps();
    expect_silence(raise_factor, 20, 30);
}

static void raise_startup(void) { n1.config.startup_sec = 30; }

static void startup_sec_counts_at_once(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    (void)decide("a", 1, 1, 0);
    settle();
    expect_silence(raise_startup, 20, 30);
}

static void raise_save(void) { n1.config.save_sec = 30; }

static void save_sec_counts_at_once(_unused_ void **state)
{
    n1.config.hang_floor_sec = 1;
    n1.config.hang_factor = 2;
    n1.config.save_sec = 20;
    train_some_steps();
    say_stage(2 + WATCHDOG_STEPS_MIN, STAGE_SAVING);
    expect_silence(raise_save, 20, 30);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_that_a_reload_changes_is_tested),
        CASE(labels_and_start_are_in_the_record_of_an_idle_node),
        CASE(allow_exec_is_in_the_record),
        CASE(fence_sec_counts_for_ranks_that_run),
        CASE(drain_sec_counts_for_the_next_drain),
        CASE(a_rank_is_started_by_the_newest_settings),
        CASE(hang_floor_sec_counts_at_once),
        CASE(hang_factor_counts_at_once),
        CASE(startup_sec_counts_at_once),
        CASE(save_sec_counts_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
