/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - see output.h. */
#include "exec/output.h"

#include "base/cleanup.h"
#include "base/text/printable.h"

#include <limits.h>
#include <string.h>

enum { MOVES_A_CALL = 128 };

static void compile(regex_t *pattern, const char *text)
{
    int r = text ? regcomp(pattern, text, REG_EXTENDED) : 0;
    assert(r == 0); /* job_exec_parse() has compiled it once */
}

void output_open(Output *o, int from, int to, const SecretSet *secrets,
                 const OutputPatterns *patterns)
{
    *o = (Output){.is_open = true,
                  .from = from,
                  .to = to,
                  .secrets = secrets && secrets->n > 0 ? secrets : NULL,
                  .patterns = *patterns};
    compile(&o->step, patterns->step);
    compile(&o->loss, patterns->loss);
}

void output_close(Output *o)
{
    if (!o->is_open)
        return;
    o->from = fd_close(o->from);
    if (o->patterns.step)
        regfree(&o->step);
    if (o->patterns.loss)
        regfree(&o->loss);
    o->is_open = false;
}

size_t output_poll(const Output *o, struct pollfd *ret)
{
    if (!o->is_open || (o->from < 0 && o->at == o->ready))
        return 0;
    *ret = o->at < o->ready ? (struct pollfd){.fd = o->to, .events = POLLOUT}
                            : (struct pollfd){.fd = o->from, .events = POLLIN};
    return 1;
}

static void match(Output *o, const regex_t *pattern, OutputNumber kind)
{
    regmatch_t found[2];
    char number[64];
    if (regexec(pattern, o->line, 2, found, 0) != 0 || found[1].rm_so < 0)
        return;
    const int n = (int)(found[1].rm_eo - found[1].rm_so);
    if (snprintf(number, sizeof(number), "%.*s", n, o->line + found[1].rm_so) < (int)sizeof(number))
        o->patterns.found(o->patterns.userdata, kind, number);
}

/* A line is whole, or as long as a line may be. */
static void take_line(Output *o)
{
    o->line[o->line_bytes] = '\0';
    if (!o->line_is_cut && o->patterns.loss) /* before the step, which reports both */
        match(o, &o->loss, OUTPUT_LOSS);
    if (!o->line_is_cut && o->patterns.step)
        match(o, &o->step, OUTPUT_STEP);
    o->line_bytes = 0;
}

static void look(Output *o, const char *text, size_t n)
{
    if (!o->patterns.step)
        return;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            take_line(o);
            o->line_is_cut = false;
        } else if (!o->line_is_cut) {
            o->line[o->line_bytes++] = text[i] ? text[i] : '?';
            if (o->line_bytes == OUTPUT_LINE_MAX) {
                take_line(o);
                o->line_is_cut = true;
            }
        }
    }
}

static void keep_tail(Output *o, const char *text, size_t n)
{
    if (n > OUTPUT_TAIL_MAX) {
        text += n - OUTPUT_TAIL_MAX;
        n = OUTPUT_TAIL_MAX;
    }
    const size_t kept = MIN(o->tail_bytes, OUTPUT_TAIL_MAX - n);
    memmove(o->tail, o->tail + o->tail_bytes - kept, kept);
    memcpy(o->tail + kept, text, n);
    o->tail_bytes = kept + n;
}

/* Masks secrets in the whole lines of the piece, and in its last line at the end of the output or if the line fills the
 * piece. Sets `ready`. */
static void mask(Output *o)
{
    const char *last = memrchr(o->piece, '\n', o->n);
    size_t whole = last ? (size_t)(last - o->piece) + 1 : 0;
    if (o->from < 0 || o->n == sizeof(o->piece) - 1)
        whole = o->n;
    for (size_t i = 0; i < whole; i++)
        if (!o->piece[i])
            o->piece[i] = '?'; /* secret_set_take_out() reads up to a NUL */
    const char kept = o->piece[whole];
    o->piece[whole] = '\0';
    secret_set_take_out(o->secrets, o->piece);
    o->ready = strlen(o->piece);
    o->piece[whole] = kept;
    memmove(o->piece + o->ready, o->piece + whole, o->n - whole);
    o->n -= whole - o->ready;
}

/* Makes what was read ready to be written. */
static void prepare(Output *o)
{
    o->ready = o->n;
    if (o->secrets)
        mask(o);
    look(o, o->piece, o->ready);
    keep_tail(o, o->piece, o->ready);
}

/* Returns false if nothing can be read now. */
static bool read_piece(Output *o)
{
    memmove(o->piece, o->piece + o->ready, o->n - o->ready);
    o->n -= o->ready;
    o->at = o->ready = 0;
    const ssize_t n = read(o->from, o->piece + o->n, sizeof(o->piece) - 1 - o->n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0)
        o->from = fd_close(o->from);
    else
        o->n_read += (uint64_t)n;
    o->n += (size_t)MAX(n, 0);
    prepare(o);
    return true;
}

/* Tells whether PIPE_BUF bytes can be written without waiting. The descriptor may be somebody's terminal, so it is not
 * made non-blocking. */
static bool can_write(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) != 0; /* an error is found by write() */
}

bool output_move(Output *o)
{
    for (int i = 0; o->is_open && i < MOVES_A_CALL; i++) {
        if (o->at < o->ready) {
            if (!can_write(o->to))
                return true;
            const ssize_t n =
                write(o->to, o->piece + o->at, MIN(o->ready - o->at, (size_t)PIPE_BUF));
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
            o->at = n < 0 ? o->ready : o->at + (size_t)n; /* the log is gone: the program goes on */
        } else if (o->from < 0) {
            return false;
        } else if (!read_piece(o)) {
            return true;
        }
    }
    return o->is_open;
}

const char *output_end(Output *o)
{
    if (o->line_bytes > 0)
        take_line(o);
    for (size_t i = 0; i < o->tail_bytes; i++)
        if (!o->tail[i])
            o->tail[i] = '?';
    o->tail[o->tail_bytes] = '\0';
    for (char *at = o->tail; *at;) {
        const size_t n = strcspn(at, "\n");
        printable_repair_bytes(at, n);
        printable_make_bytes(at, n);
        at += n + (at[n] == '\n');
    }
    return o->tail;
}
