/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c - see codec.h. */
#include "encoders/codec.h"

/* Rows of an orthonormal matrix: luma, red against blue, green against red and blue. */
static const double colours[3][3] = {
    {0.57735026918962576, 0.57735026918962576, 0.57735026918962576},
    {0.70710678118654752, 0.0, -0.70710678118654752},
    {0.40824829046386302, -0.81649658092772603, 0.40824829046386302},
};

/* The second wave of the cosine transform over the eight rows of a block; `flat` is the first wave, a constant. */
static const double wave[CODEC_BLOCK] = {
    0.49039264020161522,  0.41573480615127262,  0.27778511650980111,  0.09754516100806413,
    -0.09754516100806413, -0.27778511650980111, -0.41573480615127262, -0.49039264020161522,
};
static const double flat = 0.35355339059327376; /* 1 / sqrt(8) */

/* Mean and standard deviation of the four coefficients over the 7,028 pictures that sdprep
 * openclipart makes; measured once, then fixed. */
static const double mean[CODEC_CHANNELS] = {9.57, 0.46, -0.07, 0.0};
static const double scale[CODEC_CHANNELS] = {7.0, 2.5, 1.55, 1.84};

/* Returns the value of coefficient k's basis picture at (colour, row) of a block; all columns are equal. */
static double basis(int k, int colour, int row)
{
    return k < 3 ? colours[k][colour] * flat * flat : colours[0][colour] * wave[row] * flat;
}

void codec_encode(const float *pixels, int height, int width, float *ret_latents)
{
    assert(height % CODEC_BLOCK == 0 && width % CODEC_BLOCK == 0);
    int rows = height / CODEC_BLOCK, columns = width / CODEC_BLOCK;
    for (int by = 0; by < rows; by++)
        for (int bx = 0; bx < columns; bx++) {
            double sums[CODEC_CHANNELS] = {0};
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < CODEC_BLOCK; y++) {
                    const float *line = pixels +
                                        ((ptrdiff_t)c * height + by * CODEC_BLOCK + y) * width +
                                        (ptrdiff_t)bx * CODEC_BLOCK;
                    double sum = 0;
                    for (int x = 0; x < CODEC_BLOCK; x++)
                        sum += (double)line[x];
                    for (int k = 0; k < CODEC_CHANNELS; k++)
                        sums[k] += sum * basis(k, c, y);
                }
            for (int k = 0; k < CODEC_CHANNELS; k++)
                ret_latents[((ptrdiff_t)k * rows + by) * columns + bx] =
                    (float)((sums[k] - mean[k]) / scale[k]);
        }
}

void codec_decode(const float *latents, int height, int width, float *ret_pixels)
{
    assert(height % CODEC_BLOCK == 0 && width % CODEC_BLOCK == 0);
    int rows = height / CODEC_BLOCK, columns = width / CODEC_BLOCK;
    for (int by = 0; by < rows; by++)
        for (int bx = 0; bx < columns; bx++) {
            double values[CODEC_CHANNELS];
            for (int k = 0; k < CODEC_CHANNELS; k++)
                values[k] =
                    (double)latents[((ptrdiff_t)k * rows + by) * columns + bx] * scale[k] + mean[k];
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < CODEC_BLOCK; y++) {
                    double value = 0;
                    for (int k = 0; k < CODEC_CHANNELS; k++)
                        value += values[k] * basis(k, c, y);
                    float *line = ret_pixels +
                                  ((ptrdiff_t)c * height + by * CODEC_BLOCK + y) * width +
                                  (ptrdiff_t)bx * CODEC_BLOCK;
                    for (int x = 0; x < CODEC_BLOCK; x++)
                        line[x] = (float)value;
                }
        }
}
