/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-facts.h - what encoder.json says of a dataset: its columns and shapes, and by what they were encoded.
 *
 * The file comes from whoever gave the dataset: it is bounded, checked by key, and names a file of its own folder only.
 * Keys that are not known are passed over; a key that changes what the others mean comes with a higher version.
 *
 * Ownership: values.
 * Units:     as DatasetShape.
 * Errors:    -EINVAL naming file, key and value; a newer version is one, too. The store's.
 * Threads:   any; no state.
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
    ENCODER_FACTS_MAX =
        16 << 20, /* bytes; sample keys that were left out by name take most of it */
    ENCODER_FACTS_VALUES_MAX = 64 << 10, /* JSON values */
    ENCODER_FILE_MAX = 95,
};

typedef struct EncoderFacts {
    Hash hash;            /* of the file */
    Hash weights, merges; /* of the model, and of its tokenizer */
    double scaling_factor;
    bool diffusers_rules; /* captions became ids by diffusers' rules, not open_clip's */
    char latents[MDS_NAME_MAX + 1], text[MDS_NAME_MAX + 1]; /* columns */
    DatasetShape shape;
    char empty_text[ENCODER_FILE_MAX + 1]; /* file beside it */
    NotedHash empty_text_hash, index;      /* of that file, and of index.json, where it has them */
} EncoderFacts;

/* source is for errors. */
int encoder_facts_parse(const char *source, const char *text, size_t n_bytes, EncoderFacts *ret,
                        Error *err);
/* 1: they are in *ret; 0: the dataset has none, or a store that does not say what is not there refuses. */
int encoder_facts_read(Store *store, EncoderFacts *ret, Error *err);
/* Reads the facts of the first of the job's streams that has any; 0: none has. */
int encoder_facts_find(const Job *job, EncoderFacts *ret, Error *err);
