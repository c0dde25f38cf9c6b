/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-s3-credentials.c - any bytes as the answer of a container, an instance or STS are either refused with a
 * printable error, or give complete credentials that are valid in a header. The first byte chooses the parser. */
#include "store/s3/credentials/source.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_printable(const char *text, size_t size, bool may_have_blanks)
{
    assert(strnlen(text, size) < size);
    for (const char *p = text; *p; p++)
        assert(*p >= (may_have_blanks ? 0x20 : 0x21) && *p < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    S3Source source = {.name = "the source"};
    S3Credentials c = {0};
    Error err = ERROR_INIT;
    char code[64] = "";
    int r;

    if (size == 0)
        return 0;
    /* replies have a NUL after their last byte */
    char *text = malloc(size);
    assert(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] == 'j')
        r = credentials_parse_json(&source, text, size - 1, &c, &err);
    else
        r = credentials_parse_sts(&source, text, size - 1, &c, code, &err);
    free(text);
    if (r < 0) {
        assert(err.code == r && err.text[0] && (r == -EACCES || r == -EINVAL));
        check_printable(err.text, sizeof(err.text), true);
        check_printable(code, sizeof(code), true);
        return 0;
    }
    assert(c.access_key[0] && c.secret_key[0] && c.expires >= 0);
    check_printable(c.access_key, sizeof(c.access_key), false);
    check_printable(c.secret_key, sizeof(c.secret_key), false);
    check_printable(c.token, sizeof(c.token), false);
    return 0;
}
