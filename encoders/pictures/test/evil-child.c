/* SPDX-License-Identifier: Apache-2.0 */
/* evil-child.c - a decoder process that a picture has taken over: the picture's first byte selects what the process
 * does. With '!', the process is confined first, and the second byte selects a system call; the process answers if it
 * survives. */
#include "encoders/pictures/child-confine.h"
#include "encoders/pictures/child-message.h"
#include "encoders/pictures/pictures.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const void *data, size_t n)
{
    (void)send(CHILD_SOCKET_FD, data, n, MSG_NOSIGNAL); /* the test checks the effect */
}

static pid_t parent;

/* Makes a call that no decoder needs, without a library's wrapper, which might make another call. */
static void ask_kernel(char what, const PictureRecipe *recipe, uint8_t *memory)
{
    char *none[] = {NULL};
    if (child_limit(recipe) < 0 || child_filter() < 0)
        _exit(8);
    if (what == 'o')
        (void)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
    else if (what == 's')
        (void)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    else if (what == 'e')
        (void)syscall(SYS_execve, "/no/such/program", none, none);
    else if (what == 't')
        (void)syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
    else if (what == 'k') /* a harmless signal to its parent */
        (void)syscall(SYS_kill, parent, SIGCONT);
    else if (what == 'f')
        (void)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    else if (what == 'm')
        (void)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (what == 'p')
        (void)syscall(SYS_mprotect, memory, 4096, PROT_READ | PROT_EXEC);
    else if (what == 'r') /* recvmsg() could receive a descriptor */
        (void)syscall(SYS_recvmsg, CHILD_SOCKET_FD, NULL, 0);
    else if (what == 'a') /* harmless, but not an advice that free() gives */
        (void)syscall(SYS_madvise, memory, 4096, MADV_RANDOM);
    else if (what == 'l')
        (void)syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
    else if (what == 'x') /* getpid() by its number in x32 */
        (void)syscall(0x40000000 | SYS_getpid);
    else if (what == '3') { /* getpid() in the way of a 32-bit program */
        long r = 20;
        __asm__ volatile("int $0x80" : "+a"(r)::"memory");
    }
}

static void act(const uint8_t *file, ChildAnswer answer, uint8_t *memory)
{
    switch (file[0]) {
    case 's': /* an answer that is too short */
        say(&answer, sizeof(answer) - 1);
        break;
    case 'l': { /* an answer that is too long */
        char large[sizeof(answer) + 1000];
        memset(large, 0, sizeof(large));
        memcpy(large, &answer, sizeof(answer));
        say(large, sizeof(large));
        break;
    }
    case 'e': /* an empty packet, which looks like the end of the process */
        say(&answer, 0);
        break;
    case 'p': /* answers for a place that holds no request */
        answer.place += 1000000;
        say(&answer, sizeof(answer));
        break;
    case 'v': /* an answer whose number is not a verdict */
        answer.r = PICTURE_N_VERDICTS;
        say(&answer, sizeof(answer));
        break;
    case 'n':
        answer.r = -1;
        say(&answer, sizeof(answer));
        break;
    case 'm': /* tries to cut the memory that the parent has mapped */
        answer.r = ftruncate(CHILD_MEMORY_FD, 0) == 0 ? PICTURE_ANIMATED : 0;
        say(&answer, sizeof(answer));
        break;
    case 't': /* a text without an end, full of escape characters */
        answer.r = PICTURE_DECODE;
        memset(answer.err.text, '\033', sizeof(answer.err.text));
        say(&answer, sizeof(answer));
        break;
    case 'w': /* overwrites the places of other files and pixels */
        memset(memory, 0xEE, child_file_at(1));
        say(&answer, sizeof(answer));
        break;
    case 'x':
        _exit(7);
    default:
        say(&answer, sizeof(answer));
    }
}

int main(void)
{
    ChildSetup setup;
    parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, 9);
    if (recv(CHILD_SOCKET_FD, &setup, sizeof(setup), 0) != sizeof(setup))
        return 3;
    uint8_t *memory = mmap(NULL, child_memory_bytes(&setup.recipe), PROT_READ | PROT_WRITE,
                           MAP_SHARED, CHILD_MEMORY_FD, 0);
    if (memory == MAP_FAILED)
        return 5;
    const ChildReady ready = {.word = CHILD_READY};
    say(&ready, sizeof(ready));
    ChildRequest request;
    while (recv(CHILD_SOCKET_FD, &request, sizeof(request), 0) == sizeof(request)) {
        ChildAnswer answer;
        memset(&answer, 0, sizeof(answer));
        answer.place = request.place;
        memset(memory + child_rgb_at(&setup.recipe, request.place), 0xA5, 3);
        if (*(memory + child_file_at(request.place)) == '!')
            ask_kernel((char)memory[child_file_at(request.place) + 1], &setup.recipe, memory);
        act(memory + child_file_at(request.place), answer, memory);
    }
    return 0;
}
