/* settings.h - a program's table of settings: a flat JSON file, then the command line over it.
 *
 * Every key is the name of a field and an option ("lease_sec", --lease-sec). --config, --check-config,
 * --help and --version come with the table; unknown keys are refused by name.
 *
 * Ownership: a SettingsCall owns its overrides (json_decref); its texts are argv's. Lists and maps in
 *            the program's struct hold references (json_decref); NULL is an empty one.
 * Units:     as each setting says.
 * Errors:    -EINVAL with "<file or 'command line'>: <key>: <what is wrong with which value>".
 * Threads:   settings_parse_arguments() in one thread at a time, as getopt_long().
 */
#pragma once

#include "base/error.h"

#include <jansson.h>

typedef enum SettingKind {
    SETTING_TEXT, /* char[] */
    SETTING_FILE, /* char[]; what begins with %d/ lies in the folder of the service's credentials */
    SETTING_WHOLE,   /* int64_t; digits alone on the command line */
    SETTING_INTEGER, /* int64_t; on the command line 1e9, too */
    SETTING_NUMBER,  /* double */
    SETTING_CHOICE,  /* int, index of one of max choices */
    SETTING_LIST,  /* json_t *, array of at most max "KEY=VALUE"; the option may be repeated; %d/ at
                        the beginning of a value is as in FILE */
    SETTING_TEXTS, /* json_t *, array of at most max strings; the option may be repeated */
    SETTING_MAP,   /* json_t *, object of at most max strings; the option, KEY=VALUE, as well */
} SettingKind;

typedef struct Setting {
    const char *key;
    SettingKind kind;
    size_t offset, size; /* of the field in the program's struct */
    double min, max;
    const char *help;
    bool reloads; /* for the program: a new value counts without a restart */
    const char *const *choices;
} Setting;

/* The row of a field of the program's struct, which the table's file names by #define SETTINGS_STRUCT:
 *     SETTING(WHOLE, lease_sec, 1, 600, "silence after which a node is gone (10)"), */
#define SETTING(kind_, field, min_, max_, help_, ...)                                              \
    {                                                                                              \
        .key = #field, .kind = SETTING_##kind_, .offset = offsetof(SETTINGS_STRUCT, field),        \
        .size = sizeof(((SETTINGS_STRUCT *)0)->field), .min = min_, .max = max_, .help = help_,    \
        __VA_ARGS__                                                                                \
    }

typedef struct Settings {
    const char *program, *version, *purpose;
    const Setting *table;
    size_t n;                   /* at most JSON_KEYS_MAX */
    int help_columns;           /* of an option's name in --help */
    const char *own, *own_help; /* an option with an argument that is no setting; NULL: none */
    const char *refusal;        /* the error once getopt_long() has told what it does not know */
    const char *stray[2];       /* the error before and after a word that is no option */
} Settings;

typedef struct SettingsCall {
    const char *file;  /* --config; NULL: none */
    bool check;        /* --check-config */
    const char *own;   /* argument of the program's own option; NULL: not given */
    json_t *overrides; /* owned: what else the command line says, under the file's keys */
} SettingsCall;

/* -ECANCELED after --help or --version, which print and are done. */
int settings_parse_arguments(const Settings *s, int argc, char *argv[], SettingsCall *ret,
                             Error *err);
/* The file, when there is one, then the overrides; what neither names is left as it is in *ret. */
int settings_load(const Settings *s, const char *file, json_t *overrides, void *ret, Error *err);

/* For settings that name a small file, as of a password: its first line, without the line's end. */
int settings_read_line(const char *path, char *ret, size_t size, Error *err);
