/* SPDX-License-Identifier: Apache-2.0 */
/* order-verb.c - `sdtrainer order`: prints which samples a step trains, in which grain and on which rank. */
#include "base/log.h"
#include "data/dataset.h"
#include "protocol/exit-code.h"
#include "trainer/run.h"
#include "trainer/session/grain.h"
#include "trainer/state/update.h"

#include <getopt.h>
#include <stdlib.h>

static void help(void)
{
    printf("usage: sdtrainer order --job FILE --step N [--world W] [--noise K]\n\n"
           "Prints one line for each sample of step N (1 is the first): position, grain, rank that "
           "trains it in a\n"
           "world of W ranks (1 by default), timestep, whether its caption is dropped, stream, "
           "pass, sample. With --noise K also the first K numbers of the sample's noise, height by "
           "width by channel,\n"
           "as hexadecimal floats. docs/reference/order.md says how another program computes all "
           "of it.\n\n"
           "Examples:\n"
           "  sdtrainer order --job job.json --step 1 --world 4\n");
}

static int print_noise(Device *device, uint64_t seed, int64_t position, int64_t n, Error *err)
{
    _cleanup_free_ float *noise = calloc((size_t)n + 1, sizeof(*noise));
    if (!noise)
        return error_set(err, -ENOMEM, "out of memory");
    int r = draw_noise(device, seed, position, n, noise, err);
    for (int64_t i = 0; r == 0 && i < n; i++)
        printf("%s%a", i ? "," : "", (double)noise[i]);
    printf(" ");
    return r;
}

static int print_step(const Job *job, const Dataset *dataset, int64_t step, int world,
                      int64_t n_noise, Error *err)
{
    _cleanup_(device_freep) Device *device = NULL;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    int r = n_noise > 0 ? device_open(&options, &device, err) : 0;
    if (r < 0)
        return r;
    printf("position grain rank timestep caption stream pass sample %sname\n",
           n_noise > 0 ? "noise " : "");
    for (int rank = 0; rank < world; rank++) {
        int64_t first, n, share;
        grain_share(job->train.n_grains, rank, world, &first, &n, &share);
        for (int64_t i = first * job->train.grain; i < (first + n) * job->train.grain; i++) {
            int64_t position = (step - 1) * job->train.global_batch + i;
            OrderSample sample = order_at(dataset_order(dataset), position);
            char name[160];
            bool drop = draw_caption_drop(job->train.seed, position, job->train.caption_drop);
            printf("%lld %lld %d %d %s %d %lld %lld ", (long long)position,
                   (long long)(i / job->train.grain), rank,
                   draw_timestep(job->train.seed, position, job->train.noise_schedule.steps),
                   drop ? "dropped" : "kept", sample.stream, (long long)sample.pass,
                   (long long)sample.sample);
            if (n_noise > 0)
                r = print_noise(device, job->train.seed, position, n_noise, err);
            if (r < 0)
                return r;
            printf("%s\n", dataset_sample_name(dataset, sample, name, sizeof(name)));
        }
    }
    return 0;
}

static int64_t count_of(const char *text)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    return *end || end == text ? -1 : v;
}

int verb_order(int argc, char **argv)
{
    static const struct option options[] = {{"job", required_argument, NULL, 'j'},
                                            {"step", required_argument, NULL, 's'},
                                            {"world", required_argument, NULL, 'w'},
                                            {"noise", required_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *path = NULL;
    int64_t step = -1, world = 1, n_noise = 0;
    for (int c; (c = getopt_long(argc, argv, "j:s:w:h", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            path = optarg;
            break;
        case 's':
            step = count_of(optarg);
            break;
        case 'w':
            world = count_of(optarg);
            break;
        case 'n':
            n_noise = count_of(optarg);
            break;
        case 'h':
            help();
            return 0;
        default:
            return 2;
        }
    }
    if (!path || step < 1 || world < 1 || n_noise < 0) {
        fprintf(stderr,
                "sdtrainer order: --job FILE and --step N (1 or more) are needed; --world W "
                "and --noise K are numbers\n");
        return 2;
    }

    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    _cleanup_(dataset_freep) Dataset *dataset = NULL;
    int r = job_read_file(path, &job, &err);
    if (r == 0 && world > job->train.n_grains)
        r = error_set(&err, -EINVAL, "--world %lld is more than the %lld grains of a step",
                      (long long)world, (long long)job->train.n_grains);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_NEVER_RETRY;
    }
    r = dataset_open(job, &dataset, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return r == -EINVAL ? EXIT_NEVER_RETRY : EXIT_DATA_CORRUPT;
    }
    const DatasetShape *shape = dataset_shape(dataset);
    n_noise = MIN(n_noise, (int64_t)shape->channels * shape->height * shape->width);
    r = print_step(job, dataset, step, (int)world, n_noise, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_RETRY;
    }
    return 0;
}
