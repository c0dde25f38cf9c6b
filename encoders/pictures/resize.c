/* SPDX-License-Identifier: Apache-2.0 */
/* resize.c - see resize.h. */
#include "encoders/pictures/resize.h"

#include "base/cleanup.h"

#include <string.h>

enum { WEIGHT_BITS = 22 };

/* A filter along one axis, for n adjacent target pixels. */
typedef struct Axis {
    int n_in, n;
    int taps;     /* room for the weights of one target pixel */
    int *begin;   /* first source pixel of each target pixel */
    int *count;   /* number of source pixels of each target pixel */
    int *weights; /* [n][taps] */
} Axis;

static void axis_release(Axis *axis)
{
    free(axis->begin);
    free(axis->count);
    free(axis->weights);
}

static double bilinear(double x)
{
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic convolution with a = -1/2. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = x < 0 ? -x : x;
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static int axis_new(int n_in, int64_t n_out, int64_t first, int n, PictureResample resample,
                    Axis *ret, Error *err)
{
    double scale = (double)n_in / (double)n_out, filter_scale = scale < 1 ? 1 : scale;
    double support = (resample == PICTURE_BICUBIC ? 2.0 : 1.0) * filter_scale;
    double narrow = 1.0 / filter_scale;
    int taps = MIN(n_in, (int)support * 2 + 3);
    _cleanup_(axis_release) Axis axis = {.n_in = n_in, .n = n, .taps = taps};
    axis.begin = calloc((size_t)n, sizeof(int));
    axis.count = calloc((size_t)n, sizeof(int));
    axis.weights = calloc((size_t)n * (size_t)taps, sizeof(int));
    _cleanup_free_ double *exact = calloc((size_t)taps, sizeof(double));
    if (!axis.begin || !axis.count || !axis.weights || !exact)
        return error_set(err, -ENOMEM, "out of memory for the weights of %d pixels", n);

    for (int i = 0; i < n; i++) {
        double centre = ((double)(first + i) + 0.5) * scale, sum = 0;
        int lo = MAX(0, (int)(centre - support + 0.5));
        int hi = MIN(n_in, (int)(centre + support + 0.5));
        assert(lo < hi && hi - lo <= taps);
        for (int k = 0; k < hi - lo; k++) {
            double x = ((double)(k + lo) - centre + 0.5) * narrow;
            exact[k] = resample == PICTURE_BICUBIC ? bicubic(x) : bilinear(x);
            sum += exact[k];
        }
        axis.begin[i] = lo;
        axis.count[i] = hi - lo;
        for (int k = 0; k < hi - lo; k++) {
            double w = sum != 0 ? exact[k] / sum : exact[k];
            axis.weights[(size_t)i * (size_t)taps + (size_t)k] =
                (int)((w < 0 ? -0.5 : 0.5) + w * (1 << WEIGHT_BITS));
        }
    }
    *ret = axis;
    axis = (Axis){0};
    return 0;
}

static uint8_t clip8(int sum)
{
    int v = sum >> WEIGHT_BITS;
    return (uint8_t)CLAMP(v, 0, 255);
}

/* Filters one row of n_in pixels to axis->n pixels. */
static void along_row(const Axis *axis, const uint8_t *row, uint8_t *to)
{
    for (int i = 0; i < axis->n; i++) {
        const uint8_t *p = row + 3 * (size_t)axis->begin[i];
        const int *w = axis->weights + (size_t)i * (size_t)axis->taps;
        int r = 1 << (WEIGHT_BITS - 1), g = r, b = r;
        for (int k = 0; k < axis->count[i]; k++) {
            r += p[0] * w[k];
            g += p[1] * w[k];
            b += p[2] * w[k];
            p += 3;
        }
        to[3 * i] = clip8(r);
        to[3 * i + 1] = clip8(g);
        to[3 * i + 2] = clip8(b);
    }
}

/* Computes target row i of the axis. `rows` begins with source row `first`, with n bytes per row; sums has room for
 * n. */
static void along_columns(const Axis *axis, int i, const uint8_t *rows, int first, size_t n,
                          int *sums, uint8_t *to)
{
    const int *w = axis->weights + (size_t)i * (size_t)axis->taps;
    const uint8_t *row = rows + (size_t)(axis->begin[i] - first) * n;
    for (size_t x = 0; x < n; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (int k = 0; k < axis->count[i]; k++, row += n)
        for (size_t x = 0; x < n; x++)
            sums[x] += row[x] * w[k];
    for (size_t x = 0; x < n; x++)
        to[x] = clip8(sums[x]);
}

int resize_to_square(const uint8_t *rgb, int width, int height, PictureResample resample, int side,
                     uint8_t *ret, Error *err)
{
    int shorter = MIN(width, height);
    int64_t out_width = width == shorter ? side : (int64_t)side * width / shorter;
    int64_t out_height = height == shorter ? side : (int64_t)side * height / shorter;
    int64_t left = (out_width - side) / 2, top = (out_height - side) / 2;
    size_t row = (size_t)width * 3, out_row = (size_t)side * 3;

    /* The filter along the columns determines which rows the first pass must compute. */
    _cleanup_(axis_release) Axis across = {0}, down = {0};
    int first = (int)top, n_rows = side, r = 0;
    if (out_height != height) {
        r = axis_new(height, out_height, top, side, resample, &down, err);
        if (r < 0)
            return r;
        first = down.begin[0];
        n_rows = down.begin[side - 1] + down.count[side - 1] - first;
    }
    if (out_width != width) {
        r = axis_new(width, out_width, left, side, resample, &across, err);
        if (r < 0)
            return r;
    }

    _cleanup_free_ uint8_t *between = malloc((size_t)n_rows * out_row);
    _cleanup_free_ int *sums = malloc(out_row * sizeof(int));
    if (!between || !sums)
        return error_set(err, -ENOMEM, "out of memory for %d rows of %d pixels", n_rows, side);
    for (int y = 0; y < n_rows; y++) {
        const uint8_t *from = rgb + (size_t)(first + y) * row;
        uint8_t *to = between + (size_t)y * out_row;
        if (across.n)
            along_row(&across, from, to);
        else
            memcpy(to, from + (size_t)left * 3, out_row);
    }
    for (int y = 0; y < side; y++)
        if (down.n)
            along_columns(&down, y, between, first, out_row, sums, ret + (size_t)y * out_row);
        else
            memcpy(ret + (size_t)y * out_row, between + (size_t)y * out_row, out_row);
    return 0;
}
