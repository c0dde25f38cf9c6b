/* SPDX-License-Identifier: Apache-2.0 */
/* bench-encoder.c - runs a model folder, to measure its time or to compare its results.
 *
 *     bench-encoder --model FOLDER --part vae|text [--side 256] [--batch 1] [--threads 2] [--steps 5] [--paced]
 *     bench-encoder --model FOLDER --write IN:OUT [--side 256] [--batch 1] [--threads 2] [--steps 5]
 *     bench-encoder --model FOLDER --decode IN:OUT [--side 256] [--batch 1] [--threads 2]
 *
 * The first form prints one line of JSON with milliseconds per batch; ops/torch_encoders.py measures the same with
 * PyTorch. With --paced it prints that it is ready; then each step waits for a line on standard input and prints its
 * milliseconds. The second form reads a batch from IN (RGB bytes of all pictures, then ids as int32) and writes its
 * latents and then its texts, as halves; with --steps it also prints the time of both networks. The third form reads
 * latents as halves, for pictures of that side, and writes RGB bytes.
 *
 * --device cuda [--bf16] [--tune] runs the folder on a GPU; --tune makes the plans at once. */
#include "base/clock.h"
#include "base/file.h"
#include "encoders/networks/decoder.h"
#include "encoders/networks/encoder.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { STEPS = 5, STEPS_MAX = 1000, WARM_UP = 2, INPUT_MAX = 1 << 28 };

typedef struct Bench {
    EncoderOptions options;
    DeviceOptions device;
    int steps; /* number of timed runs; 0: nothing is timed */
    bool text, paced;
    char *write, *decode; /* arguments of --write and --decode: "IN:OUT" */
    Encoder *encoder;
    size_t n_pixels, n_ids, n_latents, n_text; /* elements of a batch */
    uint16_t *latents, *text_out;
} Bench;

static int parse(int argc, char **argv, Bench *b)
{
    static const struct option names[] = {{"model", required_argument, NULL, 'm'},
                                          {"part", required_argument, NULL, 'p'},
                                          {"side", required_argument, NULL, 's'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"threads", required_argument, NULL, 'j'},
                                          {"paced", no_argument, NULL, 'w'},
                                          {"write", required_argument, NULL, 'o'},
                                          {"decode", required_argument, NULL, 'd'},
                                          {"device", required_argument, NULL, 'c'},
                                          {"bf16", no_argument, NULL, 'f'},
                                          {"tune", no_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) >= 0) {
        const int number = optarg ? atoi(optarg) : 0;
        switch (option) {
        case 'm':
            b->options.model = optarg;
            break;
        case 'p':
            b->text = strcmp(optarg, "text") == 0;
            break;
        case 's':
            b->options.side = number;
            break;
        case 'b':
            b->options.batch = number;
            break;
        case 'n':
            b->steps = MIN(MAX(number, 1), (int)STEPS_MAX);
            break;
        case 'j':
            b->device.threads = number;
            break;
        case 'c':
            b->device.kind = strcmp(optarg, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
            break;
        case 'f':
            b->device.type = DATA_BF16;
            break;
        case 't':
            b->device.tune = true;
            break;
        case 'w':
            b->paced = true;
            break;
        case 'o':
            b->write = optarg;
            break;
        case 'd':
            b->decode = optarg;
            break;
        default:
            return -EINVAL;
        }
    }
    if (!b->options.model)
        return -EINVAL;
    if (b->text && !b->write)
        b->options.side = 0;
    if (b->steps == 0 && !b->write)
        b->steps = STEPS;
    return 0;
}

static int size_buffers(Bench *b)
{
    const EncoderShape *s = encoder_shape(b->encoder);
    const size_t n = (size_t)b->options.batch;
    b->n_pixels = n * (size_t)s->side * (size_t)s->side * 3;
    b->n_ids = n * (size_t)s->n_tokens;
    b->n_latents = n * (size_t)s->latent_channels * (size_t)s->latent_side * (size_t)s->latent_side;
    b->n_text = n * (size_t)s->n_tokens * (size_t)s->text_dim;
    b->latents = calloc(b->n_latents + 1, sizeof(*b->latents));
    b->text_out = calloc(b->n_text, sizeof(*b->text_out));
    return b->latents && b->text_out ? 0 : -ENOMEM;
}

/* Cuts "IN:OUT" in two; returns OUT. */
static char *cut(char *names)
{
    char *colon = strchr(names, ':');
    if (!colon)
        return NULL;
    *colon = '\0';
    return colon + 1;
}

static int write_results(Bench *b, Error *err)
{
    char *to = cut(b->write), *input;
    size_t n_bytes;
    if (!to)
        return error_set(err, -EINVAL, "--write wants IN:OUT");
    int r = file_read(b->write, INPUT_MAX, &input, &n_bytes, err);
    if (r < 0)
        return r;
    if (n_bytes != b->n_pixels + b->n_ids * sizeof(int32_t)) {
        free(input);
        return error_set(err, -EINVAL, "%s: %zu bytes are not a batch", b->write, n_bytes);
    }
    int32_t *ids = malloc(b->n_ids * sizeof(*ids)); /* the ids are not aligned in the file */
    const size_t latent_bytes = b->n_latents * sizeof(*b->latents);
    const size_t text_bytes = b->n_text * sizeof(*b->text_out);
    char *out = malloc(latent_bytes + text_bytes);
    r = ids && out ? 0 : error_set(err, -ENOMEM, "out of memory");
    if (r == 0) {
        memcpy(ids, input + b->n_pixels, b->n_ids * sizeof(*ids));
        r = encoder_run(b->encoder, b->options.batch, (const uint8_t *)input, ids, b->latents,
                        b->text_out, err);
    }
    if (r == 0) {
        memcpy(out, b->latents, latent_bytes);
        memcpy(out + latent_bytes, b->text_out, text_bytes);
        r = file_write(to, out, latent_bytes + text_bytes, 0, err);
    }
    free(input);
    free(ids);
    free(out);
    return r;
}

static int decode_file(Bench *b, Device *device, Error *err)
{
    _cleanup_(decoder_freep) Decoder *decoder = NULL;
    _cleanup_free_ char *input = NULL;
    char *to = cut(b->decode);
    size_t n_bytes;
    const int side = b->options.side / 8, n = b->options.batch;
    const DecoderOptions options = {b->options.model, side, side, n};
    if (!to)
        return error_set(err, -EINVAL, "--decode wants IN:OUT");
    int r = decoder_open(device, &options, &decoder, err);
    if (r == 0)
        r = file_read(b->decode, INPUT_MAX, &input, &n_bytes, err);
    if (r < 0)
        return r;
    const DecoderShape *s = decoder_shape(decoder);
    const size_t n_pixels = (size_t)n * (size_t)s->height * (size_t)s->width * 3;
    if (n_bytes != sizeof(uint16_t) * (size_t)(n * s->latent_channels * side * side))
        return error_set(err, -EINVAL, "%s: %zu bytes are not a batch", b->decode, n_bytes);
    _cleanup_free_ uint8_t *pixels = malloc(n_pixels);
    if (!pixels)
        return error_set(err, -ENOMEM, "out of memory");
    r = decoder_run_halves(decoder, n, (const uint16_t *)(void *)input, pixels, err);
    return r < 0 ? r : file_write(to, pixels, n_pixels, 0, err);
}

static double run_once(Bench *b, const uint8_t *pixels, const int32_t *ids, int *ret_r, Error *err)
{
    const bool vae = b->write || !b->text, text = b->write || b->text;
    const uint64_t begin = clock_boottime_usec();
    *ret_r = encoder_run(b->encoder, b->options.batch, vae ? pixels : NULL, text ? ids : NULL,
                         vae ? b->latents : NULL, text ? b->text_out : NULL, err);
    return (double)(clock_boottime_usec() - begin) / 1e3;
}

static double cpu_msec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* fails only for a bad argument */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(Bench *b, Error *err)
{
    uint8_t *pixels = malloc(b->n_pixels + 1);
    int32_t *ids = malloc(b->n_ids * sizeof(*ids));
    double msec[STEPS_MAX];
    int r = pixels && ids ? 0 : error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < b->n_pixels; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t i = 0; r == 0 && i < b->n_ids; i++)
        ids[i] = (int32_t)(i * 7919 % (size_t)encoder_shape(b->encoder)->vocabulary);
    for (int i = 0; r == 0 && i < WARM_UP; i++)
        (void)run_once(b, pixels, ids, &r, err); /* the time of a warm-up run is not used */
    if (r == 0 && b->paced) {
        (void)printf("ready\n");
        (void)fflush(stdout);
    }
    const double cpu = cpu_msec();
    for (int i = 0; r == 0 && i < b->steps; i++) {
        char line[16];
        if (b->paced && !fgets(line, sizeof(line), stdin))
            break;
        msec[i] = run_once(b, pixels, ids, &r, err);
        if (b->paced) {
            (void)printf("%.3f\n", msec[i]);
            (void)fflush(stdout);
        }
    }
    if (r == 0) {
        qsort(msec, (size_t)b->steps, sizeof(*msec), compare);
        (void)
            printf("{\"figure\": \"encode_%s\", \"value\": %.3f, \"unit\": \"ms\", \"min\": %.3f, "
                   "\"max\": %.3f, \"cpu_ms\": %.3f, \"runs\": %d, \"threads\": %d}\n",
                   b->write  ? "both"
                   : b->text ? "text"
                             : "vae",
                   msec[b->steps / 2], msec[0], msec[b->steps - 1], (cpu_msec() - cpu) / b->steps,
                   b->steps, b->device.threads);
    }
    free(pixels);
    free(ids);
    return r;
}

int main(int argc, char **argv)
{
    Bench b = {.options = {.side = 256, .batch = 1},
               .device = {.kind = DEVICE_CPU, .threads = 2, .type = DATA_F32}};
    Error err = ERROR_INIT;
    Device *device = NULL;
    int r = parse(argc, argv, &b);
    if (r < 0) {
        (void)fprintf(stderr, "bench-encoder: a bad argument; its source says what there is\n");
        return 2;
    }
    r = device_open(&b.device, &device, &err);
    if (r == 0 && b.decode) {
        r = decode_file(&b, device, &err);
    } else if (r == 0) {
        r = encoder_open(device, &b.options, &b.encoder, &err);
        if (r == 0)
            r = size_buffers(&b);
        if (r == 0)
            r = b.write ? write_results(&b, &err) : 0;
        if (r == 0 && b.steps > 0)
            r = measure(&b, &err);
    }
    if (r < 0)
        (void)fprintf(stderr, "bench-encoder: %s\n", err.text);
    (void)encoder_free(b.encoder);
    (void)device_free(device);
    free(b.latents);
    free(b.text_out);
    return r < 0 ? 1 : 0;
}
