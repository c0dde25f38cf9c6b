/* SPDX-License-Identifier: Apache-2.0 */
/* decoders.c - see decoders.h. */
#include "prep/encode/decoders.h"

#include "base/log.h"

#include <string.h>
#include <unistd.h>

int decoders_open(const PictureRecipe *recipe, int n, Pictures **ret, Error *err)
{
    PicturesOptions options = {.recipe = *recipe, .n_children = n};
    if (n == 0)
        options.n_children = (int)CLAMP(sysconf(_SC_NPROCESSORS_ONLN), 1, DECODERS_UNASKED_MAX);
    int r = pictures_open(&options, ret, err);
    if (r == 0 && pictures_filter(*ret) < 0)
        log_warning(
            "this kernel does not filter what decoder processes ask of it (seccomp: %s); "
            "only limits of memory, files and processes confine a picture that takes one over",
            strerror(-pictures_filter(*ret)));
    return r;
}
