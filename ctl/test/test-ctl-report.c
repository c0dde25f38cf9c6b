/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-report.c - the verbs that read a committed checkpoint: report, metrics and export. */
#include "base/test/testing.h"

#include "base/file.h"
#include "ctl/test/testing-ctl.h"
#include "manifest/manifest-internal.h"
#include "protocol/grid-notes.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- a committed checkpoint of 20 steps with two weight files ---- */

typedef struct Built {
    char *text;
    size_t n_bytes;
} Built;

/* Builds a safetensors file with one tensor of two floats. */
static Built safetensors(const char *name, float a, float b)
{
    char header[128];
    Built f;
    const float data[2] = {a, b};
    (void)snprintf(header, sizeof(header),
                   "{\"__metadata__\":{\"format\":\"pt\"},\"%s\":{\"dtype\":\"F32\",\"shape\":[2],"
                   "\"data_offsets\":[0,8]}}",
                   name);
    const uint64_t n = htole64(strlen(header));
    f.n_bytes = 8 + strlen(header) + sizeof(data);
    f.text = malloc(f.n_bytes);
    assert_non_null(f.text);
    memcpy(f.text, &n, 8);
    memcpy(f.text + 8, header, strlen(header));
    memcpy(f.text + 8 + strlen(header), data, sizeof(data));
    return f;
}

/* Writes the object f below the lab's folder and frees its text. */
static void write_object(CtlLab *lab, const char *folder, const char *key, Built f,
                         uint64_t *ret_bytes, Hash *ret_hash)
{
    char path[400];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s%s", lab->folder, folder, key);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_make(path, &err), 0);
    *slash = '/';
    assert_int_equal(file_write(path, f.text, f.n_bytes, 0, &err), 0);
    *ret_bytes = f.n_bytes;
    *ret_hash = hash_bytes(f.text, f.n_bytes);
    free(f.text);
}

static Built metrics(int first, int last)
{
    Built f = {.text = calloc(1, 8192)};
    assert_non_null(f.text);
    for (int step = first; step <= last; step++)
        f.n_bytes += (size_t)snprintf(f.text + f.n_bytes, 8192 - f.n_bytes,
                                      "{\"step\":%d,\"loss\":%g,\"lr\":0.1,\"grad_norm\":1}\n",
                                      step, 1.0 / step);
    return f;
}

#define STEP_FOLDER "ck/step-0000000020-o1-g2-00000000/"
#define FIRST_WEIGHTS "unet/diffusion_pytorch_model-00001-of-00002.safetensors"
#define FIRST_METRICS "ck/metrics/metrics-0000000001-0000000010-o1-g2-00000000.jsonl"
#define SECOND_METRICS "ck/metrics/metrics-0000000011-0000000020-o1-g2-00000000.jsonl"

static Built object_of(const ObjectRecord *o)
{
    if (o->kind == OBJECT_WEIGHTS)
        return o->part == 0 ? safetensors("conv.bias", 1, 2) : safetensors("conv.weight", 3, 4);
    Built f = {.n_bytes = o->kind == OBJECT_MOMENTS ? 8 * (size_t)o->count : 2};
    f.text = calloc(1, f.n_bytes);
    assert_non_null(f.text);
    return f;
}

/* Writes the objects of a checkpoint with two weight files of two numbers each, and returns its manifest's text. */
static char *put_objects(CtlLab *lab)
{
    Parameter items[] = {{.n_elements = 2}, {.offset = 2, .n_elements = 2}};
    const ParameterList list = {.items = items, .n_items = 2, .n_elements = 4};
    char folders[2][CHECKPOINT_FOLDER_MAX] = {"step-0000000000-o1-g1-00000000",
                                              "step-0000000015-o1-g1-00000000"};
    uint32_t maxima[2 * MAXIMA_WINDOW] = {0};
    Hash chunks[1] = {{.high = 0}};
    MetricsSegment segments[2];
    Manifest m = {.name = {.step = 20, .owner = 1, .generation = 2},
                  .facts = {.job = "e", .generation = 2, .numerics = "{}"},
                  .scalars = {.step = 20, .loss_scale = 1, .maxima = maxima},
                  .n_tensors = 2,
                  .layout = chunk_layout(4),
                  .chunks = chunks,
                  .metrics_first = 1,
                  .segments = segments,
                  .n_segments = 2,
                  .committed = folders,
                  .n_committed = 2,
                  .step_times = "1 20 8 16000000 4000000 1000000"};
    ObjectTable table;
    assert_int_equal(object_table_new(&list, &m.layout, 8, false, &table), 0);
    m.objects = table.records;
    m.n_objects = table.n_records;
    for (size_t i = 0; i < m.n_objects; i++)
        write_object(lab, STEP_FOLDER, m.objects[i].key, object_of(&m.objects[i]),
                     &m.objects[i].n_bytes, &m.objects[i].hash);
    for (int k = 0; k < 2; k++) {
        MetricsSegment *s = &segments[k];
        *s = (MetricsSegment){.first = 10 * k + 1, .last = 10 * k + 10, .n_lines = 10};
        metrics_key_format(&m.name, s->first, s->last, s->key);
        write_object(lab, "ck/", s->key, metrics((int)s->first, (int)s->last), &s->n_bytes,
                     &s->hash);
    }
    m.digest = manifest_state_digest(&m);
    char *text = NULL;
    assert_int_equal(manifest_format(&m, &text), 0);
    object_table_clear(&table);
    return text;
}

static void put_checkpoint(CtlLab *lab, const char *job)
{
    _cleanup_free_ char *text = put_objects(lab);
    ctl_write(lab, STEP_FOLDER "manifest.json", text);
    CheckpointsRecord record = {.commits = {{.step = 20, .generation = 2}}, .n_commits = 1};
    (void)snprintf(record.commits[0].uri, sizeof(record.commits[0].uri),
                   "file://%s/" STEP_FOLDER "manifest.json", lab->folder);
    record.commits[0].hash = hash_bytes(text, strlen(text));
    CTL_PUT(lab, KEY_CHECKPOINTS, job, checkpoints_record, record);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

static void a_report_shows_every_mark(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    ctl_put_incident(lab, "r", INCIDENT_RESOLVED);
    put_checkpoint(lab, "r");
    ctl_put_phase(lab, "r", PHASE_SUCCEEDED, "<!-- end -->{{job}} & \"done\"");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);

    assert_contains(page, "<!DOCTYPE html>");
    assert_int_equal(count(page, "class=\"saved\""), 3);
    assert_contains(page, "checkpoint of step 10</title>");
    assert_contains(page, "checkpoint of step 20</title>");
    assert_int_equal(count(page, "<g class=\"failure\">"), 1);
    assert_contains(page, "2 steps were trained again");
    assert_contains(page, "signal 9 &lt;killed&gt;");
    assert_null(strstr(page, "<killed>"));
    /* "{{job}}" in a text from outside is not replaced, and all marks of the template are replaced. */
    assert_contains(page, "(&lt;!-- end --&gt;{{job}} &amp; &quot;done&quot;)");
    assert_int_equal(count(page, "{{"), 1);
    assert_int_equal(count(page, "<!--"), 0);
    assert_contains(page, "<b id=\"goodput\">75.0 %</b><span>goodput</span>");
    assert_contains(page, "</i>save<td data-label=\"Share\" class=\"n\">5.0 %");
    assert_contains(page, "<title>restore 0.750 s</title>");
    /* The first step has the rest of 2 s after the known phases. */
    assert_contains(page, "<title>first step 0.312 s</title>");
    assert_contains(page, "<title>replay 1.500 s</title>");
    assert_contains(page, "generation 2: 2 ranks from step 10: resizes from 3 to 2</title>");
    assert_contains(page, "step-0000000020-o1-g2-00000000/manifest.json");
    assert_contains(page, "prefers-color-scheme:dark");
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "http://"));
    assert_null(strstr(page, "https://"));
    assert_null(strstr(page, "The same job, run alone"));
    /* A step has 16 samples. Steps of 2 s, 0.5 s and 0.25 s train 8, 32 and 64 samples a second. */
    assert_contains(page, "Samples/s");
    assert_contains(page, "8,0,0.125,8,1,0.1;9,0,0.1111,32,1,0.1;");
    assert_contains(page, "20,0,0.05,64,1,0.1;");
    assert_int_equal(ctl_run(lab, "job metrics r -o csv"), 0);
    assert_contains(lab->out, "step,wall_time,loss,grad_norm,learning_rate,samples_per_s\n");
    assert_contains(lab->out, ",0.125,1,0.1,8\n");
    assert_contains(lab->out, ",0.05,1,0.1,64\n");
}

/* The shares in the report include the present world: 20 steps of 0.5 s after its first step. 4 s of this world, and 2
 * s before it, were spent waiting for saves. */
static void a_report_counts_saves_of_a_world_that_runs(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    const uint64_t start_usec = UINT64_C(1700000000000000);
    ctl_put_running_job(lab, "r");
    put_checkpoint(lab, "r");
    WorldRun run = {.node = "n1", .incarnation = 1, .slots = 1};
    WorldRecord world = {
        .generation = 2, .size = 1, .runs = &run, .n_runs = 1, .resume = {.step = 10}};
    CTL_PUT(lab, KEY_WORLDS, "r", world_record, world);
    RankReport report = {.state = RANK_RUNNING, .step = 31};
    RanksRecord ranks = {.node = "n1",
                         .incarnation = 1,
                         .generation = 2,
                         .world_revision = lab->revision,
                         .ranks = &report,
                         .n_ranks = 1,
                         .first_step = 11,
                         .first_step_usec = start_usec + 90 * USEC_PER_SEC};
    CTL_PUT(lab, KEY_RANKS, "r/2/n1", ranks_record, ranks);
    ProgressRecord progress = {.generation = 2,
                               .step = 31,
                               .steps = 100,
                               .loss = 0.5,
                               .saving_sec = 4,
                               .at_usec = start_usec + 100 * USEC_PER_SEC};
    CTL_PUT(lab, KEY_PROGRESS, "r", progress_record, progress);
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "<b id=\"goodput\">30.5 %</b>");
    assert_contains(page, "</i>train<td data-label=\"Share\" class=\"n\">24.5 %");
    assert_contains(page, "</i>save<td data-label=\"Share\" class=\"n\">6.0 %");
}

/* If the store does not answer, sdctl prints that it waits for the store, and writes the page without the store's
 * data. */
static void a_report_of_a_store_that_is_away(void **state)
{
    CtlLab *lab = *state;
    char path[200], endpoint[64];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    _cleanup_fd_ int deaf =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* accepts connections and never answers */
    assert_int_equal(bind(deaf, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(deaf, 64), 0);
    assert_int_equal(getsockname(deaf, (struct sockaddr *)&address, &length), 0);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", ntohs(address.sin_port));
    ctl_put_running_job(lab, "r");
    CheckpointsRecord record = {
        .commits = {{.step = 20, .generation = 2, .uri = "s3://away/" STEP_FOLDER "manifest.json"}},
        .n_commits = 1};
    CTL_PUT(lab, KEY_CHECKPOINTS, "r", checkpoints_record, record);
    static const char *const names[] = {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY", "SDTRAIN_S3_DEADLINE_SEC",
                                        "SDTRAIN_S3_STALL_SEC"};
    const char *const values[] = {endpoint, "a", "b", "5", "5"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        assert_int_equal(setenv(names[i], values[i], 1), 0);
    assert_int_equal(ctl_run(lab, "job report r --out %s/away.html", lab->folder), 0);
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        assert_int_equal(unsetenv(names[i]), 0);
    assert_contains(lab->err, "sdctl: waits for s3://away/" STEP_FOLDER "manifest.json\n");
    assert_contains(lab->err, "sdctl: the page has no losses: ");
    (void)snprintf(path, sizeof(path), "%s/away.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "away");

    put_checkpoint(lab, "r"); /* a short wait is not reported */
    assert_int_equal(ctl_run(lab, "job report r --out %s/away.html", lab->folder), 0);
    assert_null(strstr(lab->err, "waits for"));
}

static void a_report_shows_what_is_given_to_it(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    put_checkpoint(lab, "r");
    (void)snprintf(path, sizeof(path), "%s/grid.png", lab->folder);
    assert_int_equal(file_write(path, "\x89PNG\r\n\x1a\nxy", 10, 0, &err), 0);
    assert_int_equal(
        ctl_run(lab,
                "job report r --out %s/r.html --grid %s --alone 00000000000000000000000000000000",
                lab->folder, path),
        0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "src=\"data:image/png;base64,iVBORw0KGgp4eQ==\"");
    assert_contains(page, "equal: the same bits"); /* --alone equals the digest in the record */
    assert_int_equal(
        ctl_run(lab, "job report r --out %s/r.html --alone 11111111111111111111111111111111",
                lab->folder),
        0);
    free(TAKE_PTR(page));
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, ">different<");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --alone 123", lab->folder), 1);
    assert_contains(lab->err, "--alone 123: a digest has 32 hexadecimal digits");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --grid %s/r.html", lab->folder,
                             lab->folder),
                     1);
    assert_contains(lab->err, "not a PNG");
}

/* Writes a PNG of one pixel with these notes. */
static void put_png(const CtlLab *lab, const char *name, const GridNotes *notes)
{
    static const char png[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55\0\0\0\0IEND"
        "\xae\x42\x60\x82";
    size_t n;
    char path[200];
    Error err = ERROR_INIT;
    _cleanup_free_ char *whole = grid_notes_put(notes, png, sizeof(png) - 1, &n);
    (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, name);
    assert_int_equal(file_write(path, whole, n, 0, &err), 0);
}

static void a_report_says_what_pictures_show(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    _cleanup_(grid_notes_clear) GridNotes drawn = {.job = "r", .ema = true, .step = 20, .seed = 7};
    _cleanup_(grid_notes_clear) GridNotes real = {.job = "x", .real = true};
    grid_notes_add(&drawn, "a <cat> & {{job}}");
    for (int i = 0; i < 20; i++)
        grid_notes_add(&real, "");
    ctl_put_running_job(lab, "r");
    put_png(lab, "grid.png", &drawn);
    put_png(lab, "real.png", &real);
    assert_int_equal(
        ctl_run(lab, "job report r --out %s/r.html --grid %s/grid.png --pictures %s/real.png",
                lab->folder, lab->folder, lab->folder),
        0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "averaged (EMA) weights of step 20, seed 7.");
    assert_contains(page, "<details open>");
    assert_contains(page, "<li>a &lt;cat&gt; &amp; {{job}}</li>");
    assert_contains(page, "<b>Real pictures</b> of the data: its first ones");
    assert_contains(page, "Of job x.");
    assert_int_equal(count(page, "Of job "), 1);
    assert_int_equal(count(page, "<details"), 1); /* the other picture has no captions */

    /* A PNG without notes and a PNG that is cut short are both shown. */
    ctl_write(lab, "real.png", "\x89PNG\r\n\x1a\nxy");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --pictures %s/real.png",
                             lab->folder, lab->folder),
                     0);
    assert_contains(lab->err, "the page does not say what is in ");
    assert_contains(lab->err, "/real.png: the PNG is cut short\n");
    free(TAKE_PTR(page));
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "<b>Real pictures</b> of the data, as somebody gave them to the report.");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --pictures %s/no.png", lab->folder,
                             lab->folder),
                     3);
    assert_contains(lab->err, "--pictures: ");
}

static void a_report_says_which_metrics_are_lost(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    put_checkpoint(lab, "r");
    ctl_write(lab, SECOND_METRICS, "{\"step\":11}\n");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    assert_contains(lab->err, SECOND_METRICS ": its hash is ");
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "The metrics of 10 steps between 11 and 20 are lost: ");
    assert_contains(page, SECOND_METRICS ": its hash is ");
    assert_contains(page, "checkpoint of step 10</title>");
    ctl_write(lab, FIRST_METRICS, "");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    assert_contains(lab->err, "the metrics of 20 steps between 1 and 20 are lost: ");
    assert_int_equal(ctl_run(lab, "job report r --out %s/no/r.html", lab->folder), 3);
    assert_contains(lab->err, "/no/r.html");
}

static void export_joins_the_weight_files(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *file = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "e");
    assert_int_equal(ctl_run(lab, "job export e --out %s/e.safetensors", lab->folder), 3);
    assert_string_equal(
        lab->err, "sdctl: job e has no checkpoint yet; sdctl job checkpoint e has it save one\n");
    put_checkpoint(lab, "e");
    assert_int_equal(ctl_run(lab, "job export e --out %s/e.safetensors", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/e.safetensors", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &file, &n, &err), 0);

    uint64_t n_header;
    memcpy(&n_header, file, 8);
    n_header = le64toh(n_header);
    assert_int_equal(n_header % 8, 0);
    assert_int_equal(n, 8 + n_header + 16);
    json_t *header = json_loadb(file + 8, n_header, 0, NULL);
    json_t *offsets = ctl_at(ctl_at(header, "conv.weight"), "data_offsets");
    assert_int_equal(json_integer_value(json_array_get(offsets, 0)), 8);
    assert_int_equal(json_integer_value(json_array_get(offsets, 1)), 16);
    assert_string_equal(json_string_value(ctl_at(ctl_at(header, "__metadata__"), "format")), "pt");
    json_decref(header);
    const float expected[] = {1, 2, 3, 4};
    assert_memory_equal(file + 8 + n_header, expected, sizeof(expected));

    assert_int_equal(ctl_run(lab, "job export e --ema --out %s/e.safetensors", lab->folder), 3);
    assert_string_equal(lab->err, "sdctl: the checkpoint of step 20 has no averaged weights: "
                                  "train.ema.start_step is not reached\n");
    Hash hash;
    write_object(lab, STEP_FOLDER, FIRST_WEIGHTS, safetensors("conv.bias", 1, 3), &n, &hash);
    assert_int_equal(ctl_run(lab, "job export e --out %s/f.safetensors", lab->folder), 1);
    assert_contains(lab->err, FIRST_WEIGHTS ": its hash is not what the manifest says\n");
    (void)snprintf(path, sizeof(path), "%s/f.safetensors", lab->folder);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof(path), "%s/f.safetensors.part", lab->folder);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_shows_every_mark),
        cmocka_unit_test(a_report_says_which_metrics_are_lost),
        cmocka_unit_test(a_report_counts_saves_of_a_world_that_runs),
        cmocka_unit_test(a_report_of_a_store_that_is_away),
        cmocka_unit_test(a_report_shows_what_is_given_to_it),
        cmocka_unit_test(a_report_says_what_pictures_show),
        cmocka_unit_test(export_joins_the_weight_files),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
