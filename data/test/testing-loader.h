/* SPDX-License-Identifier: Apache-2.0 */
/* testing-loader.h - for tests: a job over small datasets, and checks of the samples that are loaded from them.
 *
 * Errors: fail the test. Threads: one.
 * Ownership: fixture_make() makes files that scratch_remove(&fixture.scratch) removes.
 * Units:     samples, steps; a global batch is 24 samples in 6 grains.
 */
#pragma once

#include "data/loader.h"
#include "data/mds/npy.h"
#include "data/test/testing-scratch.h"

static const ScratchData plain = {.n_samples = 500,
                                  .channels = 4,
                                  .height = 6,
                                  .width = 3,
                                  .tokens = 5,
                                  .dim = 7,
                                  .latents = "ndarray:float16:4,6,3",
                                  .hash = "xxh3_64",
                                  .size_limit = 10000,
                                  .scale = 1};

typedef struct Fixture {
    Scratch scratch;
    ScratchData data[2];
    char folders[2][PATH_MAX];
    char empty[PATH_MAX], cache[PATH_MAX];
    Job job;
} Fixture;

static inline void add_stream(Fixture *f, const ScratchData *data, double proportion)
{
    size_t i = f->job.data.n_streams++;
    f->data[i] = *data;
    scratch_dataset(scratch_path(&f->scratch, i ? "second" : "first", f->folders[i]), data);
    f->job.data.streams[i] = (JobStream){.uri = f->folders[i], .proportion = proportion};
}

/* Fills *f, which must not be moved afterwards: the job points into it. */
static inline void fixture_make(Fixture *f, const ScratchData *data)
{
    *f = (Fixture){.scratch = scratch_make()};
    Error err = ERROR_INIT;
    add_stream(f, data, 1);
    uint16_t zeros[5 * 7] = {0};
    MdsArray empty = {.number = MDS_FLOAT16,
                      .n_dims = 2,
                      .dims = {5, 7},
                      .values = zeros,
                      .n_bytes = sizeof(zeros)};
    char *bytes;
    size_t n;
    assert_int_equal(npy_format(&empty, &bytes, &n), 0);
    assert_good(file_write(scratch_path(&f->scratch, "empty.npy", f->empty), bytes, n, 0, &err),
                err);
    free(bytes);
    (void)scratch_path(&f->scratch, "cache", f->cache);
    f->job.data.latents = (char *)(uintptr_t) "latents";
    f->job.data.text = (char *)(uintptr_t) "text";
    f->job.data.latent_scale = 1;
    f->job.data.empty_text_uri = f->empty;
    f->job.data.shuffle_window = 64;
    f->job.train.global_batch = 24;
    f->job.train.grain = 4;
    f->job.train.n_grains = 6;
    f->job.train.steps = 1000;
    f->job.train.seed = 3;
    f->job.train.caption_drop = 0.1;
}

/* Converts the number of a valid sample to its number in the file. */
static inline int file_number(const ScratchData *d, int64_t valid)
{
    if (!d->missing)
        return (int)valid;
    for (int i = 0;; i++)
        if (i % d->missing != 1 && valid-- == 0)
            return i;
}

static inline void assert_sample(const Fixture *f, const Dataset *dataset, OrderSample sample,
                                 const float *latents, const float *text)
{
    const DatasetShape *s = dataset_shape(dataset);
    const ScratchData *d = &f->data[sample.stream];
    int number = file_number(d, sample.sample);
    float scale = (float)f->job.data.latent_scale;
    for (int c = 0; c < s->channels; c++)
        for (int y = 0; y < s->height; y++)
            for (int x = 0; x < s->width; x++) {
                int stored = (c * s->height + y) * s->width + x;
                int at = (y * s->width + x) * s->channels + c;
                assert_true(latents[at] == scratch_latent(d, number, stored) * scale);
            }
    for (int k = 0; k < s->text_tokens * s->text_dim; k++)
        assert_true(text[k] == scratch_text(number, k));
}

static inline Dataset *open_dataset(const Fixture *f)
{
    Error err = ERROR_INIT;
    Dataset *dataset = NULL;
    assert_good(dataset_open(&f->job, &dataset, &err), err);
    return dataset;
}

/* Loads and checks grains a .. a + count - 1 of steps first .. first + n - 1. */
static inline void check_steps(const Fixture *f, Dataset *dataset, int64_t first, int64_t n,
                               int64_t a, int64_t count, size_t ahead)
{
    Error err = ERROR_INIT;
    Loader *loader = NULL;
    const DatasetShape *s = dataset_shape(dataset);
    size_t n_latents = (size_t)(s->channels * s->height * s->width);
    size_t n_text = (size_t)(s->text_tokens * s->text_dim);
    assert_good(loader_new(dataset, &f->job, first, a, count, ahead, &loader, &err), err);
    for (int64_t step = first; step < first + n; step++) {
        for (int64_t g = a + count - 1; g >= a; g--) { /* grains may be requested in any order */
            LoaderGrain grain;
            assert_good(loader_get(loader, step, g, 30 * USEC_PER_SEC, &grain, &err), err);
            assert_int_equal(grain.first_position, step * 24 + g * 4);
            for (int64_t i = 0; i < 4; i++) {
                OrderSample wanted = order_at(dataset_order(dataset), grain.first_position + i);
                assert_int_equal(grain.samples[i].stream, wanted.stream);
                assert_int_equal(grain.samples[i].pass, wanted.pass);
                assert_int_equal(grain.samples[i].sample, wanted.sample);
                assert_sample(f, dataset, wanted, grain.latents + (size_t)i * n_latents,
                              grain.text + (size_t)i * n_text);
            }
        }
        loader_release(loader, step);
    }
    loader_free(loader);
}
