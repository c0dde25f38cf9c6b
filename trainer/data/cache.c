/* cache.c - see cache.h. */
#include "trainer/data/cache.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

typedef struct CacheFile {
    char name[128];
    uint64_t n_bytes;
    struct timespec used;
} CacheFile;

static int compare_used(const void *a, const void *b)
{
    const struct timespec *x = &((const CacheFile *)a)->used, *y = &((const CacheFile *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static void dir_closep(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir); /* reading only */
}

static int list(DIR *dir, CacheFile **ret, size_t *ret_n)
{
    _cleanup_free_ CacheFile *files = NULL;
    size_t n = 0, room = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strstr(e->d_name, ".mds") || strlen(e->d_name) >= sizeof(files->name) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue; /* not ours, or gone since */
        if (n == room) {
            room = MAX(2 * room, (size_t)64);
            CacheFile *grown = realloc(files, room * sizeof(*grown));
            if (!grown)
                return -ENOMEM;
            files = grown;
        }
        memcpy(files[n].name, e->d_name, strlen(e->d_name) + 1);
        files[n].n_bytes = (uint64_t)st.st_size;
        files[n++].used = st.st_mtim;
    }
    *ret = TAKE_PTR(files);
    *ret_n = n;
    return 0;
}

int cache_make_room(const char *folder, uint64_t bound, uint64_t n_bytes)
{
    int r = folder_make(folder, NULL);
    if (r < 0 || bound == 0)
        return r;
    if (n_bytes > bound)
        return -ENOSPC;

    _cleanup_(dir_closep) DIR *dir = opendir(folder);
    if (!dir)
        return -errno;
    _cleanup_free_ CacheFile *files = NULL;
    size_t n;
    r = list(dir, &files, &n);
    if (r < 0)
        return r;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += files[i].n_bytes;
    if (n > 0)
        qsort(files, n, sizeof(files[0]), compare_used);
    for (size_t i = 0; i < n && total + n_bytes > bound; i++) {
        (void)unlinkat(dirfd(dir), files[i].name, 0); /* another rank may have been first */
        total -= files[i].n_bytes;
    }
    return 0;
}

void cache_touch(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* a wrong age costs a fetch at most */
}
