/* export.c - `sdctl job export`: the weights of the newest committed checkpoint as one
 * safetensors file.
 *
 * A checkpoint keeps them as one or several such files; the result holds their tensors in the same
 * order, byte for byte. Every file's hash is checked on the way, and the result appears only when
 * all is well.
 * Source: the safetensors format: 8 bytes length of the header, little-endian; a JSON header, name
 * to {dtype, shape, data_offsets}; the data. */
#include "ctl/arguments.h"
#include "ctl/job/committed.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"

#include "base/file.h"
#include "protocol/manifest-limits.h"

#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum {
    COPY_BYTES = 64 << 20, /* S3 reads them as parts that come together */
    PREFIX_BYTES = 8,
};

typedef struct ExportPart {
    const CommittedObject *object;
    uint64_t data_at; /* in the object */
} ExportPart;

typedef struct Export {
    Store *store;
    CommittedObject *objects;
    ExportPart *parts;
    size_t n_parts;
    json_t *header;        /* of the result */
    uint64_t n_data_bytes; /* so far */
} Export;

static int refuse(const ExportPart *part, Error *err, const char *what)
{
    return error_set(err, -EBADMSG, "%s: not a safetensors file: %s", part->object->key, what);
}

/* The tensors of one file, moved behind those before. */
static int add_tensors(Export *x, const ExportPart *part, json_t *header, Error *err)
{
    const uint64_t n_data = part->object->n_bytes - part->data_at;
    const char *name;
    json_t *tensor;
    json_object_foreach (header, name, tensor) {
        json_t *offsets = json_object_get(tensor, "data_offsets");
        json_int_t begin = json_integer_value(json_array_get(offsets, 0));
        json_int_t end = json_integer_value(json_array_get(offsets, 1));
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_object_get(x->header, name))
                json_object_set(x->header, name, tensor);
            continue;
        }
        if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > n_data)
            return refuse(part, err, "a tensor lies outside of its data");
        if (json_object_get(x->header, name))
            return refuse(part, err, "a tensor is there twice");
        json_object_set_new(tensor, "data_offsets",
                            json_pack("[II]", begin + (json_int_t)x->n_data_bytes,
                                      end + (json_int_t)x->n_data_bytes));
        if (json_object_set(x->header, name, tensor) < 0)
            return error_set(err, -ENOMEM, "out of memory");
    }
    x->n_data_bytes += n_data;
    return 0;
}

static int read_header(Export *x, ExportPart *part, Error *err)
{
    uint64_t n;
    const char *key = part->object->key;
    if (part->object->n_bytes < PREFIX_BYTES)
        return refuse(part, err, "it is too short");
    int r = store_get_range(x->store, key, 0, sizeof(n), &n, err);
    if (r < 0)
        return r;
    n = le64toh(n);
    if (n > SAFETENSORS_HEADER_MAX || n > part->object->n_bytes - PREFIX_BYTES)
        return refuse(part, err, "its header is longer than it can be");
    part->data_at = PREFIX_BYTES + n;

    _cleanup_json_ json_t *header = NULL;
    _cleanup_free_ char *text = malloc(n + 1);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    r = store_get_range(x->store, key, PREFIX_BYTES, n, text, err);
    if (r == 0)
        r = json_parse_bounded(key, text, n, SAFETENSORS_VALUES_MAX, &header, err);
    return r < 0 ? r : add_tensors(x, part, header, err);
}

/* The object's data to fd; all of it is hashed. */
static int copy_data(Export *x, const ExportPart *part, int fd, Error *err)
{
    const CommittedObject *o = part->object;
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    _cleanup_free_ char *buffer = malloc(COPY_BYTES);
    if (!buffer || hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    for (uint64_t at = 0, n; at < o->n_bytes; at += n) {
        n = MIN(o->n_bytes - at, (uint64_t)COPY_BYTES);
        int r = store_get_range(x->store, o->key, at, n, buffer, err);
        if (r < 0)
            return r;
        hasher_update(hasher, buffer, n);
        uint64_t skip = part->data_at > at ? MIN(part->data_at - at, n) : 0;
        r = fd_write_all(fd, buffer + skip, n - skip);
        if (r < 0)
            return error_errno(err, r, "cannot write");
    }
    if (!hash_equal(hasher_digest(hasher), o->hash))
        return error_set(err, -EBADMSG, "%s/%s: its hash is not what the manifest says",
                         store_uri(x->store), o->key);
    return 0;
}

/* Padded with spaces, so that data begin at a multiple of 8. */
static int write_header(const Export *x, int fd, Error *err)
{
    _cleanup_free_ char *text = json_dumps(x->header, JSON_COMPACT);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    static const char spaces[8] = "        ";
    const size_t n = strlen(text), padded = ROUND_UP(n, (size_t)8);
    const uint64_t prefix = htole64(padded);
    int r = fd_write_all(fd, &prefix, sizeof(prefix));
    if (r == 0)
        r = fd_write_all(fd, text, n);
    if (r == 0)
        r = fd_write_all(fd, spaces, padded - n);
    return r < 0 ? error_errno(err, r, "cannot write") : 0;
}

static int write_all(Export *x, const char *out, Error *err)
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
        (void)unlink(path); /* half a file is of no use */
        return error_prefix(err, r, "%s", out);
    }
    return 0;
}

static int export(const CheckpointCommit *commit, const Arguments *a, Error *err)
{
    Export x = {.header = json_object()};
    Committed committed;
    int r = committed_open(commit, &committed, err);
    if (r == 0)
        r = committed_objects(&committed, a->ema ? "ema-weights" : "weights", &x.objects,
                              &x.n_parts, err);
    if (r == 0 && x.n_parts == 0)
        r = error_set(err, -ENOENT, "the checkpoint of step %lld has no %s",
                      (long long)commit->step,
                      a->ema ? "averaged weights: train.ema.start_step is not reached" : "weights");
    if (r == 0) {
        x.store = committed.store;
        x.parts = calloc(x.n_parts, sizeof(*x.parts));
        r = x.parts && x.header ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < x.n_parts && r == 0; i++) {
        x.parts[i].object = &x.objects[i];
        r = read_header(&x, &x.parts[i], err);
    }
    if (r == 0)
        r = write_all(&x, a->out, err);
    committed_close(&committed);
    json_decref(x.header);
    free(x.objects);
    free(x.parts);
    return r;
}

int job_export(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_job(model, a->operand, &job, &err);
    const CheckpointCommit *commit = r == 0 ? checkpoints_latest(&job->checkpoints) : NULL;
    if (r == 0 && !commit)
        r = error_set(&err, -ENOENT, "job %s has no checkpoint yet", a->operand);
    if (r == 0)
        r = export(commit, a, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("job %s: %s of step %lld are in %s\n", a->operand,
           a->ema ? "averaged weights" : "weights", (long long)commit->step, a->out);
    return CTL_DONE;
}
