/* remains.c - see remains.h. */
#include "daemon/remains.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

enum { ROUNDS = 20, ROUND_MSEC = 100, LOCK_ROUNDS = 50, PROC_FILE_MAX = 64 * 1024 };

/* Files of /proc have no size to stat. The text ends with a NUL. */
static char *read_proc(pid_t pid, const char *name, size_t *ret_bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *text = fd < 0 ? NULL : malloc(PROC_FILE_MAX + 1);
    if (!text)
        return NULL;

    size_t used = 0;
    ssize_t n;
    while (used < PROC_FILE_MAX && (n = read(fd, text + used, PROC_FILE_MAX - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    *ret_bytes = used;
    return TAKE_PTR(text);
}

void remains_mark(char *ret, size_t size, const char *run_dir, int slot)
{
    (void)snprintf(ret, size, REMAINS_VARIABLE "=%s:%d", run_dir, slot);
}

/* Of the user that runs this, as what it hosts is: anybody may write any mark into his own environment. */
static bool is_own(pid_t pid)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == geteuid();
}

bool remains_is_marked(pid_t pid, const char *run_dir, int slot)
{
    if (!is_own(pid))
        return false;

    char mark[600];
    int n = slot >= 0 ? snprintf(mark, sizeof(mark), REMAINS_VARIABLE "=%s:%d", run_dir, slot)
                      : snprintf(mark, sizeof(mark), REMAINS_VARIABLE "=%s:", run_dir);

    size_t n_bytes;
    _cleanup_free_ char *text = read_proc(pid, "environ", &n_bytes);
    if (!text)
        return false; /* gone, or not ours */
    for (size_t at = 0; at < n_bytes; at += strlen(text + at) + 1)
        if (strncmp(text + at, mark, (size_t)n) == 0 && (slot < 0 || text[at + (size_t)n] == '\0'))
            return true;
    return false;
}

/* The first marked process, killed and returned as a pidfd; how many were killed. */
static int kill_marked(const char *run_dir, int *ret_pidfd)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;

    int n = 0;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid())
            continue;
        _cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0 || !remains_is_marked(pid, run_dir, -1))
            continue;
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0); /* it may be gone */
        if (n++ == 0)
            *ret_pidfd = TAKE_FD(pidfd);
    }
    (void)closedir(proc);
    return n;
}

int remains_clear(const char *run_dir, const CgroupBase *cgroups, Error *err)
{
    int r = cgroup_destroy(cgroups, err);
    if (r < 0)
        return r;
    for (int round = 0; round < ROUNDS; round++) {
        _cleanup_fd_ int pidfd = -EBADF;
        int n = kill_marked(run_dir, &pidfd);
        if (n <= 0)
            return n < 0 ? error_errno(err, n, "/proc: cannot look for orphans") : 0;
        log_warning("killed %d process(es) that an earlier life left in %s", n, run_dir);
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        (void)poll(&p, 1, ROUND_MSEC); /* its death, or another look */
    }
    return error_set(err, -ETIMEDOUT, "%s: a process of an earlier life survives SIGKILL", run_dir);
}

int remains_lock(const char *run_dir, int *ret_fd, Error *err)
{
    int r = folder_make_private(run_dir, err);
    if (r < 0)
        return r;

    char path[600];
    (void)snprintf(path, sizeof(path), "%s/lock", run_dir);
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, -errno, "%s: cannot open it", path);
    for (int round = 0; round < LOCK_ROUNDS; round++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *ret_fd = TAKE_FD(fd);
            return 0;
        }
        if (errno != EWOULDBLOCK)
            return error_errno(err, -errno, "%s: cannot lock it", path);
        const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
        (void)nanosleep(&pause, NULL); /* flock has no deadline of its own */
    }
    return error_set(err, -EBUSY, "%s: another sdtraind holds it; give each its own run_dir", path);
}

/* For people who look at processes: what the command line was, becomes a name. */
static void rename_process(const char *name)
{
    size_t n_bytes;
    _cleanup_free_ char *text = read_proc(getpid(), "cmdline", &n_bytes);
    (void)prctl(PR_SET_NAME, name);
    if (!text || n_bytes <= strlen(name) || strcmp(text, program_invocation_name) != 0)
        return;
    memset(program_invocation_name, 0, n_bytes); /* argv's bytes follow each other */
    memcpy(program_invocation_name, name, strlen(name));
}

static _noreturn_ void keep(pid_t parent, int parent_fd, const char *run_dir,
                            const CgroupBase *cgroups)
{
    rename_process("sdtraind-keeper");
    (void)setsid(); /* a signal to sdtraind's group is not for the keeper */
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL); /* ends with its work, or by SIGKILL */

    struct pollfd p = {.fd = parent_fd, .events = POLLIN};
    while (getppid() == parent && poll(&p, 1, -1) <= 0)
        ;
    Error err = ERROR_INIT;
    if (remains_clear(run_dir, cgroups, &err) < 0)
        log_error("keeper: %s", err.text);
    _exit(0);
}

int remains_keep(const char *run_dir, const CgroupBase *cgroups, pid_t *ret_pid, Error *err)
{
    pid_t parent = getpid();
    _cleanup_fd_ int parent_fd = (int)syscall(SYS_pidfd_open, parent, 0);
    if (parent_fd < 0)
        return error_errno(err, -errno, "cannot watch over this process");
    pid_t pid = fork();
    if (pid < 0)
        return error_errno(err, -errno, "cannot start the keeper");
    if (pid == 0)
        keep(parent, parent_fd, run_dir, cgroups);
    *ret_pid = pid;
    return 0;
}

static pid_t parent_of(pid_t pid)
{
    size_t n_bytes;
    _cleanup_free_ char *text = read_proc(pid, "stat", &n_bytes);
    if (!text)
        return -1;
    const char *after = strrchr(text, ')');
    int parent = -1;
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

int remains_kill_adopted(const char *run_dir, int slot, bool (*is_ours)(void *userdata, pid_t pid),
                         void *userdata)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;

    int n = 0;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || parent_of(pid) != getpid() || is_ours(userdata, pid) ||
            (remains_is_marked(pid, run_dir, -1) && !remains_is_marked(pid, run_dir, slot)))
            continue;
        (void)kill(pid, SIGKILL); /* our child: its number is its own until we reap it */
        n++;
    }
    (void)closedir(proc);
    return n;
}
