/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - see weights.h. */
#include "ctl/export/weights.h"

#include "base/file.h"
#include "ctl/export/interrupt.h"
#include "store/safetensors.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
    COPY_BYTES = 64 << 20, /* size of a piece, which the S3 client reads as parallel parts */
    STORE_KEY_MAX = CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX + 1,
};

/* A weight file of the checkpoint. */
typedef struct WeightsPart {
    const ObjectRecord *object;
    char key[STORE_KEY_MAX]; /* key in the store */
    Safetensors *file;
} WeightsPart;

/* The output file and the weight files of the checkpoint that are joined into it. */
typedef struct Joined {
    Store *store;
    WeightsPart *parts;
    size_t n_parts;
    SafetensorsEntry *entries; /* entries of the output; their names point into the parts */
    size_t n_entries;
} Joined;

static int read_part(Joined *x, const Manifest *manifest, WeightsPart *part, Error *err)
{
    char folder[CHECKPOINT_FOLDER_MAX];
    manifest_folder(manifest, folder);
    (void)snprintf(part->key, sizeof(part->key), "%s/%s", folder, part->object->key);
    int r = safetensors_read(x->store, part->key, part->key, part->object->n_bytes,
                             SAFETENSORS_FLOATS, &part->file, err);
    if (r < 0)
        return r;
    const size_t n = safetensors_count(part->file);
    if (n == 0 || safetensors_at(part->file, 0)->offset != object_header_bytes(part->object))
        return error_set(err, -EBADMSG, "%s: its header is not as long as the manifest says",
                         part->key);
    SafetensorsEntry *grown = reallocarray(x->entries, x->n_entries + n + 1, sizeof(*grown));
    if (!grown)
        return error_set(err, -ENOMEM, "out of memory");
    x->entries = grown;
    for (size_t i = 0; i < n; i++)
        x->entries[x->n_entries++] = *safetensors_at(part->file, i);
    return 0;
}

/* Copies an object's data, without its header, to fd. The hash covers the whole object. */
static int copy_data(Joined *x, const WeightsPart *part, int fd, Error *err)
{
    const ObjectRecord *o = part->object;
    const uint64_t data_at = object_header_bytes(o);
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    _cleanup_free_ char *buffer = malloc(COPY_BYTES);
    if (!buffer || hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    for (uint64_t at = 0, n; at < o->n_bytes; at += n) {
        n = MIN(o->n_bytes - at, (uint64_t)COPY_BYTES);
        int r = interrupt_check(err);
        if (r < 0)
            return r;
        r = store_get_range(x->store, part->key, at, n, buffer, err);
        if (r < 0)
            return r;
        hasher_update(hasher, buffer, n);
        uint64_t skip = data_at > at ? MIN(data_at - at, n) : 0;
        r = fd_write_all(fd, buffer + skip, n - skip);
        if (r < 0)
            return error_errno(err, r, "cannot write");
    }
    if (!hash_equal(hasher_digest(hasher), o->hash))
        return error_set(err, -EBADMSG, "%s/%s: its hash is not what the manifest says",
                         store_uri(x->store), part->key);
    return 0;
}

static int write_header(const Joined *x, int fd, Error *err)
{
    _cleanup_free_ char *header = NULL;
    size_t n_bytes;
    int r = safetensors_header(x->entries, x->n_entries, &header, &n_bytes, err);
    if (r < 0)
        return r;
    r = fd_write_all(fd, header, n_bytes);
    return r < 0 ? error_errno(err, r, "cannot write") : 0;
}

static int write_all(Joined *x, const char *out, Error *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s.part", out) >= (int)sizeof(path))
        return error_set(err, -ENAMETOOLONG, "%s is too long a path", out);
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_errno(err, -errno, "cannot write %s", path);
    int r = write_header(x, fd, err);
    for (size_t i = 0; i < x->n_parts && r == 0; i++)
        r = copy_data(x, &x->parts[i], fd, err);
    if (r == 0 && (fsync(fd) < 0 || rename(path, out) < 0))
        r = error_errno(err, -errno, "cannot write %s", out);
    if (r < 0) {
        (void)unlink(path); /* an incomplete file is useless */
        return error_prefix(err, r, "%s", out);
    }
    return 0;
}

static void joined_clear(Joined *x)
{
    for (size_t i = 0; i < x->n_parts; i++)
        (void)safetensors_free(x->parts[i].file);
    free(x->parts);
    free(x->entries);
}

/* Fills x->parts with all objects of this kind in the manifest. */
static int find_parts(Joined *x, const Manifest *manifest, ObjectKind kind, Error *err)
{
    const ObjectRecord *objects;
    const size_t n = manifest_objects(manifest, &objects);
    x->parts = calloc(n, sizeof(*x->parts));
    if (!x->parts)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (objects[i].kind == kind)
            x->parts[x->n_parts++].object = &objects[i];
    return 0;
}

static ObjectKind kind_of(bool ema) { return ema ? OBJECT_EMA_WEIGHTS : OBJECT_WEIGHTS; }

uint64_t weights_bytes(const Manifest *manifest, bool ema)
{
    const ObjectRecord *objects;
    const size_t n = manifest_objects(manifest, &objects);
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++)
        n_bytes += objects[i].kind == kind_of(ema) ? objects[i].n_bytes : 0;
    return n_bytes;
}

int weights_write(Store *store, const Manifest *manifest, bool ema, const char *path, Error *err)
{
    Joined x = {.store = store};
    int r = find_parts(&x, manifest, kind_of(ema), err);
    if (r == 0 && x.n_parts == 0) /* only averaged weights may be missing from a valid manifest */
        r = error_set(err, -ENOENT,
                      "the checkpoint of step %lld has no averaged weights: "
                      "train.ema.start_step is not reached",
                      (long long)manifest_step(manifest));
    for (size_t i = 0; i < x.n_parts && r == 0; i++)
        r = read_part(&x, manifest, &x.parts[i], err);
    if (r == 0)
        r = write_all(&x, path, err);
    joined_clear(&x);
    return r;
}
