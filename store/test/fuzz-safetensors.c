/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-safetensors.c - any bytes as a safetensors file are either refused, or parsed so that each tensor lies
 * inside the file. */
#include "store/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    _cleanup_(safetensors_freep) Safetensors *file = NULL;
    Error err = ERROR_INIT;
    int r = safetensors_open("fuzz", data, n_bytes, n_bytes, SAFETENSORS_ANY, &file, &err);
    if (r < 0) {
        assert(err.code < 0 && err.text[0]);
        return 0;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *e = safetensors_at(file, i);
        assert(e->offset <= n_bytes && e->n_bytes <= n_bytes - e->offset);
        for (uint64_t k = 0; k < e->n_bytes; k++)
            sum += data[e->offset + k]; /* reads as a loader does; ASan checks each access */
    }
    __asm__ volatile("" ::"r"(sum));
    return 0;
}
