/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - see pipeline.h. */
#include "ctl/export/pipeline.h"

#include "base/fault.h"
#include "base/file.h"
#include "ctl/export/interrupt.h"
#include "ctl/export/pipeline-configs.h"
#include "ctl/export/weights.h"
#include "data/encoder-facts.h"
#include "encoders/networks/model-copy.h"
#include "encoders/networks/model-fit.h"
#include "encoders/networks/model-tokenizer.h"
#include "protocol/unet-config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    CONFIG_BYTES_MAX = 1 << 20,
    TOKENIZER_BYTES_MAX = 64 << 20, /* limit for one file of the tokenizer */
    SMALL_FILES_BYTES = 16 << 20,   /* space for all files that are not weights */
};

static const char weights_name[] = "diffusion_pytorch_model.safetensors";

typedef struct Pipeline {
    const PipelineOptions *options;
    Store *checkpoint, *model;
    const Manifest *manifest;
    ModelCopy *copy;
    char *unet_config;
    char folder[PATH_MAX - 64]; /* the folder to make, without a slash at its end */
    char part[PATH_MAX - 48];   /* temporary folder that is written; "": not made yet */
} Pipeline;

static void pipeline_close(Pipeline *p)
{
    Error ignored = ERROR_INIT; /* a folder that remains is recognised by its name */
    if (*p->part)
        (void)folder_remove(p->part, &ignored);
    (void)model_copy_free(p->copy);
    (void)store_free(p->model);
    free(p->unet_config);
}

/* ---- before anything is written ---- */

static int take_name(Pipeline *p, Error *err)
{
    struct stat st;
    const char *folder = p->options->folder;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n >= sizeof(p->folder))
        return error_set(err, -ENAMETOOLONG, "%.100s... is too long a path", folder);
    (void)snprintf(p->folder, sizeof(p->folder), "%.*s", (int)n, folder);
    if (lstat(p->folder, &st) == 0)
        return error_set(err, -EEXIST, "%s is there already", p->folder);
    return 0;
}

static int read_unet_config(Pipeline *p, UnetConfig *ret, Error *err)
{
    const ObjectKind kind = p->options->ema ? OBJECT_EMA_CONFIG : OBJECT_CONFIG;
    const ObjectRecord *objects;
    const size_t n = manifest_objects(p->manifest, &objects);
    char folder[CHECKPOINT_FOLDER_MAX], key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX + 1];
    manifest_folder(p->manifest, folder);
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        if (objects[i].kind != kind)
            continue;
        (void)snprintf(key, sizeof(key), "%s/%s", folder, objects[i].key);
        int r = store_get(p->checkpoint, key, CONFIG_BYTES_MAX, &p->unet_config, &n_bytes, err);
        if (r < 0)
            return r;
        if (!hash_equal(hash_bytes(p->unet_config, n_bytes), objects[i].hash))
            return error_set(err, -EBADMSG, "%s: its hash is not what the manifest says", key);
        return unet_config_parse(key, p->unet_config, n_bytes, ret, err);
    }
    return error_set(err, -ENOENT,
                     "the checkpoint of step %lld has no averaged weights: train.ema.start_step is "
                     "not reached",
                     (long long)manifest_step(p->manifest));
}

/* Returns the factor by which the latents in the job's data were multiplied; 0: unknown, or the data cannot be read. */
static double stored_scale(const Job *job)
{
    Error ignored = ERROR_INIT;
    EncoderFacts facts;
    return encoder_facts_find(job, &facts, &ignored) > 0 ? facts.scaling_factor : 0;
}

static int check_model(Pipeline *p, Error *err)
{
    _cleanup_(tokenizer_freep) Tokenizer *tokenizer = NULL;
    UnetConfig unet;
    VaeConfig vae;
    ClipTextConfig text;
    int r = read_unet_config(p, &unet, err);
    if (r == 0)
        r = store_open(p->options->model, &p->model, err);
    if (r < 0)
        return r;
    const ModelWanted wanted = {.network = p->options->job->model.config_uri,
                                .latent_channels = unet.in_channels,
                                .text_dim = unet.cross_attention_dim,
                                .latent_scale = p->options->job->data.latent_scale,
                                .stored_scale = stored_scale(p->options->job)};
    r = model_fit_vae(p->model, &wanted, &vae, err);
    if (r == 0)
        r = model_fit_text(p->model, &wanted, &text, err);
    if (r == 0)
        r = model_tokenizer_open(p->model, TOKENIZER_DIFFUSERS, text.vocab_size,
                                 text.max_position_embeddings, &tokenizer, err);
    return r < 0 ? r : model_copy_open(p->model, &vae, &text, &p->copy, err);
}

/* Finds the parent folder of the pipeline. */
static void parent_of(const Pipeline *p, char ret[PATH_MAX])
{
    const char *slash = strrchr(p->folder, '/');
    if (!slash)
        (void)snprintf(ret, PATH_MAX, ".");
    else
        (void)snprintf(ret, PATH_MAX, "%.*s", (int)MAX(slash - p->folder, 1), p->folder);
}

static int check_room(const Pipeline *p, Error *err)
{
    char parent[PATH_MAX];
    struct statvfs fs;
    const uint64_t needed = weights_bytes(p->manifest, p->options->ema) +
                            model_copy_bytes(p->copy, MODEL_VAE) +
                            model_copy_bytes(p->copy, MODEL_TEXT_ENCODER) + SMALL_FILES_BYTES;
    parent_of(p, parent);
    if (statvfs(parent, &fs) < 0)
        return error_errno(err, -errno, "cannot write into %s", parent);
    const uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    int r = fault("pipeline.room");
    /* A tmpfs without a size limit has f_blocks 0. */
    if (r < 0 || (fs.f_blocks > 0 && left < needed))
        return error_set(err, -ENOSPC, "%s: the pipeline takes %.2f GB, and %.2f GB are free",
                         parent, (double)needed / 1e9, (double)left / 1e9);
    return 0;
}

/* ---- writing ---- */

/* Forms the path of a file in a sub-folder of the pipeline, and makes the sub-folder. */
static int begin_file(const Pipeline *p, const char *part, const char *name, char ret[PATH_MAX],
                      Error *err)
{
    char folder[PATH_MAX - 8];
    int r = interrupt_check(err);
    if (r < 0)
        return r;
    if (snprintf(folder, sizeof(folder), "%s/%s", p->part, part) >= (int)sizeof(folder) ||
        snprintf(ret, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "%.100s... is too long a path", p->part);
    return folder_make(folder, err);
}

static int write_bytes(const Pipeline *p, const char *part, const char *name, const char *bytes,
                       size_t n_bytes, Error *err)
{
    char path[PATH_MAX];
    int r = begin_file(p, part, name, path, err);
    return r < 0 ? r : file_write(path, bytes, n_bytes, 0, err);
}

static int write_unet(const Pipeline *p, Error *err)
{
    char path[PATH_MAX];
    int r = write_bytes(p, "unet", "config.json", p->unet_config, strlen(p->unet_config), err);
    if (r == 0)
        r = begin_file(p, "unet", weights_name, path, err);
    return r < 0 ? r : weights_write(p->checkpoint, p->manifest, p->options->ema, path, err);
}

typedef struct FileSink {
    int fd;
    const char *path;
} FileSink;

static int file_sink_write(void *context, const void *data, size_t n_bytes, Error *err)
{
    const FileSink *sink = context;
    int r = interrupt_check(err);
    if (r < 0)
        return r;
    r = fd_write_all(sink->fd, data, n_bytes);
    return r < 0 ? error_errno(err, r, "cannot write %s", sink->path) : 0;
}

static int write_model_part(const Pipeline *p, ModelKind kind, const char *part, const char *name,
                            Error *err)
{
    _cleanup_free_ char *source = NULL, *text = NULL, *config = NULL;
    char path[PATH_MAX];
    size_t n_bytes;
    int r = fault("pipeline.part");
    if (r < 0)
        return error_errno(err, r, "cannot write %s", p->part);
    r = model_part_config(p->model, kind, &source, &text, &n_bytes, err);
    if (r == 0)
        r = pipeline_config_format(source, text, n_bytes, &config, err);
    if (r == 0)
        r = write_bytes(p, part, "config.json", config, strlen(config), err);
    if (r == 0)
        r = begin_file(p, part, name, path, err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_errno(err, -errno, "cannot write %s", path);
    FileSink file = {.fd = fd, .path = path};
    const ModelSink sink = {.write = file_sink_write, .context = &file};
    return model_copy_write(p->copy, kind, &sink, err);
}

/* Copies the files that transformers' CLIPTokenizer reads. Each file is read by name, because the model's folder may
 * contain symbolic links. */
static int write_tokenizer(const Pipeline *p, Error *err)
{
    static const struct {
        const char *name;
        bool needed;
    } files[] = {{"merges.txt", true},
                 {"vocab.json", true},
                 {"tokenizer_config.json", true},
                 {"special_tokens_map.json", false},
                 {"added_tokens.json", false},
                 {"tokenizer.json", false}};
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        _cleanup_free_ char *bytes = NULL;
        char key[64];
        size_t n_bytes;
        (void)snprintf(key, sizeof(key), "tokenizer/%s", files[i].name);
        int r = store_get(p->model, key, TOKENIZER_BYTES_MAX, &bytes, &n_bytes, err);
        if (r == -ENOENT && !files[i].needed)
            continue;
        if (r == 0)
            r = write_bytes(p, "tokenizer", files[i].name, bytes, n_bytes, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int write_configs(const Pipeline *p, Error *err)
{
    _cleanup_free_ char *scheduler = pipeline_scheduler_format(p->options->job);
    _cleanup_free_ char *index = pipeline_index_format();
    int r = write_bytes(p, "scheduler", "scheduler_config.json", scheduler, strlen(scheduler), err);
    return r < 0 ? r : write_bytes(p, ".", "model_index.json", index, strlen(index), err);
}

static int write_parts(const Pipeline *p, Error *err)
{
    /* The smallest files are written first, so that a missing file is found early. */
    int r = write_tokenizer(p, err);
    if (r == 0)
        r = write_configs(p, err);
    if (r == 0)
        r = write_model_part(p, MODEL_VAE, "vae", weights_name, err);
    if (r == 0)
        r = write_model_part(p, MODEL_TEXT_ENCODER, "text_encoder", "model.safetensors", err);
    return r < 0 ? r : write_unet(p, err);
}

/* Makes the temporary folder. chmod() is needed because only the owner can open a folder made by mkdtemp(). */
static int make_part(Pipeline *p, Error *err)
{
    const mode_t mask = umask(0);
    (void)umask(mask);
    (void)snprintf(p->part, sizeof(p->part), "%s.part-XXXXXX", p->folder);
    if (mkdtemp(p->part) && chmod(p->part, 0777 & ~mask) == 0)
        return 0;
    int r = error_errno(err, -errno, "cannot make %s", p->part);
    *p->part = '\0';
    return r;
}

/* Syncs the folder's file system: afterwards the folder and all its files survive a power failure. */
static int sync_all(const char *folder, Error *err)
{
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0)
        return error_errno(err, -errno, "cannot write %s", folder);
    return 0;
}

/* Renames the temporary folder, but never replaces an existing path. Not every file system supports RENAME_NOREPLACE;
 * then access() checks first. */
static int rename_whole(Pipeline *p, Error *err)
{
    int r = fault("pipeline.rename");
    if (r == 0)
        r = interrupt_check(err);
    if (r < 0)
        return r;
    if (renameat2(AT_FDCWD, p->part, AT_FDCWD, p->folder, RENAME_NOREPLACE) < 0) {
        if (errno == EEXIST)
            return error_set(err, -EEXIST, "%s is there already", p->folder);
        if ((errno != EINVAL && errno != ENOSYS) || access(p->folder, F_OK) == 0 ||
            rename(p->part, p->folder) < 0)
            return error_errno(err, -errno, "cannot make %s", p->folder);
    }
    *p->part = '\0';
    return 0;
}

int pipeline_write(Store *store, const Manifest *manifest, const PipelineOptions *options,
                   Error *err)
{
    _cleanup_(pipeline_close)
        Pipeline p = {.options = options, .checkpoint = store, .manifest = manifest};
    char parent[PATH_MAX];
    int r = take_name(&p, err);
    if (r == 0)
        r = check_model(&p, err);
    if (r == 0)
        r = check_room(&p, err);
    if (r == 0)
        r = make_part(&p, err);
    if (r == 0)
        r = write_parts(&p, err);
    if (r == 0)
        r = sync_all(p.part, err);
    if (r == 0)
        r = rename_whole(&p, err);
    parent_of(&p, parent);
    return r < 0 ? r : sync_all(parent, err);
}
