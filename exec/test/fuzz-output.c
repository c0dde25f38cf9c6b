/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-output.c - output of any bytes, in pieces of any size. Nothing is lost but secrets, wherever a piece ends. The
 * first byte says how long the pieces are. */
#include "exec/output.h"

#include "base/cleanup.h"
#include "base/macro.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECRET "hunter22"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void on_found(_unused_ void *userdata, _unused_ OutputNumber kind, const char *number)
{
    assert(strlen(number) < OUTPUT_LINE_MAX);
}

static size_t drain(int fd, char *to, size_t size)
{
    size_t n = 0;
    ssize_t got;
    while ((got = read(fd, to + n, size - n)) > 0)
        n += (size_t)got;
    return n;
}

/* A NUL is written as '?'. */
static bool is_same(const uint8_t *was, const char *is, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is[i] != (was[i] ? (char)was[i] : '?'))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Output o;
    static char all[1 << 17];
    int in[2], out[2];
    size_t n_out = 0;
    if (n == 0 || n > 16384)
        return 0;
    const size_t piece = 1 + data[0];
    SecretSet secrets = {0};
    secret_set_add(&secrets, SECRET);
    assert(pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    const OutputPatterns patterns = {.step = "step ([0-9]+)",
                                     .loss = "loss=([-+0-9.a-z]+)",
                                     .found = on_found};
    output_open(&o, in[0], out[1], &secrets, &patterns);
    for (size_t at = 1; at < n; at += piece) {
        const size_t now = MIN(piece, n - at);
        assert(write(in[1], data + at, now) == (ssize_t)now);
        (void)output_move(&o);
        n_out += drain(out[0], all + n_out, sizeof(all) - n_out);
    }
    in[1] = fd_close(in[1]);
    while (output_move(&o))
        n_out += drain(out[0], all + n_out, sizeof(all) - n_out);
    n_out += drain(out[0], all + n_out, sizeof(all) - n_out);
    assert(o.n_read == n - 1 && n_out <= n - 1);
    assert(!memmem(all, n_out, SECRET, strlen(SECRET)));
    if (!memmem(all, n_out, "***", 3))
        assert(n_out == n - 1 && is_same(data + 1, all, n_out));
    const char *tail = output_end(&o);
    assert(strlen(tail) <= OUTPUT_TAIL_MAX && !strstr(tail, SECRET));
    output_close(&o);
    out[0] = fd_close(out[0]);
    out[1] = fd_close(out[1]);
    secret_set_clear(&secrets);
    return 0;
}
