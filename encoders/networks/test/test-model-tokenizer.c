/* SPDX-License-Identifier: Apache-2.0 */
/* test-model-tokenizer.c - the tokenizer of a model folder is the same, and as strictly checked, in a local and in a
 * remote store. */
#include "base/file.h"
#include "base/test/testing.h"
#include "encoders/networks/model-tokenizer.h"
#include "encoders/networks/test/testing-golden.h"
#include "store/test/testing-far.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCABULARY = 1024, TOKENS = 77 };

static char folder[] = "/tmp/test-model-tokenizer-XXXXXX";

static void write_file(const char *name, const char *text, size_t n_bytes)
{
    char path[256];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/tokenizer/%s", folder, name);
    if (file_write(path, text, n_bytes, 0, &err) < 0)
        fail_msg("%s", err.text);
}

static char *tiny_file(const char *name, size_t *ret_bytes)
{
    char path[512], key[128], *text = NULL;
    Error err = ERROR_INIT;
    (void)snprintf(key, sizeof(key), "tests/models/tiny-encoders/tokenizer/%s", name);
    source_path(key, path, sizeof(path));
    if (file_read(path, 1 << 20, &text, ret_bytes, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

static int setup(void **state)
{
    (void)state;
    char path[256];
    far_begin();
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/tokenizer", folder);
    return mkdir(path, 0700);
}

static int teardown(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    return folder_remove(folder, &err);
}

/* Opens the folder's tokenizer through file:// or far://. */
static int open_tokenizer(const char *scheme, Tokenizer **ret, Error *err)
{
    char uri[256];
    _cleanup_(store_freep) Store *store = NULL;
    (void)snprintf(uri, sizeof(uri), "%s%s", scheme, folder);
    if (store_open(uri, &store, err) < 0)
        fail_msg("%s", err->text);
    return model_tokenizer_open(store, TOKENIZER_OPEN_CLIP, VOCABULARY, TOKENS, ret, err);
}

static void a_folder_elsewhere_is_read_as_one_here(void **state)
{
    (void)state;
    static const char *const schemes[] = {"file://", "far://"};
    size_t n_merges, n_vocabulary;
    _cleanup_free_ char *merges = tiny_file("merges.txt", &n_merges);
    _cleanup_free_ char *vocabulary = tiny_file("vocab.json", &n_vocabulary);
    for (size_t i = 0; i < ELEMENTSOF(schemes); i++) {
        Error err = ERROR_INIT;
        Tokenizer *none = NULL;
        assert_int_equal(open_tokenizer(schemes[i], &none, &err), -ENOENT);
        assert_non_null(strstr(err.text, "merges.txt"));
    }
    Hash hashes[2][ELEMENTSOF(schemes)];
    write_file("merges.txt", merges, n_merges);
    for (size_t with = 0; with < 2; with++) { /* without and with the optional vocab.json */
        if (with)
            write_file("vocab.json", vocabulary, n_vocabulary);
        for (size_t i = 0; i < ELEMENTSOF(schemes); i++) {
            Error err = ERROR_INIT;
            _cleanup_(tokenizer_freep) Tokenizer *tokenizer = NULL;
            if (open_tokenizer(schemes[i], &tokenizer, &err) < 0)
                fail_msg("%s", err.text);
            hashes[with][i] = tokenizer_hash(tokenizer);
            assert_memory_equal(&hashes[with][i], &hashes[0][0], sizeof(Hash));
        }
    }
    static const char contradiction[] = "{\"!\": 1}";
    write_file("vocab.json", contradiction, strlen(contradiction));
    for (size_t i = 0; i < ELEMENTSOF(schemes); i++) {
        Error err = ERROR_INIT;
        Tokenizer *none = NULL;
        assert_int_equal(open_tokenizer(schemes[i], &none, &err), -EINVAL);
        if (!strstr(err.text, "vocab.json: 1 tokens") || !strstr(err.text, folder))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_folder_elsewhere_is_read_as_one_here)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
