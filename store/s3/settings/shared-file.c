/* SPDX-License-Identifier: Apache-2.0 */
/* shared-file.c - AWS's shared config and credentials files; see options.h.
 *
 * All strings of a SharedFile point into its copy of the file's text, so that secrets are in one place. */
#include "store/s3/settings/options.h"

#include "base/file.h"
#include "base/memory.h"

#include <string.h>
#include <strings.h>

enum { FILE_BYTES_MAX = 1 << 20, ENTRIES_MAX = 1 << 14, NONE = -1 };

typedef struct Section {
    const char *profile; /* name of the profile; NULL: the section is not a profile */
    bool plain;          /* "[default]" of a config file; a "[profile default]" overrides it */
} Section;

typedef struct SharedFileEntry {
    int section, line;
    const char *outer; /* the key below which this key is indented; NULL: none */
    const char *key;
    char *value;
} SharedFileEntry;

struct SharedFile {
    SharedFileKind kind;
    char *name, *text;
    size_t n_text;
    Section *sections;
    int n_sections;
    SharedFileEntry *entries;
    int n_entries;
    int last; /* the entry that a more indented line continues; NONE: no key in this section yet */
    int parent; /* the last key without a value, below which keys may be indented; NONE: no such key */
    size_t indent; /* indentation of the last key that is not below another key */
};

SharedFile *shared_file_free(SharedFile *file)
{
    if (!file)
        return NULL;
    if (file->text)
        explicit_bzero(file->text, file->n_text);
    free(file->text);
    free(file->name);
    free(file->sections);
    free(file->entries);
    free(file);
    return NULL;
}

/* ---- a line ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static char *skip_blanks(char *p)
{
    while (is_blank(*p))
        p++;
    return p;
}

static void cut_blanks(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && is_blank(text[n - 1]))
        text[--n] = '\0';
}

/* Cuts a comment after a value. A comment must follow a blank, as values may have '#' and ';'. */
static void cut_comment(char *text)
{
    for (char *p = text; *p; p++)
        if ((*p == '#' || *p == ';') && (p == text || is_blank(p[-1]))) {
            *p = '\0';
            break;
        }
    cut_blanks(text);
}

/* Returns the profile's name of "profile x" or "profile \"x y\""; NULL for a section of another kind. */
static char *profile_name(SharedFileKind kind, char *section)
{
    char *name = section;
    if (kind == SHARED_CONFIG && strcmp(section, "default") != 0) {
        if (strncmp(section, "profile", 7) != 0 || !is_blank(section[7]))
            return NULL;
        name = skip_blanks(section + 7);
    }
    size_t n = strlen(name);
    if (n >= 2 && (name[0] == '"' || name[0] == '\'') && name[n - 1] == name[0]) {
        name[n - 1] = '\0';
        name++;
    }
    return name;
}

static int refuse(const SharedFile *file, int line, const char *what, Error *err)
{
    return error_set(err, -EINVAL, "%s:%d: %s", file->name, line, what);
}

/* ---- sections and keys ---- */

static int begin_section(SharedFile *file, char *p, int line, Error *err)
{
    char *end = strchr(p, ']');
    if (!end)
        return refuse(file, line, "a section's name ends with ]", err);
    *end = '\0';
    cut_comment(end + 1);
    if (*skip_blanks(end + 1))
        return refuse(file, line, "only a comment may stand behind a section's name", err);
    char *name = skip_blanks(p + 1);
    cut_blanks(name);
    if (!*name)
        return refuse(file, line, "a section without a name", err);
    bool plain = file->kind == SHARED_CONFIG && strcmp(name, "default") == 0;
    file->sections[file->n_sections++] =
        (Section){.profile = profile_name(file->kind, name), .plain = plain};
    file->last = file->parent = NONE;
    return 0;
}

static int add_entry(SharedFile *file, const char *outer, char *p, int line, Error *err)
{
    char *equals = strchr(p, '=');
    if (!equals || equals == p)
        return refuse(file, line, "expected [section], key = value, or a comment", err);
    if (file->n_sections == 0)
        return refuse(file, line, "a key in front of the first [section]", err);
    if (file->n_entries == ENTRIES_MAX)
        return refuse(file, line, "too many keys", err);
    *equals = '\0';
    cut_blanks(p);
    char *value = skip_blanks(equals + 1);
    cut_comment(value);
    file->last = file->n_entries;
    if (!outer)
        file->parent = *value ? NONE : file->n_entries;
    file->entries[file->n_entries++] = (SharedFileEntry){
        .section = file->n_sections - 1, .line = line, .outer = outer, .key = p, .value = value};
    return 0;
}

/* Handles a more indented line: a nested key if the last key has no value, or else a continuation of the last value. */
static int add_below(SharedFile *file, char *p, int line, Error *err)
{
    if (file->parent != NONE)
        return add_entry(file, file->entries[file->parent].key, p, line, err);
    cut_comment(p);
    char *end = strchr(file->entries[file->last].value, '\0');
    *end = '\n'; /* the value grows in place, over text that is already parsed */
    memmove(end + 1, p, strlen(p) + 1);
    return 0;
}

static int add_line(SharedFile *file, char *text, int line, Error *err)
{
    char *p = skip_blanks(text);
    size_t indent = (size_t)(p - text);
    if (!*p || *p == '#' || *p == ';')
        return 0;
    if (file->last != NONE && indent > file->indent)
        return add_below(file, p, line, err);
    if (*p == '[')
        return begin_section(file, p, line, err);
    file->indent = indent;
    return add_entry(file, NULL, p, line, err);
}

static void forget_plain_default(SharedFile *file)
{
    bool better = false;
    for (int i = 0; i < file->n_sections; i++)
        better |= file->sections[i].profile && !file->sections[i].plain &&
                  strcmp(file->sections[i].profile, "default") == 0;
    for (int i = 0; i < file->n_sections && better; i++)
        if (file->sections[i].plain)
            file->sections[i].profile = NULL;
}

static int parse_lines(SharedFile *file, Error *err)
{
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark, which some editors write */
    char *p = file->text + (strncmp(file->text, mark, 3) == 0 ? 3 : 0);
    for (int line = 1; *p; line++) {
        char *end = p + strcspn(p, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        if (end > p && end[-1] == '\r')
            end[-1] = '\0';
        int r = add_line(file, p, line, err);
        if (r < 0)
            return r;
        p = next;
    }
    forget_plain_default(file);
    return 0;
}

int shared_file_parse(SharedFileKind kind, const char *name, const char *text, SharedFile **ret,
                      Error *err)
{
    size_t n_lines = 1;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
        n_lines++;
    if (strlen(text) > FILE_BYTES_MAX)
        return error_set(err, -EINVAL, "%s is larger than %d bytes", name, FILE_BYTES_MAX);

    _cleanup_(shared_file_freep) SharedFile *file = memory_new(SharedFile);
    file->kind = kind;
    file->last = file->parent = NONE;
    file->n_text = strlen(text);
    file->name = memory_text(name);
    file->text = memory_text(text);
    file->sections = memory_zeroed(n_lines, sizeof(*file->sections));
    file->entries = memory_zeroed(MIN(n_lines, (size_t)ENTRIES_MAX), sizeof(*file->entries));
    int r = parse_lines(file, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(file);
    return 0;
}

/* ---- reading the file ---- */

static char *find_file(SharedFileKind kind)
{
    const char *named =
        getenv(kind == SHARED_CONFIG ? "AWS_CONFIG_FILE" : "AWS_SHARED_CREDENTIALS_FILE");
    const char *home = getenv("HOME"), *own = kind == SHARED_CONFIG ? "config" : "credentials";
    if (named && strncmp(named, "~/", 2) == 0 && home)
        return memory_format("%s%s", home, named + 1);
    return named && *named ? memory_text(named)
                           : memory_format("%s/.aws/%s", home ?: "/nonexistent", own);
}

int shared_file_load(SharedFileKind kind, SharedFile **ret, Error *err)
{
    _cleanup_free_ char *path = find_file(kind), *text = NULL;
    size_t n = 0;
    int r =
        strcmp(path, "/dev/null") == 0 ? -ENOENT : file_read(path, FILE_BYTES_MAX, &text, &n, err);
    if (r < 0 && r != -ENOENT && r != -ENOTDIR)
        return r;
    if (text && strlen(text) != n)
        r = error_set(err, -EINVAL, "%s: a NUL in a text", path);
    else
        r = shared_file_parse(kind, path, text ? text : "", ret, err);
    if (text)
        explicit_bzero(text, n);
    return r;
}

/* ---- values ---- */

const char *shared_file_name(const SharedFile *file) { return file->name; }

static bool is_of(const Section *section, const char *profile)
{
    return section->profile && strcmp(section->profile, profile) == 0;
}

bool shared_file_has(const SharedFile *file, const char *profile)
{
    for (int i = 0; i < file->n_sections; i++)
        if (is_of(&file->sections[i], profile))
            return true;
    return false;
}

static bool is_named(const SharedFileEntry *entry, const char *key)
{
    if (!entry->outer)
        return strcasecmp(entry->key, key) == 0;
    size_t n = strlen(entry->outer);
    return strncasecmp(entry->outer, key, n) == 0 && key[n] == '.' &&
           strcasecmp(entry->key, key + n + 1) == 0;
}

static const SharedFileEntry *find(const SharedFile *file, const char *profile, const char *key)
{
    for (int i = file->n_entries - 1; i >= 0; i--)
        if (is_named(&file->entries[i], key) &&
            is_of(&file->sections[file->entries[i].section], profile))
            return &file->entries[i];
    return NULL;
}

const char *shared_file_get(const SharedFile *file, const char *profile, const char *key)
{
    const SharedFileEntry *entry = find(file, profile, key);
    return entry ? entry->value : NULL;
}

int shared_file_line(const SharedFile *file, const char *profile, const char *key)
{
    const SharedFileEntry *entry = find(file, profile, key);
    return entry ? entry->line : 0;
}
