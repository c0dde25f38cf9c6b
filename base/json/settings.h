/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - a program's table of settings: read from a flat JSON file, then overridden by the command line.
 *
 * Each key names a field of the program's struct and an option ("lease_sec", --lease-sec). The program also gets the
 * options --config, --check-config, --help and --version; unknown keys are refused by name.
 *
 * Ownership: a SettingsCall owns its overrides (settings_call_clear()); its texts point into argv. Lists and maps
 *            in the program's struct hold references (json_decref); NULL is an empty one.
 * Units:     as each setting defines.
 * Errors:    -EINVAL with "<file or 'command line'>: <key>: <what is wrong with which value>".
 * Threads:   settings_parse_arguments() in one thread at a time, as getopt_long() requires.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>

typedef enum SettingKind {
    SETTING_TEXT,    /* char[] */
    SETTING_FILE,    /* char[]; a leading %d/ stands for the folder of the service's credentials */
    SETTING_WHOLE,   /* int64_t; only digits on the command line */
    SETTING_INTEGER, /* int64_t; the command line also accepts 1e9 */
    SETTING_NUMBER,  /* double */
    SETTING_CHOICE,  /* int, the index of one of `max` choices */
    SETTING_FLAG,    /* bool; true or false on the command line, too */
    SETTING_LIST, /* json_t *, array of at most `max` texts "KEY=VALUE"; the option may be repeated; a
                        value's leading %d/ works as in SETTING_FILE */
    SETTING_TEXTS, /* json_t *, array of at most `max` strings; the option may be repeated */
    SETTING_MAP, /* json_t *, object of at most `max` strings; the option, KEY=VALUE, may be repeated */
} SettingKind;

typedef struct Setting {
    const char *key;
    SettingKind kind;
    size_t offset, size; /* where the field begins in the program's struct, and its bytes */
    double min, max;
    const char *help;
    bool reloads; /* the program adopts a new value without a restart */
    const char *const *choices;
} Setting;

/* Makes the row of one field. The table's file names the program's struct by #define SETTINGS_STRUCT:
 *     SETTING(WHOLE, lease_sec, 1, 600, "silence after which a node is gone (10)"), */
#define SETTING(kind_, field, min_, max_, help_, ...)                                              \
    SETTING_OF(kind_, #field, field, help_, .min = min_, .max = max_, __VA_ARGS__)
/* Makes the row of a field that has another name than its key. */
#define SETTING_OF(kind_, key_, field, help_, ...)                                                 \
    {                                                                                              \
        .key = key_, .kind = SETTING_##kind_, .offset = offsetof(SETTINGS_STRUCT, field),          \
        .size = sizeof(((SETTINGS_STRUCT *)0)->field), .help = help_, __VA_ARGS__                  \
    }

typedef struct Settings {
    const char *program, *version, *purpose;
    const Setting *table;
    size_t n;         /* number of settings, at most JSON_KEYS_MAX */
    int help_columns; /* width of the option's name in --help */
    /* Name and help text of an option that only this program has and that takes an argument. NULL: none. */
    const char *own, *own_help;
    /* The error text for an unknown option, which getopt_long() has printed before. */
    const char *refusal;
    const char *stray[2]; /* the error text before and after a word that is not an option */
} Settings;

typedef struct SettingsCall {
    const char *file;  /* argument of --config; NULL: not given */
    bool check;        /* whether --check-config was given */
    const char *own;   /* argument of the program's own option; NULL: not given */
    json_t *overrides; /* owned: the settings of the command line, under the file's keys */
} SettingsCall;

/* Returns -ECANCELED after --help or --version, which only print text. */
int settings_parse_arguments(const Settings *s, int argc, char *argv[], SettingsCall *ret,
                             Error *err);
/* Frees what the call owns; a zeroed SettingsCall is allowed. */
void settings_call_clear(SettingsCall *call);
/* Reads the file, if there is one, then the overrides; a setting that neither of them has keeps its
 * value in *ret. */
int settings_load(const Settings *s, const char *file, json_t *overrides, void *ret, Error *err);
/* Exchanges the settings that can be reloaded between the two structs, and logs the other keys whose values differ:
 * a change of these keys needs a restart. */
void settings_reload(const Settings *s, void *config, void *fresh);

/* Reads the first line of a small file that a setting names (a password), without the line's end. */
int settings_read_line(const char *path, char *ret, size_t size, Error *err);
