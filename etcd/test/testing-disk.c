/* SPDX-License-Identifier: Apache-2.0 */
/* testing-disk.c - see testing-disk.h. */
#include "etcd/test/testing-disk.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns the descriptor that receives a notification of each sync, or -1. */
static int listen_for_syncs(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ELEMENTSOF(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void _noreturn_ serve(int listener, pid_t program)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != program)
        _exit(1);
    for (;;) {
        struct seccomp_notif asked = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) < 0) {
            /* A signal interrupted this call, or the program's sync, which the program then repeats. */
            if (errno == EINTR || errno == ENOENT)
                continue;
            _exit(0);
        }
        struct seccomp_notif_resp answer = {.id = asked.id,
                                            .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        /* This call fails if a signal has ended the sync meanwhile. */
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

void testing_disk_attach(int report)
{
    pid_t program = getpid();
    _cleanup_fd_ int listener = listen_for_syncs();
    if (listener < 0)
        return;
    pid_t disk = fork();
    if (disk == 0)
        serve(listener, program);
    if (disk < 0 || fd_write_all(report, &disk, sizeof(disk)) < 0)
        _exit(126); /* without the helper, the program's syncs would fail */
}
