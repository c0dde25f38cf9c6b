/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-reports.c - any bytes as the messages of the other rank of a world during a save: the save fails with a text, or
 * writes a manifest that can be parsed. The first byte selects which rank this process is. */
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/comm/test/testing-peers.h"

#include <ftw.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { STEP = 5 };

typedef struct Words {
    const uint8_t *data;
    size_t n_bytes;
    CheckpointWriter *writer;
    int rank; /* the rank whose messages come from the input */
} Words;

static void take(Words *words, void *to, size_t n_bytes)
{
    size_t n = MIN(n_bytes, words->n_bytes);
    if (n > 0)
        memcpy(to, words->data, n);
    words->data += n;
    words->n_bytes -= n;
}

/* Overwrites the peer's data with the input. If the input is too short, the rest stays as a correct peer sends it. */
static int play(void *arg, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes)
{
    Words *words = arg;
    if (call == PLAYED_ALL_GATHER)
        take(words, (char *)data + (size_t)words->rank * own_bytes, own_bytes);
    else
        take(words, data, n_bytes);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    return walk->level == 0 ? 0 : remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static Fixture fixture;
    static Store *store;
    static char folder[] = "/dev/shm/fuzz-reports-XXXXXX";
    Error err = ERROR_INIT;
    if (!store) {
        fixture_open(FIXTURE_SMALL, &fixture);
        int r = mkdtemp(folder) ? store_open(folder, &store, &err) : -errno;
        assert(r == 0);
    }
    if (n_bytes < 1)
        return 0;
    const int rank = data[0] & 1;
    Words words = {.data = data + 1, .n_bytes = n_bytes - 1, .rank = 1 - rank};
    Play peer = {play, &words};
    _cleanup_(comm_freep) Comm *comm = NULL;
    int r = comm_open_played(rank, 2, &peer, &comm, &err);
    assert(r == 0);
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, STEP, rank, 2, 1, false);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, 1, 0);
    words.writer = writer;
    CheckpointResult result = testing_save(writer, state, 1, 1);
    assert(memchr(result.error.text, '\0', sizeof(result.error.text)));
    assert((result.phase == CHECKPOINT_FAILED) == (result.error.code < 0));
    if (writer->written) {
        _cleanup_free_ char *text = NULL;
        _cleanup_(manifest_freep) Manifest *again = NULL;
        r = manifest_format(writer->written, &text);
        assert(r == 0);
        r = manifest_parse("fuzz", text, strlen(text), &again, &err);
        assert(r == 0);
        checkpoint_settle(writer, false);
    }
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* objects that remain do no harm */
    return 0;
}
