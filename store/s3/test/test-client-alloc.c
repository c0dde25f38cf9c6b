/* SPDX-License-Identifier: Apache-2.0 */
/* test-client-alloc.c - each allocation fails in turn while a client is opened, puts and gets. The client must report
 * the failure, and must report correctly whether the put was done. */
#include "base/test/testing-alloc.h"
#include "store/s3/test/testing-client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOCATIONS_MAX = 2000 };

static S3Options options = {
    .region = (char *)"us-east-1", /* the texts are only read */
    .profile = (char *)"default",
    .part_bytes = 8 << 20,
    .connections = 4,
    .memory_bytes = 64 << 20,
    .deadline_usec = 60 * USEC_PER_SEC,
    .stall_usec = 20 * USEC_PER_SEC,
    .checksum = S3_ON,
};

/* Redirects requests for "moved", so that the code for redirects runs, too. */
static FakeStep script(void *context, const FakeRequest *request)
{
    return strncmp(request->path, "/bucket/moved", 13) == 0
               ? (FakeStep){.act = FAKE_ANSWER, .status = 307, .headers = context}
               : (FakeStep){0};
}

static int ask(S3Client *client, const char *key)
{
    Error err = ERROR_INIT;
    S3Request put = world_put(key, true);
    put.checksum = true;
    int r = s3_do(client, &put, &err);
    if (r < 0 && !strstr(err.text, "memory"))
        return -EIO;

    S3Request moved = world_get(5, 1000);
    moved.key = "moved";
    int r_moved = s3_do(client, &moved, NULL);
    if (r_moved == 0 && memcmp(world_landing, world_blob + 5, 1000) != 0)
        return -EIO;

    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = key, .text_max = 100};
    int r_get = s3_do(client, &get, NULL);
    bool right = r_get < 0 || strcmp(get.text, "hello world") == 0;
    free(get.text);
    if (!right || (r_get == -ENOENT && r == 0))
        return -EIO;
    bool failed = r < 0 || r_moved < 0 || (r_get < 0 && r_get != -ENOENT);

    if (!alloc_struck() && failed)
        return -EIO;
    S3Request head = {.method = S3_HEAD, .bucket = "bucket", .key = key};
    int there = s3_do(client, &head, NULL);
    if (!put.unknown && there != (r < 0 ? -ENOENT : 0))
        return -EIO;
    return failed ? -ENOMEM : 0;
}

static AllocLife life(unsigned n, _unused_ void *arg)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "k%u", n);
    S3Client *client = NULL;
    alloc_fail_at_anywhere(n);
    int r = s3_client_open(&options, &client, NULL);
    if (r == 0)
        r = ask(client, key);
    bool struck = alloc_struck();
    client = s3_client_close(client);
    if (r == 0)
        return ALLOC_WHOLE;
    return r == -ENOMEM && struck ? ALLOC_FAILED : ALLOC_WRONG;
}

/* Starts a server in a process of its own. Its threads allocate during the sweep: if they were in this process, a
 * fork() could leave a child with the allocator locked for ever. */
static pid_t server_start(int *port)
{
    int channel[2];
    assert_int_equal(pipe2(channel, O_CLOEXEC), 0);
    pid_t self = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char location[128];
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self)
            _exit(1);
        Fake *fake = fake_start(script, location);
        fake_put(fake, "/bucket/blob", world_blob, sizeof(world_blob));
        (void)snprintf(location, sizeof(location), "Location: http://127.0.0.1:%d/bucket/blob\r\n",
                       fake_port(fake));
        if (write(channel[1], &(int){fake_port(fake)}, sizeof(int)) != sizeof(int))
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(channel[1]);
    assert_int_equal(read(channel[0], port, sizeof(*port)), sizeof(*port));
    (void)close(channel[0]);
    return pid;
}

static void test_allocations(_unused_ void **state)
{
    char endpoint[64];
    int port, status;
    pid_t server = server_start(&port);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
    options.endpoint = endpoint;
    assert_true(alloc_sweep(life, NULL, ALLOCATIONS_MAX) > 30);
    assert_return_code(kill(server, SIGKILL), errno);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, world_set_up, NULL);
}
