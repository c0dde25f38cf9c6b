/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c - see grid.h. Encodes with libpng's simplified interface. */
#include "trainer/sample/grid.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <png.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GAP = 4, GREY = 200, SIDE_MAX = 1 << 16 };

int grid_check(const char *option, const char *path, Error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *folder =
        slash ? memory_bytes(path, (size_t)(slash - path) + 1) : memory_text(".");
    const bool there = stat(path, &st) == 0;
    int r = *path == '\0' ? ENOENT : access(there ? path : folder, W_OK) == 0 ? 0 : errno;
    if (there && S_ISDIR(st.st_mode))
        r = EISDIR;
    return r == 0 ? 0
                  : error_set(err, -EINVAL, "%s: cannot write %s: %s", option, path, strerror(r));
}

int grid_write(const char *path, const char *png, size_t n_bytes, Error *err)
{
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int r = fd < 0 ? -errno : fd_write_all(fd, png, n_bytes);
    if (r == 0)
        return 0;
    if (fd >= 0)
        /* half a file would look like a picture; this call fails if the path is a device */
        (void)ftruncate(fd, 0);
    return error_set(err, -EIO, "%s: %s", path, strerror(-r));
}

int grid_encode(const GridNotes *notes, int n, int height, int width, const uint8_t *pixels,
                char **ret, size_t *ret_bytes, Error *err)
{
    const int columns = (int)ceil(sqrt((double)n)), rows = DIV_ROUND_UP(n, columns);
    const int64_t grid_width = (int64_t)columns * (width + GAP) + GAP;
    const int64_t grid_height = (int64_t)rows * (height + GAP) + GAP;
    if (grid_width > SIDE_MAX || grid_height > SIDE_MAX)
        return error_set(err, -EFBIG, "a grid of %lld x %lld pixels is too large",
                         (long long)grid_width, (long long)grid_height);
    const size_t row = (size_t)width * 3;
    _cleanup_free_ uint8_t *grid = malloc((size_t)grid_width * (size_t)grid_height * 3);
    if (!grid)
        return error_set(err, -ENOMEM, "out of memory for the grid");
    memset(grid, GREY, (size_t)grid_width * (size_t)grid_height * 3);
    for (int i = 0; i < n; i++)
        for (int y = 0; y < height; y++) {
            const int64_t to_y = GAP + i / columns * (height + GAP) + y;
            const int64_t to_x = GAP + i % columns * (width + GAP);
            memcpy(grid + (to_y * grid_width + to_x) * 3,
                   pixels + ((size_t)i * (size_t)height + (size_t)y) * row, row);
        }
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)grid_width,
                       .height = (png_uint_32)grid_height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t n_png = PNG_IMAGE_PNG_SIZE_MAX(image);
    _cleanup_free_ char *png = malloc(n_png);
    if (!png)
        return error_set(err, -ENOMEM, "out of memory for the PNG");
    if (!png_image_write_to_memory(&image, png, &n_png, 0, grid, 0, NULL))
        return error_set(err, -EIO, "the PNG of a grid: %s", image.message);
    *ret = grid_notes_put(notes, png, n_png, ret_bytes);
    return 0;
}
