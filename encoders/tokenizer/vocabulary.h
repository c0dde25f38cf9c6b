/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.h - reads a tokenizer's files: merges.txt or OpenAI's .gz, and the vocab.json of a diffusers folder.
 *
 * vocab.json contains the same information as merges.txt. It is read only to detect a folder whose two files differ.
 *
 * Units: bytes. Threads: any.
 * Ownership: the caller of vocabulary_open() gets the Bpe.
 * Errors:    -errno, with the file, and the line if there is one. -EINVAL: the file's content is not valid.
 */
#pragma once

#include "encoders/tokenizer/bpe.h"

enum { MERGES_BYTES_MAX = 8 << 20, VOCABULARY_JSON_BYTES_MAX = 8 << 20 };

/* Opens a vocabulary. path: a folder with merges.txt, or a file of merges, gzipped or not. A vocab.json in the same
 * folder is compared with the merges. */
_must_check_ int vocabulary_open(const char *path, int vocabulary, Bpe **ret, Error *err);
/* Compares the text of a vocab.json with the merges. */
_must_check_ int vocabulary_check(const char *source, const char *text, size_t n_bytes,
                                  const Bpe *bpe, Error *err);
