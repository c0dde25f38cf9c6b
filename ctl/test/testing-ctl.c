/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ctl.c - see testing-ctl.h. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include "base/clock.h"
#include "base/file.h"
#include "data/mds/npy.h"

#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 24, ANSWER_SEC = 60, TERMINAL_BYTES = 1 << 16 };

CtlLab *ctl_lab_start(bool with_etcd)
{
    CtlLab *lab = calloc(1, sizeof(*lab));
    assert_non_null(lab);
    (void)snprintf(lab->folder, sizeof(lab->folder), "/tmp/test-ctl-XXXXXX");
    assert_non_null(mkdtemp(lab->folder));
    assert_int_equal(setenv("SDTRAIN_CLUSTER", "lab", 1), 0);
    assert_int_equal(unsetenv("SDTRAIN_DEV"), 0);
    if (!with_etcd)
        return lab;
    lab->server = testing_etcd_start(1, 0);
    assert_int_equal(setenv("SDTRAIN_ETCD", testing_etcd_endpoints(lab->server), 1), 0);
    assert_int_equal(sd_event_new(&lab->event), 0);
    EtcdOptions options = testing_etcd_options(lab->server);
    Error err = ERROR_INIT;
    if (etcd_new(lab->event, &options, &lab->etcd, &err) < 0)
        fail_msg("%s", err.text);
    return lab;
}

CtlLab *ctl_lab_stop(CtlLab *lab)
{
    if (!lab)
        return NULL;
    lab->etcd = etcd_free(lab->etcd);
    lab->event = sd_event_unref(lab->event);
    lab->server = testing_etcd_stop(lab->server);
    assert_int_equal(folder_remove(lab->folder, NULL), 0);
    free(lab->out);
    free(lab->err);
    free(lab);
    return NULL;
}

int ctl_setup(void **state)
{
    *state = ctl_lab_start(true);
    return 0;
}

int ctl_teardown(void **state)
{
    *state = ctl_lab_stop(*state);
    return 0;
}

/* ---- running ---- */

/* Splits the line in place into words, which point into the line. Quotes '...' keep blanks within a word. */
static void split(char *line, char **words)
{
    int n = 1; /* words[0] is already the program */
    for (char *p = line; *p;) {
        while (*p == ' ')
            p++;
        if (!*p)
            break;
        assert_true(n < WORDS_MAX - 1);
        bool quoted = *p == '\'';
        p += quoted;
        words[n++] = p;
        p += strcspn(p, quoted ? "'" : " ");
        if (*p)
            *p++ = '\0';
    }
    words[n] = NULL;
}

/* Starts sdctl with the words of the line. out is its standard output, or < 0 for a file of the lab. */
static void begin(CtlLab *lab, char *line, int out)
{
    char program[300], *words[WORDS_MAX] = {program};
    const char *bin = getenv("SDTRAIN_BIN");
    assert_non_null(bin);
    (void)snprintf(program, sizeof(program), "%s/sdctl", bin);
    split(line, words);

    posix_spawn_file_actions_t actions;
    lab->out_file = tmpfile();
    lab->err_file = tmpfile();
    assert_true(lab->out_file && lab->err_file);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions,
                                                      out < 0 ? fileno(lab->out_file) : out, 1),
                     0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fileno(lab->err_file), 2), 0);
    assert_int_equal(posix_spawn(&lab->pid, program, &actions, NULL, words, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions); /* cannot fail */
}

void ctl_begin(CtlLab *lab, const char *format, ...)
{
    char *line = NULL;
    va_list ap;
    va_start(ap, format);
    assert_true(vasprintf(&line, format, ap) > 0);
    va_end(ap);
    begin(lab, line, -1);
    free(line);
}

static char *read_back(FILE *file)
{
    long n = ftell(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    n = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, file), n);
    assert_int_equal(fclose(file), 0);
    return text;
}

static int collect(CtlLab *lab)
{
    int status;
    assert_int_equal(waitpid(lab->pid, &status, 0), lab->pid);
    free(lab->out);
    free(lab->err);
    lab->out = read_back(lab->out_file);
    lab->err = read_back(lab->err_file);
    return status;
}

int ctl_finish_by(CtlLab *lab)
{
    const int status = collect(lab);
    if (!WIFSIGNALED(status))
        fail_msg("no signal has ended sdctl: %s", lab->err);
    return WTERMSIG(status);
}

void ctl_wait_said(CtlLab *lab)
{
    struct stat s = {0};
    const uint64_t end = clock_boottime_usec() + ANSWER_SEC * USEC_PER_SEC;
    while (s.st_size == 0 && clock_boottime_usec() < end) {
        (void)usleep(10000);
        assert_int_equal(fstat(fileno(lab->out_file), &s), 0);
    }
    assert_true(s.st_size > 0);
}

int ctl_interrupt(CtlLab *lab)
{
    ctl_wait_said(lab);
    assert_int_equal(kill(lab->pid, SIGINT), 0);
    const int status = collect(lab);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int ctl_finish(CtlLab *lab)
{
    const int status = collect(lab);
    if (!WIFEXITED(status))
        fail_msg("sdctl was ended by signal %d: %s", WTERMSIG(status), lab->err);
    return WEXITSTATUS(status);
}

/* Reads the terminal's output until the last process that has the terminal open has ended. */
static char *read_terminal(int master)
{
    size_t used = 0;
    char *text = calloc(1, TERMINAL_BYTES + 1);
    assert_non_null(text);
    for (ssize_t n; used < TERMINAL_BYTES; used += (size_t)n)
        if ((n = read(master, text + used, TERMINAL_BYTES - used)) <= 0)
            break;
    return text;
}

int ctl_run_on_terminal(CtlLab *lab, int columns, const char *line)
{
    int master, slave;
    const struct winsize size = {.ws_row = 50, .ws_col = (unsigned short)columns};
    char *words = strdup(line);
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    begin(lab, words, slave);
    assert_int_equal(close(slave), 0);
    char *text = read_terminal(master);
    assert_int_equal(close(master), 0);
    free(words);
    int code = ctl_finish(lab);
    free(lab->out);
    lab->out = text;
    return code;
}

int ctl_run(CtlLab *lab, const char *format, ...)
{
    char *line = NULL;
    va_list ap;
    va_start(ap, format);
    assert_true(vasprintf(&line, format, ap) > 0);
    va_end(ap);
    begin(lab, line, -1);
    free(line);
    return ctl_finish(lab);
}

json_t *ctl_json(const CtlLab *lab)
{
    json_error_t error;
    json_t *json = json_loads(lab->out, JSON_DECODE_ANY, &error);
    if (!json)
        fail_msg("%s in: %s", error.text, lab->out);
    return json;
}

/* ---- records ---- */

static void write_op(CtlLab *lab, const EtcdOp *op)
{
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    if (etcd_txn_wait(lab->etcd, NULL, 0, op, 1, &answer, &err) < 0)
        fail_msg("%s", err.text);
    lab->revision = answer->revision;
}

void ctl_put_text(CtlLab *lab, KeyKind kind, const char *name, const char *text)
{
    char key[KEY_MAX];
    const EtcdOp op = {.kind = ETCD_PUT, .key = key_of("lab", kind, name, key), .value = text};
    write_op(lab, &op);
}

void ctl_put(CtlLab *lab, KeyKind kind, const char *name, char *text)
{
    ctl_put_text(lab, kind, name, text);
    free(text);
}

void ctl_remove(CtlLab *lab, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    const EtcdOp op = {.kind = ETCD_DELETE, .key = key_of("lab", kind, name, key)};
    write_op(lab, &op);
}

char *ctl_get(CtlLab *lab, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    if (etcd_get_wait(lab->etcd, key_of("lab", kind, name, key), false, &answer, &err) < 0)
        fail_msg("%s", err.text);
    return answer->n_kvs > 0 ? strdup(answer->kvs[0].value) : NULL;
}

typedef struct Any {
    char *text, *name;
    size_t size, n_prefix;
} Any;

static void on_any(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                   _unused_ bool initial, void *userdata)
{
    Any *any = userdata;
    for (size_t i = 0; i < n && !any->text; i++) {
        /* The request "uncordon" gets no answer. */
        if (strstr(events[i].kv.value, "\"kind\":\"uncordon\""))
            continue;
        any->text = strdup(events[i].kv.value);
        (void)snprintf(any->name, any->size, "%s", events[i].kv.key + any->n_prefix);
    }
}

char *ctl_wait_any(CtlLab *lab, KeyKind kind, char *ret_name, size_t size)
{
    char prefix[KEY_MAX];
    Any any = {.name = ret_name, .size = size};
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    any.n_prefix = strlen(key_prefix("lab", (int)kind, prefix));
    assert_int_equal(etcd_watch_prefix(lab->etcd, prefix, on_any, &any, &watch), 0);
    TESTING_RUN_UNTIL(lab->event, any.text != NULL);
    return any.text;
}

/* ---- jobs ---- */

static void write_bytes(CtlLab *lab, const char *name, const void *bytes, size_t n)
{
    char path[400];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_make(path, &err), 0);
    *slash = '/';
    if (file_write(path, bytes, n, 0, &err) < 0)
        fail_msg("%s", err.text);
}

void ctl_write(CtlLab *lab, const char *name, const char *text)
{
    write_bytes(lab, name, text, strlen(text));
}

static const char unet[] =
    "{\"_class_name\": \"UNet2DConditionModel\", \"sample_size\": 16, \"in_channels\": 4,"
    " \"out_channels\": 4, \"block_out_channels\": [32, 64],"
    " \"down_block_types\": [\"CrossAttnDownBlock2D\", \"DownBlock2D\"],"
    " \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\"], \"layers_per_block\": 1,"
    " \"attention_head_dim\": [2, 4], \"cross_attention_dim\": 64, \"norm_num_groups\": 8,"
    " \"use_linear_projection\": true}";

/* The index of a dataset. Its encodings have all facts that sdctl needs, so the shard itself does not exist. */
static const char dataset[] =
    "{\"version\": 2, \"shards\": [{\"column_names\": [\"latents\", \"text\"],"
    " \"column_encodings\": [\"ndarray:float16:4,16,16\", \"ndarray:float16:3,64\"],"
    " \"column_sizes\": [2048, 384], \"compression\": null, \"format\": \"mds\", \"hashes\": [],"
    " \"raw_data\": {\"basename\": \"shard.00000.mds\", \"bytes\": 3000, \"hashes\": {}},"
    " \"samples\": 1, \"size_limit\": 67108864, \"version\": 2, \"zip_data\": null}]}";

static void write_empty_text(CtlLab *lab)
{
    char *file = NULL;
    size_t n;
    const uint16_t values[3 * 64] = {0};
    const MdsArray array = {.number = MDS_FLOAT16,
                            .n_dims = 2,
                            .dims = {3, 64},
                            .values = values,
                            .n_bytes = sizeof(values)};
    assert_int_equal(npy_format(&array, &file, &n), 0);
    write_bytes(lab, "data/empty.npy", file, n);
    free(file);
}

char *ctl_job_text(CtlLab *lab, const char *name)
{
    char *text = NULL;
    ctl_write(lab, "unet.json", unet);
    ctl_write(lab, "data/index.json", dataset);
    write_empty_text(lab);
    assert_true(asprintf(&text,
                         "{\"name\": \"%s\", \"world\": {\"min\": 1, \"max\": 4},"
                         " \"model\": {\"config\": \"%s/unet.json\"},"
                         " \"data\": {\"streams\": [{\"uri\": \"%s/data\"}],"
                         " \"empty_text\": \"%s/data/empty.npy\"},"
                         " \"train\": {\"global_batch\": 16, \"grain\": 4, \"steps\": 100},"
                         " \"checkpoint\": {\"uri\": \"%s/saved/%s\", \"every_steps\": 10}}",
                         name, lab->folder, lab->folder, lab->folder, lab->folder, name) > 0);
    return text;
}

void ctl_put_phase(CtlLab *lab, const char *name, JobPhase phase, const char *reason)
{
    PhaseRecord record = {.phase = phase,
                          .generation = 2,
                          .go = phase_is_active(phase),
                          .since_usec = UINT64_C(1700000060000000),
                          .started_usec = UINT64_C(1700000000000000),
                          .useful_sec = 20,
                          .goodput = 0.75,
                          .saving = 0.05,
                          .saving_sec = 2,
                          .worlds = {{.generation = 1,
                                      .size = 3,
                                      .decided_usec = UINT64_C(1700000000000000),
                                      .reason = "starts"},
                                     {.generation = 2,
                                      .size = 2,
                                      .step = 10,
                                      .decided_usec = UINT64_C(1700000030000000),
                                      .reason = "resizes from 3 to 2"}},
                          .n_worlds = 2};
    (void)snprintf(record.reason, sizeof(record.reason), "%s", reason);
    CTL_PUT(lab, KEY_PHASES, name, phase_record, record);
}

static void put_ranks(CtlLab *lab, const char *job, int64_t world, const char *node, int rank)
{
    char name[160];
    RankReport report = {
        .slot = 0, .rank = rank, .pid = 4000 + rank, .state = RANK_RUNNING, .step = 11};
    RanksRecord record = {
        .incarnation = 1, .generation = 2, .world_revision = world, .ranks = &report, .n_ranks = 1};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    (void)snprintf(name, sizeof(name), "%s/2/%s", job, node);
    CTL_PUT(lab, KEY_RANKS, name, ranks_record, record);
}

void ctl_put_running_job(CtlLab *lab, const char *name)
{
    SpecRecord spec = {.spec = ctl_job_text(lab, name),
                       .submitted_usec = UINT64_C(1699999999000000)};
    CTL_PUT(lab, KEY_SPECS, name, spec_record, spec);
    free(spec.spec);
    DesiredRecord desired = {.state = DESIRED_RUNNING, .min = 1, .max = 4, .target = 2};
    CTL_PUT(lab, KEY_DESIRED, name, desired_record, desired);
    WorldRun runs[2] = {{.node = "n1", .incarnation = 1, .slots = 1},
                        {.node = "n2", .incarnation = 1, .slots = 1}};
    WorldRecord world = {
        .generation = 2, .size = 2, .runs = runs, .n_runs = 2, .resume = {.step = 10}};
    CTL_PUT(lab, KEY_WORLDS, name, world_record, world);
    const int64_t revision = lab->revision;
    put_ranks(lab, name, revision, "n1", 0);
    put_ranks(lab, name, revision, "n2", 1);
    ProgressRecord progress = {.generation = 2,
                               .step = 12,
                               .steps = 100,
                               .loss = 0.5,
                               .samples_per_sec = 32,
                               .step_sec = 0.5,
                               .samples_seen = 192,
                               .at_usec = UINT64_C(1700000040000000)};
    CTL_PUT(lab, KEY_PROGRESS, name, progress_record, progress);
    ctl_put_phase(lab, name, PHASE_RUNNING, "resizes from 3 to 2");
}

void ctl_put_incident(CtlLab *lab, const char *job, IncidentState state)
{
    IncidentRecord incident = {.state = state,
                               .cause = "trainer-died",
                               .node = "n2",
                               .rank = 1,
                               .generation = 1,
                               .step = 12,
                               .evidence = "signal 9 <killed>",
                               .at_usec = UINT64_C(1700000020000000),
                               .lost_steps = 2,
                               .detect_sec = 0.125,
                               .decide_sec = 0.25,
                               .stop_sec = 0.5,
                               .start_sec = 0.0625,
                               .restore_sec = 0.75,
                               .replay_sec = 1.5};
    (void)snprintf(incident.id, sizeof(incident.id), "%s-1", job);
    (void)snprintf(incident.job, sizeof(incident.job), "%s", job);
    if (state == INCIDENT_RESOLVED) {
        incident.first_step_usec = incident.at_usec + 2000000;
        incident.resolved_usec = incident.at_usec + 2100000;
    }
    CTL_PUT(lab, KEY_INCIDENTS, incident.id, incident_record, incident);
}

json_t *ctl_at(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("no field %s", key);
    return value;
}
