/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-manifest.c - parses any bytes as manifest.json: each input is refused with an error text, or
 * gives a manifest that is the same after it was written and read again. */
#include "manifest/manifest-internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    _cleanup_(manifest_freep) Manifest *m = NULL, *again = NULL;
    Error err = ERROR_INIT;
    _cleanup_json_ json_t *root = NULL;
    _cleanup_free_ char *sealed = NULL;
    Hash seal;
    char hash[HASH_TEXT_BYTES];
    /* without a valid hash, the reader would refuse every input */
    if (json_parse("fuzz", (const char *)data, n_bytes, &root, &err) == 0 &&
        manifest_seal(root, &seal) == 0 &&
        json_object_set_new(root, "hash", json_string(hash_format(seal, hash))) == 0)
        sealed = json_dumps(root, 0);
    const char *text_in = sealed ? sealed : (const char *)data;
    if (manifest_parse("fuzz", text_in, sealed ? strlen(sealed) : n_bytes, &m, &err) < 0) {
        assert(err.code < 0 && err.text[0]);
        return 0;
    }
    _cleanup_free_ char *text = NULL, *text_again = NULL;
    int r = manifest_format(m, &text);
    assert(r == 0);
    r = manifest_parse("fuzz", text, strlen(text), &again, &err);
    assert(r == 0);
    r = manifest_format(again, &text_again);
    assert(r == 0 && strcmp(text, text_again) == 0);
    return 0;
}
