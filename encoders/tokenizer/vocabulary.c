/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.c - finds, unpacks and compares a tokenizer's files. */
#include "encoders/tokenizer/vocabulary.h"

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* Reads a file of merges, gzipped or not. */
static int read_merges(const char *path, char **ret, size_t *ret_bytes, Error *err)
{
    struct stat st;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_errno(err, -errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, -EINVAL, "%s is not a regular file", path);
    _cleanup_free_ char *text = malloc(MERGES_BYTES_MAX + 1);
    gzFile file = text ? gzdopen(fd, "rb") : NULL;
    if (!file)
        return error_errno(err, -ENOMEM, "%s", path);
    (void)TAKE_FD(fd); /* gzclose_r() closes the descriptor */
    int n = gzread(file, text, MERGES_BYTES_MAX + 1), code = Z_OK;
    const char *why = gzerror(file, &code);
    int r = 0;
    if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
        r = error_set(err, code == Z_ERRNO ? -EIO : -EINVAL, "%s: %s", path, why);
    else if (n > MERGES_BYTES_MAX)
        r = error_set(err, -EFBIG, "%s: merges of more than %d bytes", path, MERGES_BYTES_MAX);
    (void)gzclose_r(file); /* no error matters: the file was only read */
    if (r < 0)
        return r;
    *ret = TAKE_PTR(text);
    *ret_bytes = (size_t)n;
    return 0;
}

int vocabulary_check(const char *source, const char *text, size_t n_bytes, const Bpe *bpe,
                     Error *err)
{
    json_t *root;
    int r = json_parse_bounded(source, text, n_bytes, 2 * BPE_VOCABULARY_MAX, &root, err);
    if (r < 0)
        return r;
    _cleanup_json_ json_t *object = root;
    const char *token;
    json_t *value;
    size_t n = json_object_size(object);
    if (n != (size_t)bpe_vocabulary(bpe))
        return error_set(err, -EINVAL, "%s: %zu tokens, and the merges make a vocabulary of %d",
                         source, n, bpe_vocabulary(bpe));
    json_object_foreach (object, token, value) {
        int id = bpe_find(bpe, token, strlen(token));
        if (id < 0)
            return error_set(err, -EINVAL, "%s: \"%.64s\" is not a token that the merges make",
                             source, token);
        if (!json_is_integer(value) || json_integer_value(value) != id)
            return error_set(err, -EINVAL, "%s: \"%.64s\" is not %d, which %s%d of the merges says",
                             source, token, id, id < BPE_MERGES_FIRST ? "the byte " : "line ",
                             id < BPE_MERGES_FIRST ? id : id - BPE_MERGES_FIRST + 2);
    }
    return 0;
}

static int check_file(const char *path, const Bpe *bpe, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    struct stat st;
    Error own = ERROR_INIT;
    /* Opening a pipe would wait for a writer. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(err, -EINVAL, "%s is not a regular file", path);
    int r = file_read(path, VOCABULARY_JSON_BYTES_MAX, &text, &n_bytes, &own);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return error_set(err, r, "%s", own.text);
    return vocabulary_check(path, text, n_bytes, bpe, err);
}

int vocabulary_open(const char *path, int vocabulary, Bpe **ret, Error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return error_errno(err, -errno, "%s", path);
    const char *slash = strrchr(path, '/');
    bool folder = S_ISDIR(st.st_mode);
    _cleanup_free_ char *merges = folder ? memory_format("%s/merges.txt", path) : memory_text(path);
    _cleanup_free_ char *json = folder ? memory_format("%s/vocab.json", path)
                                : slash
                                    ? memory_format("%.*s/vocab.json", (int)(slash - path), path)
                                    : memory_text("vocab.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    size_t n_bytes = 0;
    int r = read_merges(merges, &text, &n_bytes, err);
    if (r >= 0)
        r = bpe_new(merges, text, n_bytes, vocabulary, &bpe, err);
    if (r >= 0)
        r = check_file(json, bpe, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(bpe);
    return 0;
}
