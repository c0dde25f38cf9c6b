/* SPDX-License-Identifier: Apache-2.0 */
/* test-paths.c - which paths and URIs a job may name. */
#include "base/file.h"
#include "base/test/testing.h"
#include "protocol/paths.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static Job *make_job(const char *data, const char *checkpoints)
{
    char text[2048];
    Job *job = NULL;
    Error err = ERROR_INIT;
    (void)snprintf(text, sizeof(text),
                   "{\"name\": \"a\", \"world\": {\"min\": 1, \"max\": 1}, \"model\": {\"config\": "
                   "\"%s/config.json\"},"
                   "\"data\": {\"streams\": [{\"uri\": \"%s\"}], \"empty_text\": \"%s/empty.npy\"},"
                   "\"train\": {\"global_batch\": 1, \"grain\": 1, \"steps\": 1},"
                   "\"checkpoint\": {\"uri\": \"%s\"}}",
                   data, data, data, checkpoints);
    if (job_parse("test", text, strlen(text), &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

/* Copies the pattern, with the folder for each '@'. */
static void fill(char *ret, size_t size, const char *pattern)
{
    size_t n = 0;
    for (; *pattern; pattern++)
        if (*pattern == '@')
            n += (size_t)snprintf(ret + n, size - n, "%s", folder);
        else
            n += (size_t)snprintf(ret + n, size - n, "%c", *pattern);
    assert_true(n < size);
    ret[n] = '\0';
}

/* Checks a job with these paths for data and checkpoints and these arrays of prefixes. says is "" if the job is
 * allowed, or part of the error. '@' stands for the folder. */
static void expect(const char *data, const char *checkpoints, const char *read, const char *write,
                   const char *says)
{
    char d[256], c[256], r[512], w[512];
    Error err = ERROR_INIT;
    fill(d, sizeof(d), data);
    fill(c, sizeof(c), checkpoints);
    fill(r, sizeof(r), read ? read : "");
    fill(w, sizeof(w), write ? write : "");
    _cleanup_(job_freep) Job *job = make_job(d, c);
    int result = paths_check_job(job, "", read ? r : NULL, write ? w : NULL, &err);
    if (*says && (result == 0 || !strstr(err.text, says)))
        fail_msg("\"%s\" is not in: %s", says, result < 0 ? err.text : "(allowed)");
    if (!*says && result < 0)
        fail_msg("%s", err.text);
}

/* A single URI is checked without a job. */
static void test_one_uri(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    assert_int_equal(paths_check_uri("s3://b/x", true, NULL, NULL, &err), 0);
    assert_int_equal(paths_check_uri("s3://b/x", true, NULL, "[\"s3://b\"]", &err), 0);
    assert_int_equal(paths_check_uri("s3://b/x", false, "[]", "[\"s3://b\"]", &err), 0);
    assert_int_equal(paths_check_uri("s3://c/x", true, NULL, "[\"s3://b\"]", &err), -EPERM);
    assert_string_equal(err.text, "s3://c/x is not under paths_write of this node's sdtraind");
    assert_int_equal(paths_check_uri("s3://c/x", false, "[\"s3://b\"]", NULL, &err), -EPERM);
    assert_string_equal(err.text, "s3://c/x is not under paths_read of this node's sdtraind");
    assert_int_equal(paths_check_uri("s3://c/x", false, "{}", NULL, &err), -EINVAL);
}

static void test_prefixes(void **state)
{
    (void)state;
    expect("@/data", "@/out", NULL, NULL, "");
    expect("@/data", "@/out", "[\"@/data\"]", "[\"@/out\"]", "");
    expect("file://@/data", "file://@/out", "[\"@/data/\"]", "[\"file://@/out\"]", "");
    expect("@/data", "@/out/new/one", "[\"@\"]", "[\"@/out\"]", "");
    expect("@/data", "@/out", "[]", "[\"@\"]", ""); /* a writable path is also readable */
    expect("@/data", "@/out", "[]", NULL, "model.config: ");
    expect("@/data", "@/out", NULL, "[]", "checkpoint.uri: ");
    expect("@/data2", "@/out", "[\"@/data\"]", NULL, "/data2/config.json is not under paths_read");
    expect("@/data/../data2", "@/out", "[\"@/data\"]", NULL, "is not under paths_read");
    expect("@/data", "@/nothing/../../../etc", NULL, "[\"@\"]", "is not under paths_write");
    expect("s3://b/laion", "s3://b/out", "[\"s3://b/laion\"]", "[\"s3://b/out/\"]", "");
    expect("s3://b/laion2", "s3://b/out", "[\"s3://b/laion\"]", NULL, "s3://b/laion2/config.json");
    expect("s3://b2/x", "s3://b/out", "[\"s3://b\"]", NULL, "s3://b2/x/config.json");
    expect("@/data", "s3://b/out", "[\"@\"]", "[\"@\"]", "checkpoint.uri: s3://b/out is not");
    expect("@/data", "@/out", "{}", NULL, "SDTRAIN_PATHS_READ: not a JSON array");
}

/* A link to a path outside is refused, whether the path exists or not; a link to a path inside is allowed. */
static void test_links(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/data/out", folder);
    assert_int_equal(symlink("/etc", path), 0);
    expect("@/data/out", "@/out", "[\"@/data\"]", NULL, "is not under paths_read");
    expect("@/data", "@/data/out/x", NULL, "[\"@/data\"]", "is not under paths_write");
    (void)snprintf(path, sizeof(path), "%s/data/later", folder);
    assert_int_equal(symlink("/nowhere/yet", path), 0);
    expect("@/data", "@/data/later/x", NULL, "[\"@/data\"]", "is not under paths_write");
    (void)snprintf(path, sizeof(path), "%s/alias", folder);
    assert_int_equal(symlink("data", path), 0);
    expect("@/alias", "@/out", "[\"@/data\"]", NULL, "");
    expect("@/data", "@/out", "[\"@/alias\"]", NULL, "");
}

static int begin(void **state)
{
    (void)state;
    char data[128];
    (void)snprintf(folder, sizeof(folder), "/tmp/sdtrain-paths-XXXXXX");
    (void)snprintf(data, sizeof(data), "%s/data", mkdtemp(folder));
    return mkdir(data, 0755);
}

static int end(void **state)
{
    (void)state;
    return folder_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_one_uri),
        cmocka_unit_test(test_links),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
