/* SPDX-License-Identifier: Apache-2.0 */
/* child-serve.c - pictures_child(): the child's side of pictures.h.
 *
 * The child confines itself before it reads any picture. It trusts its parent. It ends when the socket is closed, and
 * by SIGKILL when the thread that started it ends. */
#include "encoders/pictures/child-confine.h"
#include "encoders/pictures/child-message.h"
#include "encoders/pictures/pictures.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* Exit statuses, which appear in the parent's error text. */
enum { EXIT_ENDED = 0, EXIT_SETUP = 3, EXIT_BOUNDS = 4, EXIT_MEMORY = 5, EXIT_SOCKET = 6 };

/* Evaluates two fault points: one that has the file's size in its name, and so fails for the same pictures in each
 * process; and one that is the same for every picture. */
static int decode_fault(uint32_t n_bytes)
{
    char point[40];
    (void)snprintf(point, sizeof(point), "pictures.decode.%u", n_bytes);
    int r = fault(point);
    return r < 0 ? r : fault("pictures.decode");
}

static _noreturn_ void serve(const PictureRecipe *recipe, uint8_t *memory)
{
    for (;;) {
        ChildRequest request;
        ssize_t n = recv(CHILD_SOCKET_FD, &request, sizeof(request), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(request))
            _exit(n == 0 ? EXIT_ENDED : EXIT_SOCKET);
        assert(request.place < PICTURES_PER_CHILD && request.n_bytes <= PICTURE_FILE_BYTES_MAX);
        ChildAnswer answer;
        memset(&answer, 0, sizeof(answer));
        answer.place = request.place;
        answer.r = decode_fault(request.n_bytes);
        if (answer.r == 0)
            answer.r =
                picture_decode(recipe, memory + child_file_at(request.place), request.n_bytes,
                               memory + child_rgb_at(recipe, request.place), &answer.err);
        if (send(CHILD_SOCKET_FD, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
            _exit(EXIT_SOCKET);
    }
}

bool pictures_child_requested;

void pictures_child(int argc, char **argv)
{
    pictures_child_requested = true;
    /* If a parent process ignores SIGCHLD, this process does so, too, and the kernel reaps its children: their exit
     * statuses are lost, and their ids may be reused. */
    (void)signal(SIGCHLD, SIG_DFL);
    if (argc != 2 || strcmp(argv[1], CHILD_WORD) != 0)
        return;
    ChildSetup setup;
    Error err = ERROR_INIT;
    (void)prctl(PR_SET_NAME, "pictures", 0, 0, 0); /* the name in ps and top */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || fault_open(&err) < 0 ||
        recv(CHILD_SOCKET_FD, &setup, sizeof(setup), 0) != sizeof(setup) ||
        getppid() != setup.parent || picture_recipe_check(&setup.recipe, &err) < 0)
        _exit(EXIT_SETUP);
    uint8_t *memory = mmap(NULL, child_memory_bytes(&setup.recipe), PROT_READ | PROT_WRITE,
                           MAP_SHARED, CHILD_MEMORY_FD, 0);
    if (memory == MAP_FAILED)
        _exit(EXIT_MEMORY);
    (void)fd_close(CHILD_MEMORY_FD);
    if (child_limit(&setup.recipe) < 0)
        _exit(EXIT_BOUNDS);
    const ChildReady ready = {.word = CHILD_READY, .filter = child_filter()};
    if (send(CHILD_SOCKET_FD, &ready, sizeof(ready), MSG_NOSIGNAL) != sizeof(ready))
        _exit(EXIT_SOCKET);
    serve(&setup.recipe, memory);
}
