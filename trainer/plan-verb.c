/* SPDX-License-Identifier: Apache-2.0 */
/* plan-verb.c - `sdtrainer plan`: what a rank of a job will need of memory. */
#include "base/log.h"
#include "protocol/exit-code.h"
#include "store/store.h"
#include "trainer/data/dataset-look.h"
#include "trainer/plan/memory-plan.h"
#include "trainer/run.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>

static void help(void)
{
    printf(
        "usage: sdtrainer plan --job FILE [--ranks N]\n\n"
        "Prints what a rank needs of memory, by use and in all, as the only one of its world and "
        "as one of N\n"
        "(world.max by default; of those that need most). It reads the job file, the network's "
        "config and what\n"
        "describes the data, and takes none of that memory. What is mapped from files, which the "
        "kernel may take\n"
        "back, is not in it.\n\n"
        "Exit codes: 0, 75 retry, 78 bad job, 83 store unreachable.\n");
}

static int print_plan(const Job *job, int n_ranks, ExitCode *code, Error *err)
{
    DatasetLook look;
    UnetConfig config;
    const int worlds[] = {1, n_ranks};
    MemoryPlan plans[ELEMENTSOF(worlds)];
    const size_t n = n_ranks > 1 ? 2 : 1;

    int r = dataset_look(job, &look, err);
    if (r == 0)
        r = unet_config_read(job->model.config_uri, store_get_uri, &config, err);
    if (r < 0) {
        *code = exit_code_of_store(exit_errno_of_named(r));
        return r;
    }
    *code = EXIT_NEVER_RETRY;
    if (!look.sides_known)
        return error_set(err, -ENOTSUP,
                         "data.streams: only a sample of a large compressed shard tells the sides "
                         "of its latents, on which memory depends");
    r = shapes_check(job, &config, &look.shape, job->train.grain, err);
    const MemoryData data = {.compressed = look.compressed, .n_samples = look.n_samples};
    if (r == 0)
        r = memory_plan_worlds(job, &config, &look.shape, &data, worlds, n, plans, err);
    if (r == 0)
        memory_print(stdout, plans, n);
    return r;
}

static int run_plan(const char *path, int n_ranks)
{
    Error err = ERROR_INIT;
    ExitCode code = EXIT_NEVER_RETRY;
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_read_file(path, &job, &err);
    if (r == 0 && n_ranks > job->train.n_grains)
        r = error_set(&err, -EINVAL, "--ranks %d is more than the %lld grains of a step", n_ranks,
                      (long long)job->train.n_grains);
    if (r == 0)
        r = print_plan(job, n_ranks ? n_ranks : job->world.max, &code, &err);
    if (r < 0)
        log_error("%s", err.text);
    return r < 0 ? (int)code : EXIT_DONE;
}

int verb_plan(int argc, char **argv)
{
    static const struct option options[] = {{"job", required_argument, NULL, 'j'},
                                            {"ranks", required_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *path = NULL, *ranks = NULL;
    char *end = NULL;
    for (int c; (c = getopt_long(argc, argv, "j:r:h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'j' && c != 'r')
            return 2;
        *(c == 'j' ? &path : &ranks) = optarg;
    }
    const long n_ranks = ranks ? strtol(ranks, &end, 10) : 0;
    if (!path || optind < argc || (ranks && (*end || end == ranks || n_ranks < 1)) ||
        n_ranks > INT_MAX) {
        fprintf(stderr, "sdtrainer plan: --job FILE is needed; --ranks N is 1 or more\n");
        return 2;
    }
    return run_plan(path, (int)n_ranks);
}
