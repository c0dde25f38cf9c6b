/* SPDX-License-Identifier: Apache-2.0 */
/* hashed-text.h - a fixed text embedding from hashes of words, that STANDS IN FOR CLIP'S TEXT ENCODER in the demo.
 *
 * A caption becomes HASHED_TEXT_TOKENS tokens in the form of CLIP's: begin, its lower-cased words, end, padding. A
 * token's vector is drawn from N(0, 1) by a generator keyed with the word's hash, so that the same word has the same
 * vector everywhere and different words are nearly orthogonal; a fixed code of the position is added. Nothing is
 * learnt; the vectors have no meaning.
 *
 * Ownership: hashed_text_new() gives the caller a HashedText; hashed_text_free() accepts NULL.
 * Units:     tokens, dims. Vectors have variance 1 per element.
 * Errors:    -EINVAL a dim that is odd or not in 2..HASHED_TEXT_DIM_MAX; -ENOMEM.
 * Threads:   any, after hashed_text_new(). The same bits on every machine.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { HASHED_TEXT_TOKENS = 77, HASHED_TEXT_DIM_MAX = 4096 };

typedef struct HashedText HashedText;

int hashed_text_new(int dim, HashedText **ret, Error *err);
HashedText *hashed_text_free(HashedText *text);
DEFINE_CLEANUP(HashedText, hashed_text_free)

/* Fills ret[HASHED_TEXT_TOKENS][dim]. Words beyond the last token are left out. */
void hashed_text_embed(const HashedText *text, const char *caption, float *ret);
