/* SPDX-License-Identifier: Apache-2.0 */
/* test-job-exec.c - job files of kind "exec": what they hold, every refusal with its text, and the ${NAME} in their
 * texts. */
#include "base/memory.h"
#include "base/test/testing.h"

#include "protocol/exec-variables.h"
#include "protocol/job.h"

#include <signal.h>
#include <string.h>

#define HEAD                                                                                       \
    "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 2, \"max\": 8, \"per_node\": 2}, "
#define EXEC                                                                                       \
    "\"exec\": {\"command\": [\"python3\", \"train.py\", \"--rank=${RANK}\"], \"dir\": \"/srv/train\""

#define ALONE                                                                                      \
    "{\"name\": \"eval\", \"kind\": \"eval\", \"world\": {\"min\": 1, \"max\": 1}, "               \
    "\"of\": {\"job\": \"demo\"}, "
#define LOSS "\"loss\": {\"streams\": [{\"uri\": \"/held-out\"}]"
#define GRID "\"grid\": {\"streams\": [{\"uri\": \"/data\"}], \"uri\": \"s3://b/pictures\""
#define EVAL "{\"name\": \"eval\", \"kind\": \"eval\", \"world\": {\"min\": 1, \"max\": 2}, "
#define PREFIX ", \"checkpoint\": {\"uri\": \"s3://b/c\"}"

static Job *parse(const char *text)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    if (job_parse_any("job.json", text, strlen(text), &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

static void defaults_are_those_of_the_page(_unused_ void **state)
{
    _cleanup_(job_freep) Job *job = parse(HEAD EXEC "}}");
    const JobExec *e = &job->exec;
    assert_int_equal(job->kind, JOB_EXEC);
    assert_int_equal(job->world.per_node, 2);
    assert_int_equal(job->recovery.max_failures_at_same_step, 3);
    assert_int_equal(job->recovery.progress_sec, 600);
    assert_null(job->checkpoint.uri);
    assert_string_equal(e->command[2], "--rank=${RANK}");
    assert_null(e->command[3]);
    assert_string_equal(e->dir, "/srv/train");
    assert_true(!e->setup && !e->env && !e->secrets && !e->step_pattern && !e->loss_pattern);
    assert_int_equal(e->device, JOB_DEVICE_CPU);
    assert_int_equal(e->fence_sec, EXEC_NO_FENCE);
    assert_true(!e->own_gpu && !e->notify && e->steps == 0 && e->n_codes == 0);
    assert_int_equal(e->leave_sec, 60);
    assert_int_equal(e->leave_signal, SIGTERM);
    assert_int_equal(e->silence_sec, 0);
}

static void every_key_arrives(_unused_ void **state)
{
    ExitCode code;
    _cleanup_(job_freep) Job *job = parse(
        HEAD EXEC
        ", \"setup\": [\"./fetch\", \"${SDTRAIN_JOB}\"], \"env\": {\"A\": \"x $$ ${WORLD_SIZE}\"},"
        "\"device\": \"cuda\", \"own_gpu\": true, \"notify\": true, \"fence_s\": 0, \"steps\": 70, \"leave_s\": 9,"
        "\"leave_signal\": \"SIGUSR1\", \"silence_s\": 11,"
        "\"progress\": {\"step\": \"step ([0-9]+)\", \"loss\": \"loss ([0-9.e-]+)\"},"
        "\"exit_codes\": {\"3\": \"never-retry\", \"4\": \"store-unreachable\"}, \"secrets\": [\"HF_TOKEN\"]},"
        "\"checkpoint\": {\"uri\": \"s3://b/c\"}, \"recovery\": {\"progress_s\": 5}}");
    const JobExec *e = &job->exec;
    assert_string_equal(e->setup[1], "${SDTRAIN_JOB}");
    assert_string_equal(e->env[0], "A=x $$ ${WORLD_SIZE}");
    assert_true(e->device == JOB_DEVICE_CUDA && e->own_gpu);
    assert_true(e->notify);
    assert_int_equal(e->fence_sec, 0);
    assert_int_equal(e->steps, 70);
    assert_int_equal(e->leave_sec, 9);
    assert_int_equal(e->leave_signal, SIGUSR1);
    assert_int_equal(e->silence_sec, 11);
    assert_string_equal(e->step_pattern, "step ([0-9]+)");
    assert_string_equal(e->loss_pattern, "loss ([0-9.e-]+)");
    assert_string_equal(e->secrets[0], "HF_TOKEN");
    assert_string_equal(job->checkpoint.uri, "s3://b/c");
    assert_int_equal(job->recovery.progress_sec, 5);
    assert_true(job_exec_find_code(e, 3, &code) && code == EXIT_NEVER_RETRY);
    assert_true(job_exec_find_code(e, 4, &code) && code == EXIT_STORE_UNREACHABLE);
    assert_true(job_exec_find_code(e, 80, &code) && code == EXIT_DEVICE_FAULT);
    assert_false(job_exec_find_code(e, 1, &code));
}

typedef struct Bad {
    const char *text, *error;
} Bad;

static void refuse(const Bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Error err = ERROR_INIT;
        Job *job = NULL;
        assert_int_equal(job_parse_any("job.json", cases[i].text, strlen(cases[i].text), &job,
                                       &err),
                         -EINVAL);
        assert_null(job);
        assert_int_equal(strncmp(err.text, "job.json: ", 10), 0);
        if (strncmp(err.text + 10, cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("%s\ninstead of %s", err.text, cases[i].error);
    }
}

static void what_is_wrong_is_named(_unused_ void **state)
{
    static const Bad cases[] = {

        {HEAD "\"train\": {}, " EXEC "}}", "train: a job of kind \"exec\" has no such key"},
        {HEAD "\"model\": {}, " EXEC "}}", "model: a job of kind \"exec\" has no such key"},
        {HEAD "\"data\": 1, " EXEC "}}", "data: a job of kind \"exec\" has no such key"},
        {"{\"name\": \"a\", \"world\": {\"min\": 1, \"max\": 1}, " EXEC "}}",
         "exec: a job of kind \"train\" has no such key"},
        {"{\"name\": \"a\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 4, \"per_node\": 2}, " EXEC
         "}}",
         "world.min: 1 is not a multiple of world.per_node 2"},
        {"{\"name\": \"a\", \"kind\": \"exec\", \"world\": {\"min\": 2, \"max\": 5, \"per_node\": 2}, " EXEC
         "}}",
         "world.max: 5 is not a multiple of world.per_node 2"},
        {"{\"name\": \"a\", \"kind\": \"exec\", \"world\": {\"min\": 65, \"max\": 65, \"per_node\": 65}, " EXEC
         "}}",
         "world.per_node: 65 is not in 1..64"},
        {HEAD "\"exec\": {\"dir\": \"/a\"}}", "exec.command: missing"},
        {HEAD "\"exec\": {\"command\": [], \"dir\": \"/a\"}}", "exec.command: is empty"},
        {HEAD "\"exec\": {\"command\": [\"\"], \"dir\": \"/a\"}}",
         "exec.command: the program's name is empty"},
        {HEAD "\"exec\": {\"command\": [\"a\", 1], \"dir\": \"/a\"}}",
         "exec.command: element 1 is not a text"},
        {HEAD "\"exec\": {\"command\": \"a b\", \"dir\": \"/a\"}}",
         "exec.command: expected an array"},
        {HEAD "\"exec\": {\"command\": [\"${RNAK}\"], \"dir\": \"/a\"}}",
         "exec.command: ${RNAK} is not known"},
        {HEAD "\"exec\": {\"command\": [\"$RANK\"], \"dir\": \"/a\"}}",
         "exec.command: \"$RANK\" begins with neither $$ nor ${NAME}"},
        {HEAD "\"exec\": {\"command\": [\"${RANK\"], \"dir\": \"/a\"}}",
         "exec.command: \"${RANK\" begins with neither $$ nor ${NAME}"},
        {HEAD "\"exec\": {\"command\": [\"a\"]}}", "exec.dir: missing"},
        {HEAD "\"exec\": {\"command\": [\"a\"], \"dir\": \"a\"}}",
         "exec.dir: \"a\" is not an absolute path"},
        {HEAD EXEC ", \"setup\": [\"a\", \"${RANK}\"]}}",
         "exec.setup: ${RANK} has no value for a whole node"},
        {HEAD EXEC ", \"env\": [\"A=1\"]}}",
         "exec.env: expected an object of at most 512 names and texts"},
        {HEAD EXEC ", \"env\": {\"A\": 1}}}", "exec.env: A is not a text"},
        {HEAD EXEC ", \"env\": {\"A\": \"${LOCAL_RANK}\"}}}",
         "exec.env: ${LOCAL_RANK} has no value for a whole node"},
        {HEAD EXEC ", \"env\": {\"A=B\": \"\"}}}",
         "exec.env: \"A=B\" is not the name of a variable"},
        {HEAD EXEC ", \"env\": {\"1A\": \"\"}}}", "exec.env: \"1A\" is not the name of a variable"},
        {HEAD EXEC ", \"env\": {\"MASTER_PORT\": \"1\"}}}",
         "exec.env: MASTER_PORT is set by sdtrain"},
        {HEAD EXEC ", \"env\": {\"SDTRAIN_ANY\": \"1\"}}}",
         "exec.env: SDTRAIN_ANY is set by sdtrain"},
        {HEAD EXEC ", \"secrets\": [\"RANK\"]}}", "exec.secrets: RANK is set by sdtrain"},
        {HEAD EXEC ", \"own_gpu\": true}}",
         "exec.own_gpu: only a program on \"cuda\" (exec.device) has GPUs"},
        {HEAD EXEC ", \"steps\": 0}}", "exec.steps: 0 is not in 1.."},
        {HEAD EXEC ", \"leave_signal\": \"SIGKILL\"}}",
         "exec.leave_signal: SIGKILL is not one of SIGTERM, SIGINT"},
        {HEAD EXEC ", \"progress\": {\"step\": \"(\"}}}", "exec.progress.step: (: "},
        {HEAD EXEC ", \"progress\": {\"step\": \"a\"}}}",
         "exec.progress.step: a has 0 groups (...)"},
        {HEAD EXEC ", \"progress\": {\"step\": \"(a)(b)\"}}}",
         "exec.progress.step: (a)(b) has 2 groups (...)"},
        {HEAD EXEC ", \"progress\": {\"step\": \"(a)\\\\1\"}}}",
         "exec.progress.step: \"\\1\" is a back-reference, which is not allowed"},
        {HEAD EXEC ", \"progress\": {\"step\": \"((((a){1,255}){1,255}){1,255})\"}}}",
         "exec.progress.step: \"{1,255}){1\" is a counted repetition, which is not allowed"},
        {HEAD EXEC ", \"progress\": {\"loss\": \"(a)\"}}}",
         "exec.progress.loss: needs progress.step, too"},
        {HEAD EXEC ", \"exit_codes\": {\"0\": \"retry\"}}}",
         "exec.exit_codes: \"0\" is not an exit code, 1 to 255"},
        {HEAD EXEC ", \"exit_codes\": {\"3x\": \"retry\"}}}",
         "exec.exit_codes: \"3x\" is not an exit code, 1 to 255"},
        {HEAD EXEC ", \"exit_codes\": {\"81\": \"retry\"}}}",
         "exec.exit_codes: 81 means \"peer-lost\" already"},
        {HEAD EXEC ", \"exit_codes\": {\"3\": \"done\"}}}",
         "exec.exit_codes: 3: expected one of retry, "},
        {HEAD EXEC ", \"shell\": true}}", "exec.shell: unknown key"},
        {HEAD "\"of\": {\"job\": \"a\"}, " EXEC "}}", "of: a job of kind \"exec\" has no such key"},
        {"{\"name\": \"a\", \"world\": {\"min\": 1, \"max\": 1}, \"of\": 1}",
         "of: a job of kind \"train\" has no such key"},
        {HEAD EXEC "}, \"checkpoint\": {\"every_steps\": 3}}",
         "checkpoint.every_steps: unknown key"},
    };
    refuse(cases, ELEMENTSOF(cases));
}

static void what_is_wrong_with_an_evaluation_is_named(_unused_ void **state)
{
    static const Bad cases[] = {
        {EVAL EXEC "}" PREFIX "}", "of: missing"},
        {EVAL "\"of\": {}, " EXEC "}" PREFIX "}", "of.job: missing"},
        {EVAL "\"of\": {\"job\": \"A\"}, " EXEC "}" PREFIX "}",
         "of.job: \"A\" must be lower-case letters"},
        {EVAL "\"of\": {\"job\": \"eval\"}, " EXEC "}" PREFIX "}",
         "of.job: \"eval\" is this job itself"},
        {EVAL "\"of\": {\"job\": \"a\", \"every_steps\": 0}, " EXEC "}" PREFIX "}",
         "of.every_steps: 0 is not in 1.."},
        {EVAL "\"of\": {\"job\": \"a\", \"every_steps\": 2, \"newest\": true}, " EXEC "}" PREFIX
              "}",
         "of.newest: of.every_steps is given, too: choose one"},
        {EVAL "\"of\": {\"job\": \"a\", \"every\": 2}, " EXEC "}" PREFIX "}",
         "of.every: unknown key"},
        {EVAL "\"of\": {\"job\": \"a\"}, " EXEC "}}", "checkpoint: missing"},
        {EVAL "\"of\": {\"job\": \"a\"}" PREFIX "}", "exec: missing"},
        {EVAL "\"of\": {\"job\": \"a\"}, " LOSS "}, " EXEC "}" PREFIX "}",
         "loss: exec is given, too: choose one"},
        {EVAL "\"of\": {\"job\": \"a\"}, " LOSS "}" PREFIX "}",
         "world.max: 2: one rank evaluates by itself"},
        {EVAL "\"of\": {\"job\": \"a\"}, " GRID "}, " EXEC "}" PREFIX "}",
         "grid: exec is given, too: choose one"},
        {ALONE LOSS "}, " GRID "}" PREFIX "}", "grid: loss is given, too: choose one"},
        {EVAL "\"of\": {\"job\": \"a\"}, " GRID "}" PREFIX "}",
         "world.max: 2: one rank evaluates by itself"},
        {ALONE "\"grid\": {\"streams\": [{\"uri\": \"/d\"}]}" PREFIX "}", "grid.uri: missing"},
        {ALONE "\"grid\": {\"uri\": \"/d\"}" PREFIX "}", "grid.streams: missing"},
        {ALONE GRID ", \"weights\": \"both\"}" PREFIX "}",
         "grid.weights: both is not one of weights, ema"},
        {ALONE GRID ", \"samples\": 401}" PREFIX "}", "grid.samples: 401 is not in 1..400"},
        {ALONE GRID ", \"samples\": 1, \"captions\": [\"a\", \"b\"]}" PREFIX "}",
         "grid.samples: 1 are fewer than the 2 captions"},
        {ALONE GRID ", \"captions\": []}" PREFIX "}", "grid.captions: is empty"},
        {ALONE GRID ", \"captions\": [\"a\", 3]}" PREFIX "}",
         "grid.captions: element 1 is not a text"},
        {ALONE GRID ", \"captions\": \"a\"}" PREFIX "}", "grid.captions: expected an array"},
        {ALONE GRID ", \"steps\": 0}" PREFIX "}", "grid.steps: 0 is not in 1.."},
        {ALONE GRID ", \"seed\": -1}" PREFIX "}", "grid.seed: -1 is less than 0"},
        {ALONE GRID ", \"positions\": 3}" PREFIX "}", "grid.positions: unknown key"},
        {HEAD "\"grid\": 1, " EXEC "}}", "grid: a job of kind \"exec\" has no such key"},
        {ALONE "\"loss\": {}" PREFIX "}", "loss.streams: missing"},
        {ALONE LOSS ", \"positions\": 0}" PREFIX "}", "loss.positions: 0 is not in 1.."},
        {ALONE LOSS ", \"weights\": \"all\"}" PREFIX "}",
         "loss.weights: all is not one of both, weights, ema"},
        {ALONE LOSS ", \"device\": \"gpu\"}" PREFIX "}",
         "loss.device: gpu is not one of cpu, cuda"},
        {ALONE LOSS ", \"latents\": \"x\"}" PREFIX "}", "loss.latents: unknown key"},
        {HEAD "\"loss\": 1, " EXEC "}}", "loss: a job of kind \"exec\" has no such key"},
        {EVAL "\"of\": {\"job\": \"a\"}, \"train\": 1, " EXEC "}" PREFIX "}",
         "train: a job of kind \"eval\" has no such key"},
        {EVAL "\"of\": {\"job\": \"a\"}, " EXEC "}, \"recovery\": {\"progress_s\": 3}" PREFIX "}",
         "recovery.progress_s: unknown key"},
    };
    refuse(cases, ELEMENTSOF(cases));
}

static void an_evaluation_follows_a_job(_unused_ void **state)
{
    _cleanup_(job_freep) Job *job = parse(EVAL "\"of\": {\"job\": \"demo\"}, " EXEC "}" PREFIX "}");
    assert_true(job->kind == JOB_EVAL && job_is_program(job));
    assert_string_equal(job->of.job, "demo");
    assert_int_equal(job->of.every_steps, 1);
    assert_string_equal(job->checkpoint.uri, "s3://b/c");
    assert_string_equal(job->exec.dir, "/srv/train");
    assert_int_equal(job->recovery.progress_sec, 0);
    job = job_free(job);
    job = parse(EVAL "\"of\": {\"job\": \"demo\", \"every_steps\": 500}, " EXEC "}" PREFIX "}");
    assert_int_equal(job->of.every_steps, 500);
    job = job_free(job);
    job = parse(EVAL "\"of\": {\"job\": \"demo\", \"newest\": true}, " EXEC "}" PREFIX "}");
    assert_int_equal(job->of.every_steps, 0);
    job = job_free(job);
    job = parse(EVAL "\"of\": {\"job\": \"demo\", \"newest\": false, \"every_steps\": 3}, " EXEC
                     "}" PREFIX "}");
    assert_int_equal(job->of.every_steps, 3);
}

static void a_loss_is_measured_by_sdtrainer(_unused_ void **state)
{
    _cleanup_(job_freep) Job *job = parse(ALONE LOSS "}" PREFIX "}");
    assert_true(job->kind == JOB_EVAL && !job_is_program(job));
    assert_string_equal(job->of.job, "demo");
    assert_int_equal(job->data.n_streams, 1);
    assert_string_equal(job->data.streams[0].uri, "/held-out");
    assert_int_equal(job->eval.positions, 1024);
    assert_int_equal(job->eval.of, EVAL_OF_ANY);
    assert_true(job->train.device == JOB_DEVICE_CPU && job->train.threads == 1);
    job = job_free(job);
    job = parse(ALONE LOSS ", \"positions\": 77, \"weights\": \"ema\", \"device\": \"cuda\", "
                           "\"threads\": 3}" PREFIX "}");
    assert_int_equal(job->eval.positions, 77);
    assert_int_equal(job->eval.of, EVAL_OF_EMA);
    assert_true(job->train.device == JOB_DEVICE_CUDA && job->train.threads == 3);
}

static void a_grid_is_drawn_by_sdtrainer(_unused_ void **state)
{
    _cleanup_(job_freep) Job *job = parse(ALONE GRID "}" PREFIX "}");
    const JobGrid *grid = &job->eval.grid;
    assert_true(job->kind == JOB_EVAL && !job_is_program(job) && job->eval.work == EVAL_GRID);
    assert_string_equal(job->data.streams[0].uri, "/data");
    assert_string_equal(grid->uri, "s3://b/pictures");
    assert_true(!grid->model && !grid->captions && !job->data.empty_text_uri);
    assert_true(grid->samples == 16 && grid->steps == 25 && grid->seed == 1);
    assert_true(grid->guidance == 3 && job->eval.of == EVAL_OF_ANY);
    job = job_free(job);
    _cleanup_free_ char *captions = memory_text("\"a\"");
    for (int i = 1; i < 20; i++) {
        char *more = memory_format("%s, \"b%d\"", captions, i);
        free(captions);
        captions = more;
    }
    _cleanup_free_ char *text =
        memory_format(ALONE GRID
                      ", \"captions\": [%s], \"model\": \"/m\", \"weights\": \"weights\", "
                      "\"empty_text\": \"/e\", \"guidance\": 1, \"seed\": 9}" PREFIX "}",
                      captions);
    job = parse(text);
    grid = &job->eval.grid;
    assert_true(grid->n_captions == 20 && grid->samples == 20 && grid->seed == 9);
    assert_string_equal(grid->captions[19], "b19");
    assert_null(grid->captions[20]);
    assert_string_equal(grid->model, "/m");
    assert_string_equal(job->data.empty_text_uri, "/e");
    assert_true(job->eval.of == EVAL_OF_WEIGHTS && grid->guidance == 1);
    job = job_free(job);
    job = parse(ALONE GRID ", \"weights\": \"ema\"}" PREFIX "}");
    assert_int_equal(job->eval.of, EVAL_OF_EMA);
}

static void who_trains_refuses_other_kinds(_unused_ void **state)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    assert_int_equal(job_parse("job.json", HEAD EXEC "}}", strlen(HEAD EXEC "}}"), &job, &err),
                     -EINVAL);
    assert_null(job);
    assert_string_equal(
        err.text, "job.json: kind: \"exec\": only jobs that sdtrain trains itself (\"train\") "
                  "have what is needed here");
}

static void names_are_filled_in(_unused_ void **state)
{
    const char *values[EXEC_VARIABLES] = {[EXEC_RANK] = "3", [EXEC_JOB] = "$x"};
    static const struct {
        const char *text, *filled;
    } cases[] = {{"", ""},
                 {"plain", "plain"},
                 {"--rank=${RANK}", "--rank=3"},
                 {"${RANK}${RANK}/${SDTRAIN_JOB}!", "33/$x!"},
                 {"$$", "$"},
                 {"$${RANK}", "${RANK}"},
                 {"a${MASTER_ADDR}b", "ab"}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char why[100];
        assert_null(exec_variables_check(cases[i].text, false, why, sizeof(why)));
        _cleanup_free_ char *filled = exec_variables_fill(cases[i].text, values);
        assert_string_equal(filled, cases[i].filled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_page),
        cmocka_unit_test(every_key_arrives),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_wrong_with_an_evaluation_is_named),
        cmocka_unit_test(an_evaluation_follows_a_job),
        cmocka_unit_test(a_loss_is_measured_by_sdtrainer),
        cmocka_unit_test(a_grid_is_drawn_by_sdtrainer),
        cmocka_unit_test(who_trains_refuses_other_kinds),
        cmocka_unit_test(names_are_filled_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
