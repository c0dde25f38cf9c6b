/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `sdtrainer sample`: a grid of pictures from the newest checkpoint's EMA weights. */
#include "trainer/sample/sample.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "protocol/exit-code.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/sample/drawing.h"
#include "trainer/sample/grid.h"
#include "trainer/sample/sample-options.h"

#include <string.h>

enum { GRAIN = 4, RESTORES_MAX = 5 };
#define PROGRESS_USEC (10 * USEC_PER_SEC)

typedef struct Sampling {
    const SampleOptions *options;
    const Job *job;
    Dataset *dataset;
    UnetConfig config;
    Device *device;
    Drawing *drawing;
    int64_t step; /* of the weights */
    bool of_ema;
    uint64_t begin_usec, told_usec;
} Sampling;

static void sampling_close(Sampling *s)
{
    (void)drawing_free(s->drawing);
    (void)device_free(s->device);
    (void)dataset_free(s->dataset);
}

/* ---- weights ---- */

/* Finds the newest checkpoint's folder. */
static int find_newest(Store *store, const char *uri, char ret[CHECKPOINT_FOLDER_MAX], Error *err)
{
    StoreList list = {0};
    int r = checkpoint_list(store, &list, err);
    if (r == 0 && list.n_objects == 0)
        r = error_set(err, -ENOENT, "%s holds no checkpoint yet", uri);
    if (r == 0)
        (void)snprintf(ret, CHECKPOINT_FOLDER_MAX, "%s", list.objects[0].key);
    store_list_clear(&list);
    return r;
}

static int restore(Sampling *s, Store *store, const Manifest *manifest, Error *err)
{
    int r = fault("sample.restore");
    if (r == 0)
        r = checkpoint_restore_weights(store, manifest, manifest_has_ema(manifest),
                                       drawing_parameters(s->drawing), s->device,
                                       drawing_weights(s->drawing), err);
    s->of_ema = manifest_has_ema(manifest);
    s->step = manifest_step(manifest);
    if (r == 0)
        log_info("sampling with the %s of step %lld",
                 manifest_has_ema(manifest) ? "EMA weights" : "weights",
                 (long long)manifest_step(manifest));
    return r;
}

/* Restores the newest checkpoint. A running job removes old checkpoints, and may remove the checkpoint that is being
 * read; then a newer checkpoint is tried. */
static int restore_newest(Sampling *s, Error *err)
{
    const char *uri = s->job->checkpoint.uri;
    char before[CHECKPOINT_FOLDER_MAX] = "", folder[CHECKPOINT_FOLDER_MAX] = "";
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = find_newest(store, uri, folder, err);
    for (int i = 0; r == 0; i++) {
        _cleanup_(manifest_freep) Manifest *manifest = NULL;
        Error newer = ERROR_INIT;
        r = manifest_read(store, folder, NULL, &manifest, err);
        if (r == 0)
            r = restore(s, store, manifest, err);
        if (r == 0 || i == RESTORES_MAX)
            break;
        (void)snprintf(before, sizeof(before), "%s", folder);
        if (find_newest(store, uri, folder, &newer) < 0 || strcmp(before, folder) == 0)
            break;
        log_info("%s; %s is newer", err->text, folder);
        r = 0;
    }
    return r;
}

static int load_weights(Sampling *s, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    if (!s->options->from)
        return restore_newest(s, err);
    int r = manifest_read_uri(s->options->from, NULL, &store, &manifest, err);
    return r < 0 ? r : restore(s, store, manifest, err);
}

/* ---- drawing ---- */

/* Logs the progress every ten seconds. */
static int log_progress(void *userdata, int64_t done, int64_t all, _unused_ Error *err)
{
    Sampling *s = userdata;
    (void)fault("sample.step"); /* for tests that stop the program here */
    const uint64_t now = clock_boottime_usec();
    if (s->begin_usec == 0)
        s->begin_usec = s->told_usec = now;
    if (now - s->told_usec < PROGRESS_USEC || done == all)
        return 0;
    const double spent = (double)(now - s->begin_usec) / USEC_PER_SEC;
    log_info("%lld of %lld steps are done; %.0f s to go", (long long)done, (long long)all,
             spent / (double)done * (double)(all - done));
    s->told_usec = now;
    return 0;
}

static int sampling_open(Sampling *s, Error *err)
{
    DeviceOptions device = {.kind = DEVICE_CPU, .threads = s->job->train.threads, .type = DATA_F32};
    int r = dataset_open(s->job, &s->dataset, err);
    if (r == 0)
        r = unet_config_read(s->job->model.config_uri, store_get_uri, &s->config, err);
    if (r == 0)
        r = shapes_check(s->job, &s->config, dataset_shape(s->dataset), GRAIN, err);
    if (r == 0)
        r = device_open(&device, &s->device, err);
    if (r < 0)
        return r;
    const DrawingNeeds needs = {.grid = &s->options->grid,
                                .job = s->job,
                                .data = s->dataset,
                                .config = &s->config,
                                .device = s->device,
                                .model_device = s->device,
                                .grain = GRAIN,
                                .progress = log_progress,
                                .userdata = s};
    r = drawing_new(&needs, &s->drawing, err);
    return r < 0 ? r : load_weights(s, err);
}

static int write_real(Sampling *s, Error *err)
{
    _cleanup_free_ char *png = NULL;
    size_t n;
    int r = drawing_show_data(s->drawing, &png, &n, err);
    return r < 0 ? r : grid_write(s->options->pictures, png, n, err);
}

static int write_samples(Sampling *s, Error *err)
{
    _cleanup_free_ char *png = NULL;
    size_t n;
    s->begin_usec = 0;
    int r = drawing_run(s->drawing, s->step, s->of_ema, &png, &n, err);
    return r < 0 ? r : grid_write(s->options->out, png, n, err);
}

static int sample(Sampling *s, Error *err)
{
    int r = sampling_open(s, err);
    if (r == 0 && s->options->pictures)
        r = write_real(s, err);
    return r < 0 ? r : write_samples(s, err);
}

int verb_sample(int argc, char **argv)
{
    SampleOptions o;
    int code;
    if (!sample_options_parse(argc, argv, &o, &code))
        return code;

    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    int r = grid_check("--out", o.out, &err);
    if (r == 0 && o.pictures)
        r = grid_check("--pictures", o.pictures, &err);
    if (r == 0)
        r = job_read_file(o.job, &job, &err);
    if (r == 0) {
        _cleanup_(sampling_close) Sampling s = {.options = &o, .job = job};
        r = sample(&s, &err);
    }
    if (r < 0) {
        log_error("%s", err.text);
        return r == -EINVAL ? EXIT_NEVER_RETRY : EXIT_DATA_CORRUPT;
    }
    printf("%d samples in %s\n", o.grid.samples, o.out);
    if (o.pictures)
        printf("%d pictures of the data in %s\n", o.grid.samples, o.pictures);
    return 0;
}
