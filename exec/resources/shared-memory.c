/* SPDX-License-Identifier: Apache-2.0 */
/* shared-memory.c - see shared-memory.h. */
#include "exec/resources/shared-memory.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { LIST_MAX = 4 << 20, FILES_MAX = 65536, LINE_MAX_BYTES = 1024 };

typedef struct SharedFile {
    char *name;
    dev_t device;
    ino_t inode;
    bool is_held;
} SharedFile;

typedef struct SharedFiles {
    SharedFile *of;
    size_t n, room;
} SharedFiles;

static void files_clear(SharedFiles *files)
{
    for (size_t i = 0; i < files->n; i++)
        free(files->of[i].name);
    free(files->of);
    *files = (SharedFiles){0};
}

/* Lists the regular files of the folder: those of this user only, if own_only is set. */
static int list_files(const char *folder, bool own_only, SharedFiles *ret, Error *err)
{
    _cleanup_dir_ DIR *dir = opendir(folder);
    if (!dir)
        return error_errno(err, -errno, "%s", folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) && ret->n < FILES_MAX) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || (own_only && st.st_uid != geteuid()))
            continue;
        ret->of = memory_grow(ret->of, ret->n, &ret->room, sizeof(*ret->of));
        ret->of[ret->n++] = (SharedFile){.name = memory_text(entry->d_name),
                                         .device = st.st_dev,
                                         .inode = st.st_ino};
    }
    return 0;
}

static void hold(SharedFiles *files, dev_t device, ino_t inode)
{
    for (size_t i = 0; i < files->n; i++)
        if (files->of[i].inode == inode && files->of[i].device == device)
            files->of[i].is_held = true;
}

static void hold_open(SharedFiles *files, const char *pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    _cleanup_dir_ DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0)
            hold(files, st.st_dev, st.st_ino);
    }
}

static void hold_mapped(SharedFiles *files, const char *pid)
{
    char path[64], line[LINE_MAX_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
    _cleanup_file_ FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof(line), maps)) {
        unsigned major, minor;
        unsigned long long inode;
        if (sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &inode) == 3 && inode != 0)
            hold(files, makedev(major, minor), (ino_t)inode);
        while (!strchr(line, '\n') && fgets(line, sizeof(line), maps)) /* the rest of a long line */
            ;
    }
}

/* Marks the files that a living process has open or mapped. Only processes of this user can have this user's files with
 * their usual rights; those of others, which this process may not look into, are root's. */
static int find_holders(SharedFiles *files, Error *err)
{
    _cleanup_dir_ DIR *proc = opendir("/proc");
    if (!proc)
        return error_errno(err, -errno, "/proc");
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        hold_open(files, entry->d_name);
        hold_mapped(files, entry->d_name);
    }
    return 0;
}

/* Tells whether the list, whose lines end with newlines, has the name. */
static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == '\n') && at[n] == '\n')
            return true;
    return false;
}

int shared_memory_clear(const char *folder, const char *list, Error *err)
{
    _cleanup_free_ char *before = NULL;
    _cleanup_(files_clear) SharedFiles files = {0};
    Error ignored = ERROR_INIT;
    if (file_read(list, LIST_MAX, &before, NULL, &ignored) < 0)
        return 0; /* the first start here */
    int r = list_files(folder, true, &files, err);
    if (r == 0 && files.n > 0)
        r = find_holders(&files, err);
    int n = 0;
    for (size_t i = 0; r == 0 && i < files.n; i++) {
        char path[PATH_MAX];
        const SharedFile *f = &files.of[i];
        if (f->is_held || is_listed(before, f->name) ||
            snprintf(path, sizeof(path), "%s/%s", folder, f->name) >= (int)sizeof(path))
            continue;
        if (unlink(path) == 0)
            n++;
    }
    return r < 0 ? r : n;
}

int shared_memory_note(const char *folder, const char *list, Error *err)
{
    _cleanup_(files_clear) SharedFiles files = {0};
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = list_files(folder, false, &files, err);
    if (r < 0)
        return r;
    FILE *f = memory_given(open_memstream(&text, &n_bytes));
    for (size_t i = 0; i < files.n; i++)
        (void)fprintf(f, "%s\n", files.of[i].name);
    if (fclose(f) != 0)
        (void)memory_given(NULL); /* only a lack of memory fails */
    return file_write(list, text, n_bytes, 0, err);
}
