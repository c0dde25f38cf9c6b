/* SPDX-License-Identifier: Apache-2.0 */
/* picture-decode.c - see picture-decode.h: the kind of a file, the rules for its size, and the steps to the square. */
#include "encoders/pictures/picture-decode.h"

#include "base/cleanup.h"
#include "encoders/pictures/pixels.h"
#include "encoders/pictures/resize.h"

#include <string.h>

const PictureRecipe picture_recipe_default = {.side = 256, .max_pixels = 1 << 25};

int picture_recipe_check(const PictureRecipe *recipe, Error *err)
{
    if (recipe->side < 1 || recipe->side > PICTURE_RECIPE_SIDE_MAX)
        return error_set(err, -EINVAL, "side is %d, not 1 to %d", recipe->side,
                         PICTURE_RECIPE_SIDE_MAX);
    if (recipe->resample != PICTURE_BILINEAR && recipe->resample != PICTURE_BICUBIC)
        return error_set(err, -EINVAL, "resample is neither bilinear nor bicubic");
    if (recipe->max_pixels < 1 || recipe->max_pixels > PICTURE_RECIPE_PIXELS_MAX)
        return error_set(err, -EINVAL, "max_pixels is %lld, not 1 to %d",
                         (long long)recipe->max_pixels, PICTURE_RECIPE_PIXELS_MAX);
    if (!(recipe->max_aspect == 0 || (recipe->max_aspect >= 1 && recipe->max_aspect <= 1e9)))
        return error_set(err, -EINVAL, "max_aspect is %g, neither 0 nor 1 to 1e9",
                         recipe->max_aspect);
    if (recipe->min_side < 0 || recipe->min_side > PICTURE_RECIPE_PIXELS_MAX)
        return error_set(err, -EINVAL, "min_side is %d, not 0 to %d", recipe->min_side,
                         PICTURE_RECIPE_PIXELS_MAX);
    return 0;
}

const char *picture_verdict_name(int verdict)
{
    static const char *const names[] = {"fine",      "empty",     "decode", "truncated",
                                        "too-small", "too-large", "aspect", "animated"};
    _Static_assert(ELEMENTSOF(names) == PICTURE_N_VERDICTS, "a name for each");
    assert(verdict >= 0 && verdict < PICTURE_N_VERDICTS);
    return names[verdict];
}

const char *picture_resample_name(PictureResample resample)
{
    return resample == PICTURE_BICUBIC ? "bicubic" : "bilinear";
}

int picture_reject(Error *err, PictureVerdict verdict, const char *format, ...)
{
    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)error_set(err, -EBADMSG, "%s", text);
    return (int)verdict;
}

int pixels_admit(const PictureRecipe *recipe, int64_t width, int64_t height, Error *err)
{
    int64_t shorter = MIN(width, height), longer = MAX(width, height);
    if (width > recipe->max_pixels / height)
        return picture_reject(err, PICTURE_TOO_LARGE, "%lld x %lld pixels, more than %lld",
                              (long long)width, (long long)height, (long long)recipe->max_pixels);
    if (shorter < recipe->min_side)
        return picture_reject(err, PICTURE_TOO_SMALL, "%lld x %lld pixels, a side is below %d",
                              (long long)width, (long long)height, recipe->min_side);
    if (recipe->max_aspect > 0 && (double)longer > recipe->max_aspect * (double)shorter)
        return picture_reject(err, PICTURE_ASPECT, "%lld x %lld pixels, an aspect above %g",
                              (long long)width, (long long)height, recipe->max_aspect);
    return 0;
}

/* Uses Pillow's arithmetic for an opaque background: 7 bits of extra precision, and division by 255 with shifts. */
void pixels_on_white(uint8_t *pixels, size_t n)
{
    const uint8_t *from = pixels;
    for (uint8_t *to = pixels; n > 0; n--, from += 4, to += 3) {
        uint32_t alpha = from[3] * 128U, rest = 255U * 128U - alpha;
        for (int c = 0; c < 3; c++) {
            uint32_t t = from[c] * alpha + 255U * rest + (0x80U << 7);
            to[c] = (uint8_t)(((t >> 8) + t) >> 8 >> 7);
        }
    }
}

int picture_decode(const PictureRecipe *recipe, const void *data, size_t n_bytes, uint8_t *ret_rgb,
                   Error *err)
{
    const uint8_t *bytes = data;
    int r = picture_recipe_check(recipe, err);
    if (r < 0)
        return r;
    if (n_bytes == 0)
        return picture_reject(err, PICTURE_EMPTY, "no bytes");
    if (n_bytes > PICTURE_FILE_BYTES_MAX)
        return picture_reject(err, PICTURE_TOO_LARGE, "%zu bytes, more than %d", n_bytes,
                              PICTURE_FILE_BYTES_MAX);

    Pixels pixels = {0};
    if (n_bytes >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        r = pixels_from_png(recipe, bytes, n_bytes, &pixels, err);
    else if (n_bytes >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        r = pixels_from_jpeg(recipe, bytes, n_bytes, &pixels, err);
    else if (n_bytes >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        r = pixels_from_webp(recipe, bytes, n_bytes, &pixels, err);
    else
        r = picture_reject(err, PICTURE_DECODE, "it begins like no JPEG, PNG or WebP file");
    if (r != 0)
        return r;
    r = pixels_orient(&pixels, err);
    if (r == 0)
        r = resize_to_square(pixels.rgb, pixels.width, pixels.height, recipe->resample,
                             recipe->side, ret_rgb, err);
    free(pixels.rgb);
    return r;
}
