/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c - see arguments.h. */
#include "ctl/arguments.h"

#include "base/text/nearest.h"
#include "ctl/examples.h"
#include "protocol/job.h"

#include <getopt.h>
#include <string.h>
#include <time.h>

/* How an option's value is read into its field of Arguments. */
typedef enum OptionKind {
    TAKES_NOTHING, /* bool */
    TAKES_TEXT,    /* const char * */
    TAKES_TEXTS,   /* ArgumentTexts: it may be given again */
    TAKES_WHOLE,   /* int in min..max */
    TAKES_SECONDS, /* double */
    TAKES_TIME,    /* uint64_t, realtime */
    TAKES_FORMAT,  /* bool: json */
} OptionKind;

typedef struct OptionText {
    Option option;
    const char *name;  /* without "--" */
    char letter;       /* '\0': none */
    const char *value; /* "FILE"; NULL: it takes none */
    const char *about;
    OptionKind kind;
    size_t offset;      /* of the field in Arguments */
    int min, max;       /* of TAKES_WHOLE */
    const char *wanted; /* of TAKES_WHOLE: a good value in words, for the error */
} OptionText;

#define TAKES(kind_, field) .kind = TAKES_##kind_, .offset = offsetof(Arguments, field)
#define WHOLE(field, min_, max_, wanted_)                                                          \
    TAKES(WHOLE, field), .min = min_, .max = max_, .wanted = wanted_

/* clang-format off */
static const OptionText texts[] = {
    {OPTION_FILE, "file", 'f', "FILE", "the job file", TAKES(TEXT, file)},
    {OPTION_EDIT, "set", 0, "KEY=VALUE", "a key of the job file, as train.steps=500; again: one more",
     TAKES(TEXTS, sets)},
    {OPTION_EDIT, "name", 0, "NAME", "the job's name, instead of the file's", TAKES(TEXT, name)},
    {OPTION_EDIT, "dry-run", 0, NULL, "check it all, and submit nothing", TAKES(NOTHING, dry_run)},
    {OPTION_WORLD, "world", 0, "N", "number of ranks",
     WHOLE(world, 1, INT32_MAX, "a number of ranks, 1 or more")},
    {OPTION_FOR, "for", 0, "PHASE|step=N", "what to wait for", TAKES(TEXT, wanted)},
    {OPTION_OUT, "out", 0, "FILE", "where to write", TAKES(TEXT, out)},
    {OPTION_BESIDE, "alone", 0, "DIGEST", "digest of the same job run alone, to be compared", TAKES(TEXT, alone)},
    {OPTION_BESIDE, "grid", 0, "FILE", "picture of job sample, to be shown", TAKES(TEXT, grid)},
    {OPTION_BESIDE, "pictures", 0, "FILE", "the data's own, of job sample --pictures, to be shown beside",
     TAKES(TEXT, pictures)},
    {OPTION_PIPELINE, "pipeline", 0, "FOLDER", "instead: a folder that diffusers loads, with what --model has",
     TAKES(TEXT, pipeline)},
    {OPTION_MODEL, "model", 0, "FOLDER", "a diffusers folder, path or URI: VAE, text encoder, tokenizer",
     TAKES(TEXT, model)},
    {OPTION_DRAW, "caption", 0, "TEXT", "instead of the dataset's first ones; again: images take them in turn",
     TAKES(TEXTS, captions)},
    {OPTION_DRAW, "samples", 0, "N", "how many images; 16 by default, or one a caption",
     WHOLE(samples, 1, ARGUMENT_SAMPLES_MAX, "1 to 400 images")},
    {OPTION_DRAW, "seed", 0, "N", "of the starting noise; 1 by default",
     WHOLE(seed, 0, INT32_MAX, "a number, 0 or more")},
    {OPTION_DRAW, "pictures", 0, "FILE", "also: the data's own first pictures, as many, by the same decoder",
     TAKES(TEXT, pictures)},
    {OPTION_RESUME, "resume", 0, "URI", "go on from this manifest.json, of any job", TAKES(TEXT, resume)},
    {OPTION_QUEUE, "priority", 0, "N", "in the queue, more goes first; the job file's by default",
     WHOLE(priority, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX, "-1000 to 1000")},
    {OPTION_QUEUE, "queue", 0, NULL, "although no node that is known could hold it, or nobody answers",
     TAKES(NOTHING, queue)},
    {OPTION_WAIT, "wait", 0, NULL, "until it is done", TAKES(NOTHING, wait)},
    {OPTION_TIMEOUT, "timeout", 0, "SECONDS", "give up then, with exit code 4", TAKES(SECONDS, timeout_sec)},
    {OPTION_DOCTOR, "file", 'f', "FILE", "try the stores of this job file, not those of the cluster's jobs",
     TAKES(TEXT, file)},
    {OPTION_DOCTOR, "timeout", 0, "SECONDS", "wait so long for nodes that do not answer; 18 by default",
     TAKES(SECONDS, timeout_sec)},
    {OPTION_RANK, "rank", 0, "R", "of this rank alone", WHOLE(rank, 0, INT32_MAX, "a rank, 0 or more")},
    {OPTION_ALL, "all", 0, NULL, "of all ranks, also when there are more than 16", TAKES(NOTHING, all)},
    {OPTION_GENERATION, "generation", 0, "G", "of this generation; the present one by default",
     WHOLE(generation, 1, INT32_MAX, "a generation, 1 or more")},
    {OPTION_FOLLOW, "follow", 'f', NULL, "go on with what is added, until the job ends",
     TAKES(NOTHING, follow)},
    {OPTION_WATCH, "watch", 0, NULL, "show it live, until the job ends", TAKES(NOTHING, watch)},
    {OPTION_ONCE, "once", 0, NULL, "print it once, as where there is no terminal", TAKES(NOTHING, once)},
    {OPTION_EMA, "ema", 0, NULL, "the averaged weights", TAKES(NOTHING, ema)},
    {OPTION_REASON, "reason", 0, "TEXT", "why, for those who look later", TAKES(TEXT, reason)},
    {OPTION_FORCE, "force", 0, NULL, "it was repaired: forget what only a reset would cure",
     TAKES(NOTHING, force)},
    {OPTION_CLEAR, "clear", 0, NULL, "it was reset: forget what only a reset would cure",
     TAKES(NOTHING, clear)},
    {OPTION_SINK, "sink", 0, "NAME", "through this sink alone", TAKES(TEXT, sink)},
    {OPTION_DEV_COUNTS, "nodes", 0, "N", "3 by default",
     WHOLE(nodes, 0, ARGUMENT_NODES_MAX, "0 to 64 nodes")},
    {OPTION_DEV_COUNTS, "slots", 0, "S", "of each node; 1 by default", WHOLE(slots, 1, 64, "1 to 64 slots")},
    {OPTION_DEV_COUNTS, "controllers", 0, "C", "1 by default",
     WHOLE(controllers, 1, 7, "1 to 7 controllers")},
    {OPTION_DEV_COUNTS, "alerts", 0, "FILE", "the leader notifies the sinks of this alerts file", TAKES(TEXT, alerts)},
    {OPTION_TIMES, "from", 0, "TIME", "say nothing of what was earlier", TAKES(TIME, from_usec)},
    {OPTION_TIMES, "until", 0, "TIME", "stop there; 2026-01-31T12:00:00 or seconds since 1970",
     TAKES(TIME, until_usec)},
    {OPTION_VERBOSE, "verbose", 'v', NULL, "each event as well", TAKES(NOTHING, verbose)},
    {OPTION_WHAT_IF, "lose", 0, "NODE,...", "as if these nodes were gone", TAKES(TEXT, lose)},
    {OPTION_WHAT_IF, "cordon", 0, "NODE,...", "as if these were cordoned", TAKES(TEXT, cordon)},
    {OPTION_WHAT_IF, "drain", 0, "NODE,...", "as if these were drained", TAKES(TEXT, drain)},
    {OPTION_DIR, "dir", 0, "FOLDER", "SDTRAIN_DEV by default, else ./sdtrain-dev", TAKES(TEXT, dir)},
    {OPTION_FORMAT, "output", 'o', "jsonl|csv|tensorboard", "jsonl by default", TAKES(TEXT, format)},
    {OPTION_JSON, "output", 'o', "json|text", "text by default", TAKES(FORMAT, json)},
    {OPTION_CLUSTER, "etcd", 0, "HOST:PORT,...", "SDTRAIN_ETCD by default", TAKES(TEXT, client.etcd)},
    {OPTION_CLUSTER, "cluster", 0, "NAME", "SDTRAIN_CLUSTER by default, else \"default\"",
     TAKES(TEXT, client.cluster)},
    {OPTION_CLUSTER, "context", 0, "NAME", "a context of the files that sdctl context list names",
     TAKES(TEXT, client.context)},
};
/* clang-format on */

enum {
    LONG_FIRST = 256, /* getopt's code of texts[0]; letters lie below */
    OWNERS_MAX = 3,   /* verbs named that have an option */
};

static bool is_common(const OptionText *t)
{
    return t->option == OPTION_CLUSTER || t->option == OPTION_DIR;
}

/* "-f FILE", "--world N" */
static void print_option(FILE *to, const OptionText *t)
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
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const OptionText *t = &texts[i];
        bool needed = (verb->needs & t->option) != 0;
        if (!((verb->takes | verb->needs) & t->option) || is_common(t))
            continue;
        fprintf(to, needed ? " " : " [");
        print_option(to, t);
        fprintf(to, needed ? "" : "]");
    }
}

void arguments_print_options(FILE *to, const CtlVerb *verb)
{
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if ((verb->takes | verb->needs) & texts[i].option)
            fprintf(to, "--%s\t%s\n", texts[i].name, texts[i].about);
    fprintf(to, "--help\twhat it does, its options, examples\n");
}

const char *arguments_value_of(const CtlVerb *verb, const char *word)
{
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const OptionText *t = &texts[i];
        bool is =
            word[0] == '-' && (word[1] == '-' ? strcmp(word + 2, t->name) == 0
                                              : t->letter && word[1] == t->letter && !word[2]);
        if (is && ((verb->takes | verb->needs) & t->option))
            return t->value ? t->value : "";
    }
    return NULL;
}

static void print_help(const CtlVerb *verb)
{
    printf("usage: ");
    arguments_print_usage(stdout, verb);
    printf("\n\n%s.\n\n", verb->about);
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const OptionText *t = &texts[i];
        char left[48];
        if (!((verb->takes | verb->needs) & t->option))
            continue;
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

/* Local time without a zone, UTC with 'Z', or seconds since 1970. */
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

/* Reads the value into its field; returns a good value in words when it is none, else NULL. */
static const char *take(const OptionText *t, const char *value, Arguments *a)
{
    void *field = (char *)a + t->offset;
    ArgumentTexts *list = field;
    switch (t->kind) {
    case TAKES_NOTHING:
        *(bool *)field = true;
        return NULL;
    case TAKES_TEXT:
        *(const char **)field = value;
        return NULL;
    case TAKES_TEXTS:
        if (list->n == ARGUMENT_CAPTIONS_MAX)
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

/* Only what the verb takes goes to getopt, so that -f is what it means there. */
static void list_options(const CtlVerb *verb, struct option *ret, char *ret_letters)
{
    *ret_letters++ = ':'; /* a missing value is told from an unknown option */
    *ret_letters++ = 'h';
    *ret++ = (struct option){"help", no_argument, NULL, 'h'};
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const OptionText *t = &texts[i];
        if (!((verb->takes | verb->needs) & t->option))
            continue;
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

static const OptionText *find_text(const CtlVerb *verb, int code)
{
    if (code >= LONG_FIRST)
        return &texts[code - LONG_FIRST];
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (((verb->takes | verb->needs) & texts[i].option) && texts[i].letter == code)
            return &texts[i];
    return NULL;
}

/* Where the order of the words is wrong, the usage says it best. */
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

/* Who has the names. */
static const char *names_from(const char *operand)
{
    return strncmp(operand, "NAME", 4) == 0  ? "; sdctl job list shows all jobs"
           : strcmp(operand, "NODE") == 0    ? "; sdctl node list shows all nodes"
           : strcmp(operand, "PROCESS") == 0 ? "; sdctl dev status shows all processes"
                                             : "";
}

static int check_needs(const CtlVerb *verb, const Arguments *a, uint64_t given)
{
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if ((verb->needs & texts[i].option) && !(given & texts[i].option))
            return refuse_with_usage(verb, "--%s %s is needed", texts[i].name, texts[i].value);
    if (verb->operand && *verb->operand != '[' && !a->operand)
        return refuse_with_usage(verb, "%s is needed%s", verb->operand, names_from(verb->operand));
    return -1;
}

/* Which verbs have it, where it is one of others: "job resize". */
static void list_owners(const char *name, size_t n_name, char *ret, size_t size)
{
    uint64_t option = 0;
    int n = 0;
    *ret = '\0';
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (strncmp(texts[i].name, name, n_name) == 0 && !texts[i].name[n_name])
            option |= texts[i].option;
    for (int i = 0; i < ctl_n_verbs && n < OWNERS_MAX; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        size_t used = strlen(ret);
        if ((v->takes | v->needs) & option)
            (void)snprintf(ret + used, size - used, "%s%s%s%s", n++ ? ", " : "",
                           v->noun ? v->noun : "", v->noun ? " " : "", v->name);
    }
}

/* It may be misspelt, or belong to another verb. */
static int refuse_option(const CtlVerb *verb, const char *word)
{
    char asked[NEAREST_WORD_MAX + 1], names[ELEMENTSOF(texts)][32], hint[NEAREST_TEXT_BYTES];
    char owners[200];
    Nearest meant = nearest_to(asked);
    (void)snprintf(asked, sizeof(asked), "%.*s", (int)strcspn(word, "="), word);
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "--%s", texts[i].name);
        if ((verb->takes | verb->needs) & texts[i].option)
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
    struct option options[ELEMENTSOF(texts) + 2];
    char letters[2 * ELEMENTSOF(texts) + 3];
    uint64_t given = 0;
    list_options(verb, options, letters);
    *ret = (Arguments){.verb = verb,
                       .priority = ARGUMENT_NO_PRIORITY,
                       .samples = -1,
                       .seed = -1,
                       .world = -1,
                       .rank = -1,
                       .generation = -1,
                       .nodes = -1,
                       .slots = -1,
                       .controllers = -1,
                       .timeout_sec = -1};
    optind = 0; /* glibc: afresh */
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
        const OptionText *t = find_text(verb, c);
        assert(t); /* getopt knows only what list_options() named */
        const char *wanted = take(t, optarg, ret);
        if (wanted)
            return arguments_refuse(verb, "--%s takes %s, not \"%s\"", t->name, wanted, optarg);
        given |= t->option;
    }
    const bool two = verb->operand && strchr(verb->operand, ' '); /* "NAME [MANIFEST]" */
    if (two && argc - optind == 2)
        ret->second = argv[--argc];
    if (argc - optind > (verb->operand ? 1 : 0))
        return refuse_with_usage(verb, "\"%s\" is one word too many", argv[argc - 1]);
    ret->operand = optind < argc ? argv[optind] : NULL;
    if (ret->client.context && ret->client.etcd)
        return arguments_refuse(verb, "--context and --etcd both name an etcd");
    return check_needs(verb, ret, given);
}
