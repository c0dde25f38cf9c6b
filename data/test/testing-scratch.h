/* SPDX-License-Identifier: Apache-2.0 */
/* testing-scratch.h - for tests: a temporary folder for one test, and datasets in it.
 *
 * Units: none. Errors: fail the test. Threads: one.
 * Ownership: scratch_make() returns a folder that scratch_remove() removes with its content.
 */
#pragma once

#include "base/file.h"
#include "base/number/half.h"
#include "base/test/testing.h"
#include "data/mds/mds-writer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct Scratch {
    char path[PATH_MAX];
} Scratch;

static inline Scratch scratch_make(void)
{
    Scratch s;
    const char *base = getenv("TMPDIR");
    (void)snprintf(s.path, sizeof(s.path), "%s/sdtrain-data-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(s.path));
    return s;
}

static inline void scratch_remove(Scratch *s) { assert_int_equal(folder_remove(s->path, NULL), 0); }

static inline char *scratch_path(const Scratch *s, const char *name, char text[PATH_MAX])
{
    assert_true(strlen(s->path) + 1 + strlen(name) < PATH_MAX);
    (void)stpcpy(stpcpy(stpcpy(text, s->path), "/"), name);
    return text;
}

/* Fails the test with the error's text. */
#define assert_good(r, err)                                                                        \
    do {                                                                                           \
        if ((r) < 0)                                                                               \
            fail_msg("%s", (err).text);                                                            \
    } while (0)

/* The error's text must contain the word. */
#define assert_names(err, word)                                                                    \
    do {                                                                                           \
        if (!strstr((err).text, word))                                                             \
            fail_msg("\"%s\" does not name %s", (err).text, word);                                 \
    } while (0)

typedef struct ScratchData {
    int n_samples;
    int channels, height, width, tokens, dim;
    const char *latents; /* encoding of the latents; only "bytes" can have empty samples */
    int missing;         /* sample i has no latents if i % missing == 1; 0: all have latents */
    const char *compression;
    const char *hash; /* name of a hash; NULL: no hashes */
    uint64_t size_limit;
    float scale; /* factor of the latents; their standard deviation is about the same */
    float mean;  /* mean of the latents */
    /* For "ndarray:float16": the number of the sample whose array has height and width exchanged; 0: none. */
    int turned;
} ScratchData;

/* Returns latent k of sample i, as it is stored: distinct, exact in half precision, with a standard deviation near
 * 1. */
static inline float scratch_latent(const ScratchData *d, int i, int k)
{
    return (float)((i * 131 + k * 37) % 64 - 32) / 16 * d->scale + d->mean;
}

static inline float scratch_text(int i, int k) { return (float)((i * 7 + k) % 256) / 64; }

/* Writes a dataset to a folder, or to a store's URI. */
static inline void scratch_dataset(const char *folder, const ScratchData *d)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    MdsWriter *writer = NULL;
    MdsColumn columns[3];
    MdsSchema schema;
    char text[64];
    (void)snprintf(text, sizeof(text), "ndarray:float16:%d,%d", d->tokens, d->dim);
    assert_good(mds_column_init("latents", d->latents, &columns[0], &err), err);
    assert_good(mds_column_init("text", text, &columns[1], &err), err);
    assert_good(mds_column_init("caption", "str", &columns[2], &err), err);
    assert_good(mds_schema_init(columns, 3, &schema, &err), err);
    MdsWriterOptions options = {.compression = d->compression,
                                .hashes = &d->hash,
                                .n_hashes = d->hash != NULL,
                                .size_limit = d->size_limit};
    if (!strstr(folder, "://"))
        assert_good(folder_make(folder, &err), err);
    assert_good(store_open(folder, &store, &err), err);
    assert_good(mds_writer_new(store, &schema, &options, &writer, &err), err);

    size_t n_latents = (size_t)(d->channels * d->height * d->width);
    size_t n_text = (size_t)(d->tokens * d->dim);
    /* If the column's encoding has no shape, each array begins with its shape: here, three dimensions of one byte
     * each. */
    const size_t header = strcmp(d->latents, "ndarray:float16") == 0 ? 4 : 0;
    uint8_t *array = malloc(header + 2 * n_latents);
    uint16_t *words = malloc(2 * n_text);
    assert_non_null(array);
    assert_non_null(words);
    for (int i = 0; i < d->n_samples; i++) {
        const bool turns = d->turned && i == d->turned;
        const uint8_t shape[4] = {3 << 2, (uint8_t)d->channels,
                                  (uint8_t)(turns ? d->width : d->height),
                                  (uint8_t)(turns ? d->height : d->width)};
        memcpy(array, shape, header);
        for (size_t k = 0; k < n_latents; k++) {
            const uint16_t half = half_from_float(scratch_latent(d, i, (int)k));
            memcpy(array + header + 2 * k, &half, sizeof(half));
        }
        for (size_t k = 0; k < n_text; k++)
            words[k] = half_from_float(scratch_text(i, (int)k));
        char caption[32];
        int n = snprintf(caption, sizeof(caption), "sample %d", i);
        bool missing = d->missing && i % d->missing == 1;
        /* The fields are in the order of the columns' names: caption, latents, text. */
        MdsField fields[] = {{caption, (size_t)n},
                             {array, missing ? 0 : header + 2 * n_latents},
                             {words, 2 * n_text}};
        assert_good(mds_writer_add(writer, fields, &err), err);
    }
    assert_good(mds_writer_finish(writer, &err), err);
    free(array);
    free(words);
    mds_writer_free(writer);
    store_free(store);
}

/* Flips a bit of one byte of a file. */
static inline void scratch_flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_not_equal(fputc(c ^ 1, f), EOF);
    assert_int_equal(fclose(f), 0);
}
