/* sdtraind.c - the program: registers this node, hosts the ranks that the leader gives it. */
#include "base/fault.h"
#include "base/log.h"
#include "daemon/manager.h"

#include <malloc.h>
#include <signal.h>
#include <systemd/sd-journal.h>

/* Blocked before the first thread, so that every thread inherits it and the loop gets them all. */
static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); /* cannot fail with these arguments */
    (void)signal(SIGPIPE, SIG_IGN);
}

/* One probe, by hand or for the daemon: what it found goes to standard output, why it could not to
 * standard error, which the daemon reads too. */
static int probe(const ConfigCall *call, const DaemonConfig *config, Error *err)
{
    int r = probes_run_one(config, call->probe, err);
    if (r < 0)
        fprintf(stderr, "%s\n", err->text);
    return r < 0 ? 1 : 0;
}

static int serve(const ConfigCall *call, DaemonConfig *config, Error *err)
{
    /* gRPC's threads would each take an arena of their own */
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    block_signals();
    log_set_field("NODE", config->node);
    _cleanup_(manager_freep) Manager *m = NULL;
    int r = manager_new(call, config, &m, err);
    return r < 0 ? r : manager_run(m, err);
}

/* Another incarnation, which believes nothing that this one knew. The slots are empty, and every descriptor
 * of ours closes on the way. */
static int begin_anew(char *argv[], Error *err)
{
    (void)execv("/proc/self/exe", argv);
    return error_errno(err, -errno, "cannot begin anew");
}

int main(int argc, char *argv[])
{
    log_open("sdtraind");
    log_use_journal(sd_journal_sendv);
    Error err = ERROR_INIT;
    _cleanup_(config_call_clear) ConfigCall call = {0};
    _cleanup_(config_clear) DaemonConfig config = {0};
    int r = fault_open(&err);
    if (r == 0)
        r = config_parse_arguments(argc, argv, &call, &err);
    if (r == -ECANCELED)
        return 0;
    if (r == 0 && !(call.probe && probes_is_child())) /* whoever started it has read the settings */
        r = config_load(&call, &config, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return 2;
    }
    if (call.check) {
        printf("%s: good\n", call.file ? call.file : "command line");
        return 0;
    }
    if (call.probe)
        return probe(&call, &config, &err);
    r = serve(&call, &config, &err);
    if (r == -ERESTART)
        r = begin_anew(argv, &err);
    if (r < 0)
        log_error("%s", err.text);
    return r < 0 ? 1 : 0;
}
