/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-facts.h - reads encoder.json, which states a dataset's columns and shapes, and the encoders that made it.
 *
 * The author of a dataset writes the file, so it is not trusted: its size is bounded, each key is checked, and it can
 * name only a file of its own folder. Unknown keys are ignored; a key that changes the meaning of other keys comes with
 * a higher version.
 *
 * Ownership: values. Units: as DatasetShape.
 * Errors:    -EINVAL naming file, key and value, also for a newer version; the store's errors.
 * Source:    docs/reference/encoder-json.md.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"
#include "data/index/index.h"
#include "data/mds/mds.h"
#include "protocol/shapes.h"
#include "store/store.h"

#define ENCODER_FACTS_NAME "encoder.json"

enum {
    ENCODER_FACTS_VERSION = 1,
    /* The largest size of encoder.json in bytes; most of a large file are the keys of samples that were left out. */
    ENCODER_FACTS_MAX = 16 << 20,
    ENCODER_FACTS_VALUES_MAX = 64 << 10, /* the largest number of JSON values in encoder.json */
    ENCODER_FILE_MAX = 95,
};

typedef struct EncoderFacts {
    Hash hash;            /* hash of encoder.json */
    Hash weights, merges; /* hashes of the model's weights and of its tokenizer's merges */
    double scaling_factor;
    bool diffusers_rules; /* captions were tokenized by diffusers' rules, not by open_clip's */
    char latents[MDS_NAME_MAX + 1], text[MDS_NAME_MAX + 1]; /* names of columns */
    DatasetShape shape;
    char empty_text[ENCODER_FILE_MAX + 1]; /* name of a file beside encoder.json */
    /* Hashes of the file empty_text and of index.json, if encoder.json states them. */
    NotedHash empty_text_hash, index;
} EncoderFacts;

/* Parses the text of an encoder.json; source is its name in error texts. */
int encoder_facts_parse(const char *source, const char *text, size_t n_bytes, EncoderFacts *ret,
                        Error *err);
/* Returns 1 with the facts in *ret, or 0 if the dataset has no encoder.json, or if the store refuses access in the
 * same way in which it reports missing files. */
int encoder_facts_read(Store *store, EncoderFacts *ret, Error *err);
/* Reads the facts of the first of the job's streams that has an encoder.json. Returns 0 if no stream has an
 * encoder.json. */
int encoder_facts_find(const Job *job, EncoderFacts *ret, Error *err);
