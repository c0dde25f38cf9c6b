/* SPDX-License-Identifier: Apache-2.0 */
/* model-tokenizer.h - the tokenizer of a diffusers folder, wherever that lies.
 *
 * A tokenizer reads files. If the folder is elsewhere, its merges.txt and vocab.json are copied into a folder of TMPDIR
 * for a moment.
 *
 * Ownership: the caller gets a Tokenizer; the Store is borrowed.
 * Units:     as tokenizer.h.
 * Errors:    those of tokenizer_open() and of the store, naming the model.
 * Threads:   any.
 */
#pragma once

#include "encoders/tokenizer/tokenizer.h"
#include "store/store.h"

int model_tokenizer_open(Store *model, TokenizerRules rules, int vocabulary, int n_tokens,
                         Tokenizer **ret, Error *err);
