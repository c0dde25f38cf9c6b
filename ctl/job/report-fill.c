/* SPDX-License-Identifier: Apache-2.0 */
/* report-fill.c - see report.h: values by name, and the template with its places filled. */
#include "ctl/job/report.h"

#include "base/memory.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

json_t *report_list(json_t *object, const char *name)
{
    json_t *list = json_array();
    (void)json_object_set_new(object, name, list);
    return list;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the whole format was checked */
json_t *report_put(json_t *to, const char *format, ...)
{
    json_t *object = json_is_array(to) ? json_object() : to;
    char name[32], one[16];
    va_list ap;
    if (object != to)
        (void)json_array_append_new(to, object);
    va_start(ap, format);
    for (int n; sscanf(format, " %31[a-z_]=%15s%n", name, one, &n) == 2; format += n) {
        const char type = one[strlen(one) - 1];
        assert(strchr("sdufg", type));
        /* NOLINTBEGIN(bugprone-branch-clone): the last two differ in the type that va_arg() takes */
        _cleanup_free_ char *text = type == 's' ? memory_text(va_arg(ap, const char *))
                                    : type == 'f' || type == 'g'
                                        ? memory_format(one, va_arg(ap, double))
                                    : strstr(one, "ll") ? memory_format(one, va_arg(ap, long long))
                                                        : memory_format(one, va_arg(ap, int));
        /* NOLINTEND(bugprone-branch-clone) */
        /* A text may be cut within a letter, so it need not be UTF-8. */
        (void)json_object_set_new(object, name, json_string_nocheck(text));
    }
    va_end(ap);
    assert(*format == '\0');
    return object;
}
#pragma GCC diagnostic pop

/* Texts come from outside: HTML's characters lose their meaning. */
static void write_text(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) {
        const char *name = *p == '&'   ? "&amp;"
                           : *p == '<' ? "&lt;"
                           : *p == '>' ? "&gt;"
                           : *p == '"' ? "&quot;"
                                       : NULL;
        if (name)
            (void)fputs(name, to);
        else
            (void)fputc((unsigned char)*p < ' ' ? ' ' : *p, to);
    }
}

static const char *fill(FILE *to, const char *at, const json_t *values);

/* Fills what lies between the opening mark, which ends at `at`, and its end; returns what lies behind. */
static const char *fill_block(FILE *to, const char *at, const json_t *values, const char *word,
                              const json_t *value)
{
    const char *end = fill(to, at, NULL);
    if (!values)
        return end;
    if (strcmp(word, "each") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++)
            (void)fill(to, at, json_array_get(value, i));
        return end;
    }
    bool has_value = json_array_size(value) > 0 || json_string_length(value) > 0;
    if (has_value == (strcmp(word, "if") == 0))
        (void)fill(to, at, values);
    return end;
}

/* Copies the template from `at` to its end or that of the block; without values it is only read. */
static const char *fill(FILE *to, const char *at, const json_t *values)
{
    while (*at) {
        char name[32] = "", word[8] = "";
        const size_t n_plain = strcspn(at + 1, "{<") + 1;
        if (sscanf(at, "{{%31[a-z_]", name) == 1) {
            at = strstr(at, "}}") + 2;
            assert(!values || json_is_string(json_object_get(values, name)));
            if (values)
                write_text(to, json_string_value(json_object_get(values, name)));
        } else if (strncmp(at, "<!--", 4) == 0) {
            (void)sscanf(at, "<!-- %7s %31[a-z_]", word, name);
            at = strstr(at, "-->") + 3;
            at += *at == '\n';
            if (strcmp(word, "end") == 0)
                return at;
            if (strcmp(word, "each") == 0 || strcmp(word, "if") == 0 || strcmp(word, "unless") == 0)
                at = fill_block(to, at, values, word, json_object_get(values, name));
        } else {
            if (values)
                (void)fwrite(at, 1, n_plain, to);
            at += n_plain;
        }
    }
    return at;
}

void report_fill(FILE *to, const json_t *page) { (void)fill(to, report_template, page); }
