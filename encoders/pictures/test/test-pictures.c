/* SPDX-License-Identifier: Apache-2.0 */
/* test-pictures.c - decoder processes give the same bytes as in-process decoding, in order; children that crash, hang,
 * run out of memory, send wrong answers, or lose their parent are handled. */
#include "encoders/pictures/pictures.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "encoders/pictures/child-confine.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { N_FILES = 6, RGB = 16 * 16 * 3 };

static const PictureRecipe small = {.side = 16, .max_pixels = 1 << 20};
static const char *const names[N_FILES] = {"420.jpg",         "rgba-16.png",
                                           "animated.webp",   "expected.txt",
                                           "lossy-rgba.webp", "progressive-cmyk.jpg"};

/* The files, and the results of picture_decode() for them. */
static char *files[N_FILES];
static size_t n_bytes[N_FILES];
static uint8_t rgb[N_FILES][RGB];
static int verdicts[N_FILES];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        char path[256];
        Error err = ERROR_INIT;
        (void)snprintf(path, sizeof(path), "tests/golden/pictures/%s", names[i]);
        if (file_read(path, 1 << 24, &files[i], &n_bytes[i], &err) < 0)
            fail_msg("%s", err.text);
        verdicts[i] = picture_decode(&small, files[i], n_bytes[i], rgb[i], &err);
    }
    assert_int_equal(verdicts[2], PICTURE_ANIMATED);
    assert_int_equal(verdicts[3], PICTURE_DECODE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++)
        free(files[i]);
    return 0;
}

static Pictures *open_pictures(int n_children, const char *faults, const char *program)
{
    Pictures *pictures = NULL;
    Error err = ERROR_INIT;
    PicturesOptions options = {.recipe = small, .n_children = n_children, .program = program};
    if (faults)
        assert_int_equal(setenv("SDTRAIN_FAULT", faults, 1), 0);
    else
        assert_int_equal(unsetenv("SDTRAIN_FAULT"), 0);
    if (faults && strstr(faults, "st")) /* for the faults stop and stall */
        options.patience_usec = 2 * USEC_PER_SEC;
    if (pictures_open(&options, &pictures, &err) < 0)
        fail_msg("%s", err.text);
    return pictures;
}

static void ask(Pictures *pictures, int file)
{
    Error err = ERROR_INIT;
    if (pictures_request(pictures, files[file], n_bytes[file], &err) != 0)
        fail_msg("%s", err.text);
}

static void take_right(Pictures *pictures, int file)
{
    uint8_t got[RGB];
    Error err = ERROR_INIT;
    int r = pictures_take(pictures, got, &err);
    if (r != verdicts[file])
        fail_msg("%s: %d, not %d: %s", names[file], r, verdicts[file], err.text);
    if (r == 0)
        assert_memory_equal(got, rgb[file], RGB);
    else
        assert_true(err.code == -EBADMSG && err.text[0]);
}

static void take_none(Pictures *pictures, const char *why)
{
    uint8_t got[RGB];
    Error err = ERROR_INIT;
    assert_int_equal(pictures_take(pictures, got, &err), -ENOTRECOVERABLE);
    if (!strstr(err.text, why) || strncmp(err.text, "2 decoder processes", 19) != 0)
        fail_msg("%s: no %s in it", err.text, why);
}

static void answers_come_in_the_order_of_questions(void **state)
{
    (void)state;
    for (int n_children = 1; n_children <= 3; n_children += 2) {
        _cleanup_(pictures_freep) Pictures *pictures = open_pictures(n_children, NULL, NULL);
        assert_int_equal(pictures_room(pictures), n_children * PICTURES_PER_CHILD);
        int asked = 0, taken = 0;
        Error err = ERROR_INIT;
        while (taken < 200) {
            while (asked < 200 && pictures_requested(pictures) < pictures_room(pictures))
                ask(pictures, asked++ * 5 % N_FILES);
            if (asked < 200)
                assert_int_equal(pictures_request(pictures, "x", 1, &err), -EAGAIN);
            take_right(pictures, taken++ * 5 % N_FILES);
        }
        assert_int_equal(pictures_requested(pictures), 0);
    }
}

static int is_file(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Every kind of picture is decoded within the limits and the filter, to the same bytes as in this process. */
static void a_child_decodes_what_this_process_does(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, NULL, NULL);
    struct dirent **entries = NULL;
    int n = scandir("tests/golden/pictures", &entries, is_file, alphasort), n_good = 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        _cleanup_free_ char *file = NULL;
        size_t n_file = 0;
        uint8_t here[RGB] = {0}, there[RGB] = {0};
        Error err = ERROR_INIT, child_err = ERROR_INIT;
        (void)snprintf(path, sizeof(path), "tests/golden/pictures/%s", entries[i]->d_name);
        assert_int_equal(file_read(path, 1 << 24, &file, &n_file, &err), 0);
        int r = picture_decode(&small, file, n_file, here, &err);
        n_good += r == 0;
        assert_int_equal(pictures_request(pictures, file, n_file, &child_err), 0);
        if (pictures_take(pictures, there, &child_err) != r ||
            strcmp(err.text, child_err.text) != 0 || (r == 0 && memcmp(here, there, RGB) != 0))
            fail_msg("%s: %d %s; in a child %s", path, r, err.text, child_err.text);
        free(entries[i]);
    }
    free(entries);
    assert_true(n_good >= 20);
}

static void what_needs_no_child_has_its_place_in_the_order(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, NULL, NULL);
    Error err = ERROR_INIT;
    uint8_t got[RGB];
    _cleanup_free_ char *large = calloc(1, (size_t)PICTURE_FILE_BYTES_MAX + 1);
    assert_non_null(large);
    ask(pictures, 0);
    assert_int_equal(pictures_request(pictures, NULL, 0, &err), 0);
    assert_int_equal(pictures_request(pictures, large, (size_t)PICTURE_FILE_BYTES_MAX + 1, &err),
                     0);
    ask(pictures, 1);
    take_right(pictures, 0);
    assert_int_equal(pictures_take(pictures, got, &err), PICTURE_EMPTY);
    assert_int_equal(pictures_take(pictures, got, &err), PICTURE_TOO_LARGE);
    take_right(pictures, 1);

    /* A child's memory can hold only one of the largest files at a time. */
    memcpy(large, files[1], n_bytes[1]);
    assert_int_equal(pictures_request(pictures, large, PICTURE_FILE_BYTES_MAX, &err), 0);
    assert_int_equal(pictures_request(pictures, large, PICTURE_FILE_BYTES_MAX, &err), -EAGAIN);
    assert_int_equal(pictures_take(pictures, got, &err), 0);
    assert_memory_equal(got, rgb[1], RGB);
    assert_int_equal(pictures_request(pictures, large, PICTURE_FILE_BYTES_MAX, &err), 0);
    assert_int_equal(pictures_take(pictures, got, &err), 0);
}

/* The fault occurs once in each child, at its fifth picture. The next child gets that picture as its first, and
 * answers. */
static void a_picture_is_tried_again_in_another_child(void **state)
{
    (void)state;
    static const char *const faults[] = {"pictures.decode=kill@5", "pictures.decode=enomem@5",
                                         "pictures.decode=eio@5", "pictures.decode=stall@5",
                                         "pictures.decode=stop@5"};
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, faults[i], NULL);
        pid_t first = pictures_child_pid(pictures, 0);
        for (int k = 0; k < PICTURES_PER_CHILD; k++)
            ask(pictures, k % N_FILES);
        for (int k = 0; k < PICTURES_PER_CHILD; k++)
            take_right(pictures, k % N_FILES);
        assert_int_not_equal(pictures_child_pid(pictures, 0), first);
    }
}

/* The socket of a child that dies with unread questions is reset, but the child's earlier answers remain valid, and the
 * oldest question is not to blame. Later children die at once, so that a wrong blame would be noticed. */
static void the_answers_of_a_dead_child_are_heard(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, "pictures.decode=kill@5", NULL);
    assert_int_equal(setenv("SDTRAIN_FAULT", "pictures.decode=kill@1", 1), 0);
    pid_t first = pictures_child_pid(pictures, 0);
    siginfo_t info;
    assert_int_equal(kill(first, SIGSTOP), 0); /* stops the child until all questions are sent */
    for (int k = 0; k < PICTURES_PER_CHILD; k++)
        ask(pictures, k % N_FILES);
    assert_int_equal(kill(first, SIGCONT), 0);
    assert_int_equal(waitid(P_PID, (id_t)first, &info, WEXITED | WNOWAIT), 0);
    for (int k = 0; k < 4; k++)
        take_right(pictures, k);
    take_none(pictures, "signal 9");
}

/* A picture that fails twice gets no verdict; other pictures in the same child's queue do. */
static void a_picture_that_fails_twice_has_no_answer(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *why;
    } cases[] = {{"pictures.decode=kill@1", "signal 9"},
                 {"pictures.decode=enomem@1", "out of memory"},
                 {"pictures.decode=stall@1", "silent"}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_(pictures_freep) Pictures *pictures = open_pictures(2, cases[i].fault, NULL);
        ask(pictures, 0);
        take_none(pictures, cases[i].why);
        assert_int_equal(pictures_requested(pictures), 0);
    }
    /* Only the first child has the fault: SDTRAIN_FAULT is removed before a later child starts. */
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, "pictures.decode=kill@1", NULL);
    ask(pictures, 0);
    ask(pictures, 1);
    ask(pictures, 4);
    assert_int_equal(unsetenv("SDTRAIN_FAULT"), 0);
    take_right(pictures, 0);
    take_right(pictures, 1);
    take_right(pictures, 4);
}

/* Simulates a program whose parent ignores SIGCHLD. */
static void the_end_of_a_child_is_known_where_its_signal_was_ignored(void **state)
{
    (void)state;
    char *argv[] = {(char *)"test-pictures", NULL};
    assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    pictures_child(1, argv);
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, "pictures.decode=kill@1", NULL);
    ask(pictures, 0);
    take_none(pictures, "signal 9");
}

static Pictures *open_evil(void)
{
    static char program[512]; /* used until pictures_free() */
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(program, sizeof(program), "%s/evil-child", bin ? bin : "build/release/bin");
    return open_pictures(1, NULL, program);
}

static void a_child_that_is_taken_over_is_not_believed(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_evil();
    static const struct {
        const char *file;
        int r;
        const char *why;
    } cases[] = {
        {"short", -ENOTRECOVERABLE, "is none"},
        {"long", -ENOTRECOVERABLE, "is none"},
        /* An empty packet counts as the end of the process, unless another packet has arrived behind it. */
        {"empty", -ENOTRECOVERABLE, "2 decoder processes failed"},
        {"place", -ENOTRECOVERABLE, "is none"},
        {"verdict", -ENOTRECOVERABLE, "is none"},
        {"negative", -ENOTRECOVERABLE, "is none"},
        {"memory", 0, ""},
        {"text", PICTURE_DECODE, "?"},
        {"write", 0, ""},
        {"xit", -ENOTRECOVERABLE, "exit status 7"},
        {"fine", 0, ""},
    };
    for (int round = 0; round < 2; round++) {
        /* False: each picture is sent after the answer to the picture before it. */
        bool together = round == 1;
        for (size_t i = 0, end = 0; i < ELEMENTSOF(cases); i++) {
            Error err = ERROR_INIT;
            uint8_t got[RGB] = {0};
            for (; end < ELEMENTSOF(cases) && end < i + (together ? PICTURES_PER_CHILD : 1); end++)
                assert_int_equal(pictures_request(pictures, cases[end].file,
                                                  strlen(cases[end].file), &err),
                                 0);
            int r = pictures_take(pictures, got, &err);
            if (r != cases[i].r || (r == 0) != (err.text[0] == '\0'))
                fail_msg("%s: %d: %s", cases[i].file, r, err.text);
            assert_null(strchr(err.text, '\033'));
            if (cases[i].why[0] != '?')
                assert_non_null(strstr(err.text, cases[i].why));
        }
    }
}

/* A child answers the first question and dies of the second, while the parent still copies the many bytes of another
 * question. The first question is not blamed, however often the second question kills a child. */
static void the_blame_is_not_of_those_answered_while_others_were_asked(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_evil();
    enum { LARGE_BYTES = PICTURE_FILE_BYTES_MAX - (1 << 20) };
    _cleanup_free_ char *large = calloc(1, LARGE_BYTES);
    assert_non_null(large);
    static const char *const asked[] = {"xit", "fine", "xit"};
    Error err = ERROR_INIT;
    uint8_t got[RGB];
    for (size_t i = 0; i < ELEMENTSOF(asked); i++)
        assert_int_equal(pictures_request(pictures, asked[i], strlen(asked[i]), &err), 0);
    assert_int_equal(pictures_request(pictures, large, LARGE_BYTES, &err), 0);
    take_none(pictures, "exit status 7");
    if (pictures_take(pictures, got, &err) != 0)
        fail_msg("%s", err.text);
    take_none(pictures, "exit status 7");
    assert_int_equal(pictures_take(pictures, got, &err), 0);
}

/* Reads a file of /proc/PID, whose size stat() does not show. */
static size_t read_proc(pid_t pid, const char *name, char *ret, size_t room)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(ret, 1, room - 1, file);
    (void)fclose(file);
    assert_in_range(n, 1, room - 2);
    ret[n] = '\0';
    return n;
}

static int status_number(pid_t pid, const char *name)
{
    char status[8192];
    (void)read_proc(pid, "status", status, sizeof(status));
    const char *at = strstr(status, name);
    assert_non_null(at);
    return (int)strtol(at + strlen(name), NULL, 10);
}

static void a_child_that_is_taken_over_can_ask_nothing_of_the_kernel(void **state)
{
    (void)state;
    if (CHILD_IS_SANITIZED) {
        _cleanup_(pictures_freep) Pictures *sanitized = open_pictures(1, NULL, NULL);
        assert_int_equal(pictures_filter(sanitized), -ENOTSUP);
        print_message("no filter with a sanitizer\n");
        return;
    }
    _cleanup_(pictures_freep) Pictures *pictures = open_evil();
    static const char *const asks[] = {"!open",     "!socket", "!exec",    "!trace",   "!kill",
                                       "!fork",     "!map",    "!protect", "!receive", "!advise",
                                       "!lifetime", "!x32",    "!32"};
    uint8_t got[RGB];
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(asks); i++) {
        assert_int_equal(pictures_request(pictures, asks[i], strlen(asks[i]), &err), 0);
        int r = pictures_take(pictures, got, &err);
        /* Kernels without 32-bit calls kill the child by another signal for the last call. */
        const char *why = strcmp(asks[i], "!32") == 0 ? "died (signal " : "died (signal 31)";
        if (r != -ENOTRECOVERABLE || !strstr(err.text, why))
            fail_msg("%s: %d: %s", asks[i], r, err.text);
    }
    /* A confined child can still answer. */
    assert_int_equal(pictures_request(pictures, "!nothing", 8, &err), 0);
    assert_int_equal(pictures_take(pictures, got, &err), 0);
}

/* On a kernel without seccomp, only limits confine the children, and pictures_filter() returns the error. */
static void a_kernel_without_filters_is_told(void **state)
{
    (void)state;
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(2, "pictures.filter=eio", NULL);
    assert_int_equal(pictures_filter(pictures), -EIO);
    assert_int_equal(status_number(pictures_child_pid(pictures, 0), "Seccomp:"), 0);
    for (int i = 0; i < N_FILES; i++)
        ask(pictures, i);
    for (int i = 0; i < N_FILES; i++)
        take_right(pictures, i);
}

static int n_open(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    _cleanup_dir_ DIR *dir = opendir(path);
    assert_non_null(dir);
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    return n;
}

static void a_child_has_one_descriptor_and_bounds(void **state)
{
    (void)state;
    assert_int_equal(setenv("SDTRAIN_TEST_SECRET", "a credential", 1), 0);
    _cleanup_(pictures_freep) Pictures *pictures = open_pictures(1, "no.such=kill", NULL);
    pid_t pid = pictures_child_pid(pictures, 0);
    assert_int_equal(n_open(pid), 1);
    assert_int_equal(pictures_filter(pictures), CHILD_IS_SANITIZED ? -ENOTSUP : 0);
    assert_int_equal(status_number(pid, "Seccomp:"), CHILD_IS_SANITIZED ? 0 : 2);
    assert_int_equal(status_number(pid, "NoNewPrivs:"), 1);
    assert_int_equal(status_number(pid, "Threads:"),
                     CHILD_IS_SANITIZED ? status_number(pid, "Threads:") : 1);
    static const int zero[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_NPROC, RLIMIT_CORE};
    struct rlimit limit;
    for (size_t i = 0; i < ELEMENTSOF(zero); i++) {
        assert_int_equal(prlimit(pid, (__rlimit_resource_t)zero[i], NULL, &limit), 0);
        assert_true(limit.rlim_cur == 0 && limit.rlim_max == 0);
    }
    assert_int_equal(prlimit(pid, RLIMIT_AS, NULL, &limit), 0);
    assert_true(CHILD_IS_SANITIZED ||
                limit.rlim_cur < (uint64_t)PICTURES_CHILD_BYTES + (UINT64_C(1) << 30));
    char environment[1 << 16];
    size_t n = read_proc(pid, "environ", environment, sizeof(environment));
    assert_non_null(memmem(environment, n, "no.such=kill", 12));
    assert_null(memmem(environment, n, "credential", 10));
    ask(pictures, 0);
    take_right(pictures, 0);
}

static void a_child_dies_with_its_parent(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t parent = fork();
    if (parent == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        Pictures *pictures = open_pictures(1, "pictures.decode=stall@*", NULL);
        ask(pictures, 0);
        pid_t pid = pictures_child_pid(pictures, 0);
        if (write(pipes[1], &pid, sizeof(pid)) != sizeof(pid))
            _exit(1);
        for (;;)
            (void)pause();
    }
    pid_t child = 0;
    assert_int_equal(read(pipes[0], &child, sizeof(child)), sizeof(child));
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    assert_true(fd >= 0);
    (void)kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&end, 1, 120000), 1);
    (void)close(fd);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void a_program_that_does_not_start_is_named(void **state)
{
    (void)state;
    Pictures *pictures = NULL;
    Error err = ERROR_INIT;
    PicturesOptions options = {.recipe = small, .n_children = 2, .program = "/no/such/program"};
    assert_int_equal(pictures_open(&options, &pictures, &err), -ECHILD);
    assert_non_null(strstr(err.text, "/no/such/program"));
    options.program = "/bin/true";
    assert_int_equal(pictures_open(&options, &pictures, &err), -ECHILD);
    assert_non_null(strstr(err.text, "exit status 0"));
    options.n_children = 0;
    assert_int_equal(pictures_open(&options, &pictures, &err), -EINVAL);
    options.n_children = 1;
    options.recipe.side = 0;
    assert_int_equal(pictures_open(&options, &pictures, &err), -EINVAL);
}

int main(int argc, char **argv)
{
    pictures_child(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_in_the_order_of_questions),
        cmocka_unit_test(a_child_decodes_what_this_process_does),
        cmocka_unit_test(what_needs_no_child_has_its_place_in_the_order),
        cmocka_unit_test(a_picture_is_tried_again_in_another_child),
        cmocka_unit_test(the_answers_of_a_dead_child_are_heard),
        cmocka_unit_test(a_picture_that_fails_twice_has_no_answer),
        cmocka_unit_test(the_end_of_a_child_is_known_where_its_signal_was_ignored),
        cmocka_unit_test(a_child_that_is_taken_over_is_not_believed),
        cmocka_unit_test(the_blame_is_not_of_those_answered_while_others_were_asked),
        cmocka_unit_test(a_child_that_is_taken_over_can_ask_nothing_of_the_kernel),
        cmocka_unit_test(a_kernel_without_filters_is_told),
        cmocka_unit_test(a_child_has_one_descriptor_and_bounds),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(a_program_that_does_not_start_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
