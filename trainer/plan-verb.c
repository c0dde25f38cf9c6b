/* SPDX-License-Identifier: Apache-2.0 */
/* plan-verb.c - `sdtrainer plan`: prints how much memory a rank of a job will need, and makes the plans of its
 * operations on this machine's GPU. */
#include "base/file.h"
#include "base/log.h"
#include "data/dataset-look.h"
#include "protocol/exit-code.h"
#include "store/store.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/memory-plan.h"
#include "trainer/run.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/plan-set.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void help(void)
{
    printf(
        "usage: sdtrainer plan --job FILE [--ranks N] [--plans FILE [--from SET]]\n\n"
        "Prints what a rank needs of memory, by use and in all, as the only one of its world and "
        "as one of N\n"
        "(world.max by default; of those that need most). It reads the job file, the network's "
        "config and what\n"
        "describes the data, and takes none of that memory. What is mapped from files, which the "
        "kernel may take\n"
        "back, is not in it.\n\n"
        "With --plans it also tries the algorithms that the libraries of this machine's first GPU "
        "have for each\n"
        "operation of a bf16 job, and writes the fastest to FILE, which train.plans may name. Run "
        "it while nothing\n"
        "else uses the GPU. With --from it keeps all plans of the set SET, a file or URI, that was "
        "made on such a GPU\n"
        "with the same libraries, and tries algorithms only for what SET lacks: so one set serves "
        "jobs of several sizes.\n"
        "SET may be a checkpoint's manifest.json: the set that it was computed by, with which "
        "another job gets the same bits.\n"
        "If nobody has timed SET's plans (\"tuned\": false), FILE says so of all that it has.\n\n"
        "Examples:\n"
        "  sdtrainer plan --job job.json --ranks 8\n"
        "  sdtrainer plan --job job.json --plans plans.json\n"
        "  sdtrainer plan --job larger.json --plans both.json --from plans.json\n"
        "  sdtrainer plan --job job.json --plans again.json --from "
        "s3://bucket/run/step-0000001000-o1-g1-0a1b2c3d/manifest.json\n\n"
        "Exit codes: 0, 75 retry, 78 bad job, 80 GPU broken, 83 store unreachable, 85 no GPU or "
        "library.\n");
}

/* Checks that the result of tuning can be written, before tuning begins, since tuning takes minutes. */
static int check_target(const char *path, Error *err)
{
    char folder[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    (void)snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
                   slash ? path : ".");
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return error_set(err, -EISDIR, "--plans %s is a folder", path);
    return access(folder, W_OK) < 0
               ? error_errno(err, -errno, "--plans %s: cannot write to %s", path, folder)
               : 0;
}

static bool names_manifest(const char *uri)
{
    const char *slash = strrchr(uri, '/');
    return strcmp(slash ? slash + 1 : uri, "manifest.json") == 0;
}

/* Reads a checkpoint's plan set, verified as when a rank continues from the checkpoint. */
static int read_manifests(const char *uri, char **ret, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    int r = manifest_read_uri(uri, NULL, &store, &manifest, err);
    if (r == 0)
        r = checkpoint_restore_plans(store, NULL, manifest, ret, err);
    if (r == 0 && !*ret)
        r = error_set(err, -EINVAL, "its device had no plans");
    return r;
}

/* Keeps the plans of the set `from`; only missing plans are made. */
static int keep_plans(Device *device, const char *from, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = names_manifest(from) ? read_manifests(from, &text, err)
                                 : store_get_uri(from, DEVICE_PLANS_MAX, &text, NULL, err);
    ExitCode code = exit_code_of_store(exit_errno_of_named(r));
    if (r == 0) {
        r = device_use_plans(device, text, err);
        code = device_exit_code(r);
    }
    if (r < 0)
        (void)error_prefix(err, r, "--from %s", from); /* r is returned below */
    return error_set_exit(err, r, code);
}

/* Makes the plans. Making the object of an operation is enough: the object then tries the operation's algorithms. */
static int make_plans(const Job *job, const UnetConfig *config, const DatasetShape *data,
                      const char *path, const char *from, Error *err)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .threads = job->train.threads,
                                   .type = DATA_BF16,
                                   .tune = true};
    const NetworkShape shape = {.grain = (int)job->train.grain,
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens,
                                .backward = true};
    _cleanup_(device_freep) Device *device = NULL;
    _cleanup_free_ char *text = NULL;
    if (job->train.precision != PRECISION_BF16)
        return error_set(err, -EINVAL,
                         "only a job that computes in bf16 (train.precision) has plans");
    int r = check_target(path, err);
    if (r < 0)
        return r;
    r = device_open(&options, &device, err);
    if (r < 0)
        return error_set_exit(err, r, device_exit_code(r));
    if (from)
        r = keep_plans(device, from, err);
    if (r == 0)
        r = plan_set_make(device, config, &shape, &text, err);
    return r < 0 ? r : file_write(path, text, strlen(text), FILE_SYNC, err);
}

static int print_plan(const Job *job, int n_ranks, const char *plans_path, const char *from,
                      Error *err)
{
    DatasetLook look;
    UnetConfig config;
    const int worlds[] = {1, n_ranks};
    MemoryPlan plans[ELEMENTSOF(worlds)];
    const size_t n = n_ranks > 1 ? 2 : 1;

    int r = dataset_look(job, &look, err);
    if (r == 0)
        r = unet_config_read(job->model.config_uri, store_get_uri, &config, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(exit_errno_of_named(r)));
    if (!look.sides_known)
        return error_set(err, -ENOTSUP,
                         "data.streams: only a sample of a large compressed shard tells the sides "
                         "of its latents, on which memory depends");
    r = shapes_check(job, &config, &look.shape, job->train.grain, err);
    const MemoryData data = {.compressed = look.compressed,
                             .n_samples = look.n_samples,
                             .sizes = look.sizes};
    if (r == 0)
        r = memory_plan_worlds(job, &config, &look.shape, &data, worlds, n, plans, err);
    if (r < 0)
        return r;
    memory_print(stdout, plans, n);
    if (job->train.device == JOB_DEVICE_CUDA)
        printf("(as a CPU needs it, in fp32; what a GPU needs its ranks say when they start)\n");
    (void)fflush(stdout); /* the plan must be printed before the output of tuning */
    return plans_path ? make_plans(job, &config, &look.shape, plans_path, from, err) : 0;
}

static int run_plan(const char *path, int n_ranks, const char *plans_path, const char *from)
{
    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_read_file(path, &job, &err);
    if (r == 0 && n_ranks > job->train.n_grains)
        r = error_set(&err, -EINVAL, "--ranks %d is more than the %lld grains of a step", n_ranks,
                      (long long)job->train.n_grains);
    if (r == 0)
        r = print_plan(job, n_ranks ? n_ranks : job->world.max, plans_path, from, &err);
    if (r == 0)
        return EXIT_DONE;
    log_error("%s", err.text);
    (void)error_set_exit(&err, r, EXIT_NEVER_RETRY); /* error_set_exit() returns r */
    return err.exit;
}

int verb_plan(int argc, char **argv)
{
    static const struct option options[] = {{"job", required_argument, NULL, 'j'},
                                            {"ranks", required_argument, NULL, 'r'},
                                            {"plans", required_argument, NULL, 'p'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *path = NULL, *ranks = NULL, *plans_path = NULL, *from = NULL;
    char *end = NULL;
    for (int c; (c = getopt_long(argc, argv, "j:r:p:f:h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'j' && c != 'r' && c != 'p' && c != 'f')
            return 2;
        *(c == 'j' ? &path : c == 'r' ? &ranks : c == 'p' ? &plans_path : &from) = optarg;
    }
    const long n_ranks = ranks ? strtol(ranks, &end, 10) : 0;
    if (!path || optind < argc || (ranks && (*end || end == ranks || n_ranks < 1)) ||
        n_ranks > INT_MAX) {
        fprintf(stderr, "sdtrainer plan: --job FILE is needed; --ranks N is 1 or more\n");
        return 2;
    }
    if (from && !plans_path) {
        fprintf(stderr, "sdtrainer plan: --from SET is for --plans FILE, which is missing\n");
        return 2;
    }
    return run_plan(path, (int)n_ranks, plans_path, from);
}
