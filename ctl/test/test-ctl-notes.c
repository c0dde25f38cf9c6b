/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-notes.c - the notes of `sdctl job start` about accepted jobs, each printed only when it applies; and the
 * note about a job that ended inside its warm-up. */
#include "base/file.h"
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <stdlib.h>
#include <string.h>

#define STEPS "\"steps\": 100"
#define WARM STEPS ", \"optimizer\": {\"warmup_steps\": 100}"

/* Writes the file of a small job, with text `from` replaced by text `to`, and a dataset with this number of samples. */
static void write_file(CtlLab *lab, const char *samples, const char *from, const char *to)
{
    _cleanup_free_ char *text = ctl_job_text(lab, "new"), *changed = NULL, *index = NULL;
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    ctl_write(lab, "job.json", changed);
    assert_true(
        asprintf(&index,
                 "{\"version\": 2, \"shards\": [{\"column_names\": [\"latents\", \"text\"],"
                 " \"column_encodings\": [\"ndarray:float16:4,16,16\", \"ndarray:float16:3,64\"],"
                 " \"column_sizes\": [2048, 384], \"compression\": null, \"format\": \"mds\","
                 " \"hashes\": [], \"raw_data\": {\"basename\": \"shard.00000.mds\","
                 " \"bytes\": 3000, \"hashes\": {}}, \"samples\": %s, \"size_limit\": 67108864,"
                 " \"version\": 2, \"zip_data\": null}]}",
                 samples) > 0);
    ctl_write(lab, "data/index.json", index);
    ctl_write(lab, "more/index.json", index);
}

static void try_it(CtlLab *lab)
{
    if (ctl_run(lab, "job start %s/job.json --dry-run", lab->folder) != 0)
        fail_msg("%s", lab->err);
}

static void assert_silent(const CtlLab *lab, const char *word)
{
    if (strstr(lab->out, word))
        fail_msg("\"%s\" is in:\n%s", word, lab->out);
}

static void put_leader(CtlLab *lab, const char *prices)
{
    LeaderRecord leader = {.name = "c1"};
    (void)snprintf(leader.settings, sizeof(leader.settings), "{%s}", prices);
    CTL_PUT(lab, KEY_LEADER, "1", leader_record, leader);
}

static void put_node(CtlLab *lab, const char *name, int slots, const char *price_class,
                     uint64_t memory)
{
    NodeRecord node = {.machine_id = "m",
                       .incarnation = 1,
                       .n_slots = slots,
                       .memory_bytes = memory};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.price_class, sizeof(node.price_class), "%s", price_class);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

/* For a job without possible mistakes, four lines and no note are printed. */
static void a_good_job_is_taken_quietly(void **state)
{
    CtlLab *lab = *state;
    put_leader(lab, "");
    put_node(lab, "n1", 4, "", UINT64_C(1) << 34);
    write_file(lab, "640", STEPS, WARM);
    try_it(lab);
    assert_contains(lab->out,
                    "job new would be submitted: 100 steps of 16 samples on 1 to 4 ranks\n"
                    "2.5 passes over the 640 samples of the data\n"
                    "memory of a rank: ");
    assert_contains(lab->out, " MiB of 1 rank, ");
    assert_contains(lab->out, " MiB of 4\nnothing was submitted (--dry-run)\n");
    assert_silent(lab, "note");
    assert_silent(lab, "cost");
    assert_silent(lab, "takes about");
}

static void what_may_not_be_meant_is_noted(void **state)
{
    CtlLab *lab = *state;
    char text[600], expected[600];
    put_leader(lab, "");
    put_node(lab, "n1", 4, "", 0);
    write_file(lab, "640", STEPS, STEPS);
    try_it(lab);
    assert_contains(lab->out, "\nnote: the warm-up of 10000 steps is longer than the job: the "
                              "learning rate ends at 1e-06, 1 % of train.optimizer.lr\n");
    write_file(lab, "640", STEPS, STEPS ", \"optimizer\": {\"warmup_steps\": 101}");
    try_it(lab);
    assert_contains(lab->out, "\nnote: the warm-up of 101 steps is longer than the job: the "
                              "learning rate ends at 9.9e-05, 99 % of train.optimizer.lr\n");

    write_file(lab, "16", STEPS, WARM);
    try_it(lab);
    assert_silent(lab, "note");
    assert_contains(lab->out, "\n100 passes over the 16 samples of the data\n");
    write_file(lab, "15", STEPS, WARM);
    try_it(lab);
    assert_contains(lab->out, "\nnote: train.global_batch 16 is more than the 15 samples of the "
                              "data: a step trains some of them more than once\n");

    (void)snprintf(text, sizeof(text), "%s/saved/new", lab->folder);
    write_file(lab, "640", text, "");
    for (int i = 0; i < 3; i++) {
        static const char *const below[] = {"data/saved", "data", "data2"};
        char to[200];
        (void)snprintf(to, sizeof(to), "%s/%s", lab->folder, below[i]);
        write_file(lab, "640", text, to);
        try_it(lab);
        (void)snprintf(expected, sizeof(expected),
                       "\nnote: checkpoint.uri lies inside the dataset of data.streams[0], "
                       "file://%s/data\n",
                       lab->folder);
        if (i < 2)
            assert_contains(lab->out, expected);
        else
            assert_silent(lab, "lies inside");
    }
}

static void shares_and_passes_are_told(void **state)
{
    CtlLab *lab = *state;
    char from[300], to[900], expected[300];
    put_leader(lab, "");
    put_node(lab, "n1", 4, "", 0);
    (void)snprintf(from, sizeof(from), "{\"uri\": \"%s/data\"}", lab->folder);
    (void)snprintf(to, sizeof(to),
                   "{\"uri\": \"%s/data\"}, {\"uri\": \"%s/more\", \"proportion\": 3}", lab->folder,
                   lab->folder);
    write_file(lab, "640", from, to);
    try_it(lab);
    assert_contains(lab->out, "\nshares: stream 0 25 % (0.625 passes), stream 1 75 % (1.88 "
                              "passes)\n");
    assert_silent(lab, "are the same");
    (void)
        snprintf(to, sizeof(to),
                 "{\"uri\": \"%s/data\"}, {\"uri\": \"%s/more\"}, {\"uri\": \"file://%s/data/\"}, "
                 "{\"uri\": \"%s/more\"}, {\"uri\": \"%s/data\"}",
                 lab->folder, lab->folder, lab->folder, lab->folder, lab->folder);
    write_file(lab, "640", from, to);
    try_it(lab);
    assert_contains(lab->out, "stream 3 20 % (0.5 passes), and 1 more\n");
    (void)snprintf(expected, sizeof(expected),
                   "\nnote: data.streams[0] and [2] are the same, file://%s/data\n", lab->folder);
    assert_contains(lab->out, expected);
    assert_contains(lab->out, "\nnote: data.streams[1] and [3] are the same, file://");
    assert_contains(lab->out, "\nnote: data.streams[0] and [4] are the same, file://");
}

static void dollars_are_told_where_there_are_prices(void **state)
{
    CtlLab *lab = *state;
    write_file(lab, "640", STEPS, WARM);
    put_leader(lab, "\"prices\": \"big=12.50 *=1\"");
    put_node(lab, "n1", 2, "small", 0);
    try_it(lab); /* only two slots are known, so the cost of four ranks is unknown */
    assert_contains(lab->out, "\ncosts $1.00 an hour on 1 rank\n");
    put_node(lab, "n2", 4, "small", 0);
    try_it(lab);
    assert_contains(lab->out, "\ncosts $1.00 an hour on 1 rank, $4.00 on 4 ranks\n");
    put_node(lab, "n3", 2, "big", 0);
    try_it(lab);
    assert_contains(lab->out,
                    "\ncosts $1.00 to $12.50 an hour on 1 rank, $4.00 to $27.00 on 4 ranks\n");
    put_leader(lab, "\"prices\": \"other=5\"");
    try_it(lab); /* the nodes have no price */
    assert_silent(lab, "costs");
    put_leader(lab, "");
    try_it(lab);
    assert_silent(lab, "costs");
}

/* The duration of the whole job is estimated from a similar job, which takes 0.5 s per step on two ranks
 * (ctl_put_running_job()). */
static void the_whole_is_told_where_another_job_has_done_it(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *from, *to;
        bool is_alike;
    } cases[] = {
        {STEPS, "\"steps\": 7200", true},
        {STEPS, STEPS ", \"seed\": 3", true},
        {"\"global_batch\": 16", "\"global_batch\": 32", false},
        {"\"grain\": 4", "\"grain\": 2", false},
        {"unet.json", "unet2.json", false},
        {"\"min\": 1", "\"min\": 3", false}, /* a world of two ranks is too small for this job */
        {"\"max\": 4", "\"max\": 1", false},
    };
    put_leader(lab, "\"prices\": \"*=3.60\"");
    put_node(lab, "n1", 4, "", 0);
    ctl_put_running_job(lab, "before");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char path[200], *unet;
        size_t n;
        Error err = ERROR_INIT;
        write_file(lab, "640", cases[i].from, cases[i].to);
        (void)snprintf(path, sizeof(path), "%s/unet.json", lab->folder);
        assert_int_equal(file_read(path, 1 << 20, &unet, &n, &err), 0);
        ctl_write(lab, "unet2.json", unet);
        free(unet);
        try_it(lab);
        if (cases[i].is_alike)
            assert_contains(lab->out, " on 2 ranks, 0.50 s a step as job before, for $");
        else
            assert_silent(lab, "takes about");
    }
    write_file(lab, "640", STEPS, "\"steps\": 7200");
    try_it(lab);
    assert_contains(lab->out, "\ntakes about 1 h 0 min in all on 2 ranks, 0.50 s a step as job "
                              "before, for $7.20\n");
    put_leader(lab, "");
    try_it(lab);
    assert_contains(lab->out, " a step as job before\n");
}

static void memory_is_told_in_full_where_it_is_tight(void **state)
{
    CtlLab *lab = *state;
    put_leader(lab, "");
    write_file(lab, "640", STEPS, WARM);
    put_node(lab, "n1", 4, "", UINT64_C(1) << 34);
    try_it(lab);
    assert_silent(lab, "tight");
    /* Four ranks need more than 80 % of this memory. */
    put_node(lab, "n2", 4, "", UINT64_C(250) << 20);
    try_it(lab);
    assert_contains(lab->out, "\nnote: memory is tight\nmemory of a rank, MiB  ");
    assert_contains(lab->out, "\nsum  ");
}

/* A job that ends inside its warm-up never reached the learning rate of its file. This is reported only after the
 * end. */
static void an_end_inside_the_warm_up_is_told(void **state)
{
    CtlLab *lab = *state;
    static const char *const says = "  ended at step 12, inside its warm-up of 10000 steps: the "
                                    "learning rate was 1.2e-07 at most, not 0.0001\n";
    ctl_put_running_job(lab, "w");
    assert_int_equal(ctl_run(lab, "job status w"), 0);
    assert_silent(lab, "warm-up");
    static const JobPhase ends[] = {PHASE_SUCCEEDED, PHASE_STOPPED, PHASE_FAILED};
    for (size_t i = 0; i < ELEMENTSOF(ends); i++) {
        ctl_put_phase(lab, "w", ends[i], "over");
        assert_int_equal(ctl_run(lab, "job status w"), 0);
        assert_contains(lab->out, says);
    }
    _cleanup_free_ char *text = ctl_job_text(lab, "v"), *changed = NULL;
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(strstr(text, STEPS) - text), text,
                         STEPS ", \"optimizer\": {\"warmup_steps\": 12}",
                         strstr(text, STEPS) + strlen(STEPS)) > 0);
    ctl_put_running_job(lab, "v");
    SpecRecord spec = {.spec = changed, .submitted_usec = UINT64_C(1699999999000000)};
    CTL_PUT(lab, KEY_SPECS, "v", spec_record, spec);
    ctl_put_phase(lab, "v", PHASE_SUCCEEDED, "over");
    assert_int_equal(ctl_run(lab, "job status v"), 0);
    assert_silent(lab, "warm-up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_job_is_taken_quietly, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(what_may_not_be_meant_is_noted, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(shares_and_passes_are_told, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(dollars_are_told_where_there_are_prices, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(the_whole_is_told_where_another_job_has_done_it, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(memory_is_told_in_full_where_it_is_tight, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(an_end_inside_the_warm_up_is_told, ctl_setup, ctl_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
