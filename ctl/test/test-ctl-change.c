/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-change.c - verbs that write: their refusals with exact texts, and the records in etcd afterwards. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "ctl/test/testing-ctl.h"
#include "protocol/channel.h"

#include <string.h>

static char *replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *changed = NULL;
    assert_non_null(at);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return changed;
}

static void write_job(CtlLab *lab, const char *name, const char *from, const char *to)
{
    _cleanup_free_ char *text = ctl_job_text(lab, name);
    _cleanup_free_ char *changed = from ? replace(text, from, to) : NULL;
    ctl_write(lab, "job.json", changed ? changed : text);
}

static DesiredRecord desired_of(CtlLab *lab, const char *job)
{
    DesiredRecord desired;
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = ctl_get(lab, KEY_DESIRED, job);
    assert_non_null(text);
    assert_int_equal(desired_record_decode("desired", text, strlen(text), &desired, &err), 0);
    return desired;
}

static void bad_jobs_are_refused_by_file_key_and_value(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"grain\": 4", "\"grain\": 5", "train.grain"},
        {"\"steps\": 100", "\"steps\": 100, \"stepz\": 1",
         "train.stepz: unknown key (did you mean \"steps\"?)"},
        {"\"steps\": 100", "\"stepz\": 100", "train.steps: missing (is \"stepz\" meant to be it?)"},
        {"\"steps\": 100", "\"steps\": 100, \"lr\": 1",
         "train.lr: unknown key; there are global_batch, grain, "},
        {"\"steps\": 100", "\"steps\": 100,", "(a comma too many, or a key without its quotes?)"},
        {"\"checkpoint\": {\"uri\": \"/", "\"checkpoint\": {\"uri\": \"s3//",
         "is not a URI (did you mean \"s3://"},
        {"\"steps\": 100", "\"steps\": \"many\"", "train.steps"},
        {"\"steps\": 100", "\"steps\": 100, \"device\": \"gpu\"",
         "train.device: gpu is not one of"},
        {"\"steps\": 100", "\"steps\": 100, \"precision\": \"bf16\"",
         "train.precision: bf16 needs"},
        {"\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\", \"reduction\": \"float\"",
         "train.reduction: \"float\" is for CPUs only"},
        {"\"min\": 1, \"max\": 4", "\"min\": 3, \"max\": 2", "world"},
        {"\"max\": 4", "\"max\": 5", "world.max"},
        {"/data\"}]", "/nowhere\"}]", "data.streams[0].uri: "},
        {"/data/empty.npy", "/data/none.npy", "data.empty_text: "},
        {"/unet.json", "/none.json", "model.config: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char file[128];
        write_job(lab, "bad", cases[i].from, cases[i].to);
        assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
        (void)snprintf(file, sizeof(file), "sdctl: %s/job.json: ", lab->folder);
        assert_contains(lab->err, file);
        assert_contains(lab->err, cases[i].says);
    }
    assert_int_equal(ctl_run(lab, "job start -f %s/none.json", lab->folder), 3);
    assert_contains(lab->err, "/none.json");
    assert_null(ctl_get(lab, KEY_SPECS, "bad"));
}

/* sdctl checks shapes as ranks do, from index.json, empty.npy and the network's config. */
static void shapes_that_do_not_fit_are_refused(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *file, *from, *to, *says;
    } cases[] = {
        {"unet.json", "\"out_channels\": 4", "\"out_channels\": 8", "unet.json: out_channels: 8"},
        {"unet.json", "\"in_channels\": 4", "\"in_channels\": 9", "unet.json: in_channels: 9"},
        {"unet.json", "_dim\": 64", "_dim\": 128", "unet.json: cross_attention_dim 128"},
        {"data/index.json", "float16:4,16,16", "float16:8,16,8", "in_channels: 4, but the data"},
        {"data/index.json", "[\"ndarray:float16:4,16,16", "[\"ndarray:uint16:4,16,16",
         "column latents is ndarray:uint16"},
        {"data/index.json", "[\"ndarray:float16:4,16,16\"", "[\"pkl\"", "encoding pkl is refused"},
        {"data/index.json", "[\"ndarray:float16:4,16,16\"", "[\"zarr\"", "\"zarr\" is not known"},
        {"data/index.json", "[2048,", "[2047,", "column_sizes: column latents"},
        {"data/index.json", "[\"latents\",", "[\"images\",", "no column \"latents\""},
        {"data/index.json", "3,64\"], \"column_sizes\": [2048, 384]",
         "3,32\"], \"column_sizes\": [2048, 192]", "text of 3x32, but that of data.empty_text"},
        {"data/index.json", "\"samples\": 1", "\"samples\": 0", "no samples"},
        {"data/index.json", "8864, \"version\": 2", "8864, \"version\": 3",
         "shards[0]: version: 3"},
        {"data/empty.npy", "<f2", "<f3", "data.empty_text: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char path[300];
        Error err = ERROR_INIT;
        _cleanup_free_ char *text = NULL;
        size_t n;
        write_job(lab, "bad", NULL, NULL);
        (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, cases[i].file);
        assert_int_equal(file_read(path, 1 << 20, &text, &n, &err), 0);
        char *at = memmem(text, n, cases[i].from, strlen(cases[i].from));
        assert_non_null(at);
        size_t head = (size_t)(at - text), skip = head + strlen(cases[i].from);
        _cleanup_free_ char *changed = malloc(n + 200);
        memcpy(changed, text, head);
        memcpy(changed + head, cases[i].to, strlen(cases[i].to));
        memcpy(changed + head + strlen(cases[i].to), text + skip, n - skip);
        assert_int_equal(file_write(path, changed, head + strlen(cases[i].to) + n - skip, 0, &err),
                         0);
        assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
        assert_contains(lab->err, "job.json: ");
        assert_contains(lab->err, cases[i].says);
    }
    assert_null(ctl_get(lab, KEY_SPECS, "bad"));
}

static void relative_paths_mean_nothing_to_ranks(void **state)
{
    CtlLab *lab = *state;
    char unet[128], expected[400];
    (void)snprintf(unet, sizeof(unet), "%s/unet.json", lab->folder);
    write_job(lab, "bad", unet, "unet.json");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    (void)snprintf(expected, sizeof(expected),
                   "sdctl: %s/job.json: model.config: \"unet.json\" is relative; ranks run "
                   "elsewhere, so give an absolute path or a URI\n",
                   lab->folder);
    assert_string_equal(lab->err, expected);
}

static void start_writes_spec_and_desired_once(void **state)
{
    CtlLab *lab = *state;
    write_job(lab, "fresh", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --cluster labb", lab->folder), 3);
    assert_contains(lab->err, "cluster labb: nobody answers to that name: ");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 3);
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\"}");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
    assert_contains(lab->out, "job fresh is submitted: 100 steps of 16 samples on 1 to 4 ranks\n"
                              "note: the warm-up of 10000 steps is longer than the job: ");
    assert_contains(lab->out, "\nmemory of a rank: ");

    SpecRecord spec;
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = ctl_get(lab, KEY_SPECS, "fresh");
    _cleanup_free_ char *file = ctl_job_text(lab, "fresh");
    assert_int_equal(spec_record_decode("spec", text, strlen(text), &spec, &err), 0);
    assert_string_equal(spec.spec, file);
    assert_true(spec.submitted_usec > 0);
    /* The text has two hashes of 32 digits, of empty.npy and of one index.json. */
    assert_int_equal(strlen(spec.sources), 32 + 1 + 32);
    spec_record_clear(&spec);
    DesiredRecord desired = desired_of(lab, "fresh");
    assert_int_equal(desired.state, DESIRED_RUNNING);
    assert_int_equal(desired.min, 1);
    assert_int_equal(desired.max, 4);
    assert_int_equal(desired.target, 0);

    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "job.json: name: a job fresh is there already; --name NAME gives this one "
                    "another, sdctl job delete fresh removes one that has ended\n");
}

/* `job start` restores a lost job file, whether the spec is unreadable or missing, and even if the desired record is
 * unreadable too. The incident of a lost job file advises this. */
static void start_gives_a_lost_file_back(void **state)
{
    CtlLab *lab = *state;
    write_job(lab, "lost", NULL, NULL);
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\"}");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
    _cleanup_free_ char *wish = ctl_get(lab, KEY_DESIRED, "lost");
    for (int how = 0; how < 3; how++) {
        if (how > 0)
            ctl_remove(lab, KEY_SPECS, "lost");
        else
            ctl_put_text(lab, KEY_SPECS, "lost", "{\"v\":2,");
        if (how == 2) /* the desired record is unreadable, too */
            ctl_put_text(lab, KEY_DESIRED, "lost", "{\"v\":2,");
        assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
        SpecRecord spec;
        Error err = ERROR_INIT;
        _cleanup_free_ char *text = ctl_get(lab, KEY_SPECS, "lost");
        assert_int_equal(spec_record_decode("spec", text, strlen(text), &spec, &err), 0);
        spec_record_clear(&spec);
    }
    ctl_remove(lab, KEY_SPECS, "lost");
    ctl_put_text(lab, KEY_DESIRED, "lost", wish);
    DesiredRecord deleted = desired_of(lab, "lost");
    deleted.state = DESIRED_DELETED;
    CTL_PUT(lab, KEY_DESIRED, "lost", desired_record, deleted);
    /* The job file is not restored, because the job is being deleted. */
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    ctl_remove(lab, KEY_DESIRED, "lost");
    ctl_remove(lab, KEY_LEADER, "1");
}

/* A job beyond the leader's max_jobs is refused, because the leader would ignore it and report this only in its log. */
static void start_is_refused_where_there_is_no_room(void **state)
{
    CtlLab *lab = *state;
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\",\"max_jobs\":2}");
    ctl_put_running_job(lab, "done");
    ctl_put_phase(lab, "done", PHASE_SUCCEEDED, "finished");
    write_job(lab, "more", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "cluster lab has 2 jobs, 1 of which have ended, and its leader has room "
                    "for 2 (max_jobs); sdctl job delete removes one that has ended\n");
    assert_null(ctl_get(lab, KEY_SPECS, "more"));
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\",\"max_jobs\":3}");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\",\"max_jobs\":2,\"max_nodes\":1}");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "! 3 jobs are there, and the leader has room for 2 (max_jobs)\n");
    ctl_remove(lab, KEY_LEADER, "1");
    ctl_remove(lab, KEY_SPECS, "done");
    ctl_remove(lab, KEY_SPECS, "more");
}

/* `job start NAME` starts an ended job again, without deleting the job and without a new file. */
static void start_by_name_goes_on(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "again");
    assert_int_equal(ctl_run(lab, "job start again"), 1);
    assert_contains(lab->err, "job again is running: there is nothing to start\n");
    ctl_put_phase(lab, "again", PHASE_FAILED, "bad-job");
    DesiredRecord stopped = {.state = DESIRED_STOPPED, .min = 1, .max = 4, .target = 2};
    CTL_PUT(lab, KEY_DESIRED, "again", desired_record, stopped);
    assert_int_equal(ctl_run(lab, "job start again --priority 7"), 0);
    DesiredRecord desired = desired_of(lab, "again");
    assert_int_equal(desired.state, DESIRED_RUNNING);
    assert_int_equal(desired.target, 2);
    assert_int_equal(desired.priority, 7);
    ctl_put_phase(lab, "again", PHASE_SUCCEEDED, "finished");
    assert_int_equal(ctl_run(lab, "job start again"), 1);
    ctl_put_phase(lab, "again", PHASE_STOPPED, "stopped");
    write_job(lab, "again", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(
        lab->err, "a job again is there and is stopped; sdctl job start again goes on from "
                  "its newest checkpoint, sdctl job delete again forgets it, --name gives this one "
                  "another name\n");
    assert_int_equal(ctl_run(lab, "job start"), 2);
    assert_int_equal(ctl_run(lab, "job start again -f x"), 2);
    assert_int_equal(ctl_run(lab, "job start again --priority 1001"), 2);
    ctl_remove(lab, KEY_SPECS, "again");
}

/* A job is refused if no known node has enough memory, unless a lost node may return. */
static void start_is_refused_where_no_memory_suffices(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {
        .name = "n1", .machine_id = "m", .incarnation = 1, .n_slots = 4, .memory_bytes = 100000};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    write_job(lab, "big", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "job.json: train.grain, model.config: each of 1 ranks needs at least ");
    assert_contains(lab->err, "the nodes that are known have 0.00 GiB at most, swap included, too "
                              "little for world.min of them (sdtrainer plan says for what");
    assert_null(ctl_get(lab, KEY_SPECS, "big"));

    NodeRecord other = {.name = "n2", .machine_id = "o", .incarnation = 1, .n_slots = 1};
    static const uint64_t enough[] = {0, UINT64_C(1) << 30}; /* unknown memory, and enough memory */
    for (size_t i = 0; i < ELEMENTSOF(enough); i++) {
        other.memory_bytes = enough[i];
        CTL_PUT(lab, KEY_NODES, "n2", node_record, other);
        assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
        ctl_remove(lab, KEY_SPECS, "big");
        ctl_remove(lab, KEY_DESIRED, "big");
    }
    ctl_remove(lab, KEY_NODES, "n2");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --queue", lab->folder), 0);
    ctl_remove(lab, KEY_SPECS, "big");
    ctl_remove(lab, KEY_DESIRED, "big");
    HealthRecord gone = {.node = "n3", .machine_id = "p"};
    CTL_PUT(lab, KEY_HEALTH, "n3", health_record, gone);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
    ctl_remove(lab, KEY_HEALTH, "n3");
    ctl_remove(lab, KEY_NODES, "n1");
    ctl_remove(lab, KEY_SPECS, "big");
    ctl_remove(lab, KEY_DESIRED, "big");
}

/* A job that needs GPUs is refused if no node reports a GPU. For such a job the memory of the nodes is not checked. */
static void start_is_refused_where_no_node_has_a_gpu(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {
        .name = "n1", .machine_id = "m", .incarnation = 1, .n_slots = 4, .memory_bytes = 100000};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    _cleanup_free_ char *text = ctl_job_text(lab, "gpu");
    _cleanup_free_ char *two = replace(text, "\"min\": 1, \"max\": 4", "\"min\": 2, \"max\": 4");
    _cleanup_free_ char *gpu =
        replace(two, "\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\"");
    ctl_write(lab, "job.json", gpu);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "job.json: train.device: \"cuda\" needs 2 slots that have a GPU, and no "
                    "node that is known has a GPU; --queue submits it all the same\n");
    assert_null(ctl_get(lab, KEY_SPECS, "gpu"));

    node.n_gpus = 1;
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "world.min: 2 ranks are needed at least, and the nodes that are known "
                    "have 1 slot that has a GPU; --queue submits it all the same\n");
    assert_int_equal(ctl_run(lab, "node status n1"), 0);
    assert_contains(lab->out, "4 slots, 1 GPU, at ");

    node.n_gpus = 8; /* of 8 GPUs, 4 have a slot */
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 0);
    ctl_remove(lab, KEY_SPECS, "gpu");
    ctl_remove(lab, KEY_DESIRED, "gpu");
    ctl_remove(lab, KEY_NODES, "n1");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --queue", lab->folder), 0);
    ctl_remove(lab, KEY_SPECS, "gpu");
    ctl_remove(lab, KEY_DESIRED, "gpu");
}

/* A job that needs more slots than all known nodes have is refused. */
static void start_is_refused_where_no_node_could_hold_it(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {.name = "n1", .machine_id = "m", .incarnation = 1, .n_slots = 2};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    write_job(lab, "wide", "\"min\": 1, \"max\": 4", "\"min\": 3, \"max\": 4");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "world.min: 3 ranks are needed at least, and the nodes that are known have "
                    "2 slots; --queue submits it all the same\n");
    /* A lost node may return with more slots. */
    HealthRecord lost = {.node = "n2", .machine_id = "m2"};
    CTL_PUT(lab, KEY_HEALTH, "n2", health_record, lost);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --priority 3", lab->folder), 0);
    assert_int_equal(desired_of(lab, "wide").priority, 3);
    ctl_remove(lab, KEY_HEALTH, "n2");
    write_job(lab, "wider", "\"min\": 1, \"max\": 4", "\"min\": 4, \"max\": 4");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --queue", lab->folder), 0);
    assert_int_equal(ctl_run(lab, "job list"), 0);
    assert_contains(lab->out, " 1 of ");
    ctl_remove(lab, KEY_NODES, "n1");
    ctl_remove(lab, KEY_SPECS, "wide");
    ctl_remove(lab, KEY_SPECS, "wider");
}

static void checkpoints_of_another_are_not_taken(void **state)
{
    CtlLab *lab = *state;
    char saved[128], taken[160];
    ctl_put_running_job(lab, "holder");
    (void)snprintf(saved, sizeof(saved), "%s/saved/second", lab->folder);
    (void)snprintf(taken, sizeof(taken), "file://%s/saved/holder/", lab->folder);
    write_job(lab, "second", saved, taken);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err, "checkpoint.uri: job holder, which is running, saves to ");

    ctl_write(lab, "saved/third/step-0000000010-o1-g1-00000000/manifest.json", "{}");
    write_job(lab, "third", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err, "/saved/third holds checkpoints already; give another URI "
                              "(--set checkpoint.uri=...), or --resume MANIFEST to go on from one "
                              "of them\n");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json --resume %s/none/manifest.json",
                             lab->folder, lab->folder),
                     1);
    assert_contains(lab->err, "sdctl: --resume: manifest: ");
    assert_int_equal(ctl_run(lab, /* tests/system/test-owner.py tests manifests that are accepted */
                             "job start -f %s/job.json --resume "
                             "%s/saved/third/step-0000000010-o1-g1-00000000/manifest.json",
                             lab->folder, lab->folder),
                     1);
    assert_contains(lab->err, "sdctl: --resume: manifest: ");
    assert_contains(lab->err, "step-0000000010-o1-g1-00000000/manifest.json: ");
    assert_null(ctl_get(lab, KEY_SPECS, "third"));

    /* A folder with an owner is refused even if the owner has not saved a checkpoint yet. */
    ctl_write(lab, "saved/fourth/owner/1",
              "{\"v\": 1, \"submission\": \"00112233445566778899aabbccddeeff\","
              " \"claim\": \"00112233445566778899aabbccddeeff\", \"alone\": false,"
              " \"job\": \"else\\nwhere\", \"host\": \"n1\", \"pid\": 7, \"generation\": 3,"
              " \"job_identity\": \"00112233445566778899aabbccddeeff\","
              " \"dataset_digest\": \"00112233445566778899aabbccddeeff\", \"claimed_usec\": 0}");
    write_job(lab, "fourth", NULL, NULL);
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err,
                    "belongs to job else?where of submission 00112233 (on n1, process 7, "
                    "generation 3, since 1970-01-01 00:00:00 UTC), which has saved nothing yet");
    ctl_write(lab, "saved/fourth/owner/2", "{");
    assert_int_equal(ctl_run(lab, "job start -f %s/job.json", lab->folder), 1);
    assert_contains(lab->err, "belongs to somebody (owner/2 cannot be read)");
}

static void resize_stop_delete_change_what_is_desired(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    assert_int_equal(ctl_run(lab, "job resize a --world 3"), 0);
    assert_string_equal(lab->out, "job a will finish its step, save, and go on with 3 ranks once "
                                  "there are slots for them\n");
    assert_int_equal(desired_of(lab, "a").target, 3);
    assert_int_equal(ctl_run(lab, "job resize a --world 5"), 1);
    assert_string_equal(lab->err, "sdctl: --world 5: a step of job a has 4 grains, so it runs on 4 "
                                  "ranks at most\n");
    assert_int_equal(desired_of(lab, "a").target, 3);

    assert_int_equal(ctl_run(lab, "job delete a"), 1);
    assert_string_equal(lab->err, "sdctl: job a is running; stop it before: sdctl job stop a\n");
    assert_int_equal(ctl_run(lab, "job stop a"), 0);
    assert_int_equal(desired_of(lab, "a").state, DESIRED_STOPPED);

    ctl_put_phase(lab, "a", PHASE_STOPPED, "stopped");
    assert_int_equal(ctl_run(lab, "job stop a"), 1);
    assert_string_equal(lab->err, "sdctl: job a has ended: it is stopped\n");
    assert_int_equal(ctl_run(lab, "job resize a --world 2"), 1);
    assert_int_equal(ctl_run(lab, "job delete a"), 0);
    assert_int_equal(desired_of(lab, "a").state, DESIRED_DELETED);

    static const char *const lines[] = {"job resize none --world 2", "job stop none",
                                        "job delete none", "job checkpoint none"};
    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        assert_int_equal(ctl_run(lab, "%s", lines[i]), 3);
        assert_string_equal(lab->err, "sdctl: no job none in cluster lab (did you mean \"done\"?); "
                                      "sdctl job list shows all\n");
    }
}

static void wait_ends_with_the_event(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "w");
    assert_int_equal(ctl_run(lab, "job wait w --for running"), 0);
    assert_string_equal(lab->out, "job w is running at step 12: resizes from 3 to 2\n");
    assert_int_equal(ctl_run(lab, "job wait w --for step=12"), 0);
    assert_int_equal(ctl_run(lab, "job wait w --for step=13 --timeout 0.2"), 4);
    assert_string_equal(lab->err, "sdctl: job w has not reached step=13 in 0.2 s: it is running at "
                                  "step 12: resizes from 3 to 2\n");
    assert_int_equal(ctl_run(lab, "job wait none --for running"), 3);

    ctl_begin(lab, "job wait w --for succeeded --timeout 60");
    ctl_put_phase(lab, "w", PHASE_SUCCEEDED, "finished");
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "job w is succeeded at step 12: finished\n");
    assert_int_equal(ctl_run(lab, "job wait w --for step=50"), 1);
    assert_string_equal(lab->err,
                        "sdctl: job w will not reach step=50: it is succeeded at step 12: "
                        "finished\n");
}

static void watch_tells_the_story_and_ends_with_the_job(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "v");
    ctl_begin(lab, "job status v --watch");
    IncidentRecord incident = {.id = "v-2",
                               .state = INCIDENT_OPEN,
                               .job = "v",
                               .cause = "trainer-died",
                               .node = "n2",
                               .rank = 1,
                               .generation = 2,
                               .step = 12,
                               .evidence = "signal 9",
                               .at_usec = UINT64_C(1700000041000000)};
    CTL_PUT(lab, KEY_INCIDENTS, "v-2", incident_record, incident);
    incident.state = INCIDENT_RESOLVED;
    incident.lost_steps = 2;
    incident.first_step_usec = incident.at_usec + 750000;
    incident.resolved_usec = incident.at_usec + 900000;
    CTL_PUT(lab, KEY_INCIDENTS, "v-2", incident_record, incident);
    ctl_put_phase(lab, "v", PHASE_FAILED, "non-finite-loss of rank 0 on n1: grain 3");
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->out, "generation 2: 2 ranks from step 10");
    assert_contains(lab->out, "trainer-died of rank 1 on n2: signal 9\n");
    assert_contains(lab->out, "recovered from trainer-died of rank 1 in 0.75 s, 2 steps again\n");
    assert_contains(lab->out, "\njob v failed at step 12 after 1 min 0 s: non-finite-loss of rank "
                              "0 on n1: grain 3\n");
    assert_null(strchr(lab->out, '\r')); /* no '\r', because the output is not a terminal */

    ctl_put_phase(lab, "v", PHASE_SUCCEEDED, "finished");
    assert_int_equal(ctl_run(lab, "job status v --watch"), 0);
    assert_int_equal(ctl_run(lab, "job status none --watch"), 3);
}

/* For a checkpoint of another job, worlds/<job> has no step. The step is taken from the folder's name or from the
 * ranks' reports. */
static void watch_says_from_which_step_an_adopted_start_goes_on(void **state)
{
    static const struct {
        const char *uri;
        RankState state;
        int64_t ready;
        const char *words, *status;
    } cases[] = {{"file:///o/step-0000000040-o1-g2-0123abcd/manifest.json", RANK_STARTING, 0,
                  "generation 1: 2 ranks from step 40, starts\n", "\n  step 0 of 100"},
                 {"file:///o/copy/manifest.json", RANK_READY, 30,
                  "generation 1: 2 ranks from step 30, starts\n", "\n  step 30 of 100"},
                 {"file:///o/copy/manifest.json", RANK_STARTING, 0,
                  "generation 1: 2 ranks from file:///o/copy/manifest.json, starts\n",
                  "\n  step 0 of 100"}};
    CtlLab *lab = *state;
    WorldRun run = {.node = "n1", .incarnation = 1, .slots = 3};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char name[4] = {'r', (char)('0' + i)}, ranks[32];
        SpecRecord spec = {.spec = ctl_job_text(lab, name)};
        CTL_PUT(lab, KEY_SPECS, name, spec_record, spec);
        free(spec.spec);
        WorldRecord world = {.generation = 1,
                             .size = 2,
                             .runs = &run,
                             .n_runs = 1,
                             .resume = {.adopt = true},
                             .reason = "starts"};
        (void)snprintf(world.resume.uri, sizeof(world.resume.uri), "%s", cases[i].uri);
        CTL_PUT(lab, KEY_WORLDS, name, world_record, world);
        RankReport report = {.state = cases[i].state, .step = cases[i].ready, .stage = STAGE_READY};
        RanksRecord record = {.node = "n1",
                              .generation = 1,
                              .world_revision = lab->revision,
                              .ranks = &report,
                              .n_ranks = 1};
        (void)snprintf(ranks, sizeof(ranks), "%s/1/n1", name);
        CTL_PUT(lab, KEY_RANKS, ranks, ranks_record, record);
        PhaseRecord phase = {.phase = PHASE_STARTING, .generation = 1};
        CTL_PUT(lab, KEY_PHASES, name, phase_record, phase);
        assert_int_equal(ctl_run(lab, "job status %s", name), 0);
        assert_contains(lab->out, cases[i].status);
        phase.phase = PHASE_FAILED;
        CTL_PUT(lab, KEY_PHASES, name, phase_record, phase);
        assert_int_equal(ctl_run(lab, "job status %s --watch", name), 1);
        assert_contains(lab->out, cases[i].words);
    }
}

static void nodes_are_cordoned_drained_and_freed(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {.name = "n1", .machine_id = "1", .incarnation = 1, .n_slots = 2};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    /* causes of other owners must stay, with their fields of a later version */
    ctl_put_text(
        lab, KEY_CORDONS, "n1",
        "{\"v\":2,\"node\":\"n1\",\"later\":1,\"causes\":[{\"owner\":\"machine\",\"machine_id\":"
        "\"1\",\"job\":\"\",\"mode\":\"none\",\"strikes\":2,\"reason\":\"trainer-died\",\"later\":"
        "2},"
        "{\"owner\":\"job\",\"machine_id\":\"1\",\"job\":\"b\",\"mode\":\"quarantine\"}]}");
    CordonRecord cordon;
    Error err = ERROR_INIT;

    assert_int_equal(ctl_run(lab, "node drain n1 --reason 'disk swap'"), 0);
    _cleanup_free_ char *text = ctl_get(lab, KEY_CORDONS, "n1");
    assert_int_equal(cordon_record_decode("c", text, strlen(text), &cordon, &err), 0);
    assert_int_equal(cordon.n_causes, 3);
    assert_int_equal(cordon.causes[0].strikes, 2);
    assert_string_equal(cordon.causes[1].job, "b");
    assert_int_equal(cordon.causes[2].owner, CORDON_OPERATOR);
    assert_int_equal(cordon.causes[2].mode, CORDON_DRAIN);
    assert_string_equal(cordon.causes[2].reason, "disk swap");
    assert_contains(text, "\"later\":1");
    assert_contains(text, "\"later\":2");
    assert_int_equal(ctl_run(lab, "node status n1"), 0);
    assert_contains(lab->out, "2 strikes, lately: trainer-died");
    assert_contains(lab->out, "quarantine since");
    assert_contains(lab->out, "for job b");
    assert_contains(lab->out, "drain since");
    assert_int_equal(ctl_run(lab, "node cordon n1"), 0); /* the cordon replaces the drain */
    assert_int_equal(ctl_run(lab, "node list -o json"), 0);
    json_t *all = ctl_json(lab), *first = json_array_get(all, 0);
    assert_string_equal(json_string_value(
                            json_object_get(json_object_get(first, "cordon"), "mode")),
                        "cordon");
    json_decref(all);
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 0);
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));

    assert_int_equal(ctl_run(lab, "node cordon n9"), 3);
    assert_string_equal(lab->err, "sdctl: no node n9 in cluster lab; sdctl node list shows all\n");
    assert_int_equal(ctl_run(lab, "node cordon ../n1"), 3);
    assert_int_equal(ctl_run(lab, "node status n9"), 3);
}

static void a_checkpoint_is_asked_for_and_awaited(void **state)
{
    CtlLab *lab = *state;
    char id[64];
    ctl_put_running_job(lab, "s");
    ctl_begin(lab, "job checkpoint s");
    _cleanup_free_ char *text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(text, "\"kind\":\"checkpoint\"");
    assert_contains(text, "\"target\":\"s\"");
    CheckpointsRecord checkpoints = {.commits = {{.step = 12,
                                                  .generation = 2,
                                                  .uri = "file:///x/step-12/manifest.json",
                                                  .digest = {1, 2}}},
                                     .n_commits = 1};
    CTL_PUT(lab, KEY_CHECKPOINTS, "s", checkpoints_record, checkpoints);
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->out, "job s is saved at step 12, digest ");
    ctl_remove(lab, KEY_REQUESTS, id);

    ctl_begin(lab, "job checkpoint s");
    free(text);
    text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    RequestRecord request = {.kind = "checkpoint", .target = "s", .answer = "refused: no"};
    (void)snprintf(request.id, sizeof(request.id), "%.39s", id);
    CTL_PUT(lab, KEY_REQUESTS, id, request_record, request);
    assert_int_equal(ctl_finish(lab), 1);
    assert_string_equal(lab->err, "sdctl: job s: no checkpoint: refused: no\n");

    assert_int_equal(ctl_run(lab, "job checkpoint s --timeout 0.1"), 4);
    assert_string_equal(lab->err, "sdctl: job s: no checkpoint was committed within 0.1 s (nobody "
                                  "has answered)\n");
    ctl_put_phase(lab, "s", PHASE_STOPPED, "stopped");
    assert_int_equal(ctl_run(lab, "job checkpoint s"), 1);
    assert_string_equal(lab->err, "sdctl: job s does not train now: it is stopped\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_jobs_are_refused_by_file_key_and_value),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(relative_paths_mean_nothing_to_ranks),
        cmocka_unit_test(start_writes_spec_and_desired_once),
        cmocka_unit_test(start_gives_a_lost_file_back),
        cmocka_unit_test(start_is_refused_where_there_is_no_room),
        cmocka_unit_test(start_by_name_goes_on),
        cmocka_unit_test(start_is_refused_where_no_memory_suffices),
        cmocka_unit_test(start_is_refused_where_no_node_has_a_gpu),
        cmocka_unit_test(start_is_refused_where_no_node_could_hold_it),
        cmocka_unit_test(checkpoints_of_another_are_not_taken),
        cmocka_unit_test(resize_stop_delete_change_what_is_desired),
        cmocka_unit_test(wait_ends_with_the_event),
        cmocka_unit_test(watch_tells_the_story_and_ends_with_the_job),
        cmocka_unit_test(watch_says_from_which_step_an_adopted_start_goes_on),
        cmocka_unit_test(nodes_are_cordoned_drained_and_freed),
        cmocka_unit_test(a_checkpoint_is_asked_for_and_awaited),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
