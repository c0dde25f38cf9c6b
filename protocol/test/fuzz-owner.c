/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-owner.c - the parser of owner objects on any bytes. */
#include "protocol/owner.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    OwnerRecord o;
    if (owner_parse("fuzz", (const char *)data, n, &o, &err) < 0) {
        assert(*err.text);
        return 0;
    }
    char who[256];
    owner_describe(&o, who, sizeof(who));
    for (const char *p = who; *p; p++)
        assert((unsigned char)*p >= 0x20 && *p != 0x7f);

    /* A record that is written again is read back unchanged. */
    _cleanup_free_ char *text = NULL;
    OwnerRecord again;
    if (owner_format(&o, &text) < 0)
        return 0; /* JSON accepts only valid UTF-8 */
    int r = owner_parse("again", text, strlen(text), &again, &err);
    assert(r == 0 && strcmp(again.claim, o.claim) == 0 && strcmp(again.host, o.host) == 0);
    return 0;
}
