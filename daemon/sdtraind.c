/* sdtraind.c - the program: registers this node, hosts the ranks that the leader gives it. */
#include "base/fault.h"
#include "base/log.h"
#include "daemon/manager.h"

#include <malloc.h>
#include <signal.h>

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

static int check_config(const ConfigCall *call, Error *err)
{
    _cleanup_(config_clear) Config config = {0};
    int r = config_load(call, &config, err);
    if (r == 0)
        printf("%s: good\n", call->file ? call->file : "command line");
    return r;
}

static int probe(const ConfigCall *call, Error *err)
{
    _cleanup_(config_clear) Config config = {0};
    int r = probes_is_child() ? 0 : config_load(call, &config, err);
    return r < 0 ? r : probes_run_one(&config, call->probe, err);
}

static int serve(const ConfigCall *call, Error *err)
{
    /* gRPC's threads would each take an arena of their own */
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    block_signals();
    _cleanup_(manager_freep) Manager *m = NULL;
    int r = manager_new(call, &m, err);
    return r < 0 ? r : manager_run(m, err);
}

int main(int argc, char *argv[])
{
    log_open("sdtraind");
    Error err = ERROR_INIT;
    _cleanup_(config_call_clear) ConfigCall call = {0};
    int r = fault_open(&err);
    if (r == 0)
        r = config_parse_arguments(argc, argv, &call, &err);
    if (r == -ECANCELED)
        return 0;
    if (r < 0) {
        log_error("%s", err.text);
        return 2;
    }
    r = call.check   ? check_config(&call, &err)
        : call.probe ? probe(&call, &err)
                     : serve(&call, &err);
    if (r < 0)
        log_error("%s", err.text);
    return r < 0 ? 1 : 0;
}
