/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - uses a diffusers folder for sampling: to decode latents into pictures, and to encode captions.
 *
 * Ownership: the caller gets a Decoder; the Device is borrowed.
 * Units:     as encoder.h and decoder.h.
 * Errors:    -EINVAL: the model does not fit (model-fit.h); -EILSEQ: a caption is not UTF-8; those of encoder.h,
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
    const Job *job;            /* the model must fit this job's network */
    const DatasetShape *data;  /* shape of the data that the network was trained on */
    const EncoderFacts *facts; /* from encoder.json; NULL: there is none */
} SampleModel;

/* Opens a decoder that decodes one picture at a time. */
int sample_model_decoder(const SampleModel *model, Decoder **ret, Error *err);
/* Logs a warning, with both hashes, if the data were made with other weights than the model's. */
void sample_model_compare(const SampleModel *model);
/* Encodes n captions into ret, n x text_tokens x text_dim floats, and the empty caption into ret_empty. Also warns like
 * sample_model_compare(). */
int sample_model_captions(const SampleModel *model, char *const *captions, int n, float *ret,
                          float *ret_empty, Error *err);
