/* SPDX-License-Identifier: Apache-2.0 */
/* child-confine.c - see child-confine.h.
 *
 * The filter compares system call numbers and the low 32 bits of one argument: descriptors and process ids are ints,
 * and all protection flags are in these bits. A process that enters the kernel in another way (32-bit calls, x32) has
 * another architecture or other numbers, and is killed. */
#include "encoders/pictures/child-confine.h"

#include "base/fault.h"
#include "encoders/pictures/child-message.h"
#include "encoders/pictures/pictures.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int bound(int resource, uint64_t most)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
        return -errno;
    limit.rlim_max = MIN(limit.rlim_max, most);
    limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &limit) < 0 ? -errno : 0;
}

int child_limit(const PictureRecipe *recipe)
{
    uint64_t memory = child_memory_bytes(recipe) + PICTURES_CHILD_BYTES +
                      (uint64_t)recipe->max_pixels * PICTURES_CHILD_PIXEL_BYTES;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    int r = CHILD_IS_SANITIZED ? 0 : bound(RLIMIT_AS, memory);
    static const int none[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_NPROC, RLIMIT_CORE};
    for (size_t i = 0; i < ELEMENTSOF(none) && r == 0; i++)
        r = bound(none[i], 0);
    return r;
}

#ifdef __x86_64__

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
/* Continues with the next line if the values are equal, else skips `skip` lines. */
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)

#define ALLOW(call) UNLESS(call, 1), RETURN(SECCOMP_RET_ALLOW)
#define DENY(call, error) UNLESS(call, 1), RETURN(SECCOMP_RET_ERRNO | (error))
#define ALLOW_IF(call, argument, mask, value)                                                      \
    UNLESS(call, 5), LOAD(args[argument]), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),              \
        UNLESS(value, 1), RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_KILL_PROCESS)

int child_filter(void)
{
    int r = fault("pictures.filter");
    if (r < 0)
        return r;
    if (CHILD_IS_SANITIZED)
        return -ENOTSUP;
    tzset(); /* reads the time zone, which log lines of fault points need */
    const uint32_t self = (uint32_t)getpid();
    struct sock_filter lines[] = {
        LOAD(arch),
        UNLESS(AUDIT_ARCH_X86_64, 1),
        BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        ALLOW_IF(SYS_recvfrom, 0, UINT32_MAX, CHILD_SOCKET_FD),
        ALLOW_IF(SYS_sendto, 0, UINT32_MAX, CHILD_SOCKET_FD),
        ALLOW_IF(SYS_mmap, 2, PROT_EXEC, 0),
        ALLOW_IF(SYS_mprotect, 2, PROT_EXEC, 0),
        ALLOW(SYS_munmap),
        ALLOW(SYS_mremap),
        /* free() returns memory with MADV_DONTNEED. Other advice is not allowed: as root, it could poison a page that
         * the parent has mapped, too. */
        ALLOW_IF(SYS_madvise, 2, UINT32_MAX, MADV_DONTNEED),
        ALLOW(SYS_brk),
        ALLOW(SYS_futex),
        ALLOW(SYS_getrandom), /* malloc() calls getrandom() once */
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        /* assert() and abort() write a message, which has no reader here, and send a signal to their own process. */
        DENY(SYS_write, EBADF),
        DENY(SYS_writev, EBADF),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_rt_sigaction),
        ALLOW(SYS_getpid),
        ALLOW(SYS_gettid),
        ALLOW_IF(SYS_kill, 0, UINT32_MAX, self),
        ALLOW_IF(SYS_tgkill, 0, UINT32_MAX, self),
        /* A fault point's stall needs these two calls: the second call if the process is stopped during the stall. */
        ALLOW(SYS_clock_nanosleep),
        ALLOW(SYS_restart_syscall),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = ELEMENTSOF(lines), .filter = lines};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

#else

int child_filter(void) { return -ENOTSUP; }

#endif
