/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - converts captions to CLIP's token ids, by one of two sets of rules.
 *
 * Stable Diffusion 2 was trained with open_clip's ids; diffusers and the programs based on it use other ids. Both sets
 * of rules are implemented here, each under a name with the version of its rules, since the ids of a dataset must never
 * change.
 *
 * open_clip/2: ftfy's fixes and HTML's entities (clean.h), white space to single blanks, str.lower() of Python;
 *     "<start_of_text>" and "<end_of_text>" in a caption are the ids of begin and end. U+0000 is left out, as in ftfy.
 *     (open_clip/1 was the same without the repair of mojibake; no dataset has it.)
 * diffusers/1: each "!" is id 0, which is also the padding, as in special_tokens_map.json of Stable Diffusion 2;
 *     the text between two "!" in NFC and in lower case, character by character; "<|startoftext|>" and
 *     "<|endoftext|>" are the ids of begin and end. U+0000 is a character like others. No entities, no ftfy.
 * Both: words are 's 't 're 've 'm 'll 'd, runs of letters, single numbers, and runs of other characters that are not
 * white space; bpe.h describes how a word is split. Unicode is 15.0.
 *
 * A text is begin, ids, end. A longer text is cut to n_tokens and still ends with end; a shorter one is filled with 0.
 * Only the first 65,536 bytes of a word are used.
 *
 * Folder:    defaults of the headers here: Units: code points.
 * Ownership: tokenizer_open() gives the caller a Tokenizer; tokenizer_free() accepts NULL. Each thread has a
 *            TokenizerScratch of its own, which begins as NULL and ends with tokenizer_scratch_free().
 * Units:     ids; bytes of UTF-8.
 * Errors:    tokenizer_open(): see vocabulary.h. tokenizer_encode(): -EILSEQ bytes that are not UTF-8, including lone
 *            surrogates; -E2BIG a text of more than TOKENIZER_TEXT_BYTES_MAX; -ENOMEM.
 * Threads:   any, after tokenizer_open().
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

typedef enum TokenizerRules { TOKENIZER_OPEN_CLIP, TOKENIZER_DIFFUSERS } TokenizerRules;
enum { TOKENIZER_N_RULES = 2, TOKENIZER_TEXT_BYTES_MAX = 16 << 20, TOKENIZER_TOKENS_MAX = 65536 };

typedef struct Tokenizer Tokenizer;
typedef struct TokenizerScratch TokenizerScratch;

/* Opens a tokenizer. path: a model's tokenizer/ folder, or a file of merges. vocabulary and n_tokens are vocab_size and
 * max_position_embeddings of the text encoder. */
int tokenizer_open(const char *path, TokenizerRules rules, int vocabulary, int n_tokens,
                   Tokenizer **ret, Error *err);
Tokenizer *tokenizer_free(Tokenizer *tokenizer);
DEFINE_CLEANUP(Tokenizer, tokenizer_free)

/* For tests: returns the name of a set of rules, for example "open_clip/2". */
const char *tokenizer_rules_name(TokenizerRules rules);
/* For tests: returns the number of ids that tokenizer_encode() writes for a caption. */
int tokenizer_n_tokens(const Tokenizer *tokenizer);
/* Returns the hash of the merges, without the first line of their file. */
Hash tokenizer_hash(const Tokenizer *tokenizer);

/* Fills ret[n_tokens]. Returns the number of ids before the padding, including begin and end. */
int tokenizer_encode(const Tokenizer *tokenizer, TokenizerScratch **scratch, const char *text,
                     size_t n_bytes, int32_t *ret);
TokenizerScratch *tokenizer_scratch_free(TokenizerScratch *scratch);
DEFINE_CLEANUP(TokenizerScratch, tokenizer_scratch_free)
