/* SPDX-License-Identifier: Apache-2.0 */
/* secret.h - wipes memory that held a secret when it is freed; reads secrets from text.
 *
 * Units: bytes. Errors: none. Threads: any.
 * Ownership: secret_free() frees memory that malloc() returned.
 */
#pragma once

#include "base/cleanup.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline void secret_free(void *p)
{
    const size_t n_bytes = p ? malloc_usable_size(p) : 0;
    void *all = p;
    /* malloc() may return a larger block than requested. All of it may be wiped, but FORTIFY_SOURCE would stop the
     * program, so the asm hides the block's size from the compiler. */
    __asm__("" : "+r"(all));
    if (all)
        explicit_bzero(all, n_bytes);
    free(p);
}

static inline void secret_freep(void *p) { secret_free(*(void **)p); }

/* Reads n_bytes from hexadecimal text as hash_format_bytes() writes it. Returns false for any other text; ret may then
 * hold some of the bytes. */
static inline bool secret_parse(const char *text, uint8_t *ret, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        ret[i] = 0;
        for (size_t k = 0; k < 2; k++) {
            const char c = text[2 * i + k];
            const bool digit = c >= '0' && c <= '9';
            if (!digit && (c < 'a' || c > 'f'))
                return false;
            ret[i] = (uint8_t)(ret[i] << 4 | (digit ? c - '0' : c - 'a' + 10));
        }
    }
    return text[2 * n_bytes] == '\0';
}

#define _cleanup_secret_ _cleanup_(secret_freep)
