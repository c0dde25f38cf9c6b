/* SPDX-License-Identifier: Apache-2.0 */
/* testing-program.c - see testing-program.h. */
#include "exec/test/testing-program.h"

#include "base/macro.h"
#include "exec/client/sdtrain-client.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int report_fd = -1;

static void report(const char *packet)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (report_fd < 0) {
        report_fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", getenv("SDTRAIN_SOCKET"));
        if (connect(report_fd, (struct sockaddr *)&a, sizeof(a)) < 0)
            _exit(99);
    }
    if (send(report_fd, packet, strlen(packet), 0) < 0)
        _exit(98);
}

/* Waits for a request that begins so. */
static void await(const char *words)
{
    char packet[200];
    ssize_t n;
    while ((n = recv(report_fd, packet, sizeof(packet) - 1, 0)) > 0) {
        packet[n] = '\0';
        if (strncmp(packet, words, strlen(words)) == 0)
            return;
    }
    _exit(97);
}

static volatile sig_atomic_t is_signalled;

static void on_term(_unused_ int number) { is_signalled = 1; }

static void on_usr1(_unused_ int number) { _exit(0); }

static void await_signal(void)
{
    while (!is_signalled)
        (void)usleep(1000);
}

static void touch(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, "x\n", 2) != 2)
        _exit(96);
    (void)close(fd);
}

static int do_end(void) { return 0; }

static int do_fail(void)
{
    printf("a first line\nKeyError: 'x'\n");
    return 1;
}

static int do_code(void) { return 3; }

static int do_kill(void)
{
    (void)kill(getpid(), SIGKILL);
    return 94;
}

static int do_steps(void)
{
    report("READY=1");
    report("STEP=1\nLOSS=0.5\nLR=2\nSAMPLES=4");
    await("SAVE=1"); /* the test has received the step */
    report("STAGE=collective");
    report("STEP=1\nLOSS=9"); /* a repeated step tells nothing */
    report("STEP=3\nLOSS=0.25\nSAMPLES=12");
    return 0;
}

/* It reports as fast as it can. */
static int do_flood(void)
{
    char packet[64];
    for (int i = 1; i <= 3000; i++) {
        (void)snprintf(packet, sizeof(packet), "STEP=%d\nSTATUS=step %d", i, i);
        report(packet);
    }
    report("CHECKPOINT=/elsewhere");
    await("REFUSED=3000"); /* the runner has read them all */
    touch("flooded");
    report("CHECKPOINT=/ckpt/flood");
    return 0;
}

/* It reports as often as each report is passed on. */
static int do_fill(void)
{
    char packet[64];
    for (int i = 1; i <= 8; i++) {
        (void)snprintf(packet, sizeof(packet), "STEP=%d", i);
        report(packet);
        (void)usleep(60000);
    }
    report("CHECKPOINT=/elsewhere");
    await("REFUSED=8");
    touch("filled");
    report("CHECKPOINT=/ckpt/full");
    return 0;
}

static int do_register(void)
{
    report("STEP=5\nCHECKPOINT=/elsewhere/a");
    await("REFUSED=5");
    report("STEP=5\nCHECKPOINT=/ckpt-of-another/a");
    await("REFUSED=5");
    report("STEP=6\nCHECKPOINT=/ckpt/../a");
    await("REFUSED=6");
    report("STEP=7\nCHECKPOINT=/ckpt/step-7");
    report("STEP=8\nCHECKPOINT=/ckpt/step-8");
    await("REFUSED=8"); /* the one before is not committed yet */
    await("HOLD=5,6\nCOMMITTED=7");
    report("STEP=9\nCHECKPOINT=/ckpt/step-9");
    await("REFUSED=9"); /* etcd has refused it */
    return 0;
}

static int do_evaluate(void)
{
    if (strcmp(getenv("SDTRAIN_CHECKPOINT"), "/ckpt/step-7") != 0 ||
        strcmp(getenv("SDTRAIN_STEP"), "7") != 0)
        return 1;
    report("STEP=2\nCHECKPOINT=/ckpt/step-8");
    await("REFUSED=2");
    await("LEAVE=");
    return 0;
}

static int do_results(void)
{
    report("RESULT=fid=12.5\nRESULT=clip=0.25\nARTIFACT=grid=/g/1.png\nSTATUS=40 images");
    report("RESULT=fid=11");
    return 0;
}

static int do_leave(void)
{
    report("STEP=4");
    await("LEAVE=");
    return 7; /* in a leave any end is a leave */
}

static int do_leave_well(void)
{
    (void)signal(SIGTERM, SIG_IGN); /* LEAVE is what it goes by */
    (void)do_leave();
    return 0; /* it has saved, and has not finished */
}

static int do_leave_by_signal(void)
{
    report("STATUS=here");
    (void)signal(SIGTERM, on_term);
    pid_t helper = fork();
    if (helper == 0) { /* a helper in the same group that SIGTERM would end */
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGUSR1, on_usr1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        report_fd = -1;
        touch("helper-waits");
        for (;;)
            (void)pause();
    }
    while (access("helper-waits", F_OK) < 0)
        (void)usleep(1000);
    report("STEP=1");
    await_signal();
    int status;
    (void)kill(helper, SIGUSR1); /* a SIGTERM that it got before ends it first */
    if (waitpid(helper, &status, 0) != helper || !WIFEXITED(status))
        return 95;
    touch("helper-lives");
    report("FINISHED=1");
    return 0;
}

static int do_stay(void)
{
    (void)signal(SIGTERM, SIG_IGN);
    report("STEP=1");
    await("LEAVE=");
    report("EXTEND=1");
    while (pause() < 0) /* it always is */
        ;
    return 94;
}

/* It leaves a child behind in its group. */
static int do_child(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            (void)pause();
    printf("child %d\n", (int)pid);
    return 0;
}

static int do_save(void)
{
    report("STATUS=here");
    report("STEP=1");
    await("SAVE=1");
    return 0;
}

static int do_secret(void)
{
    printf("the token is %s\n", getenv("TOKEN"));
    (void)fflush(stdout);
    return 1;
}

static int do_secret_in_error_file(void)
{
    FILE *f = fopen(getenv("TORCHELASTIC_ERROR_FILE"), "w");
    if (!f || fprintf(f, "{\"message\": \"no access with %s\"}", getenv("TOKEN")) < 0 ||
        fclose(f) != 0)
        return 89;
    return 1;
}

static int do_setup(void)
{
    touch("setup");
    return 0;
}

static int do_print_environment(void) { return execlp("env", "env", (char *)NULL); }

/* It uses exec/client/sdtrain-client.h. */
static int do_client(void)
{
    if (!sdtrain_active() || !sdtrain_report("READY=1") ||
        !sdtrain_reportf("STEP=%d\nLOSS=%g", 5, 0.5))
        return 93;
    if (!sdtrain_is_held(3) || sdtrain_is_held(4))
        return 94;
    if (sdtrain_checkpoint("/elsewhere", 5, 20) != 0 || sdtrain_committed() != -1 ||
        sdtrain_checkpoint("/ckpt/step-5", 5, 20) != 1 || sdtrain_committed() != 5)
        return 92;
    if (sdtrain_is_held(3) || !sdtrain_is_held(2) || !sdtrain_is_held(4))
        return 94;
    (void)signal(SIGTERM, SIG_DFL); /* it polls, so it gets none */
    while (!sdtrain_save_requested())
        (void)usleep(1000);
    if (sdtrain_save_requested() || sdtrain_leaving() >= 0)
        return 91;
    (void)sdtrain_report("STEP=6");
    while (sdtrain_leaving() < 0)
        (void)usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        sdtrain_forked();
        _exit(sdtrain_active() && sdtrain_report("STATUS=child") ? 0 : 1);
    }
    int status;
    (void)waitpid(child, &status, 0);
    return status == 0 && sdtrain_leaving() <= 60 && sdtrain_report("FINISHED=1") ? 0 : 90;
}

/* It connects only when it has got the signal. */
static int do_late(void)
{
    (void)signal(SIGTERM, on_term);
    touch("waits");
    await_signal();
    report("STATUS=late");
    await("LEAVE=");
    report("FINISHED=1");
    return 0;
}

static int do_silent(void)
{
    report("STEP=1");
    for (int i = 0; i < 12; i++) { /* 1.2 s: longer than the limit, but not in silence */
        report("WATCHDOG=1");
        (void)usleep(100000);
    }
    report("STEP=2");
    (void)pause();
    return 94;
}

static void on_stacks(_unused_ int number)
{
    static const char stacks[] =
        "Thread 0x1 (most recent call first):\n  File \"/a/load.py\", line 5 in fetch\n\n"
        "Current thread 0x2 (most recent call first):\n  File \"/a/train.py\", line 33 in step\n";
    (void)!write(STDERR_FILENO, stacks, sizeof(stacks) - 1);
}

/* A helper of the program, and not its main process, reports and prints its stacks. */
static int do_stacks(void)
{
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGUSR1, on_stacks);
        report("STEP=1\nSTACKS=SIGUSR1");
    }
    while (pause() < 0) /* it always is */
        ;
    return 94;
}

/* It has promised stacks, and prints none. */
static int do_no_stacks(void)
{
    (void)signal(SIGUSR1, SIG_IGN);
    report("STEP=1\nSTACKS=SIGUSR1");
    (void)pause();
    return 94;
}

/* Makes the pipe of PyTorch's NCCL backend. Returns the end that reads, or -1. */
static int make_pipe(void)
{
    char pipe[200];
    (void)snprintf(pipe, sizeof(pipe), "%s%s.pipe", getenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
                   getenv("RANK"));
    (void)unlink(pipe);
    return mkfifo(pipe, 0666) < 0 ? -1 : open(pipe, O_RDONLY | O_NONBLOCK);
}

/* Looks at its pipe now and then, as that backend does, and writes its record in two pieces. */
static int do_flight(void)
{
    char file[200], byte;
    const int fd = make_pipe();
    (void)snprintf(file, sizeof(file), "%s%s", getenv("TORCH_FR_DUMP_TEMP_FILE"), getenv("RANK"));
    report("STEP=1");
    while (read(fd, &byte, 1) <= 0)
        (void)usleep(300000);
    const int to = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 2; i++) {
        if (write(to, "record", 6) != 6)
            return 95;
        (void)usleep(30000);
    }
    (void)pause();
    return 94;
}

/* Its pipe is read, and no record is written. */
static int do_no_flight(void)
{
    if (make_pipe() < 0)
        return 95;
    report("STEP=1");
    (void)pause();
    return 94;
}

/* Its backend has ended: nobody reads the pipe. */
static int do_deaf_flight(void)
{
    (void)close(make_pipe());
    report("STEP=1");
    (void)pause();
    return 94;
}

static int do_stopped(void)
{
    (void)raise(SIGSTOP);
    return 94;
}

static int do_wait(void)
{
    touch("waits");
    report("STEP=1");
    (void)pause();
    return 94;
}

int testing_program(const char *action)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } actions[] = {
        {"end", do_end},
        {"fail", do_fail},
        {"code", do_code},
        {"kill", do_kill},
        {"steps", do_steps},
        {"flood", do_flood},
        {"fill", do_fill},
        {"register", do_register},
        {"evaluate", do_evaluate},
        {"results", do_results},
        {"leave", do_leave},
        {"leave-well", do_leave_well},
        {"leave-by-signal", do_leave_by_signal},
        {"stay", do_stay},
        {"child", do_child},
        {"save", do_save},
        {"secret", do_secret},
        {"secret-in-error-file", do_secret_in_error_file},
        {"setup", do_setup},
        {"print-environment", do_print_environment},
        {"client", do_client},
        {"late", do_late},
        {"silent", do_silent},
        {"stopped", do_stopped},
        {"stacks", do_stacks},
        {"no-stacks", do_no_stacks},
        {"flight", do_flight},
        {"no-flight", do_no_flight},
        {"deaf-flight", do_deaf_flight},
        {"wait", do_wait},
    };
    for (size_t i = 0; i < ELEMENTSOF(actions); i++)
        if (strcmp(actions[i].name, action) == 0)
            return actions[i].run();
    return 94;
}
