/* SPDX-License-Identifier: Apache-2.0 */
/* doctor-verb.c - `sdtrainer doctor`: prints what a rank would find on this machine, as one line of JSON.
 *
 * sdtraind runs it on a request of `sdctl doctor`, with the user, the environment and the limits of its ranks: ranks
 * may read and write what this program may read and write. */
#include "base/clock.h"
#include "base/json/json-build.h"
#include "base/json/json.h"
#include "protocol/channel.h"
#include "protocol/paths.h"
#include "store/access-check.h"
#include "trainer/exec-check.h"
#include "trainer/reachability.h"
#include "trainer/run.h"

#include <getopt.h>
#include <pwd.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

enum { ERROR_TEXT_MAX = 160 };

static void help(void)
{
    printf(
        "usage: sdtrainer doctor [--write URI] [--read URI] [--marker NAME] [--peer ADDRESS] "
        "[--cgroup FOLDER]\n"
        "                        [--runner FILE [--exec-user NAME --exec-socket PATH] [--exec-secrets FILE]]\n\n"
        "Prints what a rank finds on this machine as one line of JSON: user, limits, /dev/shm, "
        "clock, and\n"
        "whether stores can be used. sdtraind runs it when sdctl doctor asks.\n\n"
        "      --write URI      must take an object, give it back and delete it; again: others\n"
        "      --read URI       must have an index.json; again: others\n"
        "      --marker NAME    an object that the last named URI should have\n"
        "      --peer ADDRESS   another node, to which ranks connect; again: others\n"
        "      --cgroup FOLDER  where sdtraind puts its ranks, for the report\n"
        "      --runner FILE    sdtrain-exec, which says what programs of jobs would find\n"
        "      --exec-user NAME, --exec-socket PATH, --exec-secrets FILE\n"
        "                       sdtraind's settings of these names\n");
}

static int take_store(StoreTry *tries, size_t *n, const char *uri, bool write)
{
    if (*n == STORE_TRIES_MAX || strlen(uri) >= sizeof(tries->uri))
        return -E2BIG;
    StoreTry *t = &tries[(*n)++];
    *t = (StoreTry){.kind = write ? STORE_TRY_WRITE : STORE_TRY_READ};
    (void)snprintf(t->uri, sizeof(t->uri), "%s", uri);
    return 0;
}

typedef struct Look {
    StoreTry tries[STORE_TRIES_MAX];
    Reach peers[REACH_MAX];
    size_t n_tries, n_peers;
    const char *cgroup;
    ExecCheck programs;
} Look;

/* Returns -1 to continue, otherwise the exit code. */
static int parse(int argc, char **argv, Look *ret)
{
    static const struct option options[] = {{"write", required_argument, NULL, 'w'},
                                            {"read", required_argument, NULL, 'r'},
                                            {"marker", required_argument, NULL, 'm'},
                                            {"peer", required_argument, NULL, 'p'},
                                            {"cgroup", required_argument, NULL, 'c'},
                                            {"runner", required_argument, NULL, 'e'},
                                            {"exec-user", required_argument, NULL, 'u'},
                                            {"exec-socket", required_argument, NULL, 's'},
                                            {"exec-secrets", required_argument, NULL, 'x'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int r = 0;
    *ret = (Look){.cgroup = ""};
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        StoreTry *last = ret->n_tries ? &ret->tries[ret->n_tries - 1] : NULL;
        if (c == 'h') {
            help();
            return 0;
        }
        if (c == 'w' || c == 'r')
            r = take_store(ret->tries, &ret->n_tries, optarg, c == 'w');
        else if (c == 'm' && last && strlen(optarg) < sizeof(last->marker))
            (void)snprintf(last->marker, sizeof(last->marker), "%s", optarg);
        else if (c == 'p' && ret->n_peers < REACH_MAX)
            ret->peers[ret->n_peers++].address = optarg;
        else if (c == 'c')
            ret->cgroup = optarg;
        else if (c == 'e')
            ret->programs.runner = optarg;
        else if (c == 'u')
            ret->programs.user = optarg;
        else if (c == 's')
            ret->programs.socket = optarg;
        else if (c == 'x')
            ret->programs.secrets = optarg;
        else
            r = -EINVAL;
        if (r < 0)
            break;
    }
    if (r == 0 && optind == argc)
        return -1;
    fprintf(stderr, "sdtrainer: doctor: %s; see sdtrainer doctor --help\n",
            r == -E2BIG ? "too many URIs, or too long a one" : "that is not an option here");
    return 2;
}

/* Tries the stores, except those that the node's administrator does not allow a job. */
static void try_stores(StoreTry *tries, size_t n)
{
    StoreTry allowed[STORE_TRIES_MAX];
    size_t n_allowed = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        tries[i].error = ERROR_INIT;
        tries[i].r = paths_check_uri(tries[i].uri, tries[i].kind == STORE_TRY_WRITE,
                                     getenv(PATHS_READ_VARIABLE), getenv(PATHS_WRITE_VARIABLE),
                                     &tries[i].error);
        if (tries[i].r == 0)
            allowed[n_allowed++] = tries[i];
    }
    store_try_all(allowed, n_allowed, STORE_TRY_SEC * USEC_PER_SEC);
    for (size_t i = 0; i < n; i++)
        if (tries[i].r == 0)
            tries[i] = allowed[k++];
    assert(k == n_allowed);
}

static json_t *stores_json(const StoreTry *tries, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        const StoreTry *t = &tries[i];
        char words[ERROR_TEXT_MAX + 1];
        json_t *text = json_string(t->r < 0 ? store_try_words(t, ERROR_TEXT_MAX, words) : "");
        json_array_append_new(all, json_pack("{s:i, s:o, s:I, s:b}", "r", t->r, "error",
                                             text ? text : json_string("its text is not UTF-8"),
                                             "took_usec", (json_int_t)t->took_usec, "lacks_marker",
                                             t->lacks_marker));
    }
    return all;
}

/* Lists for each peer the microseconds that reaching it took, or -errno. */
static json_t *peers_json(const Reach *peers, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_integer(peers[i].r < 0 ? peers[i].r
                                                               : (json_int_t)peers[i].took_usec));
    return all;
}

int verb_doctor(int argc, char **argv)
{
    Look look;
    int code = parse(argc, argv, &look);
    if (code >= 0)
        return code;
    if (look.programs.runner)
        exec_check_begin(&look.programs);
    store_try_begin();
    reachability_check(look.peers, look.n_peers);
    try_stores(look.tries, look.n_tries);
    struct timex tx = {0};
    struct statvfs shm = {0};
    const bool told = adjtimex(&tx) >= 0;
    (void)statvfs("/dev/shm", &shm); /* if this fails, /dev/shm counts as 0 bytes */
    const struct passwd *user = getpwuid(geteuid());
    JsonBuild b = json_build();
    json_add_text(&b, "version", SDTRAIN_VERSION);
    json_add_int(&b, "uid", geteuid());
    json_add_text(&b, "user", user ? user->pw_name : "");
    json_add_int(&b, "at_usec", (int64_t)clock_realtime_usec());
    json_add_int(&b, "shm_bytes", (int64_t)((uint64_t)shm.f_bavail * shm.f_frsize));
    json_add_limit(&b, "memlock_bytes", RLIMIT_MEMLOCK);
    json_add_limit(&b, "nofile", RLIMIT_NOFILE);
    json_add_bool(&b, "synchronised", told && !(tx.status & STA_UNSYNC));
    json_add_text(&b, "cgroup", look.cgroup);
    json_add(&b, "stores", stores_json(look.tries, look.n_tries));
    json_add(&b, "peers", peers_json(look.peers, look.n_peers));
    if (look.programs.runner)
        json_add(&b, "programs", exec_check_end(&look.programs));
    _cleanup_json_ json_t *report = json_build_end(&b);
    _cleanup_free_ char *text = report ? json_dumps(report, JSON_COMPACT) : NULL;
    if (!text) {
        fprintf(stderr, "sdtrainer: doctor: a text is not UTF-8\n");
        return 1;
    }
    (void)puts(text);
    store_try_exit(0);
}
