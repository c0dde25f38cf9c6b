/* SPDX-License-Identifier: Apache-2.0 */
/* openclipart-raw.c - writes tars of pictures and captions in the form of img2dataset: 00000.tar with 000000000.png,
 * 000000000.txt, 000000001.png, ... The bytes depend only on the packages. */
#include "base/file.h"
#include "base/log.h"
#include "prep/openclipart-pictures.h"
#include "prep/openclipart.h"
#include "prep/raw/tar-write.h"
#include "store/store.h"

#include <string.h>

enum {
    TAR_SAMPLES = 256,
    TAR_BYTES = 256 << 20, /* a tar, which is held in memory, is complete once it is larger */
    KEYS_A_TAR = 10000,    /* img2dataset's keys are tar * 10000 + index */
    PICTURE_BYTES_MAX = 64 << 20,
};

static int add_sample(TarWriter *tar, const char *source, const char *path, size_t key, Error *err)
{
    _cleanup_free_ char *picture = NULL, *caption = NULL;
    size_t n_picture;
    char name[32];
    int r = file_read(path, PICTURE_BYTES_MAX, &picture, &n_picture, err);
    if (r == 0 && (r = openclipart_read_caption(source, path, &caption)) < 0)
        error_errno(err, r, "%s: no caption", path);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof(name), "%09zu.png", key);
    r = tar_writer_add(tar, name, picture, n_picture);
    (void)snprintf(name, sizeof(name), "%09zu.txt", key);
    if (r == 0)
        r = tar_writer_add(tar, name, caption, strlen(caption));
    return r < 0 ? error_errno(err, r, "%s: cannot add it to a tar", path) : 0;
}

static int put_tar(Store *store, TarWriter *tar, size_t number, Error *err)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "%05zu.tar", number);
    int r = tar_writer_finish(tar);
    if (r < 0)
        return error_errno(err, r, "cannot end %s", name);
    struct iovec part = {tar->data, tar->n_bytes};
    r = store_put(store, name, &part, 1, STORE_IF_ABSENT, err);
    tar_writer_reset(tar);
    return r == -EEXIST ? error_prefix(err, r, "another writer has written there meanwhile") : r;
}

int openclipart_make_raw(const OpenclipartOptions *options, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(openclipart_paths_clear) OpenclipartPaths paths = {0};
    _cleanup_(tar_writer_clear) TarWriter tar = {0};
    uint64_t n_bytes;
    int r = store_open(options->raw, &store, err);
    if (r == 0 && store_head(store, "00000.tar", &n_bytes, NULL) == 0)
        r = error_set(err, -EEXIST, "%s already holds tars", store_uri(store));
    if (r == 0)
        r = openclipart_list(options->source, options->n_samples, &paths, err);

    size_t number = 0, n_in_tar = 0, n_written = 0;
    for (size_t i = 0; r == 0 && i < paths.n; i++) {
        r = add_sample(&tar, options->source, paths.paths[i], number * KEYS_A_TAR + n_in_tar, err);
        if (r < 0 && r != -ENOMEM) {
            log_warning("left out: %s", err->text);
            r = 0;
            continue;
        }
        n_in_tar++;
        if (r == 0 && (n_in_tar == TAR_SAMPLES || tar.n_bytes > TAR_BYTES)) {
            r = put_tar(store, &tar, number++, err);
            n_written += n_in_tar;
            n_in_tar = 0;
        }
    }
    if (r == 0 && n_in_tar > 0) {
        r = put_tar(store, &tar, number++, err);
        n_written += n_in_tar;
    }
    if (r == 0 && n_written == 0)
        r = error_set(err, -ENOENT, "%s: no picture could be read", options->source);
    if (r == 0)
        log_info("%s: %zu pictures in %zu tars", store_uri(store), n_written, number);
    return r;
}
