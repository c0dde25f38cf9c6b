/* SPDX-License-Identifier: Apache-2.0 */
/* sdcontroller.c - the program: settings, signals, loop. */
#include "base/fault.h"
#include "base/log.h"
#include "controller/alerting/alerts-file.h"
#include "controller/config/config.h"
#include "controller/manager.h"

#include <signal.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>

static int on_controller_signal(_unused_ sd_event_source *source, const struct signalfd_siginfo *si,
                                void *userdata)
{
    log_info("%s: leaving", strsignal((int)si->ssi_signo));
    manager_leave(userdata);
    return 0;
}

/* The data that the handler of a signal needs. */
typedef struct Program {
    const SettingsCall *call;
    ControllerConfig config;
    Controller *manager;
} Program;

static int on_reload(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *si,
                     void *userdata)
{
    Program *p = userdata;
    Error err = ERROR_INIT;
    ControllerConfig fresh;
    int r = config_load(p->call, &fresh, &err);
    if (r == 0) {
        config_reload(&p->config, &fresh);
        r = manager_reload(p->manager, &err);
    }
    if (r < 0)
        log_error("not reloaded: %s", err.text);
    else
        log_info("settings and alerts file read again");
    return 0;
}

static int add_signals(sd_event *event, Program *p, Error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < ELEMENTSOF(numbers); i++) {
        int r = sd_event_add_signal(event, NULL, numbers[i], on_controller_signal, p->manager);
        if (r < 0)
            return error_errno(err, r, "cannot handle signals");
    }
    int r = sd_event_add_signal(event, NULL, SIGHUP, on_reload, p);
    if (r < 0)
        return error_errno(err, r, "cannot handle signals");
    return 0;
}

static int run(Program *p, Error *err)
{
    sd_event *event = NULL;
    int r = sd_event_default(&event);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    r = sd_event_set_watchdog(event, true);
    if (r >= 0)
        r = manager_new(event, &p->config, &p->manager, err);
    if (r >= 0)
        r = add_signals(event, p, err);
    if (r >= 0)
        r = sd_event_loop(event);
    p->manager = manager_free(p->manager);
    event = sd_event_unref(event);
    return r;
}

/* Called before any thread exists, so that every thread inherits the blocked signals. */
static int block_signals(Error *err)
{
    sigset_t set;
    (void)sigemptyset(&set); /* these four calls cannot fail with valid numbers */
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return error_errno(err, -errno, "cannot block signals");
    return 0;
}

/* Checks the other files whose errors would prevent a start; the settings were checked before. */
static int check_files(const ControllerConfig *config, Error *err)
{
    AlertsFile file;
    int r = alerts_file_read(config->alerts_file, &file, err);
    if (r < 0)
        return error_prefix(err, r, "alerts_file");
    alerts_file_clear(&file);
    return 0;
}

int main(int argc, char *argv[])
{
    log_open("sdcontroller");
    log_use_journal(sd_journal_sendv);
    Error err = ERROR_INIT;
    _cleanup_(settings_call_clear) SettingsCall call = {0};
    Program p = {.call = &call};
    int r = config_parse_arguments(argc, argv, &call, &err);
    if (r == -ECANCELED)
        return EXIT_SUCCESS;
    if (r == 0)
        r = fault_open(&err);
    if (r == 0)
        r = config_load(&call, &p.config, &err);
    if (r == 0 && call.check)
        r = check_files(&p.config, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return 2;
    }
    if (call.check) {
        printf("the settings are good\n");
        return EXIT_SUCCESS;
    }
    r = block_signals(&err);
    if (r == 0)
        r = fault_open(&err);
    if (r == 0)
        r = run(&p, &err);
    if (r == -ERESTART) { /* every descriptor is closed by execv() */
        (void)execv("/proc/self/exe", argv);
        r = error_errno(&err, -errno, "cannot begin anew");
    }
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    return r;
}
