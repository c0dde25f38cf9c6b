/* SPDX-License-Identifier: Apache-2.0 */
/* model-tokenizer.c - see model-tokenizer.h. */
#include "encoders/networks/model-tokenizer.h"

#include "base/file.h"
#include "encoders/tokenizer/vocabulary.h"

#include <limits.h>
#include <stdlib.h>

/* Copies one of the tokenizer's files. */
static int copy_file(Store *model, const char *name, size_t max_bytes, const char *folder,
                     Error *err)
{
    char path[PATH_MAX], key[64];
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    (void)snprintf(key, sizeof(key), "tokenizer/%s", name);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int r = store_get(model, key, max_bytes, &text, &n_bytes, err);
    return r < 0 ? r : file_write(path, text, n_bytes, 0, err);
}

static int copy_files(Store *model, const char *folder, Error *err)
{
    int r = copy_file(model, "merges.txt", MERGES_BYTES_MAX, folder, err);
    if (r < 0)
        return r;
    Error own = ERROR_INIT;
    r = copy_file(model, "vocab.json", VOCABULARY_JSON_BYTES_MAX, folder, &own);
    return r < 0 && r != -ENOENT ? error_set(err, r, "%s", own.text) : 0;
}

int model_tokenizer_open(Store *model, TokenizerRules rules, int vocabulary, int n_tokens,
                         Tokenizer **ret, Error *err)
{
    char path[PATH_MAX], folder[PATH_MAX - 16];
    Error ignored = ERROR_INIT; /* no local path: the store is remote */
    if (store_local_path(model, "tokenizer", path, sizeof(path), &ignored) == 0)
        return tokenizer_open(path, rules, vocabulary, n_tokens, ret, err);

    const char *temporary = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%s/sdtrain-tokenizer-XXXXXX",
                   temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return error_errno(err, -errno, "cannot make %s", folder);
    int r = copy_files(model, folder, err);
    if (r == 0)
        r = tokenizer_open(folder, rules, vocabulary, n_tokens, ret, err);
    (void)folder_remove(folder, &ignored); /* the folder is a temporary copy and may remain */
    return r < 0 ? error_prefix(err, r, "%.200s/tokenizer", store_uri(model)) : 0;
}
