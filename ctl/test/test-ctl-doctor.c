/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-doctor.c - the findings of `sdctl doctor`, with a real etcd, stores on this machine, and nodes played by the
 * test. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "ctl/doctor/checks.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_leader(CtlLab *lab, const char *key, const char *name, int lease_sec)
{
    LeaderRecord record = {.lease_sec = lease_sec};
    (void)snprintf(record.name, sizeof(record.name), "%s", name);
    (void)snprintf(record.version, sizeof(record.version), "%s", SDTRAIN_VERSION);
    CTL_PUT(lab, KEY_LEADER, key, leader_record, record);
}

static void put_node(CtlLab *lab, const char *name, int lease_sec, const char *features)
{
    NodeRecord record = {.machine_id = "1", .incarnation = 1, .n_slots = 1, .lease_sec = lease_sec};
    (void)snprintf(record.address, sizeof(record.address), "10.0.0.%s", name);
    (void)snprintf(record.name, sizeof(record.name), "%s", name);
    (void)snprintf(record.version, sizeof(record.version), "%s", SDTRAIN_VERSION);
    (void)snprintf(record.features, sizeof(record.features), "%s", features);
    CTL_PUT(lab, KEY_NODES, name, node_record, record);
}

static void put_report(CtlLab *lab, const char *node, const char *id, const char *report)
{
    HealthRecord record = {.verdict = NODE_HEALTHY};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    (void)snprintf(record.report, sizeof(record.report), "%s", report);
    (void)snprintf(record.report_id, sizeof(record.report_id), "%s", id);
    CTL_PUT(lab, KEY_HEALTH, node, health_record, record);
}

static const char *peers = ""; /* the list "peers" of the next reports */
static const char *programs = "null";

/* Returns a report as `sdtrainer doctor` prints it, with this list of stores. */
static const char *report(double clock_off_sec, int uid, int nofile, const char *stores)
{
    static char text[1024];
    (void)snprintf(text, sizeof(text),
                   "{\"version\": \"%s\", \"uid\": %d, \"user\": \"sdtrain\", \"at_usec\": %llu,"
                   " \"shm_bytes\": 8589934592, \"memlock_bytes\": -1, \"nofile\": %d,"
                   " \"synchronised\": true, \"cgroup\": \"/sys/fs/cgroup/x\", \"stores\": [%s],"
                   " \"peers\": [%s], \"programs\": %s}",
                   SDTRAIN_VERSION, uid,
                   (unsigned long long)((double)clock_realtime_usec() + clock_off_sec * 1e6),
                   nofile, stores, peers, programs);
    return text;
}

#define GOOD_STORE "{\"r\": 0, \"error\": \"\", \"took_usec\": 9, \"lacks_marker\": false}"

/* Returns the text of the first finding with this check and state that has this place, or with place NULL any place.
 * Returns NULL if there is none. */
static const char *found(const json_t *all, const char *check, const char *state, const char *place)
{
    size_t i, k;
    json_t *one, *where;
    json_array_foreach (json_object_get(all, "findings"), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "check")), check) != 0 ||
            strcmp(json_string_value(json_object_get(one, "state")), state) != 0)
            continue;
        if (!place)
            return json_string_value(json_object_get(one, "found"));
        json_array_foreach (json_object_get(one, "where"), k, where)
            if (strcmp(json_string_value(where), place) == 0)
                return json_string_value(json_object_get(one, "found"));
    }
    return NULL;
}

#define ASSERT_FOUND(all, check, state, place, words)                                              \
    do {                                                                                           \
        const char *_words = found(all, check, state, place);                                      \
        assert_non_null(_words);                                                                   \
        assert_contains(_words, words);                                                            \
    } while (0)

/* Writes a job file. Its data are in the lab's folder, and its checkpoints go into `saved`. */
static void write_job(CtlLab *lab)
{
    _cleanup_free_ char *job = ctl_job_text(lab, "a");
    ctl_write(lab, "job.json", job);
}

static void what_is_well_is_few_rows(void **state)
{
    CtlLab *lab = *state;
    enum { NODES = 1000 };
    char id[64], name[32];
    put_leader(lab, "1", "c1", 10);
    put_leader(lab, "2", "c2", 10);
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(name, sizeof(name), "n%04d", i);
        put_node(lab, name, 10, FEATURE_DOCTOR);
    }
    ctl_begin(lab, "doctor --timeout 60");
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(request, "\"kind\":\"doctor\"");
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(name, sizeof(name), "n%04d", i);
        put_report(lab, name, id, report(0, 990, i == 7 || i == 9 ? 64 : 65536, ""));
    }
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->out, "nodes        1000 nodes: up\n");
    assert_contains(lab->out, "lease_sec    1002 programs: 10 s\n");
    assert_contains(lab->out, "998 nodes: open files, locked memory and /dev/shm suffice\n");
    assert_contains(lab->out, "n0007, n0009: 64 open files: too few");
    assert_contains(lab->out, "cluster lab: 1 thing is wrong\n");
    int lines = 0;
    for (const char *p = lab->out; (p = strchr(p, '\n')); p++)
        lines++;
    assert_true(lines < 30);
    assert_null(ctl_get(lab, KEY_REQUESTS, id)); /* sdctl has removed the request */
}

static void what_differs_is_named(void **state)
{
    CtlLab *lab = *state;
    char id[64], path[200];
    put_leader(lab, "1", "c1", 10);
    put_node(lab, "blank", 10, FEATURE_DOCTOR);
    put_node(lab, "clock", 10, "secrets " FEATURE_DOCTOR);
    put_node(lab, "fine", 10, FEATURE_DOCTOR);
    put_node(lab, "fine2", 10, FEATURE_DOCTOR " " FEATURE_SHARED);
    put_node(lab, "goes", 10, FEATURE_DOCTOR);
    put_node(lab, "lease", 5, FEATURE_DOCTOR);
    put_node(lab, "liar", 10, FEATURE_DOCTOR);
    put_node(lab, "local", 10, FEATURE_DOCTOR);
    put_node(lab, "mute", 10, FEATURE_DOCTOR);
    put_node(lab, "old", 0, "secrets");
    put_node(lab, "store", 10, FEATURE_DOCTOR);
    put_node(lab, "user", 10, FEATURE_DOCTOR);
    HealthRecord lost = {.node = "lost"}, left = {.node = "left", .left_usec = 1};
    CTL_PUT(lab, KEY_HEALTH, "lost", health_record, lost);
    CTL_PUT(lab, KEY_HEALTH, "left", health_record, left);
    write_job(lab);
    (void)snprintf(path, sizeof(path), "%s/saved/a", lab->folder);
    assert_int_equal(folder_make(path, NULL), 0);

    ctl_begin(lab, "doctor -f %s/job.json --timeout 10 -o json", lab->folder);
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(request, "/saved/a\",\"write\":true,\"marker\":\".sdtrain-doctor-");
    assert_contains(request, "/data\",\"write\":false,\"marker\":\"\"");
    const char *good = GOOD_STORE ", " GOOD_STORE;
    ctl_remove(lab, KEY_NODES, "goes");
    put_report(lab, "blank", id, "{\"error\": \"\"}");
    put_report(lab, "clock", id, report(-90, 990, 65536, good));
    put_report(lab, "fine", id, report(0, 990, 65536, good));
    /* A report for another request does not count as the answer. */
    put_report(lab, "fine2", "an earlier one", report(0, 1, 65536, ""));
    put_report(lab, "fine2", id, report(0, 990, -1, good));
    put_report(lab, "lease", id, report(0, 990, 65536, good));
    put_report(lab, "liar", id, "{\"uid\": \"\\u001b[2J\"}");
    put_report(lab, "local", id,
               report(0, 990, 65536,
                      "{\"r\": 0, \"error\": \"\", \"lacks_marker\": true}, " GOOD_STORE));
    put_report(lab, "store", id,
               report(0, 990, 65536,
                      "{\"r\": -13, \"error\": \"not yours\\u001b[2J\"}, " GOOD_STORE));
    put_report(lab, "user", id, report(0, 991, 65536, good));
    assert_int_equal(ctl_finish(lab), 1);
    _cleanup_json_ json_t *all = ctl_json(lab);
    assert_true(json_is_false(json_object_get(all, "ok")));
    ASSERT_FOUND(all, "clock", "wrong", "clock", "is 90 s behind this machine's");
    ASSERT_FOUND(all, "clock", "ok", "fine", "is synchronised");
    ASSERT_FOUND(all, "lease_sec", "wrong", "lease", "5 s; the others have 10 s");
    ASSERT_FOUND(all, "lease_sec", "note", "old", "does not tell");
    ASSERT_FOUND(all, "lease_sec", "ok", "c1", "10 s");
    ASSERT_FOUND(all, "nodes", "wrong", "mute", "does not answer within 10 s");
    ASSERT_FOUND(all, "nodes", "wrong", "goes", "went away while it was asked");
    ASSERT_FOUND(all, "nodes", "wrong", "blank", "cannot look at itself: its report: version: ");
    ASSERT_FOUND(all, "nodes", "wrong", "liar", "cannot look at itself: its report: ");
    ASSERT_FOUND(all, "nodes", "wrong", "lost", "is lost: its lease ran out");
    ASSERT_FOUND(all, "nodes", "note", "left", "has left");
    ASSERT_FOUND(all, "nodes", "note", "old", "cannot be asked: it is of version");
    ASSERT_FOUND(all, "stores", "ok", "here", "/saved/a: can be written and read");
    ASSERT_FOUND(all, "stores", "ok", "fine2", "/saved/a: can be written and read");
    ASSERT_FOUND(all, "stores", "wrong", "store", "/saved/a: not yours?[2J");
    ASSERT_FOUND(all, "stores", "wrong", "local", "it is another folder");
    assert_contains(lab->out, "ranks run as sdtrain there, who may not write to it: chown, chmod");
    ASSERT_FOUND(all, "user", "wrong", "user", "ranks run as sdtrain (991), elsewhere as 990");
    ASSERT_FOUND(all, "user", "ok", "fine", "ranks run as sdtrain (990)");
    ASSERT_FOUND(all, "controllers", "note", NULL, "no other one is ready to follow");
    ASSERT_FOUND(all, "controllers", "note", "admit", "fine2 has etcd's user of all nodes");
    ASSERT_FOUND(all, "etcd rights", "note", NULL, "authentication is off, or it is root");
    assert_null(strchr(lab->out, '\033'));
    (void)snprintf(path, sizeof(path), "%s/saved/a", lab->folder);
    assert_int_equal(rmdir(path), 0); /* the folder is empty: no marker is left */
}

static void stores_are_tried_from_here(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    write_job(lab);
    assert_int_equal(ctl_run(lab, "doctor -f %s/job.json -o json", lab->folder), 1);
    json_t *all = ctl_json(lab);
    ASSERT_FOUND(all, "stores", "note", "here", "/saved/a: is not there yet");
    ASSERT_FOUND(all, "stores", "ok", "here", "/data: a dataset that can be read");
    ASSERT_FOUND(all, "controllers", "wrong", NULL, "nobody leads");
    ASSERT_FOUND(all, "nodes", "wrong", NULL, "there is none in cluster lab");
    json_decref(all);
    (void)snprintf(path, sizeof(path), "%s/saved", lab->folder);
    /* A folder that sdctl makes would have the wrong owner, so sdctl must not make folders. */
    assert_int_equal(access(path, F_OK), -1);

    ctl_write(lab, "saved", "a file");
    (void)snprintf(path, sizeof(path), "%s/data/index.json", lab->folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ctl_run(lab, "doctor -f %s/job.json", lab->folder), 1);
    assert_contains(lab->out, "! wrong  stores       here: ");
    assert_contains(lab->out, "Not a directory\n");
    assert_contains(lab->out, "/data/index.json: no such object\n");
    assert_int_equal(ctl_run(lab, "doctor -f %s/nothing.json", lab->folder), 3);
    assert_contains(lab->err, "nothing.json");
}

/* A cache folder is on each node's own disk. So only nodes test it, and the nodes' user ids may differ. */
static void a_nodes_own_folder_is_tried_there(void **state)
{
    CtlLab *lab = *state;
    char id[64];
    put_leader(lab, "1", "c1", 10);
    put_node(lab, "n1", 10, FEATURE_DOCTOR);
    _cleanup_free_ char *text = ctl_job_text(lab, "a");
    _cleanup_json_ json_t *job = json_loads(text, 0, NULL);
    json_object_set_new(json_object_get(job, "data"), "cache_dir", json_string("/nowhere/cache"));
    _cleanup_free_ char *with_cache = json_dumps(job, 0);
    ctl_write(lab, "job.json", with_cache);
    ctl_begin(lab, "doctor -f %s/job.json --timeout 5 -o json", lab->folder);
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(request, "/nowhere/cache\",\"write\":true,\"marker\":\"\"");
    put_report(lab, "n1", id,
               report(0, 990, 65536,
                      GOOD_STORE ", {\"r\": -13, \"error\": \"Permission denied\"}, " GOOD_STORE));
    assert_int_equal(ctl_finish(lab), 1);
    _cleanup_json_ json_t *all = ctl_json(lab);
    ASSERT_FOUND(all, "stores", "wrong", "n1", "/nowhere/cache: Permission denied");
    assert_null(found(all, "stores", "wrong", "here"));
}

/* The stores of all submitted jobs are tested, each store once. */
static void jobs_name_the_stores(void **state)
{
    CtlLab *lab = *state;
    for (int i = 0; i < 5; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "j%d", i);
        SpecRecord spec = {.spec = ctl_job_text(lab, name), .submitted_usec = 1};
        CTL_PUT(lab, KEY_SPECS, name, spec_record, spec);
        free(spec.spec);
    }
    assert_int_equal(ctl_run(lab, "doctor"), 1);
    assert_contains(lab->out, "/saved/j0: is not there yet");
    assert_contains(lab->out, "/saved/j3: is not there yet");
    assert_null(strstr(lab->out, "/saved/j4"));
    /* The checkpoint store of j4 and the data of the five jobs were not tried. */
    assert_contains(lab->out, "6 more were not tried\n");
}

/* The room for the next checkpoint is a row for each running job whose rank 0 reports it. */
static void room_for_checkpoints_is_a_row(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *job, *found;
        int64_t next, has;
    } cases[] = {
        {"a", "340.0 MB are missing: 60.0 MB free, the next checkpoint has 400.0 MB", 400000000,
         60000000},
        {"b", "400.0 MB free, the next checkpoint has 400.0 MB", 400000000, 400000000},
        {"c", NULL, 0, 0},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ctl_put_running_job(lab, cases[i].job);
        ProgressRecord progress = {.generation = 2,
                                   .save_next_bytes = cases[i].next,
                                   .save_free_bytes = cases[i].has};
        CTL_PUT(lab, KEY_PROGRESS, cases[i].job, progress_record, progress);
    }
    assert_int_equal(ctl_run(lab, "doctor -o json"), 1);
    _cleanup_json_ json_t *all = ctl_json(lab);
    ASSERT_FOUND(all, "room", "wrong", "a", cases[0].found);
    ASSERT_FOUND(all, "room", "ok", "b", cases[1].found);
    assert_null(found(all, "room", "ok", "c"));
    assert_null(found(all, "room", "wrong", "c"));
}

static void an_etcd_that_is_down_is_a_row(void **state)
{
    CtlLab *lab = *state;
    assert_int_equal(ctl_run(lab, "doctor --etcd 127.0.0.1:1"), 5);
    assert_contains(lab->out, "! wrong  etcd         127.0.0.1:1: does not answer: ");
    assert_contains(lab->err, "no member of etcd answers, so nothing else was looked at");
    put_leader(lab, "1", "c1", 10);
    put_leader(lab, "2", "c2", 9);
    assert_int_equal(ctl_run(lab, "doctor --etcd %s,127.0.0.1:1 -o json",
                             testing_etcd_endpoints(lab->server)),
                     1);
    _cleanup_json_ json_t *all = ctl_json(lab);
    ASSERT_FOUND(all, "etcd", "wrong", "127.0.0.1:1", "does not answer");
    ASSERT_FOUND(all, "etcd", "ok", testing_etcd_endpoints(lab->server), "answers, version 3.");
    ASSERT_FOUND(all, "lease_sec", "wrong", "c2", "9 s; the others have 10 s");
    ASSERT_FOUND(all, "etcd speed", "ok", NULL, "takes ");
}

/* A node that cannot reach a peer, or does not know the peer's name, is reported. */
static void ways_that_are_closed_are_named(void **state)
{
    CtlLab *lab = *state;
    char id[64];
    put_leader(lab, "1", "c1", 10);
    for (int i = 1; i <= 4; i++) {
        const char name[2] = {(char)('0' + i)};
        put_node(lab, name, 10, FEATURE_DOCTOR);
    }
    ctl_begin(lab, "doctor --timeout 60");
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(request, "\"peers\":[{\"address\":\"10.0.0.1\"},{\"address\":\"10.0.0.2\"},");
    peers = "90, 250, -110, 2000";
    put_report(lab, "1", id, report(0, 990, 65536, ""));
    put_report(lab, "2", id, report(0, 990, 65536, ""));
    peers = "90, 250, 80, -99";
    put_report(lab, "3", id, report(0, 990, 65536, ""));
    peers = "-9223372036854775808";
    put_report(lab, "4", id, report(0, 990, 65536, ""));
    peers = "";
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->out, "1, 2: cannot reach 3 at 10.0.0.3: Connection timed out\n");
    assert_contains(lab->out, "3: cannot reach 4 at 10.0.0.4: the name is not known there\n");
    assert_contains(lab->out,
                    "nodes tried to reach 4 of them; what answers does so within 2.0 ms\n");
    assert_contains(lab->out, "4: cannot look at itself: its report: peers: element 0 is neither");
}

/* A node that runs programs of others reports as whom, and what they cannot use. */
static void as_whom_programs_run_is_reported(void **state)
{
    static const struct {
        const char *report, *state, *wanted;
    } cases[] = {
        {"{\"uid\": 991, \"user\": \"progs\", \"memlock_bytes\": -1, \"nofile\": 9, "
         "\"closed_devices\": []}",
         "ok", "run as progs (991), in units"},
        {"{\"uid\": 990, \"user\": \"sdtrain\", \"memlock_bytes\": -1, \"nofile\": 9, "
         "\"closed_devices\": []}",
         "note", "run as sdtrain, the user of sdtraind, and can read its keys"},
        {"{\"error\": \"/run/x: No such file or directory\"}", "wrong",
         "cannot be started: /run/x: No such file or directory"},
        {"{\"uid\": 991, \"user\": \"progs\", \"memlock_bytes\": -1, \"nofile\": 9, "
         "\"closed_secrets\": \"/etc/s\", \"closed_devices\": []}",
         "wrong", "run as progs, who cannot read /etc/s (exec_secrets)"},
        {"{\"uid\": 991, \"user\": \"progs\", \"memlock_bytes\": -1, \"nofile\": 9, "
         "\"closed_devices\": [\"/dev/nvidia0\", \"/dev/nvidia1\"]}",
         "note", "run as progs, who cannot open 2 devices, the first /dev/nvidia0"},
    };
    CtlLab *lab = *state;
    char id[64];
    put_leader(lab, "1", "c1", 10);
    for (size_t i = 0; i <= ELEMENTSOF(cases); i++) {
        const char name[2] = {(char)('0' + i)};
        put_node(lab, name, 10, FEATURE_DOCTOR);
    }
    ctl_begin(lab, "doctor --timeout 60 -o json");
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    for (size_t i = 0; i <= ELEMENTSOF(cases); i++) {
        const char name[2] = {(char)('0' + i)};
        programs = i < ELEMENTSOF(cases) ? cases[i].report : "7";
        put_report(lab, name, id, report(0, 990, 65536, ""));
    }
    programs = "null";
    assert_int_equal(ctl_finish(lab), 1);
    _cleanup_json_ json_t *all = json_loads(lab->out, 0, NULL);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const char name[2] = {(char)('0' + i)};
        ASSERT_FOUND(all, "programs", cases[i].state, name, cases[i].wanted);
    }
    const char bad[2] = {(char)('0' + ELEMENTSOF(cases))};
    ASSERT_FOUND(all, "nodes", "wrong", bad, "its report: programs: ");
}

/* Runs the compaction check with a limit of 3 revisions and returns its findings as JSON, which the caller frees. */
static char *look_at_compaction(CtlLab *lab, int64_t revision)
{
    Findings f = {0};
    check_compaction(lab->etcd, "/sdtrain/lab/requests/.rights", revision, 3, &f);
    _cleanup_json_ json_t *all = findings_json(&f);
    findings_clear(&f);
    return json_dumps(all, JSON_COMPACT);
}

/* An etcd that keeps too many revisions is reported. To fill an etcd with 500,000 revisions takes minutes, so the test
 * calls the function with a limit of 3. */
static void an_etcd_that_keeps_everything_is_named(void **state)
{
    CtlLab *lab = *state;
    for (int i = 0; i < 5; i++)
        put_leader(lab, "1", "c1", 10);
    _cleanup_free_ char *full = look_at_compaction(lab, lab->revision);
    assert_contains(full, "\"state\":\"wrong\"");
    assert_contains(full, "it keeps more than 3 old revisions");
    assert_contains(full, "--auto-compaction-mode=revision");
    testing_etcd_compact(lab->server);
    _cleanup_free_ char *compacted = look_at_compaction(lab, lab->revision);
    assert_contains(compacted, "\"state\":\"ok\"");
    assert_contains(compacted, "it compacts old revisions");
    _cleanup_free_ char *young = look_at_compaction(lab, 3);
    assert_contains(young, "less than 3 revisions");

    assert_int_equal(ctl_run(lab, "doctor"), 1);
    assert_contains(lab->out, "less than 500000 revisions: whether it compacts cannot be told yet");

    testing_etcd_kill(lab->server, 0);
    _cleanup_free_ char *silent = look_at_compaction(lab, lab->revision);
    assert_contains(silent, "\"state\":\"wrong\"");
    assert_contains(silent, "whether it compacts cannot be told: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_well_is_few_rows, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(what_differs_is_named, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(stores_are_tried_from_here, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(ways_that_are_closed_are_named, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(as_whom_programs_run_is_reported, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_nodes_own_folder_is_tried_there, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(jobs_name_the_stores, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(room_for_checkpoints_is_a_row, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(an_etcd_that_is_down_is_a_row, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(an_etcd_that_keeps_everything_is_named, ctl_setup,
                                        ctl_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
