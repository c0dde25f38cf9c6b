/* SPDX-License-Identifier: Apache-2.0 */
/* bench-pictures.c - measures the time of a picture in a decoder process, from its bytes to the square's RGB bytes.
 *
 *     bench-pictures FILE [--resample bilinear|bicubic] [--side 256] [--steps 20] [--threads 1] [--paced]
 *
 * Prints one line of JSON with milliseconds per picture; ops/pillow_pictures.py measures the same with Pillow. A step
 * is ten pictures, requested one after the other, so that none is decoded ahead. With --paced it prints that it is
 * ready; then each step waits for a line on standard input and prints its milliseconds per picture. --threads is
 * ignored: one thread is used. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "encoders/pictures/pictures.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 1000, PICTURES_A_STEP = 10 };

typedef struct Bench {
    PicturesOptions options;
    const char *path;
    int steps;
    bool paced;
} Bench;

static int parse(int argc, char **argv, Bench *b)
{
    static const struct option names[] = {{"resample", required_argument, NULL, 'r'},
                                          {"side", required_argument, NULL, 's'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"threads", required_argument, NULL, 'j'},
                                          {"paced", no_argument, NULL, 'w'},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        if (c == 'r' && strcmp(optarg, "bicubic") == 0)
            b->options.recipe.resample = PICTURE_BICUBIC;
        else if (c == 's')
            b->options.recipe.side = atoi(optarg);
        else if (c == 'n')
            b->steps = CLAMP(atoi(optarg), 1, STEPS_MAX);
        else if (c == 'w')
            b->paced = true;
        else if (c == '?')
            return -EINVAL;
    }
    b->path = argv[optind];
    return b->path && optind + 1 == argc ? 0 : -EINVAL;
}

/* Returns 0 with the milliseconds per picture in *ret_msec, or a negative errno. */
static int run_step(Pictures *pictures, const char *data, size_t n_bytes, uint8_t *rgb,
                    double *ret_msec, Error *err)
{
    uint64_t begin = clock_boottime_usec();
    for (int i = 0; i < PICTURES_A_STEP; i++) {
        int r = pictures_request(pictures, data, n_bytes, err);
        if (r == 0)
            r = pictures_take(pictures, rgb, err);
        if (r != 0)
            return r < 0 ? r : -EBADMSG;
    }
    *ret_msec = (double)(clock_boottime_usec() - begin) / 1e3 / PICTURES_A_STEP;
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run(const Bench *b, Error *err)
{
    _cleanup_(pictures_freep) Pictures *pictures = NULL;
    _cleanup_free_ char *data = NULL;
    size_t n_bytes = 0, side = (size_t)b->options.recipe.side;
    double msec[STEPS_MAX];
    int r = file_read(b->path, PICTURE_FILE_BYTES_MAX, &data, &n_bytes, err);
    if (r == 0)
        r = pictures_open(&b->options, &pictures, err);
    _cleanup_free_ uint8_t *rgb = r == 0 ? malloc(side * side * 3) : NULL;
    if (!rgb)
        return r < 0 ? r : error_set(err, -ENOMEM, "out of memory");
    r = run_step(pictures, data, n_bytes, rgb, msec, err); /* this first step is a warm-up */
    if (r == 0 && b->paced) {
        (void)printf("ready\n");
        (void)fflush(stdout);
    }
    for (int i = 0; i < b->steps && r == 0; i++) {
        char line[16];
        if (b->paced && !fgets(line, sizeof(line), stdin))
            break;
        r = run_step(pictures, data, n_bytes, rgb, &msec[i], err);
        if (r == 0 && b->paced) {
            (void)printf("%.3f\n", msec[i]);
            (void)fflush(stdout);
        }
    }
    if (r < 0)
        return r;
    qsort(msec, (size_t)b->steps, sizeof(*msec), compare);
    (void)printf("{\"figure\": \"picture_%s\", \"value\": %.3f, \"unit\": \"ms\", \"min\": %.3f, "
                 "\"max\": %.3f, "
                 "\"runs\": %d, \"filter\": %d}\n",
                 picture_resample_name(b->options.recipe.resample), msec[b->steps / 2], msec[0],
                 msec[b->steps - 1], b->steps, pictures_filter(pictures));
    return 0;
}

int main(int argc, char **argv)
{
    pictures_child(argc, argv);
    Bench b = {.options = {.recipe = picture_recipe_default, .n_children = 1}, .steps = 20};
    Error err = ERROR_INIT;
    if (parse(argc, argv, &b) < 0) {
        (void)fprintf(stderr,
                      "bench-pictures: FILE [--resample NAME] [--side N] [--steps N] [--paced]\n");
        return 2;
    }
    int r = run(&b, &err);
    if (r < 0)
        (void)fprintf(stderr, "bench-pictures: %s\n", err.text);
    return r < 0;
}
