/* secret.h - memory that held a secret is wiped before it is given back.
 *
 * Ownership: secret_free() takes what malloc() gave.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/cleanup.h"

#include <malloc.h>
#include <string.h>

static inline void secret_free(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static inline void secret_freep(void *p) { secret_free(*(void **)p); }

#define _cleanup_secret_ _cleanup_(secret_freep)
