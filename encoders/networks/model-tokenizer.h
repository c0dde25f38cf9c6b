/* SPDX-License-Identifier: Apache-2.0 */
/* model-tokenizer.h - opens the tokenizer of a diffusers folder, in a local or a remote store.
 *
 * A tokenizer reads local files. If the store is remote, the folder's merges.txt and vocab.json are copied into a
 * temporary folder in TMPDIR.
 *
 * Units: as tokenizer.h. Threads: any.
 * Ownership: the caller gets a Tokenizer; the Store is borrowed.
 * Errors:    as tokenizer_open(), and the store's errors, naming the model.
 */
#pragma once

#include "encoders/tokenizer/tokenizer.h"
#include "store/store.h"

int model_tokenizer_open(Store *model, TokenizerRules rules, int vocabulary, int n_tokens,
                         Tokenizer **ret, Error *err);
