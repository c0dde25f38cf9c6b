/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - see picture.h. Pictures are decoded by libpng's simplified interface. */
#include "prep/picture.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <fcntl.h>
#include <png.h>
#include <string.h>

int picture_size(const char *path, int *ret_width, int *ret_height, Error *err)
{
    uint8_t head[24];
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open %s", path);
    if (fd_read_all(fd, head, sizeof(head), 0) < 0 ||
        memcmp(head, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0)
        return error_set(err, -EBADMSG, "%s is not a PNG file", path);
    uint32_t sides[2];
    for (int i = 0; i < 2; i++) {
        const uint8_t *p = head + 16 + 4 * i;
        sides[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (sides[i] < 1 || sides[i] > INT32_MAX)
            return error_set(err, -EBADMSG, "%s: a side of %u pixels", path, sides[i]);
    }
    *ret_width = (int)sides[0];
    *ret_height = (int)sides[1];
    return 0;
}

static int decode(const char *path, uint8_t **ret, int *ret_width, int *ret_height, Error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_file(&image, path))
        return error_set(err, -EBADMSG, "%s: %s", path, image.message);
    if (image.width > PICTURE_SIDE_MAX || image.height > PICTURE_SIDE_MAX ||
        (uint64_t)image.width * image.height > PICTURE_PIXELS_MAX) {
        uint32_t width = image.width, height = image.height;
        png_image_free(&image);
        return error_set(err, -EFBIG, "%s: %u x %u pixels are too many", path, width, height);
    }
    image.format = PNG_FORMAT_RGBA;
    _cleanup_free_ uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image));
    if (!pixels) {
        png_image_free(&image);
        return error_set(err, -ENOMEM, "%s: out of memory", path);
    }
    if (!png_image_finish_read(&image, NULL, pixels, 0, NULL))
        return error_set(err, -EBADMSG, "%s: %s", path, image.message);
    *ret = TAKE_PTR(pixels);
    *ret_width = (int)image.width;
    *ret_height = (int)image.height;
    return 0;
}

/* Returns which fraction of target pixel i is covered by source pixel s, when n_from pixels are scaled to n_to. */
static float share(int s, int n_from, int i, int n_to)
{
    double begin = (double)i * n_from / n_to, end = (double)(i + 1) * n_from / n_to;
    double covered = MIN(end, (double)s + 1) - MAX(begin, (double)s);
    return covered > 0 ? (float)(covered / (end - begin)) : 0;
}

/* Adds the source row y, weighted, to all target rows that it overlaps; a row has n floats. */
static void add_row(const float *row, size_t n, int y, int h, float *to, int to_h)
{
    for (int i = (int)((int64_t)y * to_h / h); i < to_h && (int64_t)i * h < (int64_t)(y + 1) * to_h;
         i++) {
        float weight = share(y, h, i, to_h);
        for (size_t k = 0; k < n; k++)
            to[(size_t)i * n + k] += weight * row[k];
    }
}

/* Scales one row of three colours from w to to_w pixels. */
static void shrink_row(const float *row, int w, float *to, int to_w)
{
    for (int i = 0; i < to_w; i++) {
        float sums[3] = {0};
        int64_t end = ((int64_t)(i + 1) * w + to_w - 1) / to_w;
        for (int s = (int)((int64_t)i * w / to_w); s < w && s < end; s++) {
            float weight = share(s, w, i, to_w);
            for (int c = 0; c < 3; c++)
                sums[c] += weight * row[3 * (ptrdiff_t)s + c];
        }
        memcpy(to + 3 * (ptrdiff_t)i, sums, sizeof(sums));
    }
}

int picture_read(const char *path, int side, float *ret, Error *err)
{
    _cleanup_free_ uint8_t *source = NULL;
    int w = 0, h = 0;
    int r = decode(path, &source, &w, &h, err);
    if (r < 0)
        return r;

    int longest = MAX(w, h);
    int to_w = MAX(1, (w * side + longest / 2) / longest);
    int to_h = MAX(1, (h * side + longest / 2) / longest);
    size_t row = (size_t)w * 3;
    _cleanup_free_ float *line = malloc(row * sizeof(float));
    _cleanup_free_ float *low = calloc((size_t)to_h * row, sizeof(float));
    _cleanup_free_ float *fitted = malloc((size_t)to_h * (size_t)to_w * 3 * sizeof(float));
    if (!line || !low || !fitted)
        return error_set(err, -ENOMEM, "%s: out of memory", path);

    for (int y = 0; y < h; y++) {
        const uint8_t *p = source + (size_t)y * (size_t)w * 4;
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                int on_white = p[4 * x + c] * p[4 * x + 3] + 255 * (255 - p[4 * x + 3]);
                line[3 * x + c] = (float)on_white * (1.0F / (255 * 255));
            }
        add_row(line, row, y, h, low, to_h);
    }
    for (int y = 0; y < to_h; y++)
        shrink_row(low + (size_t)y * row, w, fitted + (ptrdiff_t)y * to_w * 3, to_w);

    int left = (side - to_w) / 2, top = (side - to_h) / 2;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)3 * side * side; i++)
        ret[i] = 1;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < to_h; y++)
            for (int x = 0; x < to_w; x++)
                ret[((ptrdiff_t)c * side + top + y) * side + left + x] =
                    2 * fitted[((ptrdiff_t)y * to_w + x) * 3 + c] - 1;
    return 0;
}
