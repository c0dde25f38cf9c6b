/* arguments.c - see arguments.h. */
#include "ctl/arguments.h"

#include <getopt.h>
#include <string.h>

static const struct option options[] = {
    {"etcd", required_argument, NULL, 'e'},   {"cluster", required_argument, NULL, 'c'},
    {"help", no_argument, NULL, 'h'},         {"output", required_argument, NULL, 'o'},
    {"file", required_argument, NULL, 'f'},   {"watch", no_argument, NULL, 'w'},
    {"resume", required_argument, NULL, 'r'}, {"world", required_argument, NULL, 'n'},
    {"for", required_argument, NULL, 'F'},    {"timeout", required_argument, NULL, 't'},
    {"rank", required_argument, NULL, 'R'},   {"out", required_argument, NULL, 'O'},
    {"reason", required_argument, NULL, 'm'}, {NULL, 0, NULL, 0},
};

static const struct {
    int option;
    unsigned set;
} allowed[] = {{'o', TAKES_JSON},  {'f', TAKES_FILE},   {'w', TAKES_WATCH},   {'r', TAKES_RESUME},
               {'n', TAKES_WORLD}, {'F', TAKES_FOR},    {'t', TAKES_TIMEOUT}, {'R', TAKES_RANK},
               {'O', TAKES_OUT},   {'m', TAKES_REASON}, {'e', ~0u},           {'c', ~0u},
               {'h', ~0u}};

static bool is_allowed(int option, unsigned set)
{
    for (size_t i = 0; i < ELEMENTSOF(allowed); i++)
        if (allowed[i].option == option)
            return (allowed[i].set & set) != 0 || allowed[i].set == ~0u;
    return false;
}

static int refuse(const char *noun, const char *name, const char *format, ...) _printf_(3, 4);
static int refuse(const char *noun, const char *name, const char *format, ...)
{
    va_list ap;
    fprintf(stderr, "sdctl: %s%s%s: ", noun ? noun : "", noun ? " " : "", name);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "; see sdctl %s%s%s --help\n", noun ? noun : "", noun ? " " : "", name);
    return CTL_USAGE;
}

static bool parse_int(const char *text, int min, int *ret)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || *end || end == text || v < min || v > INT32_MAX)
        return false;
    *ret = (int)v;
    return true;
}

/* What is wrong with the option's value, or NULL. */
static const char *take(int option, Arguments *a)
{
    char *end;
    switch (option) {
    case 'e':
        a->client.etcd = optarg;
        break;
    case 'c':
        a->client.cluster = optarg;
        break;
    case 'o':
        a->json = strcmp(optarg, "json") == 0;
        return a->json || strcmp(optarg, "text") == 0 ? NULL : "-o takes json or text";
    case 'f':
        a->file = optarg;
        break;
    case 'w':
        a->watch = true;
        break;
    case 'r':
        a->resume = optarg;
        break;
    case 'n':
        return parse_int(optarg, 1, &a->world) ? NULL
                                               : "--world takes a number of ranks, 1 or more";
    case 'F':
        a->wanted = optarg;
        break;
    case 't':
        a->timeout_sec = strtod(optarg, &end);
        return *end || end == optarg || !(a->timeout_sec >= 0) ? "--timeout takes seconds" : NULL;
    case 'R':
        return parse_int(optarg, 0, &a->rank) ? NULL : "--rank takes a rank";
    case 'O':
        a->out = optarg;
        break;
    case 'm':
        a->reason = optarg;
        break;
    }
    return NULL;
}

int arguments_parse(int argc, char **argv, const char *noun, unsigned set, int n_operands,
                    Arguments *ret)
{
    *ret = (Arguments){.world = -1, .rank = -1, .timeout_sec = -1};
    optind = 1;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "ho:f:w", options, NULL)) != -1;) {
        if (c == 'h') {
            ctl_help(noun, argv[0]);
            return CTL_DONE;
        }
        if (c == '?' || !is_allowed(c, set))
            return refuse(noun, argv[0], "%s is not an option here", argv[optind - 1]);
        const char *wrong = take(c, ret);
        if (wrong)
            return refuse(noun, argv[0], "%s", wrong);
    }
    ret->n_operands = argc - optind;
    if (ret->n_operands != n_operands)
        return refuse(noun, argv[0], "takes %d operand%s, got %d", n_operands,
                      n_operands == 1 ? "" : "s", ret->n_operands);
    for (int i = 0; i < n_operands && i < OPERANDS_MAX; i++)
        ret->operands[i] = argv[optind + i];
    return -1;
}
