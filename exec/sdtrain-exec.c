/* SPDX-License-Identifier: Apache-2.0 */
/* sdtrain-exec.c - the program that hosts programs of others: runs the verb that follows the program's name. */
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/json/json-build.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/process/host-look.h"
#include "daemon/process/host.h"
#include "exec/runner.h"
#include "exec/try.h"
#include "exec/words.h"
#include "protocol/exec-variables.h"

#include <getopt.h>
#include <glob.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

enum { USAGE = 2 };

static int usage(FILE *to, int code)
{
    (void)fprintf(
        to, "usage: sdtrain-exec VERB [OPTIONS]\n\n"
            "  try      run a job of kind \"exec\" or \"eval\" on this machine, without a cluster\n"
            "  say      report KEY=VALUE from a script that a job runs\n"
            "  run      one rank under sdtraind, which starts it\n"
            "  host     one rank as another user than sdtraind, in a unit that systemd starts\n"
            "  look     what a program would find on this machine, for sdctl doctor\n"
            "\nsdtrain-exec VERB --help says more.\n");
    return code;
}

static void try_help(void)
{
    (void)printf(
        "usage: sdtrain-exec try FILE [--ranks N] [--env NAME]... [--secrets FILE] [--startup SECONDS]\n"
        "                        [--checkpoint URI [--step N]]\n\n"
        "Runs a job file of kind \"exec\" or \"eval\" on this machine, with the environment that a cluster\n"
        "would give its program. When a rank fails, all are ended, and the next generation starts from the\n"
        "checkpoint that was registered last, until recovery.max_failures_at_same_step is used up. SIGINT\n"
        "and SIGTERM ask the ranks to leave; once more kills them.\n\n"
        "  --ranks N        the size of the world; world.min by default\n"
        "  --env NAME       pass this variable on; a cluster passes what the nodes' trainer_environment has\n"
        "  --secrets FILE   lines NAME=VALUE, for exec.secrets\n"
        "  --startup SECONDS\n"
        "                   in which all ranks must be ready, setup included; 600 by default\n"
        "  --checkpoint URI the checkpoint to begin from; of kind \"eval\": to evaluate\n"
        "  --step N         its step; 0 by default\n\n"
        "Examples:\n"
        "  sdtrain-exec try job.json --ranks 2\n\n"
        "Exit codes: 0 finished or left, 130 interrupted, otherwise that of the rank that failed.\n");
}

/* Writes the path of this program. */
static bool find_self(char *ret, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    if (n < 0) {
        (void)fprintf(stderr, "sdtrain-exec: /proc is not mounted\n");
        return false;
    }
    ret[n] = '\0';
    return true;
}

static int verb_try(int argc, char **argv)
{
    enum {
        OPTION_RANKS = 1000,
        OPTION_ENV,
        OPTION_SECRETS,
        OPTION_STARTUP,
        OPTION_CHECKPOINT,
        OPTION_STEP
    };
    static const struct option options[] = {{"ranks", required_argument, NULL, OPTION_RANKS},
                                            {"env", required_argument, NULL, OPTION_ENV},
                                            {"secrets", required_argument, NULL, OPTION_SECRETS},
                                            {"startup", required_argument, NULL, OPTION_STARTUP},
                                            {"checkpoint", required_argument, NULL,
                                             OPTION_CHECKPOINT},
                                            {"step", required_argument, NULL, OPTION_STEP},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    TryOptions o = {.startup_sec = TRY_STARTUP_SEC};
    char program[512];
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        char *end = NULL;
        long sec;
        switch (c) {
        case 'h':
            try_help();
            return 0;
        case OPTION_STARTUP:
            sec = strtol(optarg, &end, 10);
            if (end == optarg || *end || sec < 1 || sec > INT_MAX) {
                (void)fprintf(stderr,
                              "sdtrain-exec try: --startup %s: expected seconds, 1 or more\n",
                              optarg);
                return USAGE;
            }
            o.startup_sec = (int)sec;
            break;
        case OPTION_RANKS:
            o.n_ranks = (int)strtol(optarg, &end, 10);
            if (end == optarg || *end || o.n_ranks < 1) {
                (void)fprintf(stderr, "sdtrain-exec try: --ranks %s: expected a number, 1 to %d\n",
                              optarg, TRY_RANKS_MAX);
                return USAGE;
            }
            break;
        case OPTION_ENV:
            if (o.n_environment == TRY_ENVIRONMENT_MAX) {
                (void)fprintf(stderr, "sdtrain-exec try: more than %d times --env\n",
                              TRY_ENVIRONMENT_MAX);
                return USAGE;
            }
            o.environment[o.n_environment++] = optarg;
            break;
        case OPTION_SECRETS:
            o.secrets = optarg;
            break;
        case OPTION_CHECKPOINT:
            o.checkpoint = optarg;
            break;
        case OPTION_STEP:
            o.step = strtoll(optarg, &end, 10);
            if (end == optarg || *end || o.step < 0) {
                (void)fprintf(stderr, "sdtrain-exec try: --step %s: expected a number of steps\n",
                              optarg);
                return USAGE;
            }
            break;
        default:
            return USAGE;
        }
    }
    if (optind != argc - 1) {
        (void)fprintf(stderr, "sdtrain-exec try: one job file is expected\n");
        return USAGE;
    }
    if (o.step > 0 && !o.checkpoint) {
        (void)fprintf(stderr, "sdtrain-exec try: --step needs --checkpoint\n");
        return USAGE;
    }
    o.file = argv[optind];
    return find_self(program, sizeof(program)) ? try_run(&o, program) : 1;
}

/* ---- look ---- */

/* Adds the devices of the pattern that this user cannot open. */
static void add_closed(json_t *list, const char *pattern)
{
    _cleanup_(globfree) glob_t found = {0};
    if (glob(pattern, 0, NULL, &found) != 0)
        return; /* there is none */
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (access(found.gl_pathv[i], R_OK | W_OK) < 0)
            json_array_append_new(list, json_string(found.gl_pathv[i]));
}

static int print_look(void)
{
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/nvidia-uvm",
                                          "/dev/infiniband/uverbs*"};
    const char *secrets = getenv(EXEC_SECRETS_VARIABLE);
    const bool no_secrets = secrets && access(secrets, R_OK) < 0 && errno != ENOENT;
    const struct passwd *user = getpwuid(geteuid());
    JsonBuild b = json_build();
    json_add_int(&b, "uid", geteuid());
    json_add_text(&b, "user", user ? user->pw_name : "");
    json_add_limit(&b, "memlock_bytes", RLIMIT_MEMLOCK);
    json_add_limit(&b, "nofile", RLIMIT_NOFILE);
    if (no_secrets)
        json_add_text(&b, "closed_secrets", secrets);
    json_t *closed = json_array();
    for (size_t i = 0; i < ELEMENTSOF(devices); i++)
        add_closed(closed, devices[i]);
    json_add(&b, "closed_devices", closed);
    _cleanup_json_ json_t *report = json_build_end(&b);
    _cleanup_free_ char *text = report ? json_dumps(report, JSON_COMPACT) : NULL;
    return text && puts(text) >= 0 && fflush(stdout) == 0 ? 0 : 1;
}

static int look_by_host(const char *path, const char *name, char *secrets)
{
    char *environment[] = {(char[]){EXEC_LOOK_VARIABLE "=1"}, secrets, NULL};
    char text[HOST_LOOK_MAX];
    Error err = ERROR_INIT;
    const struct passwd *user = getpwnam(name);
    int r = user ? host_look(path, user->pw_uid, environment, text, &err)
                 : error_set(&err, -EINVAL, "%s is not a user of this machine", name);
    if (r < 0) {
        (void)fprintf(stderr, "sdtrain-exec look: %s\n", err.text);
        return 1;
    }
    return fputs(text, stdout) >= 0 ? 0 : 1;
}

static int verb_look(int argc, char **argv)
{
    enum { OPTION_SOCKET = 1000, OPTION_USER, OPTION_SECRETS };
    static const struct option options[] = {{"socket", required_argument, NULL, OPTION_SOCKET},
                                            {"user", required_argument, NULL, OPTION_USER},
                                            {"secrets", required_argument, NULL, OPTION_SECRETS},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *path = NULL, *user = NULL;
    _cleanup_free_ char *secrets = NULL;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (c) {
        case 'h':
            (void)printf(
                "usage: sdtrain-exec look [--socket PATH --user NAME] [--secrets FILE]\n\n"
                "Prints what a program of a job would find on this machine, as one line of JSON: user, limits,\n"
                "devices of GPUs and RDMA that it cannot open, and whether it can read the secrets.\n\n"
                "  --socket PATH    look from a unit of this socket, as sdtraind starts programs with exec_user\n"
                "  --user NAME      the user as whom that unit must run\n"
                "  --secrets FILE   the node's exec_secrets\n");
            return 0;
        case OPTION_SOCKET:
            path = optarg;
            break;
        case OPTION_USER:
            user = optarg;
            break;
        case OPTION_SECRETS:
            free(secrets);
            secrets = memory_format("%s=%s", EXEC_SECRETS_VARIABLE, optarg);
            break;
        default:
            return USAGE;
        }
    if (optind != argc || !path != !user) {
        (void)fprintf(stderr,
                      "sdtrain-exec look: --socket and --user belong together; see --help\n");
        return USAGE;
    }
    if (path)
        return look_by_host(path, user, secrets);
    if (secrets && setenv(EXEC_SECRETS_VARIABLE, strchr(secrets, '=') + 1, 1) < 0)
        return 1;
    return print_look();
}

static int verb_run(int argc, char **argv)
{
    extern char **environ;
    if (argc > 1) {
        (void)printf(
            "usage: sdtrain-exec run\n\n"
            "One rank of a job of kind \"exec\": receives its job over SDTRAIN_CHANNEL, starts the program when the\n"
            "world may go, passes its output and reports on, and ends with it. sdtraind and\n"
            "sdtrain-exec try start it.\n");
        return strcmp(argv[1], "--help") == 0 ? 0 : USAGE;
    }
    if (getenv(EXEC_LOOK_VARIABLE))
        return print_look();
    const char *channel = getenv("SDTRAIN_CHANNEL");
    if (!channel) {
        (void)fprintf(stderr,
                      "sdtrain-exec run: sdtraind starts it; sdtrain-exec try runs a job here\n");
        return USAGE;
    }
    return runner_run(atoi(channel), environ);
}

static int verb_host(int argc, char **argv)
{
    char self[512];
    _cleanup_free_ char *folder = NULL;
    const char *state = getenv("STATE_DIRECTORY");
    if (argc > 1) {
        (void)printf(
            "usage: sdtrain-exec host\n\n"
            "One rank of a job of kind \"exec\" as another user than sdtraind: systemd starts it in a unit of its own\n"
            "for each connection of sdtraind to a socket unit with Accept=yes. It starts the rank there, and ends it\n"
            "when the connection ends. The rank's files lie in the unit's StateDirectory=.\n");
        return strcmp(argv[1], "--help") == 0 ? 0 : USAGE;
    }
    if (sd_listen_fds(1) != 1) {
        (void)fprintf(stderr,
                      "sdtrain-exec host: a socket unit of systemd starts it, with Accept=yes\n");
        return USAGE;
    }
    if (!find_self(self, sizeof(self)))
        return 1;
    if (state)
        folder = memory_format("%s=%s", EXEC_DIR_VARIABLE, state);
    char *program[] = {self, (char[]){"run"}, NULL};
    return host_run(SD_LISTEN_FDS_START, program, folder);
}

static int send_packet(const char *path, const char *packet, Error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "SDTRAIN_SOCKET: %s: too long", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        send(fd, packet, strlen(packet), MSG_NOSIGNAL) < 0)
        return error_errno(err, -errno, "SDTRAIN_SOCKET: %s", path);
    return 0;
}

static int verb_say(int argc, char **argv)
{
    char packet[EXEC_PACKET_MAX + 1];
    size_t n = 0;
    ExecReport ignored;
    Error err = ERROR_INIT;
    const char *path = getenv("SDTRAIN_SOCKET");
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        (void)printf(
            "usage: sdtrain-exec say KEY=VALUE...\n\n"
            "Reports to sdtrain what the program of a job does, from a shell script: READY=1, STEP=, LOSS=,\n"
            "GRAD_NORM=, LR=, SAMPLES=, STAGE=data|compute|collective|save, CHECKPOINT=URI (rank 0), STATUS=,\n"
            "WATCHDOG=1, EXTEND=SECONDS, FINISHED=1, POLLS=1; in an evaluation RESULT=NAME=NUMBER and\n"
            "ARTIFACT=NAME=URI (rank 0). Does nothing where SDTRAIN_SOCKET is not set.\n\n"
            "Examples:\n"
            "  sdtrain-exec say STEP=100 LOSS=0.25\n\n"
            "Exit codes: 0 sent, or nobody listens; 1 not sent; 2 usage.\n");
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        const int added = snprintf(packet + n, sizeof(packet) - n, "%s\n", argv[i]);
        if (added >= (int)(sizeof(packet) - n)) {
            (void)fprintf(stderr, "sdtrain-exec say: more than %d bytes\n", EXEC_PACKET_MAX);
            return 2;
        }
        n += (size_t)added;
    }
    if (n == 0) {
        (void)fprintf(stderr, "usage: sdtrain-exec say KEY=VALUE...\n");
        return 2;
    }
    if (exec_report_parse(packet, n, &ignored, &err) < 0) {
        (void)fprintf(stderr, "sdtrain-exec say: %s\n", err.text);
        return 2;
    }
    if (path && send_packet(path, packet, &err) < 0) {
        (void)fprintf(stderr, "sdtrain-exec say: %s\n", err.text);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    log_open("sdtrain-exec");
    (void)prctl(PR_SET_NAME,
                "sdtrain-exec");    /* sdtraind executes a descriptor, which has no name */
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for SIGPIPE */
    Error err = ERROR_INIT;
    if (fault_open(&err) < 0) {
        log_error("%s", err.text);
        return USAGE;
    }
    if (argc < 2)
        return usage(stderr, USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return usage(stdout, 0);
    if (strcmp(argv[1], "run") == 0)
        return verb_run(argc - 1, argv + 1);
    if (strcmp(argv[1], "try") == 0)
        return verb_try(argc - 1, argv + 1);
    if (strcmp(argv[1], "say") == 0)
        return verb_say(argc - 1, argv + 1);
    if (strcmp(argv[1], "host") == 0)
        return verb_host(argc - 1, argv + 1);
    if (strcmp(argv[1], "look") == 0)
        return verb_look(argc - 1, argv + 1);
    (void)fprintf(stderr, "sdtrain-exec: %s is not a verb\n\n", argv[1]);
    return usage(stderr, USAGE);
}
