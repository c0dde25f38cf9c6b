/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-picture.c - arbitrary bytes as a picture file, decoded to a small square. */
#include "encoders/pictures/picture-decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static uint8_t rgb[2][9 * 9 * 3];
    Error err[2] = {ERROR_INIT, ERROR_INIT};
    PictureRecipe recipe = {.side = 9, .max_pixels = 1 << 16, .resample = PICTURE_BICUBIC};
    int r = picture_decode(&recipe, data, n_bytes, rgb[0], &err[0]);
    assert(r == 0 || (r > 0 && r < PICTURE_N_VERDICTS && err[0].text[0]));
    assert(picture_decode(&recipe, data, n_bytes, rgb[1], &err[1]) == r);
    for (size_t i = 0; r == 0 && i < sizeof(rgb[0]); i++)
        assert(rgb[0][i] == rgb[1][i]);
    return 0;
}
