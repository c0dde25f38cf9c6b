/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.h - a tokenizer's files: merges.txt or OpenAI's .gz, and the vocab.json of a diffusers folder.
 *
 * vocab.json holds nothing that merges.txt does not. It is read to find a folder whose two files differ.
 *
 * Ownership: the caller of vocabulary_open() gets the Bpe.
 * Units:     bytes.
 * Errors:    -errno, with file, and line where there is one. -EINVAL: the file is not what it should be.
 * Threads:   any.
 */
#pragma once

#include "encoders/tokenizer/bpe.h"

enum { MERGES_BYTES_MAX = 8 << 20, VOCABULARY_JSON_BYTES_MAX = 8 << 20 };

/* path: a folder with merges.txt, or a file of merges, gzipped or not. A vocab.json beside it is compared. */
_must_check_ int vocabulary_open(const char *path, int vocabulary, Bpe **ret, Error *err);
/* Compares the text of a vocab.json. */
_must_check_ int vocabulary_check(const char *source, const char *text, size_t n_bytes,
                                  const Bpe *bpe, Error *err);
