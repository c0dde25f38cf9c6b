/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-json.h - writes encoder.json: what a dataset of latents and text embeddings was made of, by what.
 *
 * Ownership: the text is the caller's.
 * Units:     samples.
 * Errors:    none.
 * Threads:   any.
 * Source:    docs/reference/encoder-json.md.
 */
#pragma once

#include "prep/encode/encoding.h"
#include "prep/encode/report.h"

typedef struct EncoderTotals {
    InputTotals input;
    int64_t n_raw, n_samples;
    Reasons reasons;
    Hash input_json, empty_text, index; /* of the files; the first is zeros where there is none */
} EncoderTotals;

/* The dataset's: keys that were left out by name decide on samples as the recipe does. */
Hash encoder_json_identity(const Encoding *encoding, char *const *named, size_t n_named);
char *encoder_json_format(const Encoding *encoding, const EncoderTotals *totals, char *const *named,
                          size_t n_named);
