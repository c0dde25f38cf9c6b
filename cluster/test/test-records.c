/* SPDX-License-Identifier: Apache-2.0 */
/* test-records.c - keys and records: a record that is encoded and decoded again is unchanged. */

#include "base/json/json.h"

#include "base/slots.h"
#include "base/test/testing.h"
#include "cluster/eval-record.h"
#include "cluster/keys.h"
#include "cluster/log-records.h"

#include <math.h>
#include <string.h>

static void keys_say_kind_and_rest(void **state)
{
    (void)state;
    char key[KEY_MAX];
    assert_string_equal(key_prefix("lab", -1, key), "/sdtrain/lab/");
    assert_string_equal(key_prefix("lab", KEY_NODES, key), "/sdtrain/lab/nodes/");
    assert_string_equal(key_of("lab", KEY_WORLDS, "a", key), "/sdtrain/lab/worlds/a");
    assert_string_equal(key_ranks("lab", "a", 12, "n1", key), "/sdtrain/lab/ranks/a/12/n1");

    KeyKind kind;
    const char *rest;
    assert_int_equal(key_parse("lab", key, &kind, &rest), 0);
    assert_int_equal(kind, KEY_RANKS);
    char job[64], node[64];
    int64_t generation;
    assert_int_equal(key_parse_ranks(rest, job, sizeof(job), &generation, node, sizeof(node)), 0);
    assert_string_equal(job, "a");
    assert_string_equal(node, "n1");
    assert_int_equal(generation, 12);

    key_rendezvous("lab", "a", INT64_MAX, key);
    assert_int_equal(key_parse("lab", key, &kind, &rest), 0);
    assert_int_equal(key_parse_rendezvous(rest, job, sizeof(job), &generation), 0);
    assert_int_equal(generation, INT64_MAX);

    for (int k = 0; k < KEY_KINDS; k++) {
        key_of("lab", (KeyKind)k, "x", key);
        assert_int_equal(key_parse("lab", key, &kind, &rest), 0);
        assert_int_equal((int)kind, k);
        assert_string_equal(rest, "x");
    }
}

static void keys_of_others_are_refused(void **state)
{
    (void)state;
    KeyKind kind;
    const char *rest;
    static const char *const bad[] = {
        "/sdtrain/other/nodes/a", "/sdtrain/lab/nodes/",  "/sdtrain/lab/novel/a", "", "nodes/a",
        "/sdtrain/lab2/nodes/a",  "/sdtrain/lab/nodes2/a"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(key_parse("lab", bad[i], &kind, &rest), -EINVAL);

    char job[64], node[64];
    int64_t generation;
    static const char *const bad_ranks[] = {"a",     "a/1",     "a/1/",
                                            "a//n",  "a/x/n",   "a/01/n",
                                            "a/0/n", "a/-1/n",  "a/99999999999999999999/n",
                                            "A/1/n", "a/1/n/m", "/1/n"};
    for (size_t i = 0; i < ELEMENTSOF(bad_ranks); i++)
        assert_int_equal(key_parse_ranks(bad_ranks[i], job, sizeof(job), &generation, node,
                                         sizeof(node)),
                         -EINVAL);
    assert_int_equal(key_parse_rendezvous("a/1/n", job, sizeof(job), &generation), -EINVAL);
    assert_int_equal(key_parse_ranks("toolong/1/n", job, 4, &generation, node, sizeof(node)),
                     -EINVAL);
}

static void names_fit_keys_and_cgroups(void **state)
{
    (void)state;
    char longest[65];
    memset(longest, 'a', sizeof(longest));
    longest[64] = '\0';
    assert_false(name_is_valid(longest));
    longest[63] = '\0';
    assert_true(name_is_valid(longest));
    assert_true(name_is_valid("a"));
    assert_true(name_is_valid("node-1.rack2"));
    static const char *const bad[] = {"", "-a", "a-", ".", "a/b", "A", "a b", "\xc3\xa4"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_false(name_is_valid(bad[i]));
}

static void slots_have_a_short_text(void **state)
{
    (void)state;
    char text[SLOTS_TEXT_MAX];
    static const struct {
        uint64_t slots;
        const char *text;
    } cases[] = {{0, ""},
                 {1, "0"},
                 {0xff, "0-7"},
                 {0x4f, "0-3,6"},
                 {UINT64_MAX, "0-63"},
                 {UINT64_C(1) << 63, "63"}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        uint64_t back = 0x55;
        assert_string_equal(slots_format(cases[i].slots, text), cases[i].text);
        assert_int_equal(slots_parse(text, &back), 0);
        assert_true(back == cases[i].slots);
    }
    uint64_t back, every_other = UINT64_C(0x5555555555555555);
    assert_int_equal(slots_parse(slots_format(every_other, text), &back), 0);
    assert_true(back == every_other);
    static const char *const bad[] = {"64", "a", "3-1", "1,", ",1", "1-", "-1", "1 2", "100"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(slots_parse(bad[i], &back), -EINVAL);
}

/* Encodes the record, decodes the text, and encodes the result: both texts must be equal. */
#define ASSERT_ROUND_TRIP(Type, prefix, record)                                                    \
    do {                                                                                           \
        _cleanup_free_ char *first = NULL, *second = NULL;                                         \
        Error err = ERROR_INIT;                                                                    \
        Type back;                                                                                 \
        first = prefix##_encode(record, NULL);                                                     \
        if (prefix##_decode("key", first, strlen(first), &back, &err) < 0)                         \
            fail_msg("%s", err.text);                                                              \
        second = prefix##_encode(&back, NULL);                                                     \
        assert_string_equal(first, second);                                                        \
        prefix##_clear(&back);                                                                     \
    } while (0)

static void health_survives_a_round_trip(void **state)
{
    (void)state;
    HealthRecord health = {.node = "n1",
                           .machine_id = "0123456789abcdef0123456789abcdef",
                           .verdict = NODE_DRAIN,
                           .evidence = "gpu: a row waits for a reset",
                           .cure = "a reset",
                           .bad_slots = 2,
                           .since_usec = 7,
                           .at_usec = 9,
                           .report = "{\"uid\":990}",
                           .report_id = "1-2",
                           .n_probes = 2};
    health.probes[0] = (HealthProbeRecord){.name = "gpu",
                                           .verdict = NODE_DRAIN,
                                           .text = "a row waits for a reset",
                                           .cure = "a reset",
                                           .bad_slots = 2,
                                           .since_usec = 7,
                                           .at_usec = 8,
                                           .took_usec = 3,
                                           .hangs = 1,
                                           .failures = 2};
    health.probes[1] = (HealthProbeRecord){.name = "disk"};
    ASSERT_ROUND_TRIP(HealthRecord, health_record, &health);
}

/* The error about a bad secret quotes no word of the secret. */
static void a_bad_secret_is_not_quoted(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0123456789abcdef", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg",
        "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        char text[256];
        Error err = ERROR_INIT;
        SecretRecord record;
        (void)snprintf(text, sizeof(text), "{\"v\":%d,\"generation\":1,\"secret\":\"%s\"}",
                       RECORD_VERSION, bad[i]);
        assert_int_equal(secret_record_decode("key", text, strlen(text), &record, &err), -EINVAL);
        assert_non_null(strstr(err.text, "secret"));
        assert_null(strstr(err.text, "0123"));
        assert_null(strstr(err.text, "0011"));
    }
    char key[KEY_MAX];
    assert_string_equal(key_of("lab", KEY_SECRETS, "a", key), "/sdtrain-secrets/lab/a");
    KeyKind kind;
    const char *rest;
    assert_int_equal(key_parse("lab", key, &kind, &rest), 0);
    assert_true(kind == KEY_SECRETS && strcmp(rest, "a") == 0);
}

static void a_phase_survives_a_round_trip(void **state)
{
    (void)state;
    PhaseRecord phase = {
        .phase = PHASE_RESIZING,
        .dies_by = "signal 9",
        .dies_usec = 8,
        .generation = 3,
        .go = true,
        .leave = true,
        .reason = "r",
        .since_usec = 1,
        .furthest_step = 100,
        .failures_without_progress = 2,
        .goodput = 0.97,
        .useful_sec = 1.5,
        .saving = 0.25,
        .saving_sec = 0.5,
        .spent = {1, 2, 3, 4, 5},
        .started_usec = 4,
        .grown_usec = 5,
        .tried_revision = 6,
        .submission = "00112233445566778899aabbccddeeff",
        .pause_usec = 4000000,
        .pauses = 3,
        .store_lost_usec = 9,
        .worlds = {{.generation = 2, .size = 3, .step = 10, .decided_usec = 7, .reason = "starts"},
                   {.generation = 3, .size = 2, .step = 20, .decided_usec = 8}},
        .n_worlds = 2,
        .cost = {.rate = 1, .since_usec = 2, .spent = 3, .lost = 4},
        .eval = {.submission = "ffeeddccbbaa99887766554433221100",
                 .present = {.generation = 3, .step = 40},
                 .step = 30,
                 .results = {{20, 2, EVAL_FAILED, 11},
                             {30, 2, EVAL_SKIPPED, 12},
                             {10, 1, EVAL_DONE, 13}},
                 .n_results = 3,
                 .asked = {{.step = 50, .generation = 2, .uri = "s3://c/step-50", .hash = {3, 4}},
                           {.step = 45, .uri = "s3://c/step-45"}},
                 .n_asked = 2}};
    ASSERT_ROUND_TRIP(PhaseRecord, phase_record, &phase);
    EvalRecord eval = {.step = 40,
                       .uri = "s3://b/step-40",
                       .hash = {1, 2},
                       .results = {.numbers = {{"fid", 12.5}, {"clip", -0.25}},
                                   .n_numbers = 2,
                                   .artifacts = {{"grid", "s3://b/grid.png"}},
                                   .n_artifacts = 1,
                                   .text = "all well",
                                   .seconds = 61.5},
                       .node = "n1",
                       .at_usec = 9,
                       .submission = "00112233445566778899aabbccddeeff"};
    ASSERT_ROUND_TRIP(EvalRecord, eval_record, &eval);
}

static void every_record_survives_a_round_trip(void **state)
{
    (void)state;
    NodeRecord node = {.name = "n1",
                       .machine_id = "m",
                       .boot_id = "b",
                       .incarnation = 17,
                       .address = "10.0.0.1",
                       .n_slots = 8,
                       .version = "0.1",
                       .state = NODE_LEFT,
                       .verdict = NODE_DRAIN,
                       .evidence = "xid 79",
                       .job = "a",
                       .world_revision = 5,
                       .generation = 3,
                       .lost_slots = 5,
                       .bad_slots = 2,
                       .log_dir = "/var/log/sdtrain",
                       .features = "secrets later",
                       .memory_bytes = UINT64_C(25276514304),
                       .n_gpus = 8,
                       .lease_sec = 10,
                       .price_class = "p5.48xlarge"};
    ASSERT_ROUND_TRIP(NodeRecord, node_record, &node);
    assert_true(node_knows(&node, "secrets") && node_knows(&node, "later"));
    assert_false(node_knows(&node, "secret") || node_knows(&node, "later ") ||
                 node_knows(&node, ""));
    SecretRecord secret = {.generation = 3,
                           .secret =
                               "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"};
    ASSERT_ROUND_TRIP(SecretRecord, secret_record, &secret);
    CordonRecord cordon = {
        .node = "n1",
        .n_causes = 2,
        .causes = {{.owner = CORDON_JOB,
                    .machine_id = "0123456789abcdef0123456789abcdef",
                    .mode = CORDON_QUARANTINE,
                    .reason = "r",
                    .job = "a",
                    .since_usec = 1,
                    .until_usec = 2,
                    .strikes = 3,
                    .way = "signal 9"},
                   {.owner = CORDON_OPERATOR, .mode = CORDON_DRAIN, .by = "anna@laptop"}}};
    ASSERT_ROUND_TRIP(CordonRecord, cordon_record, &cordon);
    char job_text[] = "{\n \"name\": \"a\" }\n";
    SpecRecord spec = {.spec = job_text,
                       .resume_uri = "file:///m.json",
                       .submitted_usec = 9,
                       .submission = "00112233445566778899aabbccddeeff",
                       .sources = "- 00112233445566778899aabbccddeeff",
                       .by = "anna@laptop"};
    ASSERT_ROUND_TRIP(SpecRecord, spec_record, &spec);
    DesiredRecord desired = {.state = DESIRED_STOPPED,
                             .min = 1,
                             .max = 4,
                             .target = 2,
                             .by = "anna@laptop, etcd user ops",
                             .asked_usec = 7};
    ASSERT_ROUND_TRIP(DesiredRecord, desired_record, &desired);
    RankReport reports[2] = {{.slot = 0,
                              .rank = 4,
                              .pid = 77,
                              .state = RANK_RUNNING,
                              .step = 12,
                              .stage = 5,
                              .at_usec = 9,
                              .started_usec = 1,
                              .ready_usec = 2,
                              .joined_usec = 3,
                              .unmet = 2},
                             {.slot = 3,
                              .rank = 5,
                              .state = RANK_EXITED,
                              .exit_code = -9,
                              .hung = true,
                              .killed = true,
                              .text = "last words"}};
    RanksRecord ranks = {.node = "n1",
                         .incarnation = 17,
                         .generation = 3,
                         .world_revision = 5,
                         .ranks = reports,
                         .n_ranks = 2,
                         .killed_usec = 8,
                         .first_step = 13,
                         .first_step_usec = 14,
                         .left = true,
                         .finished = true};
    ASSERT_ROUND_TRIP(RanksRecord, ranks_record, &ranks);
    RendezvousRecord rendezvous = {.address = "10.0.0.1:2000"};
    ASSERT_ROUND_TRIP(RendezvousRecord, rendezvous_record, &rendezvous);
}

static void progress_survives_a_round_trip(void **state)
{
    (void)state;
    ProgressRecord progress = {.generation = 3,
                               .step = 5,
                               .steps = 10,
                               .loss = 0.5,
                               .grad_norm = 1.5,
                               .lr = 0.001,
                               .samples_per_sec = 7.25,
                               .step_sec = 0.1,
                               .saving_sec = 2.5,
                               .samples_seen = 80,
                               .at_usec = 3,
                               .unsaved_since_usec = 2,
                               .save_error = "the store does not answer",
                               .save_next_bytes = 34000000000,
                               .save_free_bytes = 12000000000,
                               .waits_since_usec = 1,
                               .waits_rank = 4,
                               .diverging_since = 12,
                               .diverging = "the loss is 5e+07, and was 1.17 at best",
                               .metrics_lost = 7,
                               .metrics_lost_first = 5,
                               .metrics_lost_last = 20};
    ASSERT_ROUND_TRIP(ProgressRecord, progress_record, &progress);
}

static void records_of_what_went_wrong_survive_a_round_trip(void **state)
{
    (void)state;
    IncidentRecord incident = {.id = "a-3",
                               .state = INCIDENT_RESOLVED,
                               .severity = SEVERITY_CRITICAL,
                               .job = "a",
                               .cause = "trainer-died",
                               .node = "n1",
                               .rank = -1,
                               .generation = 3,
                               .step = 12,
                               .evidence = "signal 9",
                               .at_usec = 1,
                               .resolved_usec = 2,
                               .lost_steps = 4,
                               .reached_step = 14,
                               .detect_sec = -1,
                               .decide_sec = 0.25,
                               .stop_sec = 0.5,
                               .start_sec = 1,
                               .restore_sec = 2,
                               .replay_sec = 4,
                               .first_step_usec = 7};
    ASSERT_ROUND_TRIP(IncidentRecord, incident_record, &incident);

    LeaderRecord leader = {.name = "c1", .version = "0.2.0", .max_nodes = 1024, .max_jobs = 64};
    ASSERT_ROUND_TRIP(LeaderRecord, leader_record, &leader);

    AlertRecord alert = {.id = "a-3",
                         .incident_usec = 1,
                         .term = 9,
                         .settled = true,
                         .deliveries = {{.sink = "pager",
                                         .state = DELIVERY_FAILED,
                                         .severity = SEVERITY_WARNING,
                                         .attempts = 3,
                                         .at_usec = 2,
                                         .text = "HTTP 400"}},
                         .n_deliveries = 1};
    ASSERT_ROUND_TRIP(AlertRecord, alert_record, &alert);
    RequestRecord request = {.id = "1",
                             .kind = "checkpoint",
                             .target = "a",
                             .answer = "done",
                             .at_usec = 1,
                             .deliveries = {{.sink = "hook", .state = DELIVERY_RESOLVED}},
                             .n_deliveries = 1,
                             .uris = {{.uri = "file:///a", .write = true, .marker = ".m"},
                                      {.uri = "s3://b/c"}},
                             .n_uris = 2,
                             .peers = {{.address = "10.0.0.1"}},
                             .n_peers = 1};
    ASSERT_ROUND_TRIP(RequestRecord, request_record, &request);
}

static void logs_survive_a_round_trip(void **state)
{
    (void)state;
    LogPlace places[] = {{.rank = 3, .file = 7, .offset = 9}, {.rank = 4}};
    LogRequestRecord ask = {.job = "a",
                            .generation = 2,
                            .seq = 5,
                            .follow = true,
                            .tail_bytes = 4096,
                            .pause_usec = 250000,
                            .places = places,
                            .n_places = 2};
    ASSERT_ROUND_TRIP(LogRequestRecord, log_request_record, &ask);
    LogPart parts[] = {{.next = places[0], .bytes = 6, .skipped = 100},
                       {.next = places[1], .bytes = 0, .missing = true}};
    LogLinesRecord lines = {.seq = 5,
                            .parts = parts,
                            .n_parts = 2,
                            .text = (char *)"a line",
                            .more = true,
                            .end = true,
                            .refused = "busy"};
    ASSERT_ROUND_TRIP(LogLinesRecord, log_lines_record, &lines);
}

/* Log requests and answers with bad values are refused: a malicious node or operator could write such records and
 * keys. */
static void logs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        bool is_ask;
        const char *text, *names;
    } bad[] = {
        {true, "{\"v\":2,\"job\":\"../../etc\",\"generation\":1,\"seq\":1}", "job"},
        {true, "{\"v\":2,\"job\":\"a\",\"generation\":0,\"seq\":1}", "generation"},
        {true, "{\"v\":2,\"job\":\"a\",\"generation\":1,\"seq\":0}", "seq"},
        {true, "{\"v\":2,\"job\":\"a\",\"generation\":1,\"seq\":1,\"places\":[{\"rank\":-1}]}",
         "rank"},
        {false, "{\"v\":2,\"seq\":1,\"text\":\"ab\",\"parts\":[]}", "text"},
        {false,
         "{\"v\":2,\"seq\":1,\"text\":\"ab\",\"parts\":[{\"next\":{\"rank\":0},\"bytes\":3}]}",
         "bytes"},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        LogRequestRecord ask;
        LogLinesRecord lines;
        const char *text = bad[i].text;
        int r = bad[i].is_ask ? log_request_record_decode("key", text, strlen(text), &ask, &err)
                              : log_lines_record_decode("key", text, strlen(text), &lines, &err);
        assert_int_equal(r, -EINVAL);
        assert_non_null(strstr(err.text, bad[i].names));
    }
    char key[KEY_MAX], node[NODE_NAME_MAX + 1], id[LOG_ID_MAX + 1];
    assert_string_equal(key_log("lab", KEY_LINES, "n1", "r1", key),
                        "/sdtrain-logs/lab/lines/n1/r1");
    assert_string_equal(key_log("lab", KEY_ASKS, "n1", "", key), "/sdtrain-logs/lab/asks/n1/");
    assert_int_equal(key_parse_log("n1/r1", node, sizeof(node), id, sizeof(id)), 0);
    assert_string_equal(node, "n1");
    assert_string_equal(id, "r1");
    static const char *const keys[] = {"n1", "n1/", "/r1", "n1/r1/x", "n1/..", ""};
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        assert_int_equal(key_parse_log(keys[i], node, sizeof(node), id, sizeof(id)), -EINVAL);
}

static void values_arrive_as_they_were_sent(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    CheckpointsRecord record = {0}, back;
    for (int i = 0; i < RECORD_COMMITS_MAX + 3; i++) {
        CheckpointCommit commit = {.step = i,
                                   .generation = 1,
                                   .hash = {1, (uint64_t)i},
                                   .digest = {UINT64_MAX, 7},
                                   .plans = "00112233445566778899aabbccddeeff",
                                   .at_usec = 5};
        (void)snprintf(commit.uri, sizeof(commit.uri), "file:///c/%d/manifest.json", i);
        checkpoints_append(&record, &commit);
    }
    assert_int_equal(record.n_commits, RECORD_COMMITS_MAX);
    record.commits[RECORD_COMMITS_MAX - 1].struck_out = true;

    _cleanup_free_ char *text = NULL;
    text = checkpoints_record_encode(&record, NULL);
    assert_int_equal(checkpoints_record_decode("key", text, strlen(text), &back, &err), 0);
    assert_memory_equal(&record, &back, sizeof(record));
    assert_int_equal(checkpoints_latest(&back)->step, RECORD_COMMITS_MAX + 1);

    ProgressRecord nan = {.generation = 1, .step = 2, .loss = NAN}, nan_back;
    _cleanup_free_ char *nan_text = NULL;
    nan_text = progress_record_encode(&nan, NULL);
    assert_int_equal(progress_record_decode("key", nan_text, strlen(nan_text), &nan_back, &err), 0);
    assert_true(isnan(nan_back.loss));
}

/* A node that does not report its GPUs, such as a node of version 0.2.0, has no known GPU. */
static void gpus_of_a_node_are_a_number_of_slots(void **state)
{
    (void)state;
    static const struct {
        const char *gpus, *error;
        int n;
    } cases[] = {
        {"", "", 0},
        {",\"gpus\":0", "", 0},
        {",\"gpus\":8", "", 8},
        {",\"gpus\":64", "", 64},
        {",\"gpus\":65", "key: gpus: 65 is not in 0..64", 0},
        {",\"gpus\":-1", "key: gpus: -1 is not in 0..64", 0},
        {",\"gpus\":\"8\"", "key: gpus: expected an integer, got \"8\"", 0},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        NodeRecord node;
        char text[256];
        (void)snprintf(text, sizeof(text),
                       "{\"v\":2,\"name\":\"n1\",\"machine_id\":\"m\",\"incarnation\":1,"
                       "\"slots\":4,\"state\":\"up\"%s}",
                       cases[i].gpus);
        assert_int_equal(node_record_decode("key", text, strlen(text), &node, &err),
                         *cases[i].error ? -EINVAL : 0);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(node.n_gpus, cases[i].n);
    }
}

static void worlds_place_ranks_in_slot_order(void **state)
{
    (void)state;
    WorldRun runs[] = {{.node = "a", .incarnation = 1, .slots = 0x0a},
                       {.node = "b", .incarnation = 2, .slots = 0x07}};
    WorldRecord world = {.generation = 2,
                         .size = 5,
                         .runs = runs,
                         .n_runs = 2,
                         .resume = {.step = 10, .uri = "file:///m.json", .hash = {1, 2}},
                         .incident = "a-1",
                         .reason = "r",
                         .decided_usec = 3};
    ASSERT_ROUND_TRIP(WorldRecord, world_record, &world);

    static const struct {
        int rank, slot;
        size_t run;
    } places[] = {{0, 1, 0}, {1, 3, 0}, {2, 0, 1}, {3, 1, 1}, {4, 2, 1}};
    size_t run;
    int slot;
    for (size_t i = 0; i < ELEMENTSOF(places); i++) {
        assert_int_equal(world_rank_place(&world, places[i].rank, &run, &slot), 0);
        assert_int_equal(run, places[i].run);
        assert_int_equal(slot, places[i].slot);
    }
    assert_int_equal(world_rank_place(&world, 5, &run, &slot), -ENOENT);
    assert_int_equal(world_rank_place(&world, -1, &run, &slot), -ENOENT);
}

static void fields_of_later_versions_are_kept(void **state)
{
    (void)state;
    static const char old[] = "{\"v\":2,\"commits\":[{\"step\":5,\"generation\":1,\"uri\":\"u5\","
                              "\"audit\":\"ok\"}],\"color\":\"red\"}";
    Error err = ERROR_INIT;
    CheckpointsRecord record;
    assert_int_equal(checkpoints_record_decode("key", old, strlen(old), &record, &err), 0);
    checkpoints_append(&record, &(CheckpointCommit){.step = 6, .generation = 1, .uri = "u6"});
    _cleanup_free_ char *text = NULL;
    text = checkpoints_record_encode(&record, old);

    _cleanup_json_ json_t *root = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "color")), "red");
    json_t *commits = json_object_get(root, "commits");
    assert_int_equal(json_array_size(commits), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(commits, 0), "audit")),
                        "ok");
    assert_null(json_object_get(json_array_get(commits, 1), "audit"));
}

/* Old elements that are not objects match no element of the record, so they are dropped. */
static void old_elements_that_are_no_objects_are_written_over(void **state)
{
    (void)state;
    CheckpointsRecord record = {.n_commits = 1};
    _cleanup_free_ char *text =
        checkpoints_record_encode(&record, "{\"v\":2,\"commits\":[7,\"x\",null,[]]}");
    _cleanup_json_ json_t *root = json_loads(text, 0, NULL);
    json_t *commits = json_object_get(root, "commits");
    assert_int_equal(json_array_size(commits), 1);
    assert_true(json_is_object(json_array_get(commits, 0)));
}

static void bad_records_are_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
        int r;
    } cases[] = {
        {"{\"v\":3}",
         "/sdtrain/c/worlds/a: v: record version 3 is newer than 2, which this program knows; "
         "upgrade it",
         -EPROTONOSUPPORT},
        {"{\"v\":1}",
         "/sdtrain/c/worlds/a: v: record version 1 is older than 2, the oldest that this program "
         "reads: it was written before sdtrain 0.2.0",
         -EPROTONOSUPPORT},
        {"{}", "/sdtrain/c/worlds/a: v: missing", -EINVAL},
        {"{\"v\":2}", "/sdtrain/c/worlds/a: generation: missing", -EINVAL},
        {"{\"v\":2,\"generation\":9223372036854775807}",
         "/sdtrain/c/worlds/a: generation: 9223372036854775807 is not in 1..4611686018427387903",
         -EINVAL},
        {"{\"v\":2,\"generation\":0}",
         "/sdtrain/c/worlds/a: generation: 0 is not in 1..4611686018427387903", -EINVAL},
        {"{\"v\":2,\"generation\":1,\"size\":1,\"runs\":[{\"node\":\"n\",\"incarnation\":1,"
         "\"slots\":\"0-x\"}],\"resume\":{\"step\":0,\"uri\":\"\"}}",
         "/sdtrain/c/worlds/a: runs[0].slots: \"0-x\" is not a list of slots like 0-3,6", -EINVAL},
        {"{\"v\":2,\"generation\":1,\"size\":1,\"runs\":[{\"node\":\"n\",\"incarnation\":1,"
         "\"slots\":\"0-1\"}],\"resume\":{\"step\":0,\"uri\":\"\"}}",
         "/sdtrain/c/worlds/a: size: 1, but the runs hold 2 slots", -EINVAL},
        {"{\"v\":2,\"generation\":1,\"size\":1,\"runs\":[{\"node\":\"N\",\"incarnation\":1,"
         "\"slots\":\"0\"}],\"resume\":{\"step\":0,\"uri\":\"\"}}",
         "/sdtrain/c/worlds/a: runs[0].node: \"N\" is not a node's name", -EINVAL},
        {"{\"v\":2,\"generation\":1,\"size\":1,\"runs\":[],\"resume\":{\"step\":0,\"uri\":\"\","
         "\"hash\":\"zz\"}}",
         "/sdtrain/c/worlds/a: resume.hash: \"zz\" is not a hash", -EINVAL},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        WorldRecord world;
        assert_int_equal(world_record_decode("/sdtrain/c/worlds/a", cases[i].text,
                                             strlen(cases[i].text), &world, &err),
                         cases[i].r);
        assert_string_equal(err.text, cases[i].error);
        assert_null(world.runs);
    }
}

static void last_words_need_not_be_utf8(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    IncidentRecord incident = {.id = "a-1",
                               .job = "a",
                               .cause = "trainer-died",
                               .evidence = "cut \xc3"},
                   back;
    _cleanup_free_ char *text = NULL;
    text = incident_record_encode(&incident, NULL);
    assert_int_equal(incident_record_decode("key", text, strlen(text), &back, &err), 0);
    assert_string_equal(back.evidence, "cut ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_say_kind_and_rest),
        cmocka_unit_test(keys_of_others_are_refused),
        cmocka_unit_test(names_fit_keys_and_cgroups),
        cmocka_unit_test(slots_have_a_short_text),
        cmocka_unit_test(a_bad_secret_is_not_quoted),
        cmocka_unit_test(a_phase_survives_a_round_trip),
        cmocka_unit_test(every_record_survives_a_round_trip),
        cmocka_unit_test(logs_survive_a_round_trip),
        cmocka_unit_test(logs_that_do_not_fit_are_refused),
        cmocka_unit_test(health_survives_a_round_trip),
        cmocka_unit_test(progress_survives_a_round_trip),
        cmocka_unit_test(records_of_what_went_wrong_survive_a_round_trip),
        cmocka_unit_test(values_arrive_as_they_were_sent),
        cmocka_unit_test(gpus_of_a_node_are_a_number_of_slots),
        cmocka_unit_test(worlds_place_ranks_in_slot_order),
        cmocka_unit_test(fields_of_later_versions_are_kept),
        cmocka_unit_test(old_elements_that_are_no_objects_are_written_over),
        cmocka_unit_test(bad_records_are_refused_by_key),
        cmocka_unit_test(last_words_need_not_be_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
