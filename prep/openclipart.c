/* SPDX-License-Identifier: Apache-2.0 */
/* openclipart.c - see openclipart.h. Pictures are decoded in batches by several threads, each sample into its own
 * place, and written in order. */
#include "prep/openclipart.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/number/half.h"
#include "data/index-open.h"
#include "data/mds/mds-writer.h"
#include "data/mds/npy.h"
#include "encoders/codec.h"
#include "encoders/hashed-text.h"
#include "prep/openclipart-pictures.h"
#include "prep/picture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    SIDE = 128,
    LATENT_SIDE = SIDE / CODEC_BLOCK,
    N_LATENTS = CODEC_CHANNELS * LATENT_SIDE * LATENT_SIDE,
    BATCH = 256,
    THREADS_MAX = 16,
};

/* ---- samples ---- */

typedef struct Sample {
    int r; /* 0, or why the sample could not be made */
    Error error;
    uint16_t latents[N_LATENTS];
    uint16_t *text;
    char *caption;
} Sample;

typedef struct Batch {
    const char *source;
    const HashedText *words;
    int text_dim;
    char *const *paths;
    size_t n;
    atomic_size_t next; /* index of the next sample to make */
    Sample samples[BATCH];
} Batch;

static void to_halves(const float *values, size_t n, uint16_t *ret)
{
    for (size_t i = 0; i < n; i++)
        ret[i] = half_from_float(values[i]);
}

static int make_sample(const Batch *batch, const char *path, Sample *sample, Error *err)
{
    size_t n_text = (size_t)HASHED_TEXT_TOKENS * (size_t)batch->text_dim;
    _cleanup_free_ float *pixels = malloc(sizeof(float) * 3 * SIDE * SIDE);
    _cleanup_free_ float *text = malloc(sizeof(float) * n_text);
    sample->text = malloc(sizeof(uint16_t) * n_text);
    if (!pixels || !text || !sample->text)
        return error_set(err, -ENOMEM, "out of memory");
    int r = picture_read(path, SIDE, pixels, err);
    if (r < 0)
        return r;
    float latents[N_LATENTS];
    codec_encode(pixels, SIDE, SIDE, latents);
    to_halves(latents, N_LATENTS, sample->latents);
    r = openclipart_read_caption(batch->source, path, &sample->caption);
    if (r < 0)
        return error_errno(err, r, "%s: no caption", path);
    hashed_text_embed(batch->words, sample->caption, text);
    to_halves(text, n_text, sample->text);
    return 0;
}

static void *make_samples(void *argument)
{
    Batch *batch = argument;
    for (size_t i; (i = atomic_fetch_add(&batch->next, 1)) < batch->n;) {
        Sample *sample = &batch->samples[i];
        sample->r = make_sample(batch, batch->paths[i], sample, &sample->error);
    }
    return NULL;
}

static void make_batch(Batch *batch)
{
    pthread_t threads[THREADS_MAX];
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN), n_threads = 0;
    atomic_store(&batch->next, 0);
    while (n_threads < CLAMP(n_cpus, 1, THREADS_MAX) - 1 &&
           pthread_create(&threads[n_threads], NULL, make_samples, batch) == 0)
        n_threads++;
    (void)make_samples(batch); /* this thread works, too, and alone if no other could start */
    for (long i = 0; i < n_threads; i++)
        (void)pthread_join(threads[i], NULL); /* cannot fail: joinable threads of this process */
}

static int write_batch(Batch *batch, MdsWriter *writer, size_t *n_written, Error *err)
{
    int r = 0;
    for (size_t i = 0; i < batch->n; i++) {
        Sample *s = &batch->samples[i];
        if (r == 0 && s->r == 0) {
            /* Fields in the order of the columns' names: caption, latents, text. */
            MdsField fields[] = {{s->caption, strlen(s->caption)},
                                 {s->latents, sizeof(s->latents)},
                                 {s->text,
                                  2 * (size_t)HASHED_TEXT_TOKENS * (size_t)batch->text_dim}};
            r = mds_writer_add(writer, fields, err);
            *n_written += r == 0;
        } else if (r == 0 && s->r == -ENOMEM) {
            r = error_set(err, s->r, "%s", s->error.text);
        } else if (r == 0) {
            log_warning("left out: %s", s->error.text);
        }
        free(s->text);
        free(s->caption);
        *s = (Sample){0};
    }
    return r;
}

static void show_progress(size_t done, size_t n, bool last)
{
    static uint64_t shown;
    uint64_t now = clock_boottime_usec();
    if (!last && now - shown < USEC_PER_SEC / 4)
        return;
    shown = now;
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\rpictures %zu of %zu%s", done, n, last ? "\n" : "");
    else
        (void)fprintf(stderr, "pictures %zu of %zu\n", done, n);
}

static int write_samples(const OpenclipartOptions *options, const OpenclipartPaths *paths,
                         Store *store, const HashedText *words, Error *err)
{
    char encoding[48];
    MdsColumn columns[3];
    MdsSchema schema;
    (void)snprintf(encoding, sizeof(encoding), "ndarray:float16:%d,%d", HASHED_TEXT_TOKENS,
                   options->text_dim);
    int r = mds_column_init("text", encoding, &columns[0], err);
    (void)snprintf(encoding, sizeof(encoding), "ndarray:float16:%d,%d,%d", CODEC_CHANNELS,
                   LATENT_SIDE, LATENT_SIDE);
    r = r < 0 ? r : mds_column_init("latents", encoding, &columns[1], err);
    r = r < 0 ? r : mds_column_init("caption", "str", &columns[2], err);
    r = r < 0 ? r : mds_schema_init(columns, ELEMENTSOF(columns), &schema, err);
    if (r < 0)
        return r;

    static const char *const hashes[] = {"xxh3_64"};
    MdsWriterOptions how = {.compression = options->compression,
                            .hashes = hashes,
                            .n_hashes = ELEMENTSOF(hashes),
                            .size_limit = options->size_limit};
    _cleanup_(mds_writer_freep) MdsWriter *writer = NULL;
    _cleanup_free_ Batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        return error_set(err, -ENOMEM, "out of memory");
    r = mds_writer_new(store, &schema, &how, &writer, err);
    batch->source = options->source;
    batch->words = words;
    batch->text_dim = options->text_dim;
    size_t n_written = 0;
    for (size_t i = 0; r == 0 && i < paths->n; i += batch->n) {
        batch->paths = paths->paths + i;
        batch->n = MIN((size_t)BATCH, paths->n - i);
        make_batch(batch);
        r = write_batch(batch, writer, &n_written, err);
        show_progress(i + batch->n, paths->n, i + batch->n == paths->n);
    }
    if (r == 0 && n_written == 0)
        r = error_set(err, -ENOENT, "%s: no picture could be read", options->source);
    return r < 0 ? r : mds_writer_finish(writer, err);
}

static int write_empty_text(const OpenclipartOptions *options, Store *store,
                            const HashedText *words, Error *err)
{
    size_t n = (size_t)HASHED_TEXT_TOKENS * (size_t)options->text_dim;
    _cleanup_free_ float *text = malloc(n * sizeof(float));
    _cleanup_free_ uint16_t *halves = malloc(n * sizeof(uint16_t));
    _cleanup_free_ char *file = NULL;
    if (!text || !halves)
        return error_set(err, -ENOMEM, "out of memory");
    hashed_text_embed(words, "", text);
    to_halves(text, n, halves);
    MdsArray array = {.number = MDS_FLOAT16,
                      .n_dims = 2,
                      .dims = {HASHED_TEXT_TOKENS, (uint64_t)options->text_dim},
                      .values = halves,
                      .n_bytes = 2 * n};
    struct iovec part;
    int r = npy_format(&array, &file, &part.iov_len);
    if (r < 0)
        return error_set(err, r, "out of memory");
    part.iov_base = file;
    /* Only the writer that puts empty.npy may write to the folder: two writers would mix their shards. */
    r = store_put(store, "empty.npy", &part, 1, STORE_IF_ABSENT, err);
    return r == -EEXIST
               ? error_set(err, r,
                           "%s holds files of a dataset that is not finished: its writer runs, "
                           "or was killed; take another folder, or remove this one",
                           store_uri(store))
               : r;
}

int openclipart_make(const OpenclipartOptions *options, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(hashed_text_freep) HashedText *words = NULL;
    _cleanup_(openclipart_paths_clear) OpenclipartPaths paths = {0};
    uint64_t n_bytes;
    int r = hashed_text_new(options->text_dim, &words, err);
    if (r == 0)
        r = store_open(options->out, &store, err);
    if (r < 0)
        return r;
    if (store_head(store, "index.json", &n_bytes, NULL) == 0)
        return error_set(err, -EEXIST, "%s already holds a dataset", store_uri(store));
    r = openclipart_list(options->source, options->n_samples, &paths, err);
    /* index.json makes the folder a dataset, so it is put after all other files. */
    if (r == 0)
        r = write_empty_text(options, store, words, err);
    if (r == 0)
        r = write_samples(options, &paths, store, words, err);
    if (r < 0)
        return r;

    _cleanup_(index_freep) Index *index = NULL;
    r = index_make(store, false, NULL, NULL, &index, err);
    if (r < 0)
        return r;
    char text[HASH_TEXT_BYTES];
    log_info("%s: %llu samples in %llu shards, digest %s", store_uri(store),
             (unsigned long long)index_n_samples(index), (unsigned long long)index_n_shards(index),
             hash_format(index_digest(index), text));
    return 0;
}
