/* SPDX-License-Identifier: Apache-2.0 */
/* sample-options.c - see sample-options.h. */
#include "trainer/sample/sample-options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16 };

static void help(void)
{
    printf("usage: sdtrainer sample --job FILE --out GRID.png [OPTIONS]\n\n"
           "Draws images from the newest checkpoint under the job's checkpoint.uri: its EMA "
           "weights once the EMA has\n"
           "started, else its weights. Captions are the dataset's first ones.\n\n"
           "  --samples N      how many (16, or as many as there are captions)\n"
           "  --steps N        DDIM steps (25)\n"
           "  --guidance G     classifier-free guidance (3)\n"
           "  --seed N         of the starting noise (1)\n"
           "  --model FOLDER   a diffusers folder, as path or URI: its VAE decodes, and its "
           "tokenizer and text encoder\n"
           "                   read captions; without it the codec and the hashed embedding of "
           "sdprep openclipart do\n"
           "  --caption TEXT   this caption instead; may be given again, images take them in turn\n"
           "  --pictures FILE  also: the data's own first pictures, as many, decoded likewise from "
           "their "
           "latents\n"
           "  --from MANIFEST  another checkpoint\n\n"
           "Examples:\n"
           "  sdtrainer sample --job job.json --out grid.png --samples 9\n"
           "  sdtrainer sample --job job.json --out fox.png --model /models/sd2 --caption 'a red "
           "fox'\n");
}

static bool take_caption(SampleOptions *o)
{
    if (o->grid.n_captions == SAMPLES_MAX) {
        fprintf(stderr, "sdtrainer sample: more than %d captions\n", SAMPLES_MAX);
        return false;
    }
    o->captions[o->grid.n_captions++] = optarg;
    return true;
}

static bool check(const SampleOptions *o)
{
    if (!o->job || !o->out || o->grid.samples < 1 || o->grid.samples > SAMPLES_MAX ||
        o->grid.steps < 1) {
        fprintf(stderr,
                "sdtrainer sample: --job FILE and --out FILE are needed; --samples 1..%d, --steps "
                "1 or more\n",
                SAMPLES_MAX);
        return false;
    }
    if (o->pictures && strcmp(o->pictures, o->out) == 0) {
        fprintf(stderr, "sdtrainer sample: --pictures %s: --out is the same file\n", o->pictures);
        return false;
    }
    if (o->grid.samples < o->grid.n_captions) {
        fprintf(stderr, "sdtrainer sample: --samples %d are fewer than the %d captions\n",
                o->grid.samples, o->grid.n_captions);
        return false;
    }
    return true;
}

bool sample_options_parse(int argc, char **argv, SampleOptions *o, int *ret_exit)
{
    static const struct option options[] = {
        {"job", required_argument, NULL, 'j'},      {"out", required_argument, NULL, 'o'},
        {"samples", required_argument, NULL, 'n'},  {"steps", required_argument, NULL, 's'},
        {"guidance", required_argument, NULL, 'g'}, {"seed", required_argument, NULL, 'S'},
        {"model", required_argument, NULL, 'm'},    {"caption", required_argument, NULL, 'c'},
        {"pictures", required_argument, NULL, 'p'}, {"from", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    bool counted = false;
    *o = (SampleOptions){.grid = {.samples = SAMPLES, .steps = 25, .guidance = 3, .seed = 1}};
    o->grid.captions = o->captions;
    *ret_exit = 2;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            o->job = optarg;
            break;
        case 'o':
            o->out = optarg;
            break;
        case 'n':
            o->grid.samples = atoi(optarg);
            counted = true;
            break;
        case 's':
            o->grid.steps = atoi(optarg);
            break;
        case 'g':
            o->grid.guidance = atof(optarg);
            break;
        case 'S':
            o->grid.seed = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            o->grid.model = optarg;
            break;
        case 'c':
            if (!take_caption(o))
                return false;
            break;
        case 'f':
            o->from = optarg;
            break;
        case 'p':
            o->pictures = optarg;
            break;
        case 'h':
            help();
            *ret_exit = 0;
            return false;
        default:
            return false;
        }
    }
    if (!counted)
        o->grid.samples = MAX(o->grid.samples, o->grid.n_captions);
    return check(o);
}
