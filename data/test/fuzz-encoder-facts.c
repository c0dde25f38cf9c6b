/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-encoder-facts.c - arbitrary bytes as encoder.json are refused with a text, or give facts that are valid. */
#include "data/encoder-facts.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    EncoderFacts facts = {.shape.channels = -77};
    Error err = ERROR_INIT;
    int r = encoder_facts_parse("fuzz", (const char *)data, n, &facts, &err);
    if (r < 0) {
        assert(err.code == r && err.text[0] && facts.shape.channels == -77);
        return 0;
    }
    const DatasetShape *s = &facts.shape;
    assert(hash_equal(facts.hash, hash_bytes(data, n)));
    assert(isfinite(facts.scaling_factor) && facts.scaling_factor > 0);
    assert(s->channels > 0 && s->height > 0 && s->width > 0);
    assert(s->text_tokens > 0 && s->text_dim > 0);
    assert(facts.latents[0] && facts.text[0]);
    assert(facts.empty_text[0] && facts.empty_text[0] != '.' && !strchr(facts.empty_text, '/'));
    return 0;
}
