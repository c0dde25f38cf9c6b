/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - `sdtrainer run`: from the daemon's assignment, or a job file, to an exit code. */
#include "trainer/run.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text/secret.h"
#include "protocol/exit-code.h"
#include "trainer/evaluate/evaluate.h"
#include "trainer/loop.h"
#include "trainer/session/start-times.h"

#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    ASSIGN_SEC = 30,
    GO_SEC = 24 * 3600, /* the leader's start deadline ends the wait long before */
};

static void report_error(DaemonLink *link, const Session *s, int64_t generation, const Error *err)
{
    log_error("%s: %s", exit_code_class(err->exit), err->text);
    ChannelMessage m = {.type = CHANNEL_ERROR,
                        .generation = generation,
                        .exit_code = err->exit,
                        .stage = STAGE_STARTING};
    if (s && s->state)
        m.step = s->state->scalars.step;
    if (s) {
        m.unmet = s->unmet;
        m.stage = s->ended_in;
    }
    (void)snprintf(m.text, sizeof(m.text), "%s", err->text);
    (void)daemon_link_report(link, &m, NULL); /* a daemon that has ended needs no report */
}

static int report_ready(DaemonLink *link, const Session *s, Error *err)
{
    int r = 0;
    assert(!s->rendezvous || s->rank == 0);
    if (s->rendezvous) {
        ChannelMessage m = {.type = CHANNEL_RENDEZVOUS, .generation = s->generation};
        (void)snprintf(m.address, sizeof(m.address), "%s", rendezvous_address(s->rendezvous));
        r = daemon_link_report(link, &m, err);
    }
    ChannelMessage ready = {.type = CHANNEL_READY,
                            .generation = s->generation,
                            .step = s->state->scalars.step};
    daemon_link_stage(link, ready.step, STAGE_READY);
    return r < 0 ? r : daemon_link_report(link, &ready, err);
}

static int train(DaemonLink *link, const SessionAssignment *a, Session **s, Error *err)
{
    int r = session_open(link, a, s, err);
    if (r < 0)
        return r;
    start_part("restoring");
    r = report_ready(link, *s, err);
    if (r < 0)
        return r;
    char address[CHANNEL_ADDRESS_MAX] = "";
    r = daemon_link_wait_go(link, GO_SEC * USEC_PER_SEC, address, err);
    if (r < 0)
        return r;
    start_part("waiting");
    r = session_join(*s, address, a->assign->bind_address, err);
    if (r < 0)
        return r;
    start_part("joining");

    LoopResult result;
    r = loop_run(*s, &result, err);
    if (r < 0)
        return r;
    session_close_folder(*s);
    daemon_link_stage(link, result.step, STAGE_LEAVING);
    log_info("memory of rank %d of %d: at most %.1f MiB, planned %.1f MiB", (*s)->rank,
             (*s)->world_size, (double)memory_peak() / 0x1p20,
             (double)memory_total(&(*s)->memory) / 0x1p20);
    ChannelMessage done = {.type = CHANNEL_DONE,
                           .generation = a->generation,
                           .step = result.step,
                           .digest = result.digest};
    (void)snprintf(done.end, sizeof(done.end), "%s", result.finished ? "finished" : "left");
    char digest[HASH_TEXT_BYTES];
    log_info("%s at step %lld, digest %s STEP=%lld", done.end, (long long)result.step,
             hash_format(result.digest, digest), (long long)result.step);
    if (!daemon_link_is_daemon(link))
        printf("step=%lld digest=%s\n", (long long)result.step, digest);
    if (daemon_link_report(link, &done, err) < 0)
        log_warning("everything is done, and the daemon is not told: %s", err->text);
    return 0;
}

/* Returns whether the device still computed the grain that loop.c searched for non-finite numbers when the time for the
 * search was over. It may have ended since, but memory was kept for it. */
static bool was_cut(const Session *s)
{
    return s && s->ended_in == STAGE_LEAVING && s->work && grain_work_is_cut(s->work);
}

static int train_and_report(DaemonLink *link, const SessionAssignment *a)
{
    static _unused_ Session *volatile left; /* kept until exit; volatile, since no code reads it */
    _cleanup_(session_freep) Session *s = NULL;
    Error err = ERROR_INIT;
    int r = train(link, a, &s, &err);
    if (r == 0)
        return EXIT_DONE;
    (void)error_set_exit(&err, r, EXIT_RETRY); /* error_set_exit() returns r */
    assert(err.exit != EXIT_DONE);
    report_error(link, s, a->generation, &err);
    if (err.exit == EXIT_ABORTED)
        abort();
    if (err.exit == EXIT_DEVICE_FAULT || was_cut(s))
        left = TAKE_PTR(s); /* freeing it would wait for a device that hangs */
    return err.exit;
}

/* Moves the world's secret into memory that core files do not contain. *ret stays NULL if the world has no secret. */
static int take_secret(ChannelAssign *assign, uint8_t **ret, Error *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!*assign->secret)
        return 0;
    uint8_t *bytes = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return error_set(err, -ENOMEM, "no memory for the world's secret");
    /* a failure is ignored: the secret is erased after the start anyway */
    (void)madvise(bytes, page, MADV_DONTDUMP);
    bool good = secret_parse(assign->secret, bytes, COMM_SECRET_BYTES);
    explicit_bzero(assign->secret, sizeof(assign->secret));
    if (!good)
        return error_set(err, -EBADMSG,
                         "the daemon says a secret that is not %d hexadecimal digits",
                         2 * COMM_SECRET_BYTES);
    *ret = bytes; /* kept until exit */
    return 0;
}

static CheckpointClaim claim_of(const ChannelAssign *assign)
{
    if (*assign->takes_over)
        return (CheckpointClaim){.takes = OWNER_TAKES_ANY, .act = assign->takes_over};
    return (CheckpointClaim){.takes = assign->adopt ? OWNER_TAKES_ONCE : OWNER_TAKES_NONE};
}

static int run_under_daemon(int fd)
{
    Error err = ERROR_INIT;
    _cleanup_(daemon_link_freep) DaemonLink *link = NULL;
    ChannelMessage message = {0};
    ChannelAssign *assign = &message.assign;
    int r = daemon_link_open(fd, &link, &err);
    if (r == 0)
        r = daemon_link_wait_assign(link, ASSIGN_SEC * USEC_PER_SEC, &message, &err);
    uint8_t *secret = NULL;
    if (r == 0)
        r = take_secret(assign, &secret, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_RETRY;
    }

    char text[32];
    log_set_field("JOB", assign->job);
    (void)snprintf(text, sizeof(text), "%lld", (long long)message.generation);
    log_set_field("GENERATION", text);
    (void)snprintf(text, sizeof(text), "%d", assign->rank);
    log_set_field("RANK", text);
    if (evaluate_is_wanted(assign->spec)) {
        int code = evaluate_run(link, &message);
        channel_message_clear(&message);
        return code;
    }
    const SessionAssignment a = {.job_source = "the job's spec",
                                 .assign = assign,
                                 .generation = message.generation,
                                 .claim = claim_of(assign),
                                 .secret = secret};
    int code = train_and_report(link, &a);
    channel_message_clear(&message);
    return code;
}

/* Runs standalone, from the newest checkpoint under the job's URI that verifies. Each start is a new owner of the
 * folder and a new generation. */
static int run_standalone(const char *job_path, bool take_over)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    _cleanup_(daemon_link_freep) DaemonLink *link = NULL;
    ChannelAssign assign = {.world_size = 1, .bind_address = "127.0.0.1"};
    const SessionAssignment a = {.job_source = job_path,
                                 .assign = &assign,
                                 .alone = true,
                                 .claim = {.alone = true,
                                           .takes =
                                               take_over ? OWNER_TAKES_ANY : OWNER_TAKES_NONE}};
    int r = file_read(job_path, JOB_TEXT_MAX, &text, NULL, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_NEVER_RETRY;
    }
    r = hash_draw(assign.submission);
    if (r < 0)
        (void)error_errno(&err, r, "cannot draw this run's id"); /* logged below */
    if (r == 0)
        r = daemon_link_open(-1, &link, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_RETRY;
    }
    assign.spec = text;
    return train_and_report(link, &a);
}

static void help(void)
{
    printf(
        "usage: sdtrainer run --job FILE [--take-over]\n\n"
        "Trains the whole job in this process, on one rank, without a cluster; goes on from the "
        "newest\n"
        "checkpoint under checkpoint.uri that verifies, and says which it left aside. SIGINT and "
        "SIGTERM\n"
        "finish the step, save and leave. Under sdtraind (SDTRAIN_CHANNEL is set) it is one rank "
        "of "
        "a world\n"
        "and takes no option.\n\n"
        "  --take-over   the folder is another's, or was that of a run on S3 that was killed: go "
        "on there instead "
        "of "
        "it,\n"
        "                which ends when it wants to write again\n\n"
        "Examples:\n"
        "  sdtrainer run --job job.json\n\n"
        "Exit codes: 0 done or left, 75 retry, 78 bad job, 80 device fault, 81 peer lost, 82 data "
        "corrupt,\n"
        "83 store unreachable, 84 non-finite loss, 85 other numerics than the job's or no such "
        "device\n"
        "here, 86 the checkpoint folder is another's.\n");
}

int verb_run(int argc, char **argv)
{
    static const struct option options[] = {{"job", required_argument, NULL, 'j'},
                                            {"take-over", no_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *job = NULL;
    bool take_over = false;
    for (int c; (c = getopt_long(argc, argv, "j:h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'j' && c != 't')
            return 2;
        if (c == 't')
            take_over = true;
        else
            job = optarg;
    }

    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for SIGPIPE */
    const char *channel = getenv("SDTRAIN_CHANNEL");
    if (channel && !job)
        return run_under_daemon(atoi(channel));
    if (!job) {
        fprintf(stderr, "sdtrainer run: --job FILE is needed when no daemon runs it\n");
        return 2;
    }
    return run_standalone(job, take_over);
}
