/* SPDX-License-Identifier: Apache-2.0 */
/* test-clusters.c - shows that the emulator runs clusters of blocks, and ends the process at a use that is undefined on
 * a GPU. */
#include "base/test/testing.h"
#include "kernels/test/testing-clusters.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SEEDS = 8, TEXT_BYTES = 1024 };

static bool is_right(const double got[CLUSTER_BLOCKS])
{
    bool right = true;
    for (int block = 0; block < CLUSTER_BLOCKS; block++) {
        const int first = block / CLUSTER_OF * CLUSTER_OF;
        double sum = 0;
        for (int rank = 0; rank < CLUSTER_OF; rank++)
            sum += (rank + 1) * (1.0 / (1.0 + first + rank));
        right = right && got[block] == sum;
    }
    return right;
}

static void blocks_read_each_other(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double got[CLUSTER_BLOCKS] = {0};
        clusters_run(CLUSTER_RIGHT, seed, got);
        assert_true(is_right(got));
    }
}

/* Runs the use in a child process. Returns whether a signal ended the child, and the child's message in `text`. */
static bool ends(ClusterUse use, uint64_t seed, char text[TEXT_BYTES])
{
    int ends_of_pipe[2], status;
    assert_int_equal(pipe(ends_of_pipe), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        double got[CLUSTER_BLOCKS] = {0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)dup2(ends_of_pipe[1], STDERR_FILENO);
        clusters_run(use, seed, got);
        _exit(is_right(got) ? 0 : 1);
    }
    (void)close(ends_of_pipe[1]);
    const ssize_t n = read(ends_of_pipe[0], text, TEXT_BYTES - 1);
    text[n < 0 ? 0 : n] = '\0';
    (void)close(ends_of_pipe[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void a_misuse_ends_the_process(void **state)
{
    (void)state;
    static const struct {
        ClusterUse use;
        const char *text;
    } uses[] = {
        {CLUSTER_DIVERGES, "some threads are at the block's barrier, others at the cluster's"},
        {CLUSTER_ENDS_EARLY, "some threads ended before a barrier of the cluster"},
        {CLUSTER_BEYOND, "a read of a block that the cluster has not"},
        {CLUSTER_NOT_SHARED, "a read of a block's memory that is not shared"},
        {CLUSTER_NO_LAST_BARRIER, "a read of the shared memory of a block that ends"},
        {CLUSTER_LAST_OF_BLOCK, "a block that ends, with no barrier between"},
        {CLUSTER_ODD_GRID, "a launch beyond what a GPU takes"},
        {CLUSTER_MIXES_OPERATIONS, "some lanes of a warp are at one operation, others at another"},
        {CLUSTER_PART_OF_A_WARP, "an operation of a warp that the block has not whole"},
    };
    for (size_t i = 0; i < ELEMENTSOF(uses); i++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            char text[TEXT_BYTES];
            assert_true(ends(uses[i].use, seed, text));
            assert_non_null(strstr(text, uses[i].text));
        }
}

/* A missing barrier is not detected directly, but gives a wrong result in some order. */
static void a_missing_barrier_shows(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        char text[TEXT_BYTES];
        wrong += ends(CLUSTER_NO_FIRST_BARRIER, seed, text);
    }
    assert_true(wrong > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_read_each_other),
        cmocka_unit_test(a_misuse_ends_the_process),
        cmocka_unit_test(a_missing_barrier_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
