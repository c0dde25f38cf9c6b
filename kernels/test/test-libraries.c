/* SPDX-License-Identifier: Apache-2.0 */
/* test-libraries.c - tests where cuDNN and cuBLASLt are searched for, which copies are refused, and what is reported.
 * Each case runs in a separate process, because open libraries stay open. */
#include "base/cleanup.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/forward.h"
#include "kernels/cuda/module/libraries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TOOLKIT "/usr/local/cuda/lib64"

typedef struct Answer { /* the answer of the child process */
    int r[2];           /* results of two calls, which must be equal */
    Error err;
    CudaLibraries found;
    cudnnStatus_t before, after; /* status of a call before and after the libraries are open */
    size_t version;              /* the result of cudnnGetVersion(), which forward.c forwards */
} Answer;

typedef struct Setting { /* values of environment variables; NULL: the variable is not set */
    const char *libraries, *loader, *python, *programs;
    const char *toolkit; /* NULL: the usual folder */
} Setting;

static void put(const char *name, const char *value)
{
    if (value ? setenv(name, value, 1) : unsetenv(name))
        _exit(2);
}

static void ask(Answer *a, const char *toolkit)
{
    const CudaLibraries *libraries[2] = {NULL, NULL};
    cudnnBackendDescriptor_t descriptor = NULL;
    a->before = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor);
    for (int i = 0; i < 2; i++) {
        a->err = ERROR_INIT;
        if (toolkit)
            a->r[i] = cuda_libraries_find(toolkit, &a->found, &a->err);
        else
            a->r[i] = cuda_libraries_open(&libraries[i], &a->err);
    }
    a->version = cudnnGetVersion();
    if (a->r[0] < 0)
        return;
    if (libraries[0] != libraries[1])
        _exit(3);
    if (!toolkit)
        a->found = *libraries[0];
    a->after = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor);
}

static Answer answer_in(const char *folder, Setting setting)
{
    int pair[2];
    static Answer answer;
    answer = (Answer){0};
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        put("SDTRAIN_CUDA_LIBRARIES", setting.libraries);
        put("LD_LIBRARY_PATH", setting.loader);
        put("VIRTUAL_ENV", setting.python);
        put("PATH", setting.programs);
        if (chdir(folder) < 0)
            _exit(2);
        ask(&answer, setting.toolkit);
        _exit(write(pair[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 2);
    }
    assert_int_equal(close(pair[1]), 0);
    char *to = (char *)&answer;
    size_t got = 0;
    for (ssize_t n; (n = read(pair[0], to + got, sizeof(answer) - got)) > 0;)
        got += (size_t)n;
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(got, sizeof(answer));
    assert_int_equal(close(pair[0]), 0);
    return answer;
}

static Answer answer_with(const char *libraries)
{
    return answer_in("/", (Setting){.libraries = libraries});
}

static void assert_says(const Answer *answer, const char *text)
{
    if (!strstr(answer->err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", answer->err.text, text);
}

static void test_opens(void **state)
{
    (void)state;
    Answer a = answer_with(FAKES);
    assert_int_equal(a.r[0], 0);
    assert_int_equal(a.r[1], 0);
    assert_int_equal(a.before, CUDNN_STATUS_NOT_INITIALIZED);
    assert_int_equal(a.found.cudnn_version, CUDNN_VERSION);
    assert_int_equal(a.found.cublaslt_version, CUBLAS_VERSION);
    assert_int_equal(a.found.nvrtc_version, 0);
    assert_string_equal(a.found.cudnn_folder, FAKES);
    assert_string_equal(a.found.cublaslt_folder, FAKES);
    assert_int_equal(a.version, CUDNN_VERSION);

    /* Each library is taken from the first of several folders that has it; a later minor version is accepted. */
    a = answer_with("/tmp:" FAKES_REFUSED "/newer:" FAKES);
    assert_int_equal(a.r[0], 0);
    assert_int_equal(a.found.cudnn_version, 92400);
    assert_string_equal(a.found.cudnn_folder, FAKES_REFUSED "/newer");
    assert_string_equal(a.found.cublaslt_folder, FAKES);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *libraries;
        int r;
        const char *says[3];
    } cases[] = {
        {FAKES_REFUSED "/older:" FAKES, -EPROTO, {"libcudnn.so.9", "version 91800", "9.19"}},
        {FAKES_REFUSED "/other:" FAKES, -EPROTO, {"libcudnn.so.9", "version 100000", "of 9"}},
        {FAKES_REFUSED "/other-blas:" FAKES,
         -EPROTO,
         {"libcublasLt.so.13", "version 120800", "of 13"}},
        {FAKES_REFUSED "/lacking:" FAKES, -EPROTO, {FAKES_REFUSED, "cudnnBackendExecute()", ""}},
        {FAKES_REFUSED "/newer", -ENODEV, {FAKES_REFUSED, "no libcublasLt.so.13", ""}},
        {FAKES_REFUSED "/other-blas", -ENODEV, {FAKES_REFUSED, "no libcudnn.so.9", ""}},
        {"/nowhere/at-all", -ENODEV, {"/nowhere/at-all", "No such file", "no cuDNN and cuBLASLt"}},
        {FAKES ":/etc/passwd", -ENODEV, {"/etc/passwd", "Not a directory", ""}},
        {"fake-cuda", -ENODEV, {"fake-cuda", "not an absolute path", "SDTRAIN_CUDA_LIBRARIES"}},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Answer a = answer_with(cases[i].libraries);
        assert_int_equal(a.r[0], cases[i].r);
        assert_int_equal(a.r[1], cases[i].r);
        assert_int_equal(a.version, 0);
        for (size_t k = 0; k < ELEMENTSOF(cases[i].says); k++)
            assert_says(&a, cases[i].says[k]);
    }
}

/* A folder that the test fills. tree_remove() removes it with its files. */
typedef struct Tree {
    char folder[64], path[512];
} Tree;

static void tree_make(Tree *t, const char *folder)
{
    (void)snprintf(t->path, sizeof(t->path), "%s/%s", t->folder, folder);
    for (char *p = t->path + strlen(t->folder) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        assert_true(mkdir(t->path, 0755) == 0 || errno == EEXIST);
    }
    assert_int_equal(mkdir(t->path, 0755), 0);
}

static void tree_link(Tree *t, const char *to, const char *name)
{
    (void)snprintf(t->path, sizeof(t->path), "%s/%s", t->folder, name);
    assert_int_equal(symlink(to, t->path), 0);
}

/* Copies a library: a link would not do, because the parts of a library are searched for in the folder of the real
 * file. */
static void tree_copy(Tree *t, const char *from, const char *name)
{
    (void)snprintf(t->path, sizeof(t->path), "cp '%s' '%s/%s'", from, t->folder, name);
    assert_int_equal(system(t->path), 0);
}

static void tree_remove(Tree *t)
{
    (void)snprintf(t->path, sizeof(t->path), "rm -r '%s'", t->folder);
    assert_int_equal(system(t->path), 0);
}

static void test_broken_file(void **state)
{
    (void)state;
    Tree t = {.folder = "/tmp/test-libraries-XXXXXX"};
    assert_non_null(mkdtemp(t.folder));
    tree_link(&t, "/etc/passwd", "libcudnn.so.9");
    tree_link(&t, FAKES "/libcublasLt.so.13", "libcublasLt.so.13");
    Answer a = answer_with(t.folder);
    assert_int_equal(a.r[0], -ENODEV);
    assert_says(&a, "/etc/passwd");
    assert_says(&a, "invalid ELF header");

    /* A part that cuDNN opens later by name must not be damaged either. */
    tree_remove(&t);
    assert_int_equal(mkdir(t.folder, 0755), 0);
    tree_copy(&t, FAKES "/libcudnn.so.9", "libcudnn.so.9");
    tree_link(&t, FAKES "/libcublasLt.so.13", "libcublasLt.so.13");
    tree_link(&t, "/etc/passwd", "libcudnn_ops.so.9");
    a = answer_with(t.folder);
    assert_int_equal(a.r[0], -ENODEV);
    assert_says(&a, "libcudnn_ops.so.9");
    tree_remove(&t);
}

/* A file whose name shows an old version is not opened. If it were opened, it would stay open, and the loader would use
 * it again when the next place is tried. */
static void test_file_names(void **state)
{
    (void)state;
    Tree t = {.folder = "/tmp/test-libraries-XXXXXX"};
    assert_non_null(mkdtemp(t.folder));
    tree_copy(&t, "/etc/passwd", "libcudnn.so.8.9.7"); /* the file cannot be opened as a library */
    tree_link(&t, "libcudnn.so.8.9.7", "libcudnn.so.9");
    tree_link(&t, FAKES "/libcublasLt.so.13", "libcublasLt.so.13");
    Answer a = answer_with(t.folder);
    assert_int_equal(a.r[0], -EPROTO);
    assert_says(&a, "libcudnn.so.9 is of version 80907");
    tree_remove(&t);

    assert_int_equal(mkdir(t.folder, 0755), 0);
    tree_copy(&t, FAKES "/libcudnn.so.9", "libcudnn.so.9.30.0");
    tree_link(&t, "libcudnn.so.9.30.0", "libcudnn.so.9");
    tree_copy(&t, "/etc/passwd", "libcublasLt.so.12.8.4.1");
    tree_link(&t, "libcublasLt.so.12.8.4.1", "libcublasLt.so.13");
    a = answer_with(t.folder);
    assert_int_equal(a.r[0], -EPROTO);
    assert_says(&a, "libcublasLt.so.13 is of version 120804");
    tree_remove(&t);

    assert_int_equal(mkdir(t.folder, 0755), 0);
    tree_copy(&t, FAKES "/libcudnn.so.9",
              "libcudnn.so.9.30.0"); /* the version that the library reports counts, too */
    tree_link(&t, "libcudnn.so.9.30.0", "libcudnn.so.9");
    tree_link(&t, FAKES "/libcublasLt.so.13", "libcublasLt.so.13");
    a = answer_with(t.folder);
    assert_int_equal(a.r[0], 0);
    assert_int_equal(a.found.cudnn_version, CUDNN_VERSION);
    tree_remove(&t);
}

/* An LD_LIBRARY_PATH that names the current folder is refused: the loader would open libraries there, whoever wrote
 * them. */
static void test_current_folder(void **state)
{
    (void)state;
    static const char *const folders[] = {":/usr/lib", "/usr/lib::/lib", "/usr/lib:",
                                          ".",         "lib:/lib",       "/lib:lib"};
    for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
        Answer a =
            answer_in(FAKES,
                      (Setting){.loader = folders[i], .programs = ".", .toolkit = "/nowhere"});
        assert_int_equal(a.r[0], -ENODEV);
        assert_says(&a, "LD_LIBRARY_PATH names the current folder");
    }
}

static void test_wheels(void **state)
{
    (void)state;
    Tree t = {.folder = "/tmp/test-libraries-XXXXXX"};
    char loader[128], environment[128];
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(environment, sizeof(environment), "%s/venv", t.folder);
    (void)snprintf(loader, sizeof(loader), "%s:", t.folder);
    tree_make(&t, "venv/lib/python3.11/site-packages/nvidia/cudnn/lib");
    tree_make(&t, "venv/lib/python3.11/site-packages/nvidia/cu13/lib");
    tree_make(&t, "venv/bin");
    tree_link(&t, FAKES "/libcudnn.so.9",
              "venv/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
    const Setting half = {.python = environment, .loader = loader, .toolkit = "/nowhere"};
    Answer a = answer_in("/", half);
    assert_int_equal(a.r[0], -ENODEV);
    assert_says(&a, "/nowhere: no libcudnn.so.9");
    assert_says(&a, "python3.11/site-packages/nvidia: no libcublasLt.so.13");
    tree_link(&t, FAKES "/libcublasLt.so.13",
              "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
    a = answer_in("/", half);
    assert_int_equal(a.r[0], 0);
    assert_string_equal(a.found.cudnn_folder, FAKES);

    /* The libraries are also found through a python3 on the PATH; a python3 in a relative folder is ignored. */
    tree_link(&t, "/bin/sh", "venv/bin/python3");
    (void)snprintf(environment, sizeof(environment), ".:%s/venv/bin", t.folder);
    const Setting by_path = {.programs = environment, .loader = loader, .toolkit = "/nowhere"};
    a = answer_in("/", by_path);
    assert_int_equal(a.r[0], 0);
    (void)snprintf(environment, sizeof(environment), ".:venv/bin");
    a = answer_in(t.folder, by_path);
    assert_int_equal(a.r[0], -ENODEV);
    assert_says(&a, "of no python3");
    tree_remove(&t);
}

/* The vendor's libraries open without a GPU, if this machine has them. */
static void test_toolkit(void **state)
{
    (void)state;
    if (access(TOOLKIT "/libcudnn.so.9", F_OK) < 0 ||
        access(TOOLKIT "/libcublasLt.so.13", F_OK) < 0)
        skip();
    Answer a = answer_with(TOOLKIT);
    assert_int_equal(a.r[0], 0);
    assert_int_equal(a.before, CUDNN_STATUS_NOT_INITIALIZED);
    assert_int_equal(a.after, CUDNN_STATUS_SUCCESS);
    assert_int_equal(a.version, a.found.cudnn_version);
    assert_int_equal(a.found.cudnn_version / 10000, CUDNN_MAJOR);
    assert_int_equal(a.found.cublaslt_version / 10000, CUBLAS_VER_MAJOR);
    assert_true(a.found.nvrtc_version >= 13000);
    assert_string_equal(a.found.cudnn_folder, a.found.cublaslt_folder);
    a = answer_in("/", (Setting){.loader = NULL});
    assert_int_equal(a.r[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens),       cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_broken_file), cmocka_unit_test(test_file_names),
        cmocka_unit_test(test_wheels),      cmocka_unit_test(test_current_folder),
        cmocka_unit_test(test_toolkit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
