/* SPDX-License-Identifier: Apache-2.0 */
/* token-ids.c - prints the ids of captions, for comparison with other tokenizers.
 *
 * usage: token-ids MERGES open_clip|diffusers N_TOKENS < captions, each ended by a NUL */
#include "encoders/tokenizer/tokenizer.h"

#include <string.h>

int main(int argc, char **argv)
{
    Error err = ERROR_INIT;
    _cleanup_(tokenizer_freep) Tokenizer *tokenizer = NULL;
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    _cleanup_free_ char *line = NULL;
    int32_t ids[1024];
    size_t room = 0;
    int n_tokens = argc == 4 ? atoi(argv[3]) : 0;
    if (n_tokens < 2 || n_tokens > (int)ELEMENTSOF(ids)) {
        fprintf(stderr, "usage: token-ids MERGES open_clip|diffusers N_TOKENS < captions\n");
        return 2;
    }
    TokenizerRules rules =
        strcmp(argv[2], "diffusers") == 0 ? TOKENIZER_DIFFUSERS : TOKENIZER_OPEN_CLIP;
    if (tokenizer_open(argv[1], rules, 49408, n_tokens, &tokenizer, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (ssize_t length; (length = getdelim(&line, &room, '\0', stdin)) > 0;) {
        size_t n_bytes = (size_t)length - (line[length - 1] == '\0');
        int n = tokenizer_encode(tokenizer, &scratch, line, n_bytes, ids);
        for (int i = 0; i < n; i++)
            printf("%d ", ids[i]);
        printf("%s\n", n < 0 ? strerror(-n) : "");
    }
    return 0;
}
