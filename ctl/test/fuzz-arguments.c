/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-arguments.c - any words as the arguments of any verb of sdctl. They are refused, or all that the verb needs is
 * given and each value is in the range that its help states. The first byte selects the verb; words end with a NUL. */
#include "ctl/arguments.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { WORDS_MAX = 64 };

static void check_option(const CtlOption *o, const void *values, const void *defaults)
{
    const void *field = (const char *)values + o->offset,
               *before = (const char *)defaults + o->offset;
    const OptionTexts *texts = field;
    switch (o->kind) {
    case TAKES_TEXT:
        assert(!o->is_needed || *(const char *const *)field);
        break;
    case TAKES_TEXTS:
        assert(texts->n >= 0 && texts->n <= OPTION_TEXTS_MAX);
        break;
    case TAKES_WHOLE:
        assert(*(const int *)field == *(const int *)before
                   ? !o->is_needed
                   : *(const int *)field >= o->min && *(const int *)field <= o->max);
        break;
    case TAKES_SECONDS:
        assert(*(const double *)field == -1 ||
               (*(const double *)field >= 0 && *(const double *)field < 1e9));
        break;
    default:
        break;
    }
}

static void check(const CtlVerb *verb, const Arguments *a)
{
    assert(verb->operand || !a->operand);
    /* An operand in brackets is optional. */
    assert(!verb->operand || verb->operand[0] == '[' || a->operand);
    for (size_t i = 0; verb->options && i < verb->options->n; i++)
        check_option(&verb->options->of[i], arguments_own(a), verb->options->defaults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static FILE *nowhere;
    if (!nowhere) {
        nowhere = fopen("/dev/null", "we");
        assert(nowhere);
        stdout = stderr = nowhere; /* sanitizers use file descriptor 2 directly */
    }
    if (n_bytes < 1)
        return 0;
    const CtlVerb *verb = &ctl_verbs[data[0] % ctl_n_verbs];
    _cleanup_free_ char *text = calloc(n_bytes + 1, 1);
    char name[64];
    char *words[WORDS_MAX + 1] = {name};
    int n_words = 1;
    if (!text)
        return 0;
    (void)snprintf(name, sizeof(name), "%s", verb->name);
    memcpy(text, data + 1, n_bytes - 1);
    for (size_t at = 0; at < n_bytes - 1 && n_words < WORDS_MAX; at += strlen(text + at) + 1)
        words[n_words++] = text + at;
    Arguments a;
    int r = arguments_parse(verb, n_words, words, &a);
    assert(r == -1 || r == CTL_USAGE || r == CTL_DONE);
    if (r == -1)
        check(verb, &a);
    return 0;
}
