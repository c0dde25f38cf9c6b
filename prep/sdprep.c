/* SPDX-License-Identifier: Apache-2.0 */
/* sdprep.c - the program that makes and examines training data. Its verbs are openclipart, encode, check, index,
 * inspect. */
#include "base/fault.h"
#include "base/log.h"
#include "base/number/half.h"
#include "base/text/printable.h"
#include "data/index-open.h"
#include "data/stream/shards.h"
#include "prep/encode/decoders.h"
#include "prep/encode/encode.h"
#include "prep/openclipart.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

typedef struct Verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} Verb;

static int usage_error(const char *verb, const char *text)
{
    (void)fprintf(stderr, "sdprep %s: %s; see sdprep %s --help\n", verb, text, verb);
    return EXIT_USAGE;
}

static int finish(int r, const Error *err)
{
    if (r < 0) {
        Error printable = *err; /* names in a tar may hold control characters */
        printable_make(printable.text);
        log_error("%s", printable.text);
    }
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Parses a whole number, with an optional suffix K, M or G for powers of 1024. Returns -1 if the text is invalid. */
static int64_t parse_count(const char *text)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift > 0;
    if (end == text || *end || errno != 0 || n < 0 || n > INT64_MAX >> shift)
        return -1;
    return n << shift;
}

/* ---- openclipart ---- */

static const char openclipart_help[] =
    "usage: sdprep openclipart --out URI [OPTION...]\n"
    "       sdprep openclipart --raw URI [--samples N] [--source DIR]\n\n"
    "Makes the demo's dataset from Debian's packages openclipart-png and openclipart-svg (public "
    "domain).\n"
    "Latents come from a fixed codec and text from hashes of words: they stand in for Stable "
    "Diffusion's\n"
    "VAE and text encoder, and are good for trying the machinery, not for good pictures.\n"
    "With --raw the pictures and captions are written as they are, into tars.\n\n"
    "  --out URI            folder of the dataset; must not hold one\n"
    "  --raw URI            folder of the tars: 00000.tar with 000000000.png, 000000000.txt, ...\n"
    "  --samples N          only N pictures, spread evenly over all\n"
    "  --text-dim N         width of the text embedding (64)\n"
    "  --size-limit BYTES   of a shard (4M)\n"
    "  --compression ZIP    zstd or zstd:LEVEL\n"
    "  --source DIR         where the packages' files are (/usr/share/openclipart)\n\n"
    "Examples:\n"
    "  sdprep openclipart --out /data/openclipart --samples 2000\n";

static int run_openclipart(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},
        {"raw", required_argument, NULL, 'r'},
        {"samples", required_argument, NULL, 'n'},
        {"text-dim", required_argument, NULL, 'd'},
        {"size-limit", required_argument, NULL, 'l'},
        {"compression", required_argument, NULL, 'z'},
        {"source", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    OpenclipartOptions o = {.source = "/usr/share/openclipart",
                            .text_dim = 64,
                            .size_limit = UINT64_C(4) << 20};
    int64_t dim = o.text_dim, limit = (int64_t)o.size_limit;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'o')
            o.out = optarg;
        else if (c == 'r')
            o.raw = optarg;
        else if (c == 'n')
            o.n_samples = parse_count(optarg);
        else if (c == 'd')
            dim = parse_count(optarg);
        else if (c == 'l')
            limit = parse_count(optarg);
        else if (c == 'z')
            o.compression = optarg;
        else if (c == 's')
            o.source = optarg;
        else if (c == 'h')
            return fputs(openclipart_help, stdout) < 0;
        else
            return EXIT_USAGE;
    }
    if (!o.out == !o.raw || optind != argc)
        return usage_error("openclipart", "either --out or --raw is needed");
    if (o.n_samples < 0 || dim < 0 || dim > INT32_MAX || limit < 0 || limit > UINT32_MAX)
        return usage_error("openclipart", "a number is not one, or too large");
    o.text_dim = (int)dim;
    o.size_limit = (uint64_t)limit;
    Error err = ERROR_INIT;
    return finish(o.raw ? openclipart_make_raw(&o, &err) : openclipart_make(&o, &err), &err);
}

/* ---- encode and check ---- */

static const char encode_help[] =
    "usage: sdprep encode --recipe FILE --in URI --out URI [OPTION...]\n\n"
    "Makes an MDS dataset of latents and text embeddings from pictures and captions, by the VAE "
    "and the\n"
    "text encoder of a diffusers folder. Killed and started again it goes on where it was, and "
    "ends with\n"
    "the same bytes.\n\n"
    "  --recipe FILE        how: model, side, tokenizer, filters, ...\n"
    "  --in URI             folder of WebDataset tars, or an MDS dataset with pictures\n"
    "  --out URI            folder of the dataset\n"
    "  --units I/N          only every N-th tar or shard, from the I-th on (1 to N): N processes "
    "may work\n"
    "                       in one folder. None of them finishes the dataset\n"
    "  --finish             encode nothing; finish the dataset\n"
    "  --reject KEY         leave the sample of this key out; may be given again\n"
    "  --device NAME        cpu or cuda (cpu)\n"
    "  --threads N          threads of the networks (as the recipe says)\n"
    "  --decoders N         processes that decode pictures (as many as threads; with cuda as "
    "processors;\n"
    "                       at most 16)\n"
    "  --cost-per-hour X    what this process costs, for the lines on its progress\n\n"
    "Examples:\n"
    "  sdprep encode --recipe recipe.json --in /data/raw --out s3://data/encoded\n"
    "  sdprep encode --recipe recipe.json --in /data/raw --out s3://data/encoded --units 3/8\n";

static const char check_help[] =
    "usage: sdprep check --recipe FILE --in URI [OPTION...]\n\n"
    "Reads every picture and caption as sdprep encode does, without the networks. Prints a line of "
    "JSON\n"
    "for each sample that would be left out, and how many there are of each reason. If the recipe\n"
    "names a model, its configs, headers of weights and tokenizer are checked first.\n\n"
    "  --recipe FILE        as of sdprep encode; needs no model\n"
    "  --in URI             folder of WebDataset tars, or an MDS dataset with pictures\n"
    "  --units I/N          only every N-th tar or shard, from the I-th on (1 to N)\n"
    "  --reject KEY         leave the sample of this key out; may be given again\n"
    "  --decoders N         processes that decode pictures (as many as processors, at most 16)\n\n"
    "Examples:\n"
    "  sdprep check --recipe recipe.json --in /data/raw > rejected.jsonl\n";

static bool parse_units(const char *text, EncodeOptions *o)
{
    char end;
    return sscanf(text, "%d/%d%c", &o->unit, &o->n_units, &end) == 2 && o->unit >= 1 &&
           o->unit <= o->n_units;
}

static const struct option encode_options[] = {
    {"recipe", required_argument, NULL, 'r'},   {"in", required_argument, NULL, 'i'},
    {"out", required_argument, NULL, 'o'},      {"units", required_argument, NULL, 'u'},
    {"finish", no_argument, NULL, 'f'},         {"reject", required_argument, NULL, 'j'},
    {"device", required_argument, NULL, 'd'},   {"threads", required_argument, NULL, 't'},
    {"decoders", required_argument, NULL, 'p'}, {"cost-per-hour", required_argument, NULL, 'c'},
    {"help", no_argument, NULL, 'h'},           {0},
};

/* Sets the option c from its value. Returns false if the value is invalid. */
static bool take_encode(EncodeOptions *o, int c, char *value)
{
    char *end = NULL;
    switch (c) {
    case 'r':
        o->recipe = value;
        return true;
    case 'i':
        o->in = value;
        return true;
    case 'o':
        o->out = value;
        return true;
    case 'u':
        return parse_units(value, o);
    case 'f':
        o->finish = true;
        return true;
    case 'j':
        if (o->n_named == ENCODE_NAMED_MAX)
            return false;
        o->named[o->n_named++] = value;
        return true;
    case 'd':
        o->cuda = strcmp(value, "cuda") == 0;
        return o->cuda || strcmp(value, "cpu") == 0;
    case 't':
        o->threads = (int)CLAMP(parse_count(value), -1, 1025);
        return o->threads > 0 && o->threads <= 1024;
    case 'p':
        o->decoders = (int)CLAMP(parse_count(value), -1, 65);
        return o->decoders > 0 && o->decoders <= PICTURES_CHILDREN_MAX;
    default:
        o->cost_per_hour = strtod(value, &end);
        return isfinite(o->cost_per_hour) && o->cost_per_hour >= 0 && end != value && !*end;
    }
}

/* 0: success. 1: an argument is invalid, and a message was printed. 2: --help was given. */
static int parse_encode(int argc, char **argv, EncodeOptions *o)
{
    int at;
    for (int c; (c = getopt_long(argc, argv, "", encode_options, &at)) != -1;) {
        if (c == 'h')
            return 2;
        if (c == '?')
            return 1;
        if (take_encode(o, c, optarg))
            continue;
        (void)fprintf(stderr, "sdprep %s: --%s %.200s: %s; see sdprep %s --help\n", argv[0],
                      encode_options[at].name, optarg,
                      c == 'j' ? "too many are named" : "no such value", argv[0]);
        return 1;
    }
    return optind == argc ? 0 : (usage_error(argv[0], "an argument that is not an option"), 1);
}

static int run_encode(int argc, char **argv)
{
    _cleanup_free_ EncodeOptions *o = calloc(1, sizeof(*o));
    int r = o ? parse_encode(argc, argv, o) : 1;
    if (r == 2)
        return fputs(encode_help, stdout) < 0;
    if (r == 1)
        return EXIT_USAGE;
    if (!o->recipe || !o->in || !o->out)
        return usage_error("encode", "--recipe, --in and --out are needed");
    if (o->finish && o->n_units)
        return usage_error("encode", "--finish is for all units, --units for some");
    Error err = ERROR_INIT;
    return finish(encode_run(o, &err), &err);
}

static int run_check(int argc, char **argv)
{
    _cleanup_free_ EncodeOptions *o = calloc(1, sizeof(*o));
    int r = o ? parse_encode(argc, argv, o) : 1;
    if (r == 2)
        return fputs(check_help, stdout) < 0;
    if (r == 1)
        return EXIT_USAGE;
    if (!o->recipe || !o->in)
        return usage_error("check", "--recipe and --in are needed");
    if (o->out || o->finish)
        return usage_error("check", "it writes nothing: neither --out nor --finish is possible");
    Error err = ERROR_INIT;
    return finish(encode_check(o, &err), &err);
}

/* ---- index ---- */

static const char index_help[] =
    "usage: sdprep index URI [--sample-hashes]\n\n"
    "Makes the compact index (" INDEX_NAME
    ") of an MDS dataset beside its index.json, anew if there is one.\n\n"
    "  --sample-hashes   also record a hash of each sample, which reads all data; for datasets "
    "written\n"
    "                    without hashes, and for reading parts of shards\n\n"
    "Examples:\n"
    "  sdprep index s3://data/encoded\n";

static void show_shard(void *context, uint64_t shard)
{
    const char *uri = context;
    if (isatty(STDERR_FILENO) && shard % 64 == 0)
        (void)fprintf(stderr, "\r%s: shard %" PRIu64, uri, shard);
}

static int make_index(const char *uri, bool sample_hashes, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = index_make(store, sample_hashes, show_shard, (void *)(uintptr_t)store_uri(store),
                       &index, err);
    if (r < 0)
        return r;
    if (isatty(STDERR_FILENO))
        (void)fputc('\n', stderr);
    char text[HASH_TEXT_BYTES];
    printf("%s/%s: %" PRIu64 " samples in %" PRIu64 " shards, digest %s\n", store_uri(store),
           INDEX_NAME, index_n_samples(index), index_n_shards(index),
           hash_format(index_digest(index), text));
    return 0;
}

static int run_index(int argc, char **argv)
{
    static const struct option options[] = {{"sample-hashes", no_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool sample_hashes = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            sample_hashes = true;
        else if (c == 'h')
            return fputs(index_help, stdout) < 0;
        else
            return EXIT_USAGE;
    }
    if (argc - optind != 1)
        return usage_error("index", "one URI is needed");
    Error err = ERROR_INIT;
    return finish(make_index(argv[optind], sample_hashes, &err), &err);
}

/* ---- inspect ---- */

static const char inspect_help[] =
    "usage: sdprep inspect URI [--sample N]\n\n"
    "Prints what an MDS dataset holds: shards, columns, and one sample with its statistics.\n\n"
    "  --sample N   number of the sample in file order (0)\n"
    "  --cache DIR  where to keep a compact index if the dataset's folder cannot be written\n\n"
    "Examples:\n"
    "  sdprep inspect /data/openclipart --sample 7\n";

static void print_array(const MdsArray *a)
{
    MdsColumn scalar = {.kind = MDS_SCALAR,
                        .number = a->number,
                        .size = (uint32_t)mds_number_size(a->number)};
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    size_t n = a->n_bytes / scalar.size;
    for (size_t i = 0; i < n; i++) {
        double v = 0;
        MdsField field = {(const uint8_t *)a->values + i * scalar.size, scalar.size};
        (void)mds_double_decode(&scalar, field, &v, NULL); /* cannot fail: the size is right */
        sum += v;
        squares += v * v;
        low = fmin(low, v);
        high = fmax(high, v);
    }
    double mean = sum / (double)n;
    printf("%s ", mds_number_name(a->number));
    for (int i = 0; i < a->n_dims; i++)
        printf("%s%" PRIu64, i ? "x" : "", a->dims[i]);
    printf(", min %.4g, max %.4g, mean %.4g, std %.4g\n", low, high, mean,
           sqrt(fmax(squares / (double)n - mean * mean, 0)));
}

static void print_field(const MdsColumn *column, MdsField field)
{
    enum { SHOWN = 200 };
    double value;
    MdsArray array;
    printf("  %-24s ", column->name);
    if (column->kind == MDS_NDARRAY && mds_array_decode(column, field, &array, NULL) == 0)
        print_array(&array);
    else if (column->kind == MDS_SCALAR && mds_double_decode(column, field, &value, NULL) == 0)
        printf("%.17g\n", value);
    else if (column->kind == MDS_TEXT)
        printf("%.*s%s\n", (int)MIN(field.n_bytes, (size_t)SHOWN), (const char *)field.data,
               field.n_bytes > SHOWN ? "..." : "");
    else
        printf("%zu bytes\n", field.n_bytes);
}

static void print_dataset(Index *index)
{
    char text[HASH_TEXT_BYTES];
    printf("samples      %" PRIu64 "\nshards       %" PRIu64 "\ndigest       %s\n",
           index_n_samples(index), index_n_shards(index), hash_format(index_digest(index), text));
    printf("compression  %s\nhashes       ",
           *index_compression(index) ? index_compression(index) : "none");
    for (size_t i = 0; i < index_n_hashes(index); i++)
        printf("%s%s", i ? ", " : "", index_hash_name(index, i));
    printf("%s%s\n", index_n_hashes(index) ? "" : "none",
           index_has_sample_hashes(index) ? ", of each sample in the compact index" : "");
    printf("columns\n");
    const MdsSchema *schema = index_schema(index);
    for (size_t i = 0; i < schema->n_columns; i++) {
        printf("  %-24s %s", schema->columns[i].name, schema->columns[i].encoding);
        uint64_t missing = index_n_samples(index) - index_n_valid(index, i);
        if (missing > 0)
            printf(", empty in %" PRIu64 " samples", missing);
        printf("\n");
    }
}

static int inspect(const char *uri, uint64_t sample, const char *folder, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(cache_freep) Cache *cache = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    _cleanup_(shards_freep) Shards *shards = NULL;
    int r = store_open(uri, &store, err);
    if (r == 0 && folder)
        r = cache_new(folder, 0, &cache, err);
    if (r == 0)
        r = index_open(store, cache, &index, err);
    if (r < 0)
        return r;
    print_dataset(index);
    if (sample >= index_n_samples(index))
        return error_set(err, -EINVAL, "--sample %" PRIu64 ": there are %" PRIu64, sample,
                         index_n_samples(index));

    IndexPlace place;
    IndexShard shard;
    const void *bytes;
    size_t n_bytes;
    MdsField fields[MDS_COLUMNS_MAX];
    r = index_place(index, sample, &place, err);
    if (r == 0)
        r = index_shard(index, place.shard, &shard, err);
    if (r == 0)
        r = shards_new(store, index, NULL, &shards, err);
    if (r == 0)
        r = shards_read(shards, place, &bytes, &n_bytes, err);
    if (r == 0)
        r = mds_sample_split(index_schema(index), bytes, n_bytes, fields, err);
    if (r < 0)
        return r;
    printf("sample %" PRIu64 " is %s[%u], %zu bytes\n", sample, shard.raw_name, place.sample,
           n_bytes);
    for (size_t i = 0; i < index_schema(index)->n_columns; i++)
        print_field(&index_schema(index)->columns[i], fields[i]);
    return 0;
}

static int run_inspect(int argc, char **argv)
{
    static const struct option options[] = {{"sample", required_argument, NULL, 's'},
                                            {"cache", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int64_t sample = 0;
    const char *cache = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            sample = parse_count(optarg);
        else if (c == 'c')
            cache = optarg;
        else if (c == 'h')
            return fputs(inspect_help, stdout) < 0;
        else
            return EXIT_USAGE;
    }
    if (argc - optind != 1 || sample < 0)
        return usage_error("inspect", "one URI is needed, and --sample takes a number");
    Error err = ERROR_INIT;
    return finish(inspect(argv[optind], (uint64_t)sample, cache, &err), &err);
}

static const Verb verbs[] = {
    {"openclipart", run_openclipart, "make the demo's dataset from Debian's openclipart packages"},
    {"encode", run_encode, "make a dataset of pictures and captions by a VAE and a text encoder"},
    {"check", run_check, "read pictures and captions, and say which ones cannot be used"},
    {"index", run_index, "make the compact index of an MDS dataset"},
    {"inspect", run_inspect, "print what an MDS dataset holds"},
};

static int help(FILE *to)
{
    (void)fputs("usage: sdprep VERB [OPTION...]\n\n", to);
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        (void)fprintf(to, "  %-12s %s\n", verbs[i].name, verbs[i].summary);
    (void)fputs("\nsdprep VERB --help tells more.\n", to);
    return to == stdout ? EXIT_SUCCESS : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    pictures_child(argc, argv);
    log_open("sdprep");
    Error err = ERROR_INIT;
    if (fault_open(&err) < 0)
        return finish(err.code, &err);
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return help(stdout);
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        if (strcmp(verbs[i].name, argv[1]) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    (void)fprintf(stderr, "sdprep: no verb \"%s\"\n", argv[1]);
    return help(stderr);
}
