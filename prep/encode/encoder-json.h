/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-json.h - writes encoder.json, which states the input, the model and the recipe of a dataset of latents and
 * text embeddings.
 *
 * Units: samples. Errors: none.
 * Ownership: the text is the caller's.
 * Source:    docs/reference/encoder-json.md.
 */
#pragma once

#include "prep/encode/encoding.h"
#include "prep/encode/report.h"

typedef struct EncoderTotals {
    InputTotals input;
    int64_t n_raw, n_samples;
    Reasons reasons;
    Hash input_json, empty_text, index; /* hashes of the three files; input_json may be zeros */
} EncoderTotals;

/* Returns the dataset's identity: keys that were left out by name determine its samples, as the recipe does. */
Hash encoder_json_identity(const Encoding *encoding, char *const *named, size_t n_named);
char *encoder_json_format(const Encoding *encoding, const EncoderTotals *totals, char *const *named,
                          size_t n_named);
