/* SPDX-License-Identifier: Apache-2.0 */
/* bench-tokenizer.c - measures captions per second of processor time, on one core, and prints them as a line of JSON.
 *
 * usage: bench-tokenizer MERGES open_clip|diffusers ROUNDS < captions, one per line */
#include "encoders/tokenizer/tokenizer.h"

#include <string.h>
#include <time.h>

enum { N_TOKENS = 77, VOCABULARY = 49408, LINES_MAX = 1 << 20 };

static double cpu_sec(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail on Linux */
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    Error err = ERROR_INIT;
    _cleanup_(tokenizer_freep) Tokenizer *tokenizer = NULL;
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    char **lines = calloc(LINES_MAX, sizeof(*lines));
    size_t n = 0, room = 0;
    if (argc != 4 || !lines) {
        fprintf(
            stderr,
            "usage: bench-tokenizer MERGES open_clip|diffusers ROUNDS < captions, one a line\n");
        return 2;
    }
    TokenizerRules rules =
        strcmp(argv[2], "diffusers") == 0 ? TOKENIZER_DIFFUSERS : TOKENIZER_OPEN_CLIP;
    double begin = cpu_sec();
    if (tokenizer_open(argv[1], rules, VOCABULARY, N_TOKENS, &tokenizer, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    double opened = cpu_sec();
    for (; n < LINES_MAX && getline(&lines[n], &room, stdin) > 0; n++, room = 0)
        lines[n][strcspn(lines[n], "\n")] = '\0';
    size_t n_done = 0, n_ids = 0, n_bytes = 0;
    double from = cpu_sec();
    for (int round = 0; round < atoi(argv[3]); round++)
        for (size_t i = 0; i < n; i++, n_done++) {
            int32_t ids[N_TOKENS];
            size_t length = strlen(lines[i]);
            int got = tokenizer_encode(tokenizer, &scratch, lines[i], length, ids);
            n_ids += got > 0 ? (size_t)got : 0;
            n_bytes += length;
        }
    double sec = cpu_sec() - from;
    printf("{\"rules\": \"%s\", \"open_ms\": %.1f, \"captions\": %zu, \"captions_per_s\": %.0f, "
           "\"ids\": "
           "%.1f, \"bytes\": %.1f}\n",
           tokenizer_rules_name(rules), (opened - begin) * 1e3, n, (double)n_done / sec,
           (double)n_ids / (double)n_done, (double)n_bytes / (double)n_done);
    for (size_t i = 0; i < LINES_MAX; i++)
        free(lines[i]);
    free(lines);
    return 0;
}
