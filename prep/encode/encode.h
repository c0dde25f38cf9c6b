/* SPDX-License-Identifier: Apache-2.0 */
/* encode.h - makes an MDS dataset of latents and text embeddings from a folder of pictures and captions.
 *
 * The stored bytes of a sample depend only on the recipe, the model's weights, the device's numerics, and the sample's
 * raw bytes and place: its unit (a tar or a shard) and its index in the unit. A unit is divided into parts of
 * shard_samples; a part becomes at most one shard, which is put if absent. So any number of processes may be killed and
 * started again, and the dataset's bytes are the same. folder.h lists the objects in the output folder.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: none. Units: samples. Threads: the main thread.
 * Errors:    -EEXIST the output belongs to another encoding or input, the text names both identities; -EDOM too many
 *            samples were rejected; -ENOTRECOVERABLE parts are open, since pictures killed their decoders; -EAGAIN
 *            units are not done yet; -ENODATA no sample is left; -EIO a shard is missing; errors of raw-set.h,
 *            encoder.h, tokenizer.h and of the store.
 */
#pragma once

#include "base/error.h"

enum { ENCODE_NAMED_MAX = 1000 };

typedef struct EncodeOptions {
    const char *recipe; /* path of the recipe's file */
    const char *in, *out;
    /* Only units u with u % n_units == unit - 1 are encoded; n_units 0: all, and then the dataset is finished. */
    int unit, n_units;
    bool finish; /* true: nothing is encoded, the dataset is only finished */
    bool cuda;
    int threads;                         /* 0: the recipe's number */
    int decoders;                        /* processes that decode pictures; 0: not set */
    double cost_per_hour;                /* cost of this process; 0: not set */
    const char *named[ENCODE_NAMED_MAX]; /* keys of samples to leave out */
    size_t n_named;
} EncodeOptions;

int encode_run(const EncodeOptions *options, Error *err);
/* Checks every picture and caption without the networks. Writes a line for each rejected sample to standard output, and
 * logs how many samples have each reason. options->out is not used. */
int encode_check(const EncodeOptions *options, Error *err);
