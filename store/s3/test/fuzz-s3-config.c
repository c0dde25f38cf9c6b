/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-s3-config.c - any text as one of AWS's shared files is either refused with an error, or parsed. */
#include "store/s3/settings/options.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_kind(SharedFileKind kind, const char *text)
{
    static const char *const profiles[] = {"default", "lab", "profile lab", ""};
    static const char *const keys[] = {"region", "s3", "s3.addressing_style",
                                       "s3.",    "",   "role_arn"};
    Error err = ERROR_INIT;
    SharedFile *file = NULL;
    if (shared_file_parse(kind, "file", text, &file, &err) < 0) {
        assert(!file && strncmp(err.text, "file:", 5) == 0);
        return;
    }
    for (size_t p = 0; p < ELEMENTSOF(profiles); p++)
        for (size_t k = 0; k < ELEMENTSOF(keys); k++) {
            const char *value = shared_file_get(file, profiles[p], keys[k]);
            int line = shared_file_line(file, profiles[p], keys[k]);
            assert((value != NULL) == (line > 0));
            assert(!value || shared_file_has(file, profiles[p]));
            assert(!value || strlen(value) <= strlen(text));
        }
    file = shared_file_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_kind(SHARED_CONFIG, text);
    try_kind(SHARED_CREDENTIALS, text);
    return 0;
}
