/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-index-origin.c - arbitrary bytes as the origin of a compact index are refused with a text, or give an origin
 * that can be written and read back; the bytes also serve as the version that a server returns. */
#include "data/index-open.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_written(const IndexOrigin *origin)
{
    _cleanup_free_ char *text = NULL;
    IndexOrigin again;
    Error err = ERROR_INIT;
    int r = index_origin_format(origin, &text, &err);
    if (r == -EINVAL) {
        assert(err.text[0]);
        return;
    }
    assert(r == 0);
    r = index_origin_parse("fuzz", text, strlen(text), &again, &err);
    assert(r == 0 && strcmp(again.version, origin->version) == 0 &&
           hash_equal(again.source, origin->source));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    IndexOrigin origin = {0}, given = {.source = hash_bytes(data, n)};
    Error err = ERROR_INIT;
    int r = index_origin_parse("fuzz", (const char *)data, n, &origin, &err);
    if (r == 0)
        check_written(&origin);
    else
        assert(err.code == r && err.text[0] && !origin.version[0]);
    memcpy(given.version, data, MIN(n, sizeof(given.version) - 1));
    check_written(&given);
    return 0;
}
