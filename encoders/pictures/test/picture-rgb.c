/* SPDX-License-Identifier: Apache-2.0 */
/* picture-rgb.c - decodes picture files for a comparison with another decoder.
 *
 *   picture-rgb < REQUESTS
 *
 * Each line of REQUESTS is "bilinear|bicubic SIDE PATH". For each line, one line is written: "fine", or a verdict and
 * its text. After "fine" follow the side x side x 3 bytes. */
#include "base/cleanup.h"
#include "base/file.h"
#include "encoders/pictures/picture-decode.h"

#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[4096], resample[16], path[4000];
    while (fgets(line, sizeof(line), stdin)) {
        PictureRecipe recipe = picture_recipe_default;
        Error err = ERROR_INIT;
        if (sscanf(line, "%15s %d %3999[^\n]", resample, &recipe.side, path) != 3)
            return 2;
        recipe.resample = strcmp(resample, "bicubic") == 0 ? PICTURE_BICUBIC : PICTURE_BILINEAR;
        if (picture_recipe_check(&recipe, &err) < 0) {
            (void)fprintf(stderr, "picture-rgb: %s\n", err.text);
            return 2;
        }
        size_t n_bytes = 0, n_rgb = (size_t)recipe.side * (size_t)recipe.side * 3;
        _cleanup_free_ char *data = NULL;
        _cleanup_free_ uint8_t *rgb = malloc(n_rgb);
        int r = rgb ? file_read(path, PICTURE_FILE_BYTES_MAX, &data, &n_bytes, &err) : -ENOMEM;
        if (r == 0)
            r = picture_decode(&recipe, data, n_bytes, rgb, &err);
        (void)printf("%s %s\n", r < 0 ? "error" : picture_verdict_name(r), err.text);
        if (r == 0)
            (void)fwrite(rgb, 1, n_rgb, stdout);
        (void)fflush(stdout);
    }
    return 0;
}
