/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c - see arguments.h. */
#include "ctl/arguments.h"

#include "base/text/nearest.h"
#include "ctl/examples.h"

#include <getopt.h>
#include <string.h>
#include <time.h>

/* ---- the tables ---- */

#define OPTIONS_STRUCT Arguments /* TAKES() uses this name */

typedef struct CommonOption {
    CtlCommon of;
    CtlOption option;
} CommonOption;

static const CommonOption common[] = {
    {COMMON_DIR,
     {"dir", 0, "FOLDER", "SDTRAIN_DEV by default, else ./sdtrain-dev", TAKES(TEXT, dir)}},
    {COMMON_JSON, {"output", 'o', "json|text", "text by default", TAKES(FORMAT, json)}},
    {COMMON_CLUSTER,
     {"etcd", 0, "HOST:PORT,...", "SDTRAIN_ETCD by default", TAKES(TEXT, client.etcd)}},
    {COMMON_CLUSTER,
     {"cluster", 0, "NAME", "SDTRAIN_CLUSTER by default, else \"default\"",
      TAKES(TEXT, client.cluster)}},
    {COMMON_CLUSTER,
     {"context", 0, "NAME", "a context of the files that sdctl context list names",
      TAKES(TEXT, client.context)}},
};

enum {
    /* Getopt's code for a verb's first option; greater than the codes of letters. */
    LONG_FIRST = 256,
    OPTIONS_MAX = 32, /* the largest number of options of one verb */
    OWNERS_MAX = 3,   /* the largest number of verbs that an error names as having an option */
};

static size_t n_own(const CtlVerb *verb) { return verb->options ? verb->options->n : 0; }

/* Returns the verb's option number `at`: first its own options, then the common options that it accepts; NULL at the
 * end. */
static const CtlOption *option_at(const CtlVerb *verb, size_t at)
{
    size_t n = n_own(verb);
    if (at < n)
        return &verb->options->of[at];
    for (size_t i = 0; i < ELEMENTSOF(common); i++)
        if ((verb->common & common[i].of) && n++ == at)
            return &common[i].option;
    return NULL;
}

const void *arguments_own(const Arguments *a) { return a->own.bytes; }

/* ---- what is printed ---- */

/* Prints an option as the usage line shows it: "-f FILE" or "--world N". */
static void print_option(FILE *to, const CtlOption *t)
{
    if (t->letter)
        fprintf(to, "-%c", t->letter);
    else
        fprintf(to, "--%s", t->name);
    if (t->value)
        fprintf(to, " %s", t->value);
}

void arguments_print_usage(FILE *to, const CtlVerb *verb)
{
    fprintf(to, "sdctl %s%s%s", verb->noun ? verb->noun : "", verb->noun ? " " : "", verb->name);
    if (verb->operand)
        fprintf(to, " %s", verb->operand);
    for (size_t i = 0; i < n_own(verb); i++) {
        const CtlOption *t = &verb->options->of[i];
        fprintf(to, t->is_needed ? " " : " [");
        print_option(to, t);
        fprintf(to, t->is_needed ? "" : "]");
    }
    if (verb->common & COMMON_JSON)
        fprintf(to, " [-o json|text]");
}

void arguments_print_options(FILE *to, const CtlVerb *verb)
{
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++)
        fprintf(to, "--%s\t%s\n", t->name, t->about);
    fprintf(to, "--help\twhat it does, its options, examples\n");
}

const char *arguments_value_of(const CtlVerb *verb, const char *word)
{
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++) {
        bool is =
            word[0] == '-' && (word[1] == '-' ? strcmp(word + 2, t->name) == 0
                                              : t->letter && word[1] == t->letter && !word[2]);
        if (is)
            return t->value ? t->value : "";
    }
    return NULL;
}

static void print_help(const CtlVerb *verb)
{
    printf("usage: ");
    arguments_print_usage(stdout, verb);
    printf("\n\n%s.\n\n", verb->about);
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++) {
        char left[48];
        (void)snprintf(left, sizeof(left), "--%s%s%s", t->name, t->value ? " " : "",
                       t->value ? t->value : "");
        if (t->letter)
            printf("  -%c, %-24s %s\n", t->letter, left, t->about);
        else
            printf("      %-24s %s\n", left, t->about);
    }
    printf("\nExamples:\n");
    for (const char *const *line = examples_of(verb); line && *line; line++)
        printf("  %s\n", *line);
    printf("\nExit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 timed out, 5 cannot reach "
           "etcd.\n");
}

int arguments_refuse(const CtlVerb *verb, const char *format, ...)
{
    const char *noun = verb->noun ? verb->noun : "", *space = verb->noun ? " " : "";
    va_list ap;
    (void)fprintf(stderr, "sdctl: %s%s%s: ", noun, space, verb->name);
    va_start(ap, format);
    (void)vfprintf(stderr, format, ap);
    va_end(ap);
    (void)fprintf(stderr, "; see sdctl %s%s%s --help\n", noun, space, verb->name);
    return CTL_USAGE;
}

static bool parse_int(const char *text, int min, int max, int *ret)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || *end || end == text || v < min || v > max)
        return false;
    *ret = (int)v;
    return true;
}

/* Parses a time: local time without a zone, UTC with 'Z', or seconds since 1970. */
static bool parse_time(const char *text, uint64_t *ret)
{
    struct tm tm = {.tm_isdst = -1};
    char *end;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (rest && (*rest == '\0' || strcmp(rest, "Z") == 0)) {
        time_t seconds = *rest ? timegm(&tm) : mktime(&tm);
        *ret = (uint64_t)MAX(seconds, (time_t)0) * USEC_PER_SEC;
        return seconds > 0;
    }
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds < 1e11))
        return false;
    *ret = (uint64_t)(seconds * 1e6);
    return true;
}

static bool parse_seconds(const char *text, double *ret)
{
    char *end;
    *ret = strtod(text, &end);
    return !*end && end != text && *ret >= 0 && *ret < 1e9;
}

static bool parse_format(const char *text, bool *ret_json)
{
    *ret_json = strcmp(text, "json") == 0;
    return *ret_json || strcmp(text, "text") == 0;
}

/* Stores the option's value in its field. Returns NULL, or for a bad value a text that describes a good value. */
static const char *take(const CtlOption *t, const char *value, void *values)
{
    void *field = (char *)values + t->offset;
    OptionTexts *list = field;
    switch (t->kind) {
    case TAKES_NOTHING:
        *(bool *)field = true;
        return NULL;
    case TAKES_TEXT:
        *(const char **)field = value;
        return NULL;
    case TAKES_TEXTS:
        if (list->n == OPTION_TEXTS_MAX)
            return "64 texts at most";
        list->items[list->n++] = value;
        return NULL;
    case TAKES_WHOLE:
        return parse_int(value, t->min, t->max, field) ? NULL : t->wanted;
    case TAKES_SECONDS:
        return parse_seconds(value, field) ? NULL : "seconds";
    case TAKES_TIME:
        return parse_time(value, field) ? NULL
                                        : "a time like 2026-01-31T12:00:00 or seconds since 1970";
    case TAKES_FORMAT:
        return parse_format(value, field) ? NULL : "json or text";
    }
    return NULL;
}

/* Makes the two lists that getopt reads. They have only the options that this verb accepts, because a letter such as -f
 * can name different options in different verbs. */
static void list_options(const CtlVerb *verb, struct option *ret, char *ret_letters)
{
    *ret_letters++ = ':'; /* so that getopt distinguishes a missing value from an unknown option */
    *ret_letters++ = 'h';
    *ret++ = (struct option){"help", no_argument, NULL, 'h'};
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++) {
        assert(i < OPTIONS_MAX);
        *ret++ = (struct option){t->name, t->value ? required_argument : no_argument, NULL,
                                 LONG_FIRST + (int)i};
        if (t->letter)
            *ret_letters++ = t->letter;
        if (t->letter && t->value)
            *ret_letters++ = ':';
    }
    *ret = (struct option){0};
    *ret_letters = '\0';
}

/* Returns the index of the option for getopt's code. */
static size_t find_option(const CtlVerb *verb, int code)
{
    const CtlOption *t;
    if (code >= LONG_FIRST)
        return (size_t)(code - LONG_FIRST);
    for (size_t i = 0; (t = option_at(verb, i)); i++)
        if (t->letter == code)
            return i;
    assert(!"getopt knows only what list_options() named");
    return 0;
}

/* Prints an error with the verb's usage line; used when words are missing, unknown or in the wrong order. */
static int refuse_with_usage(const CtlVerb *verb, const char *format, ...) _printf_(2, 3);
static int refuse_with_usage(const CtlVerb *verb, const char *format, ...)
{
    va_list ap;
    (void)fprintf(stderr, "sdctl: %s%s%s: ", verb->noun ? verb->noun : "", verb->noun ? " " : "",
                  verb->name);
    va_start(ap, format);
    (void)vfprintf(stderr, format, ap);
    va_end(ap);
    (void)fprintf(stderr, "\nusage: ");
    arguments_print_usage(stderr, verb);
    (void)fprintf(stderr, "; --help says more\n");
    return CTL_USAGE;
}

/* Returns a text that names the verb which lists the possible values of the operand, or "" if no verb lists them. */
static const char *names_from(const char *operand)
{
    return strncmp(operand, "NAME", 4) == 0  ? "; sdctl job list shows all jobs"
           : strcmp(operand, "NODE") == 0    ? "; sdctl node list shows all nodes"
           : strcmp(operand, "PROCESS") == 0 ? "; sdctl dev status shows all processes"
                                             : "";
}

static int check_needs(const CtlVerb *verb, const Arguments *a, const bool *given)
{
    for (size_t i = 0; i < n_own(verb); i++) {
        const CtlOption *t = &verb->options->of[i];
        if (t->is_needed && !given[i])
            return refuse_with_usage(verb, "--%s %s is needed", t->name, t->value);
    }
    if (verb->operand && *verb->operand != '[' && !a->operand)
        return refuse_with_usage(verb, "%s is needed%s", verb->operand, names_from(verb->operand));
    return -1;
}

static bool has_option(const CtlVerb *verb, const char *name, size_t n_name)
{
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++)
        if (strncmp(t->name, name, n_name) == 0 && !t->name[n_name])
            return true;
    return false;
}

/* Writes the names of verbs that have this option, such as "job resize", joined with commas. */
static void list_owners(const char *name, size_t n_name, char *ret, size_t size)
{
    int n = 0;
    *ret = '\0';
    for (int i = 0; i < ctl_n_verbs && n < OWNERS_MAX; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        size_t used = strlen(ret);
        if (has_option(v, name, n_name))
            (void)snprintf(ret + used, size - used, "%s%s%s%s", n++ ? ", " : "",
                           v->noun ? v->noun : "", v->noun ? " " : "", v->name);
    }
}

/* Prints an error about an unknown option, which may be misspelt or belong to another verb. */
static int refuse_option(const CtlVerb *verb, const char *word)
{
    char asked[NEAREST_WORD_MAX + 1], names[OPTIONS_MAX][32], hint[NEAREST_TEXT_BYTES];
    char owners[200];
    Nearest meant = nearest_to(asked);
    (void)snprintf(asked, sizeof(asked), "%.*s", (int)strcspn(word, "="), word);
    const CtlOption *t;
    for (size_t i = 0; (t = option_at(verb, i)); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "--%s", t->name);
        nearest_offer(&meant, names[i]);
    }
    nearest_offer(&meant, "--help");
    list_owners(word + 2, strcspn(word + 2, "="), owners, sizeof(owners));
    if (meant.n == 0 && *owners)
        return arguments_refuse(verb, "%s is not an option here, but of %s", word, owners);
    if (meant.n == 0)
        return refuse_with_usage(verb, "%s is not an option here", word);
    return arguments_refuse(verb, "%s is not an option here%s", word, nearest_text(&meant, hint));
}

int arguments_parse(const CtlVerb *verb, int argc, char **argv, Arguments *ret)
{
    struct option options[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 3];
    bool given[OPTIONS_MAX] = {false};
    list_options(verb, options, letters);
    *ret = (Arguments){.verb = verb};
    if (verb->options) {
        assert(verb->options->size <= sizeof(ret->own));
        memcpy(ret->own.bytes, verb->options->defaults, verb->options->size);
    }
    optind = 0; /* makes glibc's getopt start again */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
        if (c == 'h') {
            print_help(verb);
            return CTL_DONE;
        }
        if (c == ':')
            return arguments_refuse(verb, "%s needs a value", argv[optind - 1]);
        if (c == '?' && optopt && argv[optind - 1][1] != '-')
            return refuse_with_usage(verb, "-%c is not an option here", optopt);
        if (c == '?')
            return refuse_option(verb, argv[optind - 1]);
        const size_t at = find_option(verb, c);
        const CtlOption *t = option_at(verb, at);
        const char *wanted = take(t, optarg, at < n_own(verb) ? (void *)&ret->own : ret);
        if (wanted)
            return arguments_refuse(verb, "--%s takes %s, not \"%s\"", t->name, wanted, optarg);
        given[at] = true;
    }
    const bool two = verb->operand && strchr(verb->operand, ' '); /* such as "NAME [MANIFEST]" */
    if (two && argc - optind == 2)
        ret->second = argv[--argc];
    if (argc - optind > (verb->operand ? 1 : 0))
        return refuse_with_usage(verb, "\"%s\" is one word too many", argv[argc - 1]);
    ret->operand = optind < argc ? argv[optind] : NULL;
    if (ret->client.context && ret->client.etcd)
        return arguments_refuse(verb, "--context and --etcd both name an etcd");
    return check_needs(verb, ret, given);
}
