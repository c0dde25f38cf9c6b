/* SPDX-License-Identifier: Apache-2.0 */
/* orphans.c - see orphans.h. */
#include "daemon/process/orphans.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    ROUNDS = 20,
    ROUND_MSEC = 100,
    LOCK_SEC = 5, /* seconds to wait for a sdtraind that has just been killed */
    /* TimeoutStartSec= of the unit is longer than KEEPER_LOCK_SEC and START_SEC together. */
    KEEPER_LOCK_SEC = 40, /* seconds to wait for the keeper of an earlier sdtraind */
    START_SEC = 40,       /* seconds to wait for old ranks */
    KEEPER_SEC = 600,
    PROC_PIECE_BYTES = 64 * 1024,
    PROC_FILE_MAX = 8 * 1024 * 1024 /* more than the kernel accepts as an environment */
};

/* Reads a whole file of /proc/<pid>. stat() shows no size for such a file, so the buffer grows. The text ends with a
 * NUL. */
static char *read_proc(pid_t pid, const char *name, size_t *ret_bytes)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;

    _cleanup_free_ char *text = NULL;
    size_t used = 0;
    ssize_t n;
    do {
        text = memory_resize(text, used + PROC_PIECE_BYTES + 1, 1);
        n = read(fd, text + used, PROC_PIECE_BYTES);
        used += (size_t)MAX(n, 0);
    } while (n > 0 && used < PROC_FILE_MAX);
    text[used] = '\0';
    *ret_bytes = used;
    return TAKE_PTR(text);
}

void orphans_owner_tag(char *ret, size_t size, const char *run_dir, int slot)
{
    assert(slot >= 0);
    (void)snprintf(ret, size, ORPHANS_VARIABLE "=%s:%d", run_dir, slot);
}

/* Returns whether the process belongs to the user of this process, as all hosted processes do. Other users'
 * processes do not count, since every user may write any mark into his own environment. */
static bool is_own(pid_t pid)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == geteuid();
}

/* Returns the slot of the mark that the process carries; -1: it carries no mark of this run_dir. */
static int marked_slot(pid_t pid, const char *run_dir)
{
    char mark[600];
    size_t n_bytes;
    int slot = -1;
    _cleanup_free_ char *text = is_own(pid) ? read_proc(pid, "environ", &n_bytes) : NULL;
    const int n = snprintf(mark, sizeof(mark), ORPHANS_VARIABLE "=%s:", run_dir);
    for (size_t at = 0; text && at < n_bytes; at += strlen(text + at) + 1) {
        char *end;
        if (strncmp(text + at, mark, (size_t)n) != 0)
            continue;
        const long number = strtol(text + at + n, &end, 10);
        if (end > text + at + n && !*end) /* else the mark is of a run_dir with a colon */
            slot = (int)number;
    }
    return slot;
}

bool orphans_has_owner_tag(pid_t pid, const char *run_dir, int slot)
{
    const int marked = marked_slot(pid, run_dir);
    return marked >= 0 && (slot < 0 || marked == slot);
}

/* Parent and session of a process; both are negative if the process has ended. */
typedef struct Place {
    int parent, session;
} Place;

static Place place_of(pid_t pid)
{
    size_t n_bytes;
    Place place = {-1, -1};
    _cleanup_free_ char *text = read_proc(pid, "stat", &n_bytes);
    const char *after = text ? strrchr(text, ')') : NULL;
    if (!after || sscanf(after + 1, " %*c %d %*d %d", &place.parent, &place.session) != 2)
        return (Place){-1, -1};
    return place;
}

/* Returns whether an earlier sdtraind has left the process behind. sessions NULL: the sessions are unknown, and only
 * the mark counts. */
static bool is_left(pid_t pid, const char *run_dir, RankSessions *sessions)
{
    if (orphans_has_owner_tag(pid, run_dir, -1))
        return true;
    int session = sessions && is_own(pid) ? place_of(pid).session : -1;
    for (size_t i = 0; session > 0 && i < ELEMENTSOF(sessions->of); i++)
        if (atomic_load(&sessions->of[i]) == session)
            return true;
    return false;
}

/* Kills all processes that an earlier sdtraind has left. Returns their number, and the pidfd of the first process in
 * *ret_pidfd. */
static int kill_left(const char *run_dir, RankSessions *sessions, int *ret_pidfd)
{
    _cleanup_dir_ DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;

    int n = 0;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid()) /* neither init nor this process */
            continue;
        _cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0 || !is_left(pid, run_dir, sessions))
            continue;
        /* The signal fails if the process has just ended. */
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        if (n++ == 0)
            *ret_pidfd = TAKE_FD(pidfd);
    }
    return n;
}

static int end_left(const char *run_dir, RankSessions *sessions, Error *err)
{
    for (int round = 0; round < ROUNDS; round++) {
        _cleanup_fd_ int pidfd = -EBADF;
        int n = kill_left(run_dir, sessions, &pidfd);
        if (n <= 0)
            return n < 0 ? error_errno(err, n, "/proc: cannot look for orphans") : 0;
        if (round == 0)
            log_warning("killed %d process(es) that an earlier life left in %s", n, run_dir);
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        (void)poll(&p, 1, ROUND_MSEC); /* waits until one process has ended, at most ROUND_MSEC */
    }
    return error_set(err, -ETIMEDOUT, "%s: a process of an earlier life survives SIGKILL", run_dir);
}

/* Ends all processes that an earlier sdtraind has left, and waits at most patience_sec for their end. A process inside
 * a driver, or on a busy machine, may take long to end; giving up early would leave its cgroup behind for ever. */
static int clear(const char *run_dir, const CgroupBase *cgroups, RankSessions *sessions,
                 int patience_sec, Error *err)
{
    const uint64_t end_usec = clock_boottime_usec() + (uint64_t)patience_sec * USEC_PER_SEC;
    for (bool told = false;; told = true) {
        int r = cgroup_destroy(cgroups, err);
        int q =
            end_left(run_dir, sessions, r < 0 ? NULL : err); /* even if cgroup_destroy() failed */
        r = r < 0 ? r : q;
        if ((r != -ETIMEDOUT && r != -EBUSY) || clock_boottime_usec() >= end_usec)
            return r;
        if (!told)
            log_warning("%s; waiting for its end, at most %d s", err->text, patience_sec);
        *err = (Error)ERROR_INIT;
    }
}

int orphans_clear(const char *run_dir, const CgroupBase *cgroups, Error *err)
{
    return clear(run_dir, cgroups, NULL, START_SEC, err);
}

/* Returns whether a sdtraind holds the record lock (fcntl) of the file. The keeper inherits the flock, but a record
 * lock ends with the process that took it. */
static bool sdtraind_lives(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

int orphans_lock(const char *run_dir, int *ret_fd, Error *err)
{
    int r = folder_make_private(run_dir, err);
    if (r < 0)
        return r;

    char path[600];
    (void)snprintf(path, sizeof(path), "%s/lock", run_dir);
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, -errno, "%s: cannot open it", path);
    const uint64_t began_usec = clock_boottime_usec();
    for (bool told = false;;) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            break;
        if (errno != EWOULDBLOCK)
            return error_errno(err, -errno, "%s: cannot lock it", path);
        uint64_t waited_usec = clock_boottime_usec() - began_usec;
        bool lives = sdtraind_lives(fd);
        if (lives && waited_usec > LOCK_SEC * USEC_PER_SEC)
            return error_set(err, -EBUSY,
                             "%s: another sdtraind holds it; give each its own run_dir", path);
        if (waited_usec > KEEPER_LOCK_SEC * USEC_PER_SEC)
            return error_set(err, -EBUSY,
                             "%s: the keeper of an earlier life holds it: a process that it has "
                             "killed does not end",
                             path);
        if (!lives && !told && waited_usec > USEC_PER_SEC) {
            log_info("%s: waiting for the keeper of an earlier life, at most %d s", path,
                     KEEPER_LOCK_SEC);
            told = true;
        }
        const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
        (void)nanosleep(&pause, NULL); /* flock() has no timeout */
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)fcntl(fd, F_SETLK, &lock); /* if this call fails, another sdtraind waits longer for us */
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Replaces the command line by a name, for operators who list processes. */
static void rename_process(const char *name)
{
    size_t n_bytes;
    _cleanup_free_ char *text = read_proc(getpid(), "cmdline", &n_bytes);
    (void)prctl(PR_SET_NAME, name);
    if (!text || n_bytes <= strlen(name) || strcmp(text, program_invocation_name) != 0)
        return;
    memset(program_invocation_name, 0, n_bytes); /* the strings of argv are adjacent */
    memcpy(program_invocation_name, name, strlen(name));
}

static _noreturn_ void keep(int parent_fd, const char *run_dir, const CgroupBase *cgroups,
                            RankSessions *sessions)
{
    rename_process("sdtraind-keeper");
    (void)setsid(); /* a signal to sdtraind's group does not reach the keeper */
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL); /* the keeper ends after its work, or by SIGKILL */

    struct pollfd p = {.fd = parent_fd, .events = POLLIN};
    while (poll(&p, 1, -1) <= 0)
        ;
    Error err = ERROR_INIT;
    if (clear(run_dir, cgroups, sessions, KEEPER_SEC, &err) < 0)
        log_error("keeper: %s", err.text);
    _exit(0);
}

int orphans_keep(const char *run_dir, const CgroupBase *cgroups, RankSessions **ret_sessions,
                 pid_t *ret_pid, Error *err)
{
    RankSessions *sessions =
        mmap(NULL, sizeof(*sessions), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sessions == MAP_FAILED)
        return error_errno(err, -errno, "cannot share a page with the keeper");
    _cleanup_fd_ int parent_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (parent_fd < 0)
        return error_errno(err, -errno, "cannot watch over this process");
    pid_t pid = fork();
    if (pid < 0)
        return error_errno(err, -errno, "cannot start the keeper");
    if (pid == 0)
        keep(parent_fd, run_dir, cgroups, sessions);
    *ret_sessions = sessions; /* the page stays mapped until this process ends */
    *ret_pid = pid;
    return 0;
}

void orphans_reap_adopted(bool (*is_ours)(void *userdata, pid_t pid), void *userdata)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0 ||
            is_ours(userdata, info.si_pid))
            return;
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG); /* its end was seen */
    }
}

int orphans_kill_adopted(const char *run_dir, int slot, bool (*is_ours)(void *userdata, pid_t pid),
                         void *userdata)
{
    _cleanup_dir_ DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;

    int n = 0;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || place_of(pid).parent != getpid() || is_ours(userdata, pid))
            continue;
        /* Reads the mark once: during execve() a process has no environment for a moment, and then counts as
         * unmarked. */
        const int marked = marked_slot(pid, run_dir);
        if (marked >= 0 && marked != slot)
            continue;
        (void)kill(pid, SIGKILL); /* the pid is valid: our child is not yet reaped */
        n++;
    }
    return n;
}
