/* SPDX-License-Identifier: Apache-2.0 */
/* make-checkpoint.c - writes a checkpoint of a U-Net with initial weights, and the same numbers as plain files, to
 * compare the loaders of other programs with this project's.
 *
 *   make-checkpoint CONFIG.json FOLDER WEIGHT_FILE_BYTES
 *
 * writes FOLDER/step-.../ and FOLDER/unet.f32, FOLDER/unet_ema.f32 (flat, walk order, fp32
 * little-endian), FOLDER/names.txt (a line for each parameter, walk order: name and elements).
 */
#include "base/file.h"
#include "base/log.h"
#include "trainer/checkpoint/checkpoint.h"

#include <string.h>

static int dump(const char *folder, const char *name, const void *data, size_t n_bytes, Error *err)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return file_write(path, data, n_bytes, 0, err);
}

static int dump_names(const char *folder, const ParameterList *parameters, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < parameters->n_items; i++)
        (void)fprintf(f, "%s %lld\n", parameters->items[i].name,
                      (long long)parameters->items[i].n_elements); /* fclose() reports errors */
    if (fclose(f) != 0)
        return error_set(err, -ENOMEM, "out of memory");
    return dump(folder, "names.txt", text, n_bytes, err);
}

static int save(const UnetConfig *config, TrainState *state, const char *folder,
                uint64_t weight_file_bytes, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(comm_freep) Comm *comm = NULL;
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer = NULL;
    _cleanup_free_ char *text = NULL;
    int r = unet_config_format(config, &text);
    if (r < 0)
        return error_errno(err, r, "cannot format the config");
    r = store_open(folder, &store, err);
    if (r == 0)
        r = comm_open_self(&comm, err);
    if (r == 0)
        r = checkpoint_writer_new(&(CheckpointOptions){.store = store,
                                                       .reports = comm,
                                                       .parameters = state->parameters,
                                                       .unet_config = text,
                                                       .facts = {.job = "make-checkpoint",
                                                                 .generation = 1},
                                                       .keep_last = 2,
                                                       .weight_file_bytes = weight_file_bytes},
                                  &writer, err);
    if (r == 0)
        r = checkpoint_begin(writer, state, "", 1, 0, err);
    if (r < 0)
        return r;
    CheckpointResult result;
    r = checkpoint_wait(writer, 600 * USEC_PER_SEC, &result);
    if (r == 0 && result.phase == CHECKPOINT_FAILED) {
        *err = result.error;
        return err->code;
    }
    log_info("%s: %.1f ms blocked, %.1f ms in all", result.uri, (double)result.blocked_usec / 1e3,
             (double)result.write_usec / 1e3);
    return r;
}

static int run(char **argv, Error *err)
{
    UnetConfig config;
    _cleanup_(parameter_list_freep) ParameterList *parameters = NULL;
    Device *device = NULL;
    _cleanup_(train_state_freep) TrainState *state = NULL;
    int r = unet_config_read(argv[1], store_get_uri, &config, err);
    if (r == 0)
        r = unet_parameters(&config, &parameters, err);
    if (r == 0)
        r = device_open(&(DeviceOptions){.kind = DEVICE_CPU, .threads = 1}, &device, err);
    if (r == 0)
        r = train_state_new(device, parameters, 0, 1, 0, true, &state, err);
    if (r < 0)
        return r;

    const size_t n_bytes = (size_t)parameters->n_elements * sizeof(float);
    parameters_initialise(parameters, 1, state->weights);
    parameters_initialise(parameters, 2, state->ema);
    state->ema_active = true;
    r = save(&config, state, argv[2], strtoull(argv[3], NULL, 10), err);
    if (r == 0)
        r = dump(argv[2], "unet.f32", state->weights, n_bytes, err);
    if (r == 0)
        r = dump(argv[2], "unet_ema.f32", state->ema, n_bytes, err);
    if (r == 0)
        r = dump_names(argv[2], parameters, err);
    state = train_state_free(state); /* the state borrows the device */
    (void)device_free(device);
    return r;
}

int main(int argc, char **argv)
{
    Error err = ERROR_INIT;
    log_open("make-checkpoint");
    if (argc != 4) {
        (void)fprintf(stderr, "usage: make-checkpoint CONFIG.json FOLDER WEIGHT_FILE_BYTES\n");
        return 2;
    }
    if (run(argv, &err) < 0) {
        log_error("%s", err.text);
        return 1;
    }
    return 0;
}
