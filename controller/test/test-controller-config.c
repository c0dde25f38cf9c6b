/* SPDX-License-Identifier: Apache-2.0 */
/* test-controller-config.c - each setting reaches the core, its tables and the leader's record, at the start and at
 * a reload. All values differ. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "controller/config/config.h"

#include <string.h>
#include <unistd.h>

/* A setting: its value in the first and in the second file, and the member of ClusterConfig that it sets. */
typedef struct Row {
    const char *key;
    int64_t first, second;
    size_t offset, size; /* offset and size of the member in ClusterConfig */
    int64_t unit;        /* factor from the setting's value to the core's */
    bool reloads;
} Row;

#define CORE(member) offsetof(ClusterConfig, member), sizeof(((ClusterConfig *)NULL)->member)

static const Row rows[] = {
    {"lease_sec", 11, 12, CORE(ttl_usec), USEC_PER_SEC, false},
    {"start_deadline_sec", 21, 22, CORE(start_deadline_usec), USEC_PER_SEC, true},
    {"leave_deadline_sec", 31, 32, CORE(leave_deadline_usec), USEC_PER_SEC, true},
    {"max_strikes", 41, 42, CORE(max_strikes), 1, true},
    {"strike_window_sec", 51, 52, CORE(strike_window_usec), USEC_PER_SEC, true},
    {"quarantine_sec", 61, 62, CORE(quarantine_usec), USEC_PER_SEC, true},
    {"incidents_kept", 71, 72, CORE(incidents_kept), 1, true},
    {"queue_patience_sec", 81, 82, CORE(queue_patience_usec), USEC_PER_SEC, true},
    {"escalate_sec", 91, 92, CORE(escalate_usec), USEC_PER_SEC, true},
};

static void load(bool second, ControllerConfig *ret)
{
    char file[] = "/tmp/controller-config-test-XXXXXX", text[2048];
    _cleanup_fd_ int fd = mkstemp(file);
    Error err = ERROR_INIT;
    assert_true(fd >= 0);
    size_t n = (size_t)snprintf(
        text, sizeof(text),
        "{\"etcd\": \"127.0.0.1:1\", \"cluster\": \"lab\", \"name\": \"c%d\", \"max_nodes\": %d, "
        "\"max_jobs\": %d, \"admit\": \"n%d\", \"prices\": \"p%d=1.5\", \"record\": \"/r/%d\"",
        second, second ? 102 : 101, second ? 112 : 111, second, second, second);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, ", \"%s\": %lld", rows[i].key,
                              (long long)(second ? rows[i].second : rows[i].first));
    (void)snprintf(text + n, sizeof(text) - n, "}");
    assert_int_equal(file_write(file, text, strlen(text), 0, &err), 0);
    const SettingsCall call = {.file = file};
    if (config_load(&call, ret, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(unlink(file), 0);
}

static void expect(const ControllerConfig *c, bool reloaded)
{
    const ClusterConfig core = config_cluster(c);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        const char *at = (const char *)&core + rows[i].offset;
        const int64_t told = rows[i].size == sizeof(int) ? *(const int *)at : *(const int64_t *)at;
        const int64_t value = reloaded && rows[i].reloads ? rows[i].second : rows[i].first;
        if (told != value * rows[i].unit)
            fail_msg("%s: the core is told %lld", rows[i].key, (long long)told);
    }
    assert_string_equal(core.admit, reloaded ? "n1" : "n0");
    assert_string_equal(core.prices, reloaded ? "p1=1.5" : "p0=1.5");
    assert_int_equal(core.grace_usec, cluster_config_default.grace_usec);
    assert_int_equal(core.hang_wait_usec, cluster_config_default.hang_wait_usec);
}

static void each_setting_reaches_the_core(_unused_ void **state)
{
    ControllerConfig config, fresh;
    load(false, &config);
    expect(&config, false);
    load(true, &fresh);
    config_reload(&config, &fresh);
    expect(&config, true);
}

/* Memory is allocated once, so a reload does not change these settings. */
static void tables_and_the_leaders_record(_unused_ void **state)
{
    ControllerConfig config, fresh;
    load(false, &config);
    load(true, &fresh);
    for (int reloaded = 0; reloaded < 2; reloaded++) {
        if (reloaded)
            config_reload(&config, &fresh);
        const ClusterLimits limits = config_limits(&config);
        const LeaderRecord record = config_leader(&config);
        assert_int_equal(limits.nodes, 101);
        assert_int_equal(limits.jobs, 111);
        assert_true(limits.reports > limits.nodes && limits.requests > 0);
        assert_true(limits.incidents > (int)config.incidents_kept);
        assert_int_equal(record.max_nodes, 101);
        assert_int_equal(record.max_jobs, 111);
        assert_int_equal(record.lease_sec, 11);
        assert_string_equal(record.name, "c0");
        assert_string_equal(record.journal, "/r/0");
    }
}

static void no_setting_of_the_core_is_left_out(_unused_ void **state)
{
    static char covered[sizeof(ClusterConfig)];
    static const Row others[] = {{NULL, 0, 0, CORE(grace_usec), 0, false},
                                 {NULL, 0, 0, CORE(hang_wait_usec), 0, false},
                                 {NULL, 0, 0, CORE(admit), 0, false},
                                 {NULL, 0, 0, CORE(prices), 0, false}};
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        memset(covered + rows[i].offset, 1, rows[i].size);
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        memset(covered + others[i].offset, 1, others[i].size);
    for (size_t i = 0, gap = 0; i < sizeof(covered); i++) {
        gap = covered[i] ? 0 : gap + 1;
        if (gap == sizeof(uint64_t))
            fail_msg("byte %zu of ClusterConfig belongs to a setting that no case sets", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_setting_reaches_the_core),
        cmocka_unit_test(tables_and_the_leaders_record),
        cmocka_unit_test(no_setting_of_the_core_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
