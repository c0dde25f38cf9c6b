/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - see encode.h. Opens the input, the model and the output of a run, and encodes its units in turn. */
#include "prep/encode/encode.h"

#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "prep/encode/run-internal.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK_SAMPLES = 10000 };

static void run_clear(EncodeRun *run)
{
    part_maker_free(run->maker);
    pictures_free(run->decoders);
    raw_set_free(run->set);
    store_free(run->folder.store);
    encoding_clear(&run->encoding);
    for (size_t i = 0; i < run->n_named; i++)
        free(run->named[i]);
    free(run->named);
    free(run->first_aside);
    input_list_clear(&run->units);
    recipe_free(run->recipe);
}

/* ---- too many rejects ---- */

/* Reports whether a reason shows that the data are not as expected. The reasons that follow from the recipe's limits
 * and filters, or from a key that the user named, do not show this. */
static bool counts_as_bad(const char *reason)
{
    static const char *const wishes[] = {"too-small", "aspect", "too-large", "named"};
    for (size_t i = 0; i < ELEMENTSOF(wishes); i++)
        if (strcmp(reason, wishes[i]) == 0)
            return false;
    return strncmp(reason, "filtered:", 9) != 0;
}

int run_count(EncodeRun *run, int64_t n_raw, const RejectRow *rows, size_t n_rows, Error *err)
{
    char reasons[300];
    for (int64_t i = 0; i < n_raw; i++, run->unit_index++) {
        for (; n_rows > 0 && rows->index <= run->unit_index; rows++, n_rows--) {
            bool bad = counts_as_bad(rows->reason);
            run->block_bad += bad;
            if (bad)
                reasons_add(&run->block_reasons, rows->reason, 1);
        }
        run->block_samples++;
        if ((double)run->block_bad > run->recipe->max_rejected * BLOCK_SAMPLES)
            return error_set(err, -EDOM,
                             "more than max_rejected, %.4g of %d samples: of %" PRId64
                             " samples %" PRId64 " were rejected: %s",
                             run->recipe->max_rejected, BLOCK_SAMPLES, run->block_samples,
                             run->block_bad,
                             reasons_format(&run->block_reasons, reasons, sizeof(reasons)));
        if (run->block_samples == BLOCK_SAMPLES) {
            run->block_samples = run->block_bad = 0;
            run->block_reasons = (Reasons){0};
        }
    }
    return 0;
}

/* ---- opening ---- */

static int open_input(EncodeRun *run, Error *err)
{
    const Recipe *recipe = run->recipe;
    RawOptions options = {.image = recipe->image,
                          .caption = recipe->caption,
                          .members = &recipe->members,
                          .keep_missing = recipe->empty_for_missing};
    static_assert(RAW_COLUMNS_MAX >= 2 * RECIPE_COLUMNS_MAX, "filters and columns that are kept");
    for (size_t i = 0; i < recipe->n_filters; i++)
        options.columns[options.n_columns++] = recipe->filters[i].column;
    for (size_t i = 0; i < recipe->n_keep; i++)
        if (strcmp(recipe->keep[i].column, "caption") != 0 &&
            strcmp(recipe->keep[i].column, "key") != 0)
            options.columns[options.n_columns++] = recipe->keep[i].column;
    options.fields = options.n_columns > 0;
    return raw_set_open(run->options->in, &options, &run->set, err);
}

static void log_progress(void *context, const RawUnit *unit, const PartReport *part)
{
    EncodeRun *run = context;
    ProgressPart under_way = {part, raw_unit_done(unit), run->unit_bytes};
    progress_report(&run->progress, &under_way, false);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the number of decoder processes. If the networks run on processors, it is the number of threads: more
 * decoders would slow the networks. */
static int n_decoders(const EncodeRun *run)
{
    const EncodeOptions *o = run->options;
    if (o->decoders > 0 || o->cuda || !run->encoding.encoder)
        return o->decoders;
    return MIN(o->threads > 0 ? o->threads : run->recipe->threads, DECODERS_UNASKED_MAX);
}

static int open_decoders(EncodeRun *run, Error *err)
{
    if (run->n_named > 0)
        qsort(run->named, run->n_named, sizeof(*run->named), compare_texts);
    int r = decoders_open(&run->encoding.picture, n_decoders(run), &run->decoders, err);
    PartOptions part = {.encoding = &run->encoding,
                        .columns = run->encoding.encoder ? &run->columns : NULL,
                        .decoders = run->decoders,
                        .named = run->named,
                        .n_named = run->n_named,
                        .tell = log_progress,
                        .context = run};
    return r < 0 ? r : part_maker_new(&part, &run->maker, err);
}

static void format_claim(const EncodeRun *run, FolderClaim *ret)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *names = memory_given(open_memstream(&text, &n_bytes));
    for (size_t i = 0; i < raw_set_n_units(run->set); i++)
        (void)fprintf(names, "%s %" PRIu64 "\n", raw_set_unit_name(run->set, i),
                      raw_set_unit_bytes(run->set, i)); /* cannot fail: `names` is in memory */
    (void)fclose(names);
    hash_format(hash_bytes(memory_given(text), n_bytes), ret->input);
    free(text);
    hash_format(run->encoding.identity, ret->identity);
    hash_format(run->encoding.before, ret->before);
}

static bool stat_folder(Store *store, struct stat *ret)
{
    char path[PATH_MAX];
    if (store_local_path(store, "x", path, sizeof(path), NULL) < 0)
        return false;
    *strrchr(path, '/') = '\0';
    return stat(path, ret) == 0; /* a folder that does not exist is not the same as another */
}

/* Reports whether two folders are the same, also under different names. */
static bool is_same_folder(Store *store, const char *uri)
{
    _cleanup_(store_freep) Store *other = NULL;
    struct stat a, b;
    if (strcmp(store_uri(store), uri) == 0)
        return true;
    return store_open(uri, &other, NULL) == 0 && stat_folder(store, &a) && stat_folder(other, &b) &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Warns of units that have changed since the folder was begun. Samples that were encoded before the change are kept. */
static void report_changed(const EncodeRun *run, const InputList *ours)
{
    size_t n = 0, first = 0;
    for (size_t i = 0; i < run->units.n_units; i++)
        if (input_compare_versions(run->units.units[i].version, ours->units[i].version) ==
            INPUT_CHANGED)
            first = n++ ? first : i;
    if (n > 0)
        log_warning("%zu of %zu units of the input have changed since %s was begun; the first: %s, "
                    "whose version was %s and is %s",
                    n, ours->n_units, store_uri(run->folder.store), ours->units[first].name,
                    run->units.units[first].version, ours->units[first].version);
}

/* Returns 1 if the dataset is finished. */
static int open_output(EncodeRun *run, Error *err)
{
    FolderClaim claim;
    _cleanup_(input_list_clear) InputList ours = {0};
    format_claim(run, &claim);
    input_list_of(run->set, &ours);
    claim.units = &ours;
    _cleanup_json_ json_t *terms = encoding_terms(&run->encoding);
    claim.terms = terms;
    int r = store_open(run->options->out, &run->folder.store, err);
    if (r == 0 && is_same_folder(run->folder.store, raw_set_uri(run->set)))
        r = error_set(err, -EINVAL, "--in and --out are one folder, %s", raw_set_uri(run->set));
    if (r < 0)
        return r;
    int finished = folder_claim(&run->folder, &claim, &run->units, err);
    if (finished >= 0)
        report_changed(run, &ours);
    if (finished > 0)
        r = dataset_check_named(run, err);
    if (r < 0 || finished != 0)
        return r < 0 ? r : finished;
    for (size_t i = 0; r == 0 && i < run->options->n_named; i++) {
        _cleanup_free_ char *key = report_name(run->options->named[i]);
        r = folder_name(&run->folder, key, err);
    }
    return r < 0 ? r : folder_named(&run->folder, &run->named, &run->n_named, err);
}

static int open_run(EncodeRun *run, bool networks, Error *err)
{
    EncodingOptions encoding = {.networks = networks,
                                .device = run->options->cuda ? DEVICE_CUDA : DEVICE_CPU,
                                .threads = run->options->threads};
    int r = recipe_read_file(run->options->recipe, &run->recipe, err);
    if (r == 0)
        r = open_input(run, err);
    if (r == 0)
        r = encoding_open(run->recipe, &encoding, &run->encoding, err);
    if (r == 0 && networks)
        r = columns_init(run->recipe, &run->encoding.shape, &run->columns, err);
    return r;
}

/* ---- units ---- */

InputTotals run_input(const RawUnit *unit, char **ret_damage)
{
    char text[400];
    const RawState state = raw_unit_state(unit, text, sizeof(text));
    const RawCounts counts = raw_unit_counts(unit);
    *ret_damage = report_name(text);
    if (state != RAW_WHOLE)
        log_warning("%s%s", state == RAW_NO_SAMPLE ? "" : "damaged: ", *ret_damage);
    return (InputTotals){.n_units = 1,
                         .n_no_sample = state == RAW_NO_SAMPLE,
                         .n_cut = state == RAW_CUT,
                         .n_damaged = state == RAW_DAMAGED,
                         .n_members = counts.n_members,
                         .n_strays = counts.n_strays,
                         .member_bytes = (int64_t)counts.member_bytes,
                         .stray_bytes = (int64_t)counts.stray_bytes,
                         .frame_bytes = (int64_t)counts.frame_bytes,
                         .lost_bytes = (int64_t)counts.lost_bytes};
}

int run_set_aside(EncodeRun *run, int r, const Error *why)
{
    if (r != -ENOMEDIUM)
        return r;
    log_error("set aside: %s", why->text);
    if (run->progress.n_aside++ == 0)
        run->first_aside = memory_text(why->text);
    return 0;
}

static int units_aside(const EncodeRun *run, Error *err)
{
    return error_set(
        err, -ENOMEDIUM,
        "%zu of %zu units are not what they should be and were set aside, and so there is no "
        "dataset; the first: %.300s. Mend them, or take them out of the input",
        run->progress.n_aside, raw_set_n_units(run->set), run->first_aside);
}

static bool is_mine(const EncodeOptions *options, size_t unit)
{
    return options->n_units == 0 || unit % (size_t)options->n_units == (size_t)(options->unit - 1);
}

static void begin_progress(EncodeRun *run)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < raw_set_n_units(run->set); i++)
        if (is_mine(run->options, i))
            bytes += raw_set_unit_bytes(run->set, i);
    progress_begin(&run->progress, bytes, run->options->cost_per_hour);
}

/* Logs the keys of the samples whose pictures killed decoders. r: the error that ended the run; 0: all units were
 * processed. */
static int name_open_keys(const EncodeRun *run, int r, Error *err)
{
    char *const *keys;
    size_t n = part_maker_open(run->maker, &keys);
    for (size_t i = 0; i < n; i++) {
        _cleanup_json_ json_t *key = memory_given(json_string(keys[i]));
        _cleanup_free_ char *text = memory_given(json_dumps(key, JSON_ENCODE_ANY));
        log_error("its picture killed a decoder twice: %s", text); /* a key may hold line ends */
    }
    if (r < 0)
        return r;
    return error_set(err, -ENOTRECOVERABLE,
                     "the pictures of %s%zu samples killed their decoders twice: try again, or "
                     "leave them out with --reject KEY",
                     n == PART_OPEN_MAX ? "at least " : "", n);
}

static void report_input(const EncodeRun *run)
{
    char text[300], aside[48] = "";
    if (run->progress.n_aside > 0)
        (void)snprintf(aside, sizeof(aside), "; set aside: %zu", run->progress.n_aside);
    log_info("%s%s", input_totals_format(&run->progress.input, text, sizeof(text)), aside);
}

static int encode_units(EncodeRun *run, Error *err)
{
    bool open = false;
    begin_progress(run);
    for (size_t i = 0; i < raw_set_n_units(run->set); i++) {
        if (!is_mine(run->options, i))
            continue;
        int r = unit_encode(run, i, err);
        r = run_set_aside(run, r, err);
        open |= r == -ENOTRECOVERABLE;
        if (r < 0 && r != -ENOTRECOVERABLE)
            return name_open_keys(run, r, err);
    }
    progress_report(&run->progress, &(ProgressPart){0}, true);
    if (run->options->n_units > 0 || open ||
        run->progress.n_aside > 0) /* otherwise dataset_finish() logs the totals */
        report_input(run);
    return open                        ? name_open_keys(run, 0, err)
           : run->progress.n_aside > 0 ? units_aside(run, err)
                                       : 0;
}

int encode_run(const EncodeOptions *options, Error *err)
{
    _cleanup_(run_clear) EncodeRun run = {.options = options};
    int r = open_run(&run, true, err);
    if (r < 0)
        return r;
    r = open_output(&run, err);
    if (r > 0) {
        dataset_tidy(&run);
        log_info("%s is finished", store_uri(run.folder.store));
    }
    if (r != 0)
        return MIN(r, 0);
    if (!options->finish) {
        r = open_decoders(&run, err);
        if (r == 0)
            r = encode_units(&run, err);
    }
    if (r == 0 && (options->finish || options->n_units == 0))
        r = dataset_finish(&run, err);
    return r;
}

/* ---- checking without the networks ---- */

static int print_rows(PartReport *all, Error *err)
{
    (void)part_report_join_halves(all);
    _cleanup_free_ char *rows = part_report_rows(all);
    return fputs(rows, stdout) < 0 ? error_errno(err, -errno, "standard output") : 0;
}

static int check_unit(EncodeRun *run, size_t number, Error *err)
{
    _cleanup_(raw_unit_freep) RawUnit *unit = NULL;
    _cleanup_(part_report_clear) PartReport all = {0};
    _cleanup_free_ char *damage = NULL;
    uint64_t n_bytes = raw_set_unit_bytes(run->set, number);
    bool open = false;
    run->unit_bytes = n_bytes;
    run->unit_index = 0;
    int r = raw_unit_open(run->set, number, &unit, err);
    if (r < 0)
        return r;
    for (int64_t number_of_part = 0; r == 0; number_of_part++) {
        _cleanup_(part_report_clear) PartReport part = {.part = number_of_part};
        _cleanup_free_ char *none = NULL;
        size_t n_none;
        r = part_make(run->maker, unit, &part, &none, &n_none, err);
        open |= r == -ENOTRECOVERABLE;
        if ((r < 0 && r != -ENOTRECOVERABLE) || part.n_raw == 0)
            break;
        progress_add(&run->progress, &part);
        r = run_count(run, part.n_raw, part.rows, part.n_rows, err);
        part_report_take_rows(&all, &part);
    }
    Error unprinted = ERROR_INIT;
    int printed = print_rows(&all, &unprinted);
    if (r >= 0 && printed < 0)
        return error_set(err, printed, "%s", unprinted.text);
    if (r < 0)
        return r;
    run->progress.bytes += n_bytes;
    const InputTotals input = run_input(unit, &damage);
    input_totals_add(&run->progress.input, &input);
    return open ? -ENOTRECOVERABLE : 0;
}

static int damaged_units(const InputTotals *input, Error *err)
{
    const int64_t n = input->n_cut + input->n_damaged;
    return n > 0 ? error_set(err, -EUCLEAN,
                             "%" PRId64 " of %" PRId64 " units are damaged or have no end", n,
                             input->n_units)
                 : 0;
}

int encode_check(const EncodeOptions *options, Error *err)
{
    _cleanup_(run_clear) EncodeRun run = {.options = options};
    int r = open_run(&run, false, err);
    for (size_t i = 0; i < options->n_named; i++) {
        run.named = memory_resize(run.named, i + 1, sizeof(*run.named));
        run.named[run.n_named++] = report_name(options->named[i]);
    }
    if (r == 0)
        r = open_decoders(&run, err);
    if (r < 0)
        return r;
    bool open = false;
    begin_progress(&run);
    for (size_t i = 0; i < raw_set_n_units(run.set); i++) {
        r = is_mine(options, i) ? check_unit(&run, i, err) : 0;
        r = run_set_aside(&run, r, err);
        open |= r == -ENOTRECOVERABLE;
        if (r < 0 && r != -ENOTRECOVERABLE)
            return name_open_keys(&run, r, err);
    }
    progress_report(&run.progress, &(ProgressPart){0}, true);
    report_input(&run);
    if (fflush(stdout) < 0)
        return error_errno(err, -errno, "standard output");
    if (open)
        return name_open_keys(&run, 0, err);
    return run.progress.n_aside > 0 ? units_aside(&run, err)
                                    : damaged_units(&run.progress.input, err);
}
