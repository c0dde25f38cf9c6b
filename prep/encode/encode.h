/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - a folder of pictures and captions becomes an MDS dataset of latents and text embeddings.
 *
 * The bytes stored of a sample are a function of the recipe, the model's weights, the device's numerics and the
 * sample's raw bytes and place: its unit (a tar or a shard) and its index there. A unit is cut in parts of
 * shard_samples; a part becomes at most one shard, put if absent. So any number of processes may be killed and
 * started again, and the dataset's bytes are the same. folder.h says what lies where.
 *
 * Ownership: none.
 * Units:     samples.
 * Errors:    -EEXIST the output holds something else, the text names both identities; -EDOM too much was rejected;
 *            -ENOTRECOVERABLE parts are open, since pictures killed their decoders; -EAGAIN units are not done yet;
 *            -ENODATA nothing is left; -EIO a shard went away; those of raw-set.h, encoder.h, tokenizer.h and of
 *            the store.
 * Threads:   the main one.
 */
#pragma once

#include "base/error.h"

enum { ENCODE_NAMED_MAX = 1000 };

typedef struct EncodeOptions {
    const char *recipe; /* a file */
    const char *in, *out;
    int unit,
        n_units; /* only units u with u % n_units == unit - 1; n_units 0: all, and the dataset is finished */
    bool finish; /* nothing is encoded, the dataset is finished */
    bool cuda;
    int threads;                         /* 0: as the recipe says */
    int decoders;                        /* processes that decode pictures; 0: nobody said */
    double cost_per_hour;                /* of this process; 0: nobody said */
    const char *named[ENCODE_NAMED_MAX]; /* keys of samples to leave out */
    size_t n_named;
} EncodeOptions;

int encode_run(const EncodeOptions *options, Error *err);
/* Looks at every picture and caption without the networks; writes a line for each rejected sample to standard output,
 * and how many there are of each reason. options->out is not used. */
int encode_check(const EncodeOptions *options, Error *err);
