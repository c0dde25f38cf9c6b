/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c - see gpus.h. */
#include "exec/resources/gpus.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

enum { LINE_BYTES = 512 };

static int is_gpu(const struct dirent *entry) { return strchr(entry->d_name, ':') != NULL; }

/* Finds the line "GPU UUID: <blanks> GPU-...". A file in /proc has no size, so it is read to its end. */
static int read_uuid(const char *path, char ret[EXEC_UUID_MAX], Error *err)
{
    static const char label[] = "GPU UUID:";
    char line[LINE_BYTES];
    const char *at = NULL;
    _cleanup_file_ FILE *f = fopen(path, "re");
    if (!f)
        return error_errno(err, -errno, "%s", path);
    while (!at && fgets(line, sizeof(line), f))
        at = strstr(line, label);
    if (at)
        at += strlen(label) + strspn(at + strlen(label), " \t");
    const size_t n = at ? strcspn(at, " \t\n") : 0;
    if (n == 0 || n >= EXEC_UUID_MAX || strncmp(at, "GPU-", 4) != 0)
        return error_set(err, -EINVAL, "%s: names no UUID", path);
    memcpy(ret, at, n);
    ret[n] = '\0';
    return 0;
}

int exec_find_gpus(const char *folder, ExecGpus *ret, Error *err)
{
    struct dirent **entries = NULL;
    *ret = (ExecGpus){0};
    const int n =
        scandir(folder, &entries, is_gpu, alphasort); /* PCI addresses have a fixed width */
    if (n < 0)
        return error_errno(err, -errno, "%s", folder);
    int r = n > EXEC_GPUS_MAX
                ? error_set(err, -E2BIG, "%s: %d GPUs are more than %d", folder, n, EXEC_GPUS_MAX)
                : 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%.200s/%s/information", folder, entries[i]->d_name);
        if (r == 0)
            r = read_uuid(path, ret->uuid[ret->n], err);
        ret->n += r == 0;
        free(entries[i]);
    }
    free(entries);
    return r;
}

void exec_write_gpus(const ExecGpus *gpus, int first, int n, char *ret)
{
    assert(first >= 0 && n > 0 && first + n <= gpus->n);
    size_t at = 0;
    for (int i = first; i < first + n; i++)
        at += (size_t)snprintf(ret + at, (size_t)n * EXEC_UUID_MAX - at, "%s%s",
                               i > first ? "," : "", gpus->uuid[i]);
}

int exec_name_gpus(const char *folder, const char *list, int only, char *ret, size_t size,
                   Error *err)
{
    size_t used = 0;
    int i = 0;
    *ret = '\0';
    for (const char *at = list; *at; i++) {
        char uuid[EXEC_UUID_MAX], path[512];
        const size_t n = strcspn(at, ",");
        (void)snprintf(uuid, sizeof(uuid), "%.*s", (int)n, at);
        (void)snprintf(path, sizeof(path), "%.200s/%s.0/information", folder, uuid);
        at += n + (at[n] == ',');
        if (only >= 0 && i != only)
            continue;
        int r = strncmp(uuid, "GPU-", 4) == 0 ? 0 : read_uuid(path, uuid, err);
        if (r < 0)
            return r;
        used += (size_t)snprintf(ret + used, size - used, "%s%s", used > 0 ? "," : "", uuid);
        if (used >= size)
            return error_set(err, -E2BIG, "the list of GPUs is longer than %zu bytes", size);
    }
    return 0;
}
