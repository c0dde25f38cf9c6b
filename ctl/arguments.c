/* arguments.c - see arguments.h. */
#include "ctl/arguments.h"

#include "protocol/job.h"

#include <getopt.h>
#include <string.h>
#include <time.h>

typedef struct OptionText {
    Option option;
    const char *name;  /* without "--" */
    char letter;       /* '\0': none */
    int code;          /* what getopt gives */
    const char *value; /* "FILE"; NULL: it takes none */
    const char *about;
} OptionText;

static const OptionText texts[] = {
    {OPTION_FILE, "file", 'f', 'f', "FILE", "the job file"},
    {OPTION_WORLD, "world", 0, 'n', "N", "number of ranks"},
    {OPTION_FOR, "for", 0, 'F', "PHASE|step=N", "what to wait for"},
    {OPTION_OUT, "out", 0, 'O', "FILE", "where to write"},
    {OPTION_RESUME, "resume", 0, 'r', "URI", "go on from this manifest.json, of any job"},
    {OPTION_QUEUE, "priority", 0, 'p', "N",
     "in the queue, more goes first; the job file's by default"},
    {OPTION_QUEUE, "queue", 0, 'q', NULL,
     "although no node that is known could hold it, or nobody answers"},
    {OPTION_TIMEOUT, "timeout", 0, 't', "SECONDS", "give up then, with exit code 4"},
    {OPTION_RANK, "rank", 0, 'R', "R", "of this rank alone"},
    {OPTION_GENERATION, "generation", 0, 'g', "G",
     "of this generation; the present one by default"},
    {OPTION_FOLLOW, "follow", 'f', 'l', NULL, "go on with what is added, until the job ends"},
    {OPTION_WATCH, "watch", 0, 'w', NULL, "show it live, until the job ends"},
    {OPTION_EMA, "ema", 0, 'E', NULL, "the averaged weights"},
    {OPTION_REASON, "reason", 0, 'm', "TEXT", "why, for those who look later"},
    {OPTION_FORCE, "force", 0, 'U', NULL, "it was repaired: forget what only a reset would cure"},
    {OPTION_CLEAR, "clear", 0, 'X', NULL, "it was reset: forget what only a reset would cure"},
    {OPTION_SINK, "sink", 0, 'k', "NAME", "through this sink alone"},
    {OPTION_DEV_COUNTS, "nodes", 0, 'N', "N", "3 by default"},
    {OPTION_DEV_COUNTS, "slots", 0, 'S', "S", "of each node; 1 by default"},
    {OPTION_DEV_COUNTS, "controllers", 0, 'C', "C", "1 by default"},
    {OPTION_TIMES, "from", 0, 'b', "TIME", "say nothing of what was earlier"},
    {OPTION_TIMES, "until", 0, 'u', "TIME",
     "stop there; 2026-01-31T12:00:00 or seconds since 1970"},
    {OPTION_VERBOSE, "verbose", 'v', 'v', NULL, "each event as well"},
    {OPTION_WHAT_IF, "lose", 0, 'L', "NODE,...", "as if these nodes were gone"},
    {OPTION_WHAT_IF, "cordon", 0, 'K', "NODE,...", "as if these were cordoned"},
    {OPTION_WHAT_IF, "drain", 0, 'D', "NODE,...", "as if these were drained"},
    {OPTION_DIR, "dir", 0, 'd', "FOLDER", "SDTRAIN_DEV by default, else ./sdtrain-dev"},
    {OPTION_JSON, "output", 'o', 'o', "json|text", "text by default"},
    {OPTION_CLUSTER, "etcd", 0, 'e', "HOST:PORT,...", "SDTRAIN_ETCD by default"},
    {OPTION_CLUSTER, "cluster", 0, 'c', "NAME", "SDTRAIN_CLUSTER by default, else \"default\""},
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
            fprintf(to, "--%s ", texts[i].name);
    fprintf(to, "--help");
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
    printf("\nExit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 timed out, 5 cannot reach "
           "etcd.\n");
}

int arguments_refuse(const CtlVerb *verb, const char *format, ...)
{
    const char *noun = verb->noun ? verb->noun : "", *space = verb->noun ? " " : "";
    va_list ap;
    fprintf(stderr, "sdctl: %s%s%s: ", noun, space, verb->name);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "; see sdctl %s%s%s --help\n", noun, space, verb->name);
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

static const char time_words[] = "a time like 2026-01-31T12:00:00 or seconds since 1970";

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

/* What is wrong with the option's value, or NULL. */
static const char *take(int code, const char *value, Arguments *a)
{
    char *end;
    switch (code) {
    case 'e':
        a->client.etcd = value;
        break;
    case 'c':
        a->client.cluster = value;
        break;
    case 'o':
        a->json = strcmp(value, "json") == 0;
        return a->json || strcmp(value, "text") == 0 ? NULL : "json or text";
    case 'f':
        a->file = value;
        break;
    case 'l':
        a->follow = true;
        break;
    case 'w':
        a->watch = true;
        break;
    case 'E':
        a->ema = true;
        break;
    case 'U':
        a->force = true;
        break;
    case 'X':
        a->clear = true;
        break;
    case 'p':
        a->has_priority = parse_int(value, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX, &a->priority);
        return a->has_priority ? NULL : "-1000 to 1000";
    case 'q':
        a->queue = true;
        break;
    case 'r':
        a->resume = value;
        break;
    case 'n':
        return parse_int(value, 1, INT32_MAX, &a->world) ? NULL : "a number of ranks, 1 or more";
    case 'F':
        a->wanted = value;
        break;
    case 't':
        a->timeout_sec = strtod(value, &end);
        return *end || end == value || !(a->timeout_sec >= 0 && a->timeout_sec < 1e9) ? "seconds"
                                                                                      : NULL;
    case 'R':
        return parse_int(value, 0, INT32_MAX, &a->rank) ? NULL : "a rank, 0 or more";
    case 'g':
        return parse_int(value, 1, INT32_MAX, &a->generation) ? NULL : "a generation, 1 or more";
    case 'O':
        a->out = value;
        break;
    case 'm':
        a->reason = value;
        break;
    case 'b':
        return parse_time(value, &a->from_usec) ? NULL : time_words;
    case 'u':
        return parse_time(value, &a->until_usec) ? NULL : time_words;
    case 'v':
        a->verbose = true;
        break;
    case 'L':
        a->lose = value;
        break;
    case 'K':
        a->cordon = value;
        break;
    case 'D':
        a->drain = value;
        break;
    case 'k':
        a->sink = value;
        break;
    case 'd':
        a->dir = value;
        break;
    case 'N':
        return parse_int(value, 0, ARGUMENT_NODES_MAX, &a->nodes) ? NULL : "0 to 64 nodes";
    case 'S':
        return parse_int(value, 1, 64, &a->slots) ? NULL : "1 to 64 slots";
    case 'C':
        return parse_int(value, 1, 7, &a->controllers) ? NULL : "1 to 7 controllers";
    default:
        assert(false); /* it is in the table */
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
        *ret++ =
            (struct option){t->name, t->value ? required_argument : no_argument, NULL, t->code};
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
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (((verb->takes | verb->needs) & texts[i].option) &&
            (texts[i].code == code || (texts[i].letter && texts[i].letter == code)))
            return &texts[i];
    return NULL;
}

static int check_needs(const CtlVerb *verb, const Arguments *a, unsigned given)
{
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if ((verb->needs & texts[i].option) && !(given & texts[i].option))
            return arguments_refuse(verb, "--%s %s is needed", texts[i].name, texts[i].value);
    if (verb->operand && *verb->operand != '[' && !a->operand)
        return arguments_refuse(verb, "%s is needed", verb->operand);
    return -1;
}

int arguments_parse(const CtlVerb *verb, int argc, char **argv, Arguments *ret)
{
    struct option options[ELEMENTSOF(texts) + 2];
    char letters[2 * ELEMENTSOF(texts) + 3];
    unsigned given = 0;
    list_options(verb, options, letters);
    *ret = (Arguments){.verb = verb,
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
            return arguments_refuse(verb, "-%c is not an option here", optopt);
        if (c == '?')
            return arguments_refuse(verb, "%s is not an option here", argv[optind - 1]);
        const OptionText *t = find_text(verb, c);
        assert(t); /* getopt knows only what list_options() named */
        const char *wanted = take(t->code, optarg, ret);
        if (wanted)
            return arguments_refuse(verb, "--%s takes %s, not \"%s\"", t->name, wanted, optarg);
        given |= t->option;
    }
    const bool two = verb->operand && strchr(verb->operand, ' '); /* "NAME [MANIFEST]" */
    if (two && argc - optind == 2)
        ret->second = argv[--argc];
    if (argc - optind > (verb->operand ? 1 : 0))
        return arguments_refuse(verb, "\"%s\" is one operand too many", argv[argc - 1]);
    ret->operand = optind < argc ? argv[optind] : NULL;
    return check_needs(verb, ret, given);
}
