/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h. The command line is turned into a JSON object, so that one function reads and checks
 * both the command line and the file. */
#include "base/json/settings.h"

#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/nearest.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { OPTION_CONFIG = 256, OPTION_CHECK, OPTION_HELP, OPTION_VERSION, OPTION_OWN, OPTION_FIRST };
enum { FIXED = 4, NAME_BYTES = 40, LINE_FILE_BYTES_MAX = 4096 };

/* ---- the command line ---- */

static int override_append(json_t *overrides, const Setting *s, const char *value, Error *err)
{
    const char *equals = s->kind == SETTING_TEXTS ? value : strchr(value, '=');
    if (!equals || (equals == value && s->kind != SETTING_TEXTS))
        return error_set(err, -EINVAL, "command line: %s: %s is not KEY=VALUE", s->key, value);

    json_t *list = json_object_get(overrides, s->key);
    if (!list) {
        list = s->kind == SETTING_MAP ? json_object() : json_array();
        if (json_object_set_new(overrides, s->key, list) < 0)
            return error_set(err, -EINVAL, "command line: %s: not UTF-8", s->key);
    }
    _cleanup_free_ char *name = memory_bytes(value, (size_t)(equals - value));
    int r = s->kind == SETTING_MAP ? json_object_set_new(list, name, json_string(equals + 1))
                                   : json_array_append_new(list, json_string(value));
    return r < 0 ? error_set(err, -EINVAL, "command line: %s: %s is not UTF-8", s->key, value) : 0;
}

static int override_set(json_t *overrides, const Setting *s, const char *value, Error *err)
{
    if (s->kind == SETTING_LIST || s->kind == SETTING_TEXTS || s->kind == SETTING_MAP)
        return override_append(overrides, s, value, err);

    json_t *json;
    const char *end = value;
    errno = 0;
    if (s->kind == SETTING_WHOLE) {
        json = json_integer(strtoll(value, (char **)&end, 10));
    } else if (s->kind == SETTING_INTEGER || s->kind == SETTING_NUMBER) {
        /* json_real() returns NULL if the number is not finite. */
        json = json_real(strtod(value, (char **)&end));
    } else if (s->kind == SETTING_FLAG && strcmp(value, "true") == 0) {
        json = json_true();
        end = NULL;
    } else if (s->kind == SETTING_FLAG && strcmp(value, "false") == 0) {
        json = json_false();
        end = NULL;
    } else {
        json = json_string(value);
        end = NULL;
    }
    if (end && (end == value || *end != '\0' || errno != 0 || !json)) {
        json_decref(json);
        return error_set(err, -EINVAL, "command line: %s: %s is not a %s", s->key, value,
                         s->kind == SETTING_WHOLE ? "whole number" : "number");
    }
    if (json_object_set_new(overrides, s->key, json) < 0)
        return error_set(err, -EINVAL, "command line: %s: %s is not UTF-8", s->key, value);
    return 0;
}

static const char *option_of(const Setting *s, char ret[NAME_BYTES])
{
    (void)snprintf(ret, NAME_BYTES, "%s", s->key);
    for (char *c = ret; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return ret;
}

static void print_help(const Settings *s)
{
    printf("%s [OPTION...]\n\n%s\n\n"
           "      --config FILE        read these settings from a JSON object first\n"
           "      --check-config       say whether the settings are good, and exit\n",
           s->program, s->purpose);
    if (s->own)
        printf("      %s\n", s->own_help);
    printf("      --help, --version\n\n");
    char name[NAME_BYTES];
    bool any_reloads = false;
    for (size_t i = 0; i < s->n; i++) {
        const Setting *one = &s->table[i];
        any_reloads = any_reloads || one->reloads;
        printf("      --%-*s %s%s\n", s->help_columns, option_of(one, name), one->help,
               one->reloads ? " *" : "");
    }
    if (any_reloads)
        printf("\n* taken over at SIGHUP, while ranks run\n");
}

/* getopt_long() has printed the unknown option; this error suggests the setting with the most similar name. */
static int refuse_option(const Settings *s, const char *word, Error *err)
{
    char names[JSON_KEYS_MAX][NAME_BYTES], asked[NAME_BYTES], hint[NEAREST_TEXT_BYTES];
    word += strspn(word, "-");
    (void)snprintf(asked, sizeof(asked), "%.*s", (int)strcspn(word, "="), word);
    Nearest meant = nearest_to(asked);
    for (size_t i = 0; i < s->n; i++)
        nearest_offer(&meant, option_of(&s->table[i], names[i]));
    return error_set(err, -EINVAL, "%s%s", s->refusal, nearest_text(&meant, hint));
}

static int parse_option(const Settings *s, int option, const char *word, SettingsCall *call,
                        Error *err)
{
    switch (option) {
    case OPTION_CONFIG:
        call->file = optarg;
        return 0;
    case OPTION_CHECK:
        call->check = true;
        return 0;
    case OPTION_HELP:
        print_help(s);
        return -ECANCELED;
    case OPTION_VERSION:
        printf("%s %s\n", s->program, s->version);
        return -ECANCELED;
    case OPTION_OWN:
        call->own = optarg;
        return 0;
    case '?':
        return refuse_option(s, word, err);
    default:
        return override_set(call->overrides, &s->table[option - OPTION_FIRST], optarg, err);
    }
}

int settings_parse_arguments(const Settings *s, int argc, char *argv[], SettingsCall *ret,
                             Error *err)
{
    assert(s->n <= JSON_KEYS_MAX);
    char names[JSON_KEYS_MAX][NAME_BYTES];
    struct option options[FIXED + JSON_KEYS_MAX + 2] = {
        {"config", required_argument, NULL, OPTION_CONFIG},
        {"check-config", no_argument, NULL, OPTION_CHECK},
        {"help", no_argument, NULL, OPTION_HELP},
        {"version", no_argument, NULL, OPTION_VERSION},
    };
    for (size_t i = 0; i < s->n; i++)
        options[FIXED + i] = (struct option){option_of(&s->table[i], names[i]), required_argument,
                                             NULL, OPTION_FIRST + (int)i};
    options[FIXED + s->n] = (struct option){s->own, required_argument, NULL, OPTION_OWN};

    SettingsCall call = {.overrides = json_object()};
    optind = 0; /* in glibc, 0 makes getopt_long() start anew, so this function may run twice */
    int option, r = 0;
    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0)
        r = parse_option(s, option, argv[optind - 1], &call, err);
    if (r == 0 && optind < argc)
        r = error_set(err, -EINVAL, "%s%s%s", s->stray[0], argv[optind], s->stray[1]);
    if (r < 0) {
        json_decref(call.overrides);
        return r;
    }
    *ret = call;
    return 0;
}

void settings_call_clear(SettingsCall *call)
{
    json_decref(call->overrides);
    *call = (SettingsCall){0};
}

/* ---- values ---- */

static void keep(json_t **field, json_t *value)
{
    json_decref(*field);
    *field = json_incref(value);
}

/* Copies a text that begins with "%d/" to ret, with $CREDENTIALS_DIRECTORY in place of "%d", as systemd does in unit
 * files. Returns false, with the error in r, if the file cannot be used. */
static bool find_credential(JsonReader *r, const Setting *s, const char *text, char *ret,
                            size_t size)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (!folder)
        json_refuse(r, s->key, "%s: only a service has credentials; CREDENTIALS_DIRECTORY is unset",
                    text);
    else if ((size_t)snprintf(ret, size, "%s/%s", folder, text + 3) >= size)
        json_refuse(r, s->key, "%.40s... is longer than %zu bytes", text, size - 1);
    else if (access(ret, R_OK) < 0)
        json_refuse(r, s->key, "%s: %s: %s", text, ret, strerror(errno));
    else
        return true;
    return false;
}

/* Returns the string KEY=VALUE, in which a %d at the beginning of VALUE is replaced; NULL if the string was refused. */
static json_t *read_pair(JsonReader *r, const Setting *s, size_t i, json_t *one)
{
    char file[PATH_MAX];
    const char *text = json_string_value(one), *equals = text ? strchr(text, '=') : NULL;
    if (!equals || equals == text) {
        json_refuse(r, s->key, "element %zu is not a string \"KEY=VALUE\"", i);
        return NULL;
    }
    if (strncmp(equals, "=%d/", 4) != 0)
        return json_incref(one);
    if (!find_credential(r, s, equals + 1, file, sizeof(file)))
        return NULL;
    return json_sprintf("%.*s=%s", (int)(equals - text), text, file);
}

static void read_list(JsonReader *r, const Setting *s, json_t **field)
{
    json_t *list, *one;
    size_t i;
    if (!json_get_array(r, s->key, JSON_OPTIONAL, (size_t)s->max, &list))
        return;
    _cleanup_json_ json_t *pairs = json_array();
    json_array_foreach (list, i, one) {
        json_t *pair = read_pair(r, s, i, one);
        if (!pair)
            return;
        json_array_append_new(pairs, pair);
    }
    keep(field, pairs);
}

static void read_texts(JsonReader *r, const Setting *s, json_t **field)
{
    json_t *array, *one;
    size_t i;
    if (!json_get_array(r, s->key, JSON_OPTIONAL, (size_t)s->max, &array))
        return;
    json_array_foreach (array, i, one)
        if (!json_is_string(one)) {
            json_refuse(r, s->key, "element %zu is not a string", i);
            return;
        }
    keep(field, array);
}

static void read_map(JsonReader *r, const Setting *s, json_t **field)
{
    json_t *map, *one;
    const char *key;
    if (!json_get_any(r, s->key, JSON_OPTIONAL, &map))
        return;
    if (!json_is_object(map) || json_object_size(map) > (size_t)s->max) {
        json_refuse(r, s->key, "expected an object of at most %d strings", (int)s->max);
        return;
    }
    json_object_foreach (map, key, one)
        if (!json_is_string(one)) {
            json_refuse(r, s->key, "the value of %s is not a string", key);
            return;
        }
    keep(field, map);
}

static void read_file_name(JsonReader *r, const Setting *s, char *field)
{
    const char *text = NULL;
    if (!json_get_string(r, s->key, JSON_OPTIONAL, &text) || strncmp(text, "%d/", 3) != 0)
        json_get_text(r, s->key, JSON_OPTIONAL, field, s->size);
    else
        (void)find_credential(r, s, text, field, s->size); /* the error is in r */
}

/* Reads the value of one setting into its field. If the key is absent, the field keeps its default. */
static void read_setting(JsonReader *r, const Setting *s, void *field)
{
    switch (s->kind) {
    case SETTING_TEXT:
        json_get_text(r, s->key, JSON_OPTIONAL, field, s->size);
        break;
    case SETTING_FILE:
        read_file_name(r, s, field);
        break;
    case SETTING_WHOLE:
    case SETTING_INTEGER:
        json_get_int(r, s->key, JSON_OPTIONAL, (int64_t)s->min, (int64_t)s->max, field);
        break;
    case SETTING_NUMBER:
        json_get_double(r, s->key, JSON_OPTIONAL, s->min, s->max, field);
        break;
    case SETTING_FLAG:
        json_get_bool(r, s->key, JSON_OPTIONAL, field);
        break;
    case SETTING_CHOICE:
        json_get_choice(r, s->key, JSON_OPTIONAL, s->choices, (size_t)s->max, field);
        break;
    case SETTING_LIST:
        read_list(r, s, field);
        break;
    case SETTING_TEXTS:
        read_texts(r, s, field);
        break;
    case SETTING_MAP:
        read_map(r, s, field);
        break;
    }
}

static int read_settings(const Settings *s, const char *source, json_t *object, void *ret,
                         Error *err)
{
    JsonReader r = json_open(source, object, JSON_KNOWN_KEYS, err);
    for (size_t i = 0; i < s->n; i++)
        read_setting(&r, &s->table[i], (char *)ret + s->table[i].offset);
    return json_close(&r);
}

int settings_load(const Settings *s, const char *file, json_t *overrides, void *ret, Error *err)
{
    if (file) {
        _cleanup_json_ json_t *root = NULL;
        int r = json_read_file(file, 1 << 20, &root, err);
        r = r < 0 ? r : read_settings(s, file, root, ret, err);
        if (r < 0)
            return r;
    }
    return read_settings(s, "command line", overrides, ret, err);
}

static bool is_same(const Setting *s, const void *a, const void *b)
{
    if (s->kind == SETTING_TEXT || s->kind == SETTING_FILE)
        return strcmp(a, b) == 0;
    return memcmp(a, b, s->size) ==
           0; /* s is not a list, because every setting with a list can be reloaded */
}

void settings_reload(const Settings *s, void *config, void *fresh)
{
    for (size_t i = 0; i < s->n; i++) {
        const Setting *one = &s->table[i];
        char *field = (char *)config + one->offset, *other = (char *)fresh + one->offset;
        for (size_t k = 0; one->reloads && k < one->size; k++) {
            const char was = field[k];
            field[k] = other[k];
            other[k] = was;
        }
        if (!one->reloads && !is_same(one, field, other))
            log_warning("%s changed; it takes effect when %s restarts", one->key, s->program);
    }
}

int settings_read_line(const char *path, char *ret, size_t size, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = file_read(path, LINE_FILE_BYTES_MAX, &text, NULL, err);
    if (r < 0)
        return r;
    text[strcspn(text, "\r\n")] = '\0';
    if (strlen(text) >= size)
        return error_set(err, -EINVAL, "%s: its first line is longer than %zu bytes", path,
                         size - 1);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}
