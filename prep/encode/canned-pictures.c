/* SPDX-License-Identifier: Apache-2.0 */
/* canned-pictures.c - see canned-pictures.h. */
#include "prep/encode/canned-pictures.h"

#include "base/memory.h"
#include "encoders/pictures/picture-decode.h"

#include <string.h>

typedef struct CannedPicture {
    const char *name;
    const uint8_t *data;
    size_t n_bytes;
} CannedPicture;

#include "prep/encode/canned-pictures.inc"

enum { SIDE = 24, RGB_BYTES = SIDE * SIDE * 3, N_WAYS = 2 };

typedef struct Answer {
    int32_t verdict;
    uint8_t rgb[RGB_BYTES];
} Answer;

int canned_pictures_hash(Hash *ret, Error *err)
{
    static const PictureResample ways[N_WAYS] = {PICTURE_BILINEAR, PICTURE_BICUBIC};
    _cleanup_free_ Answer *answers = memory_zeroed(ELEMENTSOF(pictures) * N_WAYS, sizeof(*answers));
    for (size_t i = 0; i < ELEMENTSOF(pictures) * N_WAYS; i++) {
        const CannedPicture *p = &pictures[i / N_WAYS];
        PictureRecipe recipe = picture_recipe_default;
        recipe.side = SIDE;
        recipe.resample = ways[i % N_WAYS];
        Error why = ERROR_INIT;
        int r = picture_decode(&recipe, p->data, p->n_bytes, answers[i].rgb, &why);
        if (r < 0)
            return error_set(err, r, "the canned picture %s: %s", p->name, why.text);
        answers[i].verdict = r;
        if (r > 0) /* with a verdict, the bytes are undefined */
            memset(answers[i].rgb, 0, RGB_BYTES);
    }
    *ret = hash_bytes(answers, ELEMENTSOF(pictures) * N_WAYS * sizeof(*answers));
    return 0;
}

size_t canned_picture(size_t number, const char **ret_name, const void **ret)
{
    if (number >= ELEMENTSOF(pictures))
        return 0;
    *ret_name = pictures[number].name;
    *ret = pictures[number].data;
    return pictures[number].n_bytes;
}
