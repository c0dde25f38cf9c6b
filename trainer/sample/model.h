/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - what sampling takes from a diffusers folder: pictures of latents, embeddings of captions.
 *
 * Ownership: the caller gets a Decoder; the Device is borrowed.
 * Units:     as encoder.h and decoder.h.
 * Errors:    -EINVAL a model that does not fit (model-fit.h); -EILSEQ a caption that is not UTF-8; those of encoder.h,
 *            decoder.h and tokenizer.h.
 * Threads:   the device's.
 */
#pragma once

#include "data/encoder-facts.h"
#include "encoders/networks/decoder.h"
#include "protocol/shapes.h"

typedef struct SampleModel {
    const char *uri;
    Device *device;
    const Job *job;            /* whose network it must fit */
    const DatasetShape *data;  /* what that network was trained on */
    const EncoderFacts *facts; /* encoder.json's; NULL: there is none */
} SampleModel;

/* Opens the decoder for one picture at once. */
int sample_model_decoder(const SampleModel *model, Decoder **ret, Error *err);
/* Warns, naming both hashes, if other weights made the data. */
void sample_model_compare(const SampleModel *model);
/* Does that, too, and makes of n captions n x text_tokens x text_dim floats, and one more in ret_empty of the empty
 * caption. */
int sample_model_captions(const SampleModel *model, const char *const *captions, int n, float *ret,
                          float *ret_empty, Error *err);
