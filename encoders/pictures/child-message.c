/* SPDX-License-Identifier: Apache-2.0 */
/* child-message.c - see child-message.h. */
#include "encoders/pictures/child-message.h"

#include "encoders/pictures/pictures.h"

#include <errno.h>
#include <string.h>

enum { PAGE_BYTES = 4096 };

size_t child_file_at(uint32_t place) { return (size_t)place * PICTURE_FILE_BYTES_MAX; }

static size_t rgb_room(const PictureRecipe *recipe)
{
    return ROUND_UP((size_t)recipe->side * (size_t)recipe->side * 3, (size_t)PAGE_BYTES);
}

size_t child_rgb_at(const PictureRecipe *recipe, uint32_t place)
{
    return child_file_at(PICTURES_PER_CHILD) + place * rgb_room(recipe);
}

size_t child_memory_bytes(const PictureRecipe *recipe)
{
    return child_rgb_at(recipe, PICTURES_PER_CHILD);
}

int child_answer_check(const void *packet, size_t n, uint32_t place, ChildAnswer *ret)
{
    ChildAnswer answer;
    if (n != sizeof(answer))
        return -EPROTO;
    memcpy(&answer, packet, sizeof(answer));
    bool verdict = answer.r >= 0 && answer.r < PICTURE_N_VERDICTS;
    if (answer.place != place || (!verdict && answer.r != -ENOMEM))
        return -EPROTO;
    error_from_outside(&answer.err);
    if (answer.r == 0)
        answer.err = ERROR_INIT;
    else
        answer.err.code = answer.r < 0 ? answer.r : -EBADMSG;
    *ret = answer;
    return 0;
}
