/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-program.c - jobs of kind "exec": what is checked and submitted, and the verbs that treat them otherwise. */
#include "base/file.h"
#include "base/test/testing.h"

#include "base/json/json.h"
#include "ctl/test/testing-ctl.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define HEAD "{\"name\": \"p\", \"kind\": \"exec\", "
#define WORLD "\"world\": {\"min\": 2, \"max\": 4, \"per_node\": 2}, "
#define EXEC "\"exec\": {\"command\": [\"train\", \"--epochs\", \"3\"], \"dir\": \"/srv\""
#define FILE_TEXT HEAD WORLD EXEC "}, \"checkpoint\": {\"uri\": \"s3://b/c/\"}}"

static void put_node(CtlLab *lab, const char *name, int slots, const char *features)
{
    NodeRecord node = {.machine_id = "m", .incarnation = 1, .n_slots = slots, .state = NODE_UP};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.features, sizeof(node.features), "%s", features);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

static void put_leader(CtlLab *lab, const char *settings)
{
    LeaderRecord leader = {.name = "c1"};
    (void)snprintf(leader.settings, sizeof(leader.settings), "%s", settings);
    CTL_PUT(lab, KEY_LEADER, "1", leader_record, leader);
}

static int start(CtlLab *lab, const char *text, const char *options)
{
    ctl_write(lab, "job.json", text);
    return ctl_run(lab, "job start -f %s/job.json %s", lab->folder, options);
}

static void refuses(CtlLab *lab, const char *text, const char *options, const char *why)
{
    assert_int_equal(start(lab, text, options), 1);
    assert_contains(lab->err, why);
}

/* The nodes get the file from programs/<job>, which spec and world are bound to by its hash. */
static void a_program_is_submitted(void **state)
{
    CtlLab *lab = *state;
    SpecRecord spec;
    ProgramRecord program;
    Error err = ERROR_INIT;
    put_leader(lab, "{\"leave_deadline_usec\": 60000000}");
    put_node(lab, "n1", 3, "doctor programs");
    put_node(lab, "n2", 2, "programs");
    assert_int_equal(start(lab, FILE_TEXT, ""), 0);
    assert_contains(lab->out,
                    "job p is submitted: train --epochs ... on 2 to 4 ranks, 2 per node\n");
    _cleanup_free_ char *spec_text = ctl_get(lab, KEY_SPECS, "p"),
                        *program_text = ctl_get(lab, KEY_PROGRAMS, "p"),
                        *desired = ctl_get(lab, KEY_DESIRED, "p");
    assert_non_null(desired);
    assert_int_equal(spec_record_decode("spec", spec_text, strlen(spec_text), &spec, &err), 0);
    assert_int_equal(program_record_decode("program", program_text, strlen(program_text), &program,
                                           &err),
                     0);
    assert_string_equal(program.file, FILE_TEXT);
    assert_string_equal(program.submission, spec.submission);
    assert_string_equal(program.by, spec.by);
    assert_true(hash_equal(spec.program, hash_bytes(FILE_TEXT, strlen(FILE_TEXT))));
    program_record_clear(&program);
    spec_record_clear(&spec);
}

static void what_can_never_run_is_refused(void **state)
{
    CtlLab *lab = *state;
    put_leader(lab, "{\"leave_deadline_usec\": 60000000}");
    put_node(lab, "n1", 4, "doctor");
    refuses(lab, FILE_TEXT, "",
            "world.per_node: no node that is known runs programs (allow_exec) and has 2 slots;");
    assert_int_equal(start(lab, FILE_TEXT, "--queue --name queued"), 0);
    put_node(lab, "n2", 3, "programs");
    refuses(lab, HEAD "\"world\": {\"min\": 4, \"max\": 4, \"per_node\": 2}, " EXEC "}}", "",
            "world.min: 4 ranks are needed at least, and the nodes that are known and run programs "
            "(allow_exec) have 2 at 2 per node;");
    refuses(lab, HEAD WORLD EXEC ", \"leave_s\": 61}}", "",
            "exec.leave_s: 61 is longer than the 60 s that the controllers wait");
    assert_int_equal(start(lab, HEAD WORLD EXEC ", \"leave_s\": 60}}", "--dry-run"), 0);
    refuses(lab, FILE_TEXT, "--resume s3://b/c/step-4",
            "--resume: a program finds its checkpoint by itself");
    refuses(lab, HEAD WORLD EXEC "}, \"checkpoint\": {\"uri\": \"c\"}}", "",
            "checkpoint.uri: \"c\" is relative");
    refuses(lab, HEAD WORLD EXEC "}, \"train\": {}}", "", "train: ");
    _cleanup_free_ char *none = ctl_get(lab, KEY_SPECS, "p"),
                        *nothing = ctl_get(lab, KEY_PROGRAMS, "p");
    assert_true(!none && !nothing);
}

/* --dry-run prints the command and the environment of rank 0. */
static void a_rehearsal_prints_the_environment(void **state)
{
    CtlLab *lab = *state;
    const char *text = HEAD WORLD
        "\"exec\": {\"command\": [\"train\", \"--of\", \"${WORLD_SIZE}\"], \"dir\": \"/srv\", "
        "\"device\": \"cuda\", \"env\": {\"A\": \"${SDTRAIN_NODE}\", \"OMP_NUM_THREADS\": \"3\"}, "
        "\"secrets\": [\"KEY\"]}}";
    assert_int_equal(start(lab, text, "--dry-run --queue"), 0);
    assert_contains(lab->out, "rank 0 of 4 would run, in /srv:\n  train --of 4\nwith ");
    assert_contains(lab->out, "\n  A=<node>\n  OMP_NUM_THREADS=3\n  KEY=***\n");
    assert_contains(lab->out, "\n  GROUP_WORLD_SIZE=2\n");
    assert_contains(lab->out, "\n  CUDA_VISIBLE_DEVICES=<GPU>,<GPU>\n");
    assert_contains(lab->out, "\n  MASTER_PORT=<port>\n");
    assert_contains(lab->out, "\n  HOME=<home of the node's user>\n");
}

static void submit(CtlLab *lab)
{
    put_node(lab, "n1", 4, "programs");
    put_node(lab, "n2", 4, "programs");
    assert_int_equal(start(lab, FILE_TEXT, ""), 0);
}

static void each_node_gives_just_so_many(void **state)
{
    CtlLab *lab = *state;
    submit(lab);
    assert_int_equal(ctl_run(lab, "job resize p --world 3"), 1);
    assert_contains(lab->err,
                    "--world 3: each node of job p gives 2 ranks (world.per_node), so the "
                    "number must be a multiple of that");
    assert_int_equal(ctl_run(lab, "job resize p --world 6"), 0);
}

static void a_deleted_job_leaves_no_program(void **state)
{
    CtlLab *lab = *state;
    submit(lab);
    assert_int_equal(ctl_run(lab, "job delete p"), 0);
    _cleanup_free_ char *program = ctl_get(lab, KEY_PROGRAMS, "p");
    assert_null(program);
}

/* Nobody else can read a program's checkpoint, so a person says of which step it is. */
static void a_person_names_a_checkpoint(void **state)
{
    CtlLab *lab = *state;
    char id[64];
    RequestRecord request;
    Error err = ERROR_INIT;
    submit(lab);
    assert_int_equal(ctl_run(lab, "job recover p s3://b/c/step-40"), 1);
    assert_contains(lab->err, "job p is a program: --step N says of which step the checkpoint is");
    assert_int_equal(ctl_run(lab, "job recover p s3://b/other/step-40 --step 40"), 1);
    assert_contains(lab->err, "s3://b/other/step-40: outside of the job's checkpoint.uri");
    assert_int_equal(ctl_run(lab, "job recover p s3://b/c/../d/step-40 --step 40"), 1);
    ctl_begin(lab, "job recover p s3://b/c/step-40 --step 40 --timeout 1");
    _cleanup_free_ char *text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_int_equal(request_record_decode("request", text, strlen(text), &request, &err), 0);
    assert_string_equal(request.kind, "recover");
    assert_string_equal(request.commit.uri, "s3://b/c/step-40");
    assert_int_equal(request.commit.step, 40);
    request_record_clear(&request);
    (void)ctl_finish(lab); /* nobody answers */
}

/* A value that a program has not is not shown as 0. */
static void what_is_not_known_is_not_shown(void **state)
{
    CtlLab *lab = *state;
    submit(lab);
    ctl_put_phase(lab, "p", PHASE_RUNNING, "starts");
    assert_int_equal(ctl_run(lab, "job status p"), 0);
    assert_null(strstr(lab->out, "step"));
    assert_null(strstr(lab->out, "goodput"));
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "  job     p: running, ");
    assert_int_equal(ctl_run(lab, "job status p -o json"), 0);
    _cleanup_json_ json_t *json = ctl_json(lab);
    assert_string_equal(json_string_value(json_object_get(json, "kind")), "exec");
    assert_true(json_is_null(json_object_get(json, "goodput")));
    assert_true(json_is_null(json_object_get(json, "samples_seen")));

    char path[400];
    size_t n;
    Error err = ERROR_INIT;
    _cleanup_free_ char *page = NULL;
    /* a program that reports steps alone, and a checkpoint, whose contents only the program knows */
    const CheckpointCommit commit = {.generation = 1, .step = 4, .at_usec = 1};
    ProgressRecord progress = {.generation = 1, .step = 5, .step_sec = 0.1, .loss = NAN};
    progress.grad_norm = progress.lr = progress.samples_per_sec = NAN;
    CheckpointsRecord saved = {.n_commits = 1, .commits = {commit}};
    (void)snprintf(saved.commits[0].uri, sizeof(saved.commits[0].uri), "s3://b/c/4");
    CTL_PUT(lab, KEY_PROGRESS, "p", progress_record, progress);
    CTL_PUT(lab, KEY_CHECKPOINTS, "p", checkpoints_record, saved);
    assert_int_equal(ctl_run(lab, "job status p"), 0);
    assert_contains(lab->out, "\n  step 5\n");
    assert_contains(lab->out, "\n  checkpoint of step 4\n    s3://b/c/4\n");
    assert_int_equal(ctl_run(lab, "job report p --out %s/report.html", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/report.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "<span id=\"step\">5</span></b>");
    assert_contains(page, "s3://b/c/4");
    assert_contains(page, "The losses that a program reports are drawn by the live page alone.");
    assert_null(strstr(page, "digest"));
    assert_int_equal(ctl_run(lab, "job events p"), 0);
    assert_null(strstr(lab->out, "digest"));
    assert_contains(lab->out, "s3://b/c/4\n");
}

static void verbs_of_our_format_refuse(void **state)
{
    CtlLab *lab = *state;
    static const char *const verbs[] = {"job export p --out x.safetensors",
                                        "job sample p --out x.png", "job metrics p",
                                        "job report p --out x.html --alone "
                                        "00000000000000000000000000000000"};
    submit(lab);
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++) {
        assert_int_equal(ctl_run(lab, "%s", verbs[i]), 1);
        assert_string_equal(lab->err, "sdctl: job p: kind: \"exec\": only its program can read its "
                                      "checkpoints\n");
    }
}

/* A file keeps what an earlier call has written, also if the name is not a job's. */
static void a_refusal_empties_no_file(void **state)
{
    CtlLab *lab = *state;
    static const char *const names[] = {"p", "q"};
    char path[400];
    struct stat st;
    submit(lab);
    ctl_write(lab, "kept.csv", "kept");
    (void)snprintf(path, sizeof(path), "%s/kept.csv", lab->folder);
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        assert_true(ctl_run(lab, "job metrics %s -o csv --out %s", names[i], path) > 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, strlen("kept"));
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, ctl_setup, ctl_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_program_is_submitted),
        CASE(what_can_never_run_is_refused),
        CASE(each_node_gives_just_so_many),
        CASE(a_deleted_job_leaves_no_program),
        CASE(a_rehearsal_prints_the_environment),
        CASE(a_person_names_a_checkpoint),
        CASE(what_is_not_known_is_not_shown),
        CASE(verbs_of_our_format_refuse),
        CASE(a_refusal_empties_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
