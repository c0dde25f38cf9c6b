/* SPDX-License-Identifier: Apache-2.0 */
/* openclipart-pictures.c - see openclipart-pictures.h. */
#include "prep/openclipart-pictures.h"

#include "base/file.h"
#include "prep/openclipart.h"
#include "prep/picture.h"

#include <ftw.h>
#include <limits.h>
#include <string.h>

enum {
    SIDE_MIN = 64,
    FILES_MAX = 1 << 20,
    SVG_BYTES_MAX = 64 << 20,
    CAPTION_MAX = 1000,
};

/* ---- captions ---- */

static const char *find(const char *p, const char *end, const char *word)
{
    return p && p < end ? memmem(p, (size_t)(end - p), word, strlen(word)) : NULL;
}

/* Appends the text between p and end to `text`: without white space at its ends, with one blank for each run of white
 * space, and with the five entities of XML resolved. If `text` is not empty, ", " is put in front. */
static void add_text(const char *p, const char *end, char *text, size_t *n)
{
    static const struct {
        const char *name;
        char c;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t start = *n;
    bool blank = false;
    while (p < end && *n < CAPTION_MAX - 4) {
        char c = *p++;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            blank = true;
            continue;
        }
        for (size_t i = 0; c == '&' && i < ELEMENTSOF(entities); i++) {
            size_t length = strlen(entities[i].name) - 1;
            if ((size_t)(end - p) >= length && memcmp(p, entities[i].name + 1, length) == 0) {
                c = entities[i].c;
                p += length;
                break;
            }
        }
        if (*n == start && start > 0)
            text[(*n)++] = ',';
        if ((blank && *n > start) || (*n == start + 1 && start > 0))
            text[(*n)++] = ' ';
        blank = false;
        text[(*n)++] = c;
    }
}

int openclipart_caption(const char *svg, size_t n_bytes, char **ret)
{
    char *text = malloc(CAPTION_MAX + 1);
    if (!text)
        return -ENOMEM;
    size_t n = 0;
    const char *p = find(svg, svg + n_bytes, "<metadata");
    const char *end = find(p, svg + n_bytes, "</metadata>");
    if (end) {
        /* The first title is the work's own; later titles belong to its publisher and author. */
        const char *title = find(p, end, "<dc:title>"), *close = find(title, end, "</dc:title>");
        if (close)
            add_text(title + strlen("<dc:title>"), close, text, &n);
        for (const char *item = p; (item = find(item, end, "<rdf:li"));) {
            const char *open = find(item, end, ">");
            close = find(open, end, "</rdf:li>");
            if (!close)
                break;
            add_text(open + 1, close, text, &n);
            item = close;
        }
    }
    text[n] = '\0';
    *ret = text;
    return 0;
}

int openclipart_read_caption(const char *source, const char *path, char **ret)
{
    char svg[PATH_MAX];
    const char *inner = path + strlen(source) + strlen("/png");
    (void)snprintf(svg, sizeof(svg), "%.2000s/svg%.*s.svg", source,
                   (int)MIN(strlen(inner) - 4, (size_t)2000), inner);
    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    if (file_read(svg, SVG_BYTES_MAX, &text, &n, NULL) < 0)
        n = 0;
    int r = openclipart_caption(text ? text : "", n, ret);
    if (r < 0 || **ret)
        return r;
    const char *name = strrchr(path, '/') + 1;
    (void)snprintf(*ret, CAPTION_MAX, "%.*s", (int)(strlen(name) - 4), name);
    for (char *p = *ret; *p; p++)
        *p = *p == '_' || *p == '-' ? ' ' : *p;
    return 0;
}

/* ---- the list of pictures ---- */

static OpenclipartPaths found; /* global, since nftw() passes no context */

static int add_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    size_t length = strlen(path);
    int width, height;
    if (type != FTW_F || length < 4 || strcmp(path + length - 4, ".png") != 0)
        return 0;
    if (picture_size(path, &width, &height, NULL) < 0 || MIN(width, height) < SIDE_MIN)
        return 0;
    if (found.n == found.room) {
        size_t room = MAX(2 * found.room, (size_t)1024);
        char **grown = room <= FILES_MAX ? realloc(found.paths, room * sizeof(*grown)) : NULL;
        if (!grown)
            return -ENOMEM;
        found.paths = grown;
        found.room = room;
    }
    found.paths[found.n] = strdup(path);
    return found.paths[found.n++] ? 0 : -ENOMEM;
}

void openclipart_paths_clear(OpenclipartPaths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        free(paths->paths[i]);
    free(paths->paths);
    *paths = (OpenclipartPaths){0};
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int openclipart_list(const char *source, int64_t n, OpenclipartPaths *ret, Error *err)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof(folder), "%.4000s/png", source);
    found = (OpenclipartPaths){0};
    int r = nftw(folder, add_path, 16, 0);
    OpenclipartPaths paths = found;
    found = (OpenclipartPaths){0};
    if (r != 0 || paths.n == 0) {
        r = r < -1 ? r : -ENOENT;
        openclipart_paths_clear(&paths);
        return error_set(err, r,
                         "%s holds no pictures: install Debian's openclipart-png and "
                         "openclipart-svg (apt-get install openclipart-png openclipart-svg)",
                         folder);
    }
    qsort(paths.paths, paths.n, sizeof(paths.paths[0]), compare_paths);
    if (n > 0 && (size_t)n < paths.n) {
        size_t taken = 0;
        for (size_t i = 0; i < paths.n; i++) {
            if (i * (size_t)n / paths.n != (i + 1) * (size_t)n / paths.n)
                paths.paths[taken++] = paths.paths[i];
            else
                free(paths.paths[i]);
        }
        paths.n = taken;
    }
    *ret = paths;
    return 0;
}
