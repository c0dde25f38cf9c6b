/* SPDX-License-Identifier: Apache-2.0 */
/* test-cgroup.c - the cgroups of slots, in a folder that behaves like the kernel's: a new folder has its files at
 * once, and loses them when it is removed. No time passes. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/process/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define RUN_DIR "/run/sdtrain"
#define UNDER "/system.slice/sdtraind.service"

static char root[64]; /* mount point of the hierarchy */
static CgroupBase base;
static const char *const kernel_files[] = {"cgroup.events", "cgroup.kill", "cgroup.procs"};

/* How the fake kernel behaves, and what it has counted. */
static int n_polls, n_pauses;
static int empty_at_poll;         /* the base is empty from this poll on; 0: it never is */
static int busy_for;              /* number of rmdirs of the base that fail with EBUSY */
static bool is_removed_meanwhile; /* a read fails as if the folder had been removed */
static bool no_kill;              /* there is no cgroup.kill, as in Linux before 5.14 */
static pid_t killed[8];
static size_t n_killed;

static const char *path_in(const char *folder, const char *name)
{
    static char path[32][700];
    static size_t at;
    char *ret = path[at++ % ELEMENTSOF(path)];
    (void)snprintf(ret, sizeof(path[0]), "%s/%s", folder, name);
    return ret;
}

static const char *slot_folder(int slot)
{
    static char path[600];
    (void)snprintf(path, sizeof(path), "%s/slot%d", base.path, slot);
    return path;
}

static void set_text(const char *path, const char *text)
{
    Error err = ERROR_INIT;
    if (file_write(path, text, strlen(text), 0, &err) < 0)
        fail_msg("%s", err.text);
}

static void expect_text(const char *path, const char *wanted)
{
    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    Error err = ERROR_INIT;
    if (file_read(path, 100, &text, &n, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(text, wanted);
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* ---- the fake kernel ---- */

__typeof__(fopen) __real_fopen, __wrap_fopen;
__typeof__(mkdir) __real_mkdir, __wrap_mkdir;
__typeof__(rmdir) __real_rmdir, __wrap_rmdir;
__typeof__(unlinkat) __real_unlinkat, __wrap_unlinkat;
__typeof__(poll) __real_poll, __wrap_poll;
__typeof__(pread) __real_pread, __wrap_pread;
__typeof__(nanosleep) __wrap_nanosleep;
__typeof__(kill) __wrap_kill;

FILE *__wrap_fopen(const char *path, const char *mode)
{
    if (strcmp(path, "/proc/self/mountinfo") == 0)
        path = path_in(root, "mountinfo");
    if (strcmp(path, "/proc/self/cgroup") == 0)
        path = path_in(root, "own");
    return __real_fopen(path, mode);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    if (__real_mkdir(path, mode) < 0)
        return -1;
    for (size_t i = 0; strstr(path, "/sdtrain-") && i < ELEMENTSOF(kernel_files); i++)
        if (!no_kill || i != 1)
            set_text(path_in(path, kernel_files[i]), i == 0 ? "populated 0\nfrozen 0\n" : "");
    errno = 0; /* errno has no meaning after a success */
    return 0;
}

static int remove_cgroup(const char *path)
{
    for (int slot = 0; slot < 12; slot++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "slot%d", slot);
        if (is_there(path_in(path, name))) {
            errno = EBUSY;
            return -1;
        }
    }
    for (size_t i = 0; i < ELEMENTSOF(kernel_files); i++)
        (void)unlink(path_in(path, kernel_files[i]));
    const int r = __real_rmdir(path);
    errno = r == 0 ? EBUSY : errno; /* errno has no meaning after a success */
    return r;
}

int __wrap_rmdir(const char *path)
{
    if (strcmp(path, base.path) == 0 && busy_for > 0) {
        busy_for--;
        errno = EBUSY;
        return -1;
    }
    return remove_cgroup(path);
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    if (flags != AT_REMOVEDIR)
        return __real_unlinkat(folder, name, flags);
    return remove_cgroup(path_in(base.path, name));
}

int __wrap_poll(_unused_ struct pollfd *fds, nfds_t n, int timeout_msec)
{
    assert_true(n == 1 && timeout_msec > 0);
    if (++n_polls == empty_at_poll) {
        _cleanup_fd_ int events =
            open(path_in(base.path, "cgroup.events"), O_WRONLY | O_TRUNC | O_CLOEXEC);
        assert_int_equal(fd_write_all(events, "populated 0\n", 12), 0);
    }
    return 0;
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    if (is_removed_meanwhile) {
        errno = ENODEV;
        return -1;
    }
    return __real_pread(fd, data, n, offset);
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    assert_true(pause->tv_sec == 0 && pause->tv_nsec > 0 && !left);
    n_pauses++;
    return 0;
}

int __wrap_kill(pid_t pid, int signal)
{
    assert_int_equal(signal, SIGKILL);
    assert_true(n_killed < ELEMENTSOF(killed));
    killed[n_killed++] = pid;
    return 0;
}

static int set_up(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char line[400];
    (void)snprintf(root, sizeof(root), "/tmp/test-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
    n_polls = n_pauses = empty_at_poll = busy_for = 0;
    n_killed = 0;
    is_removed_meanwhile = no_kill = false;
    (void)snprintf(line, sizeof(line),
                   "30 23 0:26 / /elsewhere rw shared:4 - cgroup cgroup rw,cpu\n"
                   "41 31 0:38 / %s rw,relatime - cgroup2 cgroup2 rw\n"
                   "42 31 0:39 / /later rw - cgroup2 cgroup2 rw\n",
                   root);
    set_text(path_in(root, "mountinfo"), line);
    set_text(path_in(root, "own"), "10::/other\n9:cpu:/cpu\n0::" UNDER "\n");
    assert_int_equal(folder_make(path_in(root, &UNDER[1]), &err), 0);
    if (cgroup_open(&base, RUN_DIR, &err) < 0)
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(_unused_ void **state) { return folder_remove(root, NULL); }

/* ---- the base folder ---- */

static void it_lies_where_this_process_is(_unused_ void **state)
{
    char begin[200];
    CgroupBase again, other;
    struct stat st;
    Error err = ERROR_INIT;
    (void)snprintf(begin, sizeof(begin), "%s" UNDER "/sdtrain-", root);
    assert_int_equal(strncmp(base.path, begin, strlen(begin)), 0);
    assert_int_equal(strlen(base.path), strlen(begin) + 16);
    assert_int_equal(stat(base.path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(cgroup_open(&again, RUN_DIR, &err), 0); /* the folder exists */
    assert_string_equal(again.path, base.path);
    assert_int_equal(cgroup_open(&other, RUN_DIR "2", &err), 0);
    assert_string_not_equal(other.path, base.path);

    set_text(path_in(root, "own"), "0::/\n"); /* as in a container, whose own cgroup is the root */
    assert_int_equal(cgroup_open(&again, RUN_DIR, &err), 0);
    (void)snprintf(begin, sizeof(begin), "%s/sdtrain-", root);
    assert_int_equal(strncmp(again.path, begin, strlen(begin)), 0);
    assert_true(is_there(again.path));
}

static void expect_none(const char *why)
{
    CgroupBase found = {.path = "as before"};
    Error err = ERROR_INIT;
    assert_int_equal(cgroup_open(&found, RUN_DIR, &err), -EOPNOTSUPP);
    assert_non_null(strstr(err.text, why));
    assert_string_equal(found.path, "as before");
}

/* A path of the greatest length is accepted; a path one byte longer is refused, not cut. */
static void no_path_is_cut(_unused_ void **state)
{
    char own[300], line[400];
    CgroupBase found;
    memset(own, 'a', sizeof(own));
    for (size_t n = 199; n <= 200; n++) {
        own[0] = '/';
        own[n] = '\0';
        (void)snprintf(line, sizeof(line), "0::%s\n", own);
        set_text(path_in(root, "own"), line);
        (void)__real_mkdir(path_in(root, own + 1), 0700);
        assert_int_equal(cgroup_open(&found, RUN_DIR, NULL), n == 199 ? 0 : -EOPNOTSUPP);
        own[n] = 'a';
    }
    set_text(path_in(root, "own"), "0::/\n");
    for (size_t n = 255; n <= 256; n++) {
        (void)snprintf(own, sizeof(own), "%s", root);
        while (strlen(own) < n)
            (void)snprintf(own + strlen(own), n + 1 - strlen(own), "/.");
        (void)snprintf(line, sizeof(line), "1 2 3 / %s rw - cgroup2 cgroup2 rw\n", own);
        set_text(path_in(root, "mountinfo"), line);
        assert_int_equal(cgroup_open(&found, RUN_DIR, NULL), n == 255 ? 0 : -EOPNOTSUPP);
    }
}

static void where_there_is_none_it_is_told(_unused_ void **state)
{
    char line[700], mount[600];
    set_text(path_in(root, "own"), "0::/not/there\n");
    expect_none("cannot make it (No such file or directory)");
    set_text(path_in(root, "own"), "1:cpu:/\n");
    expect_none("no cgroup v2");
    memset(mount, 'a', sizeof(mount));
    mount[300] = '\0';
    (void)snprintf(line, sizeof(line), "0::/%s\n", mount);
    set_text(path_in(root, "own"), line); /* a path that is too long is not cut */
    expect_none("no cgroup v2");
    (void)unlink(path_in(root, "own"));
    expect_none("no cgroup v2");

    set_text(path_in(root, "own"), "0::/\n");
    (void)snprintf(line, sizeof(line), "41 31 0:38 / /%s rw - cgroup2 cgroup2 rw\n", mount);
    set_text(path_in(root, "mountinfo"), line);
    expect_none("no cgroup v2");
    set_text(path_in(root, "mountinfo"), "30 23 0:26 / / rw - cgroup cgroup rw,cpu\n - cgroup2 \n");
    expect_none("no cgroup v2");
    (void)unlink(path_in(root, "mountinfo"));
    expect_none("no cgroup v2");
}

/* ---- slots ---- */

static void make_slot(int slot)
{
    _cleanup_fd_ int folder = -EBADF, events = -EBADF;
    Error err = ERROR_INIT;
    struct stat at, of;
    if (cgroup_make_slot(&base, slot, &folder, &events, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(fstat(folder, &at), 0);
    assert_int_equal(stat(slot_folder(slot), &of), 0);
    assert_true(at.st_ino == of.st_ino && S_ISDIR(at.st_mode));
    assert_int_equal(cgroup_is_populated(events), 0);
    assert_true(fcntl(folder, F_GETFD) & FD_CLOEXEC && fcntl(events, F_GETFD) & FD_CLOEXEC);
}

static void each_slot_has_its_own(_unused_ void **state)
{
    make_slot(1);
    make_slot(10);
    make_slot(1); /* as an earlier sdtraind leaves the slot */
    assert_int_equal(cgroup_kill_slot(&base, 1), 0);
    expect_text(path_in(slot_folder(1), "cgroup.kill"), "1");
    expect_text(path_in(slot_folder(10), "cgroup.kill"), "");
    expect_text(path_in(base.path, "cgroup.kill"), "");
    assert_int_equal(cgroup_remove_slot(&base, 1), 0);
    assert_false(is_there(slot_folder(1)));
    assert_true(is_there(slot_folder(10)));
    assert_int_equal(cgroup_remove_slot(&base, 1), -ENOENT);
    assert_int_equal(cgroup_kill_slot(&base, 1), 0); /* the cgroup was removed */
    assert_int_equal(n_killed, 0);
}

static void make_below(int slot)
{
    const char *const names[] = {"payload", "payload/conmon", "payload/conmon/a", "other"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        assert_int_equal(mkdir(path_in(slot_folder(slot), names[i]), 0755), 0);
}

/* A program may be a container runtime, which makes cgroups below its slot's. */
static void what_a_runtime_has_made_goes_with_the_slot(_unused_ void **state)
{
    Error err = ERROR_INIT;
    make_slot(0);
    make_slot(1);
    make_below(0);
    make_below(1);
    assert_int_equal(cgroup_remove_slot(&base, 0), 0);
    assert_false(is_there(slot_folder(0)));
    assert_true(is_there(path_in(slot_folder(1), "payload/conmon/a")));
    empty_at_poll = 1;
    assert_int_equal(cgroup_destroy(&base, &err), 0);
    assert_false(is_there(base.path));
}

static void a_slot_that_cannot_be_made_is_told(_unused_ void **state)
{
    int folder = -5, events = -5;
    Error err = ERROR_INIT;
    make_slot(2);
    (void)unlink(path_in(slot_folder(2), "cgroup.events"));
    assert_int_equal(cgroup_make_slot(&base, 2, &folder, &events, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/slot2/cgroup.events: cannot open it"));
    set_text(slot_folder(3), "");
    assert_int_equal(cgroup_make_slot(&base, 3, &folder, &events, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "/slot3: cannot open it"));
    (void)snprintf(base.path, sizeof(base.path), "%s/gone", root);
    assert_int_equal(cgroup_make_slot(&base, 4, &folder, &events, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/gone/slot4: cannot make it"));
    assert_true(folder == -5 && events == -5);
}

/* cgroup.procs shows 0 for a process of another pid namespace. Such lines must not reach kill(), where 0 means the
 * caller's own group and -1 all processes. */
static void before_linux_5_14_each_process_is_killed(_unused_ void **state)
{
    no_kill = true;
    make_slot(0);
    make_slot(1);
    set_text(path_in(slot_folder(0), "cgroup.procs"), "71\n0\n-1\n72\n1000003\n");
    set_text(path_in(slot_folder(1), "cgroup.procs"), "81\n");
    assert_int_equal(cgroup_kill_slot(&base, 0), 0);
    assert_int_equal(n_killed, 3);
    assert_true(killed[0] == 71 && killed[1] == 72 && killed[2] == 1000003);
    (void)unlink(path_in(slot_folder(1), "cgroup.procs"));
    assert_int_equal(cgroup_kill_slot(&base, 1), 0);
    assert_int_equal(__real_mkdir(path_in(slot_folder(1), "cgroup.kill"), 0700), 0);
    assert_int_equal(cgroup_kill_slot(&base, 1), -EISDIR); /* cgroup.kill is not writable */
    assert_int_equal(n_killed, 3);
}

static void whoever_lives_inside_is_seen(_unused_ void **state)
{
    static const struct {
        const char *text;
        int is;
    } cases[] = {{"populated 1\nfrozen 0\n", 1},
                 {"frozen 1\npopulated 0\n", 0},
                 {"frozen 0\npopulated 1\n", 1},
                 {"populated 0", 0},
                 {"", -EBADMSG},
                 {"frozen 1\n", -EBADMSG}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        set_text(path_in(root, "events"), cases[i].text);
        _cleanup_fd_ int fd = open(path_in(root, "events"), O_RDONLY | O_CLOEXEC);
        assert_int_equal(cgroup_is_populated(fd), cases[i].is);
        assert_int_equal(cgroup_is_populated(fd), cases[i].is); /* each call reads the whole file */
    }
    _cleanup_fd_ int full = open(path_in(base.path, "cgroup.events"), O_RDONLY | O_CLOEXEC);
    _cleanup_fd_ int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(cgroup_is_populated(full), 0);
    assert_int_equal(cgroup_is_populated(none), -EBADMSG); /* no earlier result is used */
    assert_int_equal(cgroup_is_populated(-1), -EBADF);
    is_removed_meanwhile = true;
    assert_int_equal(cgroup_is_populated(0), 0);
}

/* ---- destroying all cgroups ---- */

static void populate(void) { set_text(path_in(base.path, "cgroup.events"), "populated 1\n"); }

static void the_end_of_all_is_awaited(_unused_ void **state)
{
    const char *own = base.path + strlen(root);
    assert_int_equal(cgroup_await_empty(own, 0), 0);
    assert_int_equal(cgroup_await_empty("/of/nobody.slice", 0), 0);
    assert_int_equal(cgroup_await_empty("relative", 0), -EINVAL);
    populate();
    assert_int_equal(cgroup_await_empty(own, 0), -ETIMEDOUT);
    assert_int_equal(n_polls, 0);
    assert_int_equal(cgroup_await_empty(own, 1), -ETIMEDOUT);
    n_polls = 0;
    empty_at_poll = 3;
    assert_int_equal(cgroup_await_empty(own, 60000), 0);
    assert_int_equal(n_polls, 3);
}

static void all_of_it_is_ended_and_removed(_unused_ void **state)
{
    Error err = ERROR_INIT;
    make_slot(0);
    make_slot(7);
    populate();
    empty_at_poll = 3;
    busy_for = 2;
    if (cgroup_destroy(&base, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n_polls, 3);
    assert_int_equal(n_pauses, 2);
    assert_false(is_there(base.path));
    assert_int_equal(cgroup_destroy(&base, &err), 0); /* the base is already removed */
    assert_int_equal(n_polls + n_pauses, 5);
    assert_true(is_there(path_in(root, &UNDER[1])));
}

/* Descriptor 0 is valid in a daemon without standard input, and repeated starts and ends leak no descriptor. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    Error err = ERROR_INIT;
    const int input = dup(0), first = dup(0);
    assert_int_equal(close(first) | close(0), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cgroup_open(&base, RUN_DIR, &err), 0);
        make_slot(0);
        assert_int_equal(cgroup_kill_slot(&base, 0), 0);
        expect_text(path_in(slot_folder(0), "cgroup.kill"), "1");
        populate();
        empty_at_poll = n_polls + 2;
        assert_int_equal(cgroup_destroy(&base, &err), 0);
        assert_int_equal(n_polls, empty_at_poll);
    }
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    assert_int_equal(close(first) | close(input), 0);
}

static void without_cgroups_there_is_nothing_to_end(_unused_ void **state)
{
    const CgroupBase none = {.path = ""};
    assert_int_equal(cgroup_destroy(&none, NULL), 0);
    assert_int_equal(n_polls + n_pauses, 0);
}

static void what_does_not_end_keeps_its_folders(_unused_ void **state)
{
    Error err = ERROR_INIT;
    make_slot(0);
    populate();
    assert_int_equal(cgroup_destroy(&base, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "cannot end what runs inside"));
    assert_int_equal(n_polls, 20); /* 20 polls of 100 ms make 2 s */
    expect_text(path_in(base.path, "cgroup.kill"), "1");
    assert_true(is_there(slot_folder(0)));
    (void)unlink(path_in(base.path, "cgroup.kill"));
    assert_int_equal(__real_mkdir(path_in(base.path, "cgroup.kill"), 0700), 0);
    assert_int_equal(cgroup_destroy(&base, &err), -EISDIR);
    assert_int_equal(n_polls, 20);
}

static void what_stays_busy_is_told(_unused_ void **state)
{
    Error err = ERROR_INIT;
    make_slot(0);
    busy_for = 1000;
    assert_int_equal(cgroup_destroy(&base, &err), -EBUSY);
    assert_non_null(strstr(err.text, "cannot remove it"));
    assert_int_equal(n_pauses, 20);
    assert_false(is_there(slot_folder(0)));
}

/* Only the slots' folders are removed; with another folder inside, the removal fails at once, without a wait. */
static void what_is_no_slot_stays(_unused_ void **state)
{
    Error err = ERROR_INIT;
    make_slot(0);
    assert_int_equal(__real_mkdir(path_in(base.path, "others"), 0700), 0);
    set_text(path_in(base.path, "slots"), "");
    assert_int_equal(cgroup_destroy(&base, &err), -ENOTEMPTY);
    assert_int_equal(n_pauses, 0);
    assert_true(is_there(path_in(base.path, "others")) && is_there(path_in(base.path, "slots")));
    assert_false(is_there(slot_folder(0)));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(it_lies_where_this_process_is),
        CASE(no_path_is_cut),
        CASE(where_there_is_none_it_is_told),
        CASE(each_slot_has_its_own),
        CASE(what_a_runtime_has_made_goes_with_the_slot),
        CASE(a_slot_that_cannot_be_made_is_told),
        CASE(before_linux_5_14_each_process_is_killed),
        CASE(whoever_lives_inside_is_seen),
        CASE(the_end_of_all_is_awaited),
        CASE(all_of_it_is_ended_and_removed),
        CASE(descriptor_0_is_one_and_none_is_left),
        CASE(without_cgroups_there_is_nothing_to_end),
        CASE(what_does_not_end_keeps_its_folders),
        CASE(what_stays_busy_is_told),
        CASE(what_is_no_slot_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
