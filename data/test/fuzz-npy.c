/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-npy.c - arbitrary bytes as a .npy file; an array that parses is written to a file that parses to the same
 * array. */
#include "data/mds/npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    MdsArray a, b;
    if (npy_parse("x.npy", data, n, &a, NULL) < 0)
        return 0;
    assert((const uint8_t *)a.values >= data && (const uint8_t *)a.values + a.n_bytes == data + n);
    char *file;
    size_t n_bytes;
    int r = npy_format(&a, &file, &n_bytes);
    assert(r == 0);
    r = npy_parse("again", file, n_bytes, &b, NULL);
    assert(r == 0 && a.number == b.number && a.n_dims == b.n_dims && a.n_bytes == b.n_bytes);
    assert(memcmp(a.dims, b.dims, (size_t)a.n_dims * sizeof(a.dims[0])) == 0);
    assert(memcmp(a.values, b.values, a.n_bytes) == 0);
    free(file);
    return 0;
}
