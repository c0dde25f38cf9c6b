/* SPDX-License-Identifier: Apache-2.0 */
/* template.c - see template.h: stores values by name, fills templates, and finds the changed parts of a page. */
#include "report/template.h"

#include "base/memory.h"
#include "base/number/hash.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

/* ---- values ---- */

json_t *template_list(json_t *object, const char *name)
{
    json_t *list = json_array();
    (void)json_object_set_new(object, name, list);
    return list;
}

#pragma GCC diagnostic push
/* The compiler checks the format at each call of template_put(). */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
json_t *template_put(json_t *to, const char *format, ...)
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
        /* The check for UTF-8 is skipped, because a text may be cut within a letter. */
        (void)json_object_set_new_nocheck(object, name, json_string_nocheck(text));
    }
    va_end(ap);
    assert(*format == '\0');
    return object;
}
#pragma GCC diagnostic pop

/* ---- the template ---- */

typedef struct Filling {
    FILE *to;
    Page *page;
    int part; /* index of the part being written; -1: none */
} Filling;

/* Writes a text with HTML's special characters escaped, because texts come from outside. */
static void write_text(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) {
        const char *name = *p == '&'    ? "&amp;"
                           : *p == '<'  ? "&lt;"
                           : *p == '>'  ? "&gt;"
                           : *p == '"'  ? "&quot;"
                           : *p == '\'' ? "&#39;"
                                        : NULL;
        if (name)
            (void)fputs_unlocked(name, to);
        else
            (void)fputc_unlocked((unsigned char)*p < ' ' ? ' ' : *p, to);
    }
}

/* Writes a value. A missing value is a bug in this program, but must not end the leader; tests check n_missing. */
static void write_value(Filling *f, const json_t *values, const char *name)
{
    const char *text = json_string_value(json_object_get(values, name));
    f->page->n_missing += !text;
    write_text(f->to, text ? text : "?");
}

static const char *fill(Filling *f, const char *at, const json_t *values);

static size_t written(const Filling *f)
{
    const long n = ftell(f->to);
    return n < 0 ? 0 : (size_t)n;
}

static const char *fill_part(Filling *f, const char *at, const json_t *values, const char *word,
                             const char *name)
{
    const char *row = values ? json_string_value(json_object_get(values, "row")) : NULL;
    if (!values)
        return fill(f, at, NULL);
    Page *page = f->page;
    const int index = (int)page->n_parts, outer = f->part;
    page->parts = memory_grow(page->parts, page->n_parts, &page->room, sizeof(*page->parts));
    page->parts[page->n_parts++] =
        (PagePart){.begin = written(f), .parent = outer, .slow = *word == 's'};
    (void)snprintf(page->parts[index].id, PART_ID_BYTES, row ? "%s-%s" : "%s%s", row ? row : "",
                   name);
    f->part = index;
    at = fill(f, at, values);
    page->parts[index].end = written(f);
    f->part = outer;
    return at;
}

/* Fills the text between the opening mark, which ends at `at`, and its end mark. Returns the position after the end
 * mark. */
static const char *fill_block(Filling *f, const char *at, const json_t *values, const char *word,
                              const json_t *value)
{
    const char *end = fill(f, at, NULL);
    if (!values)
        return end;
    if (strcmp(word, "each") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++)
            (void)fill(f, at, json_array_get(value, i));
        return end;
    }
    bool has_value = json_array_size(value) > 0 || json_string_length(value) > 0;
    if (has_value == (strcmp(word, "if") == 0))
        (void)fill(f, at, values);
    return end;
}

static const char *fill_mark(Filling *f, const char *at, const json_t *values, bool *ret_end)
{
    char name[32] = "", word[8] = "";
    (void)sscanf(at, "<!-- %7s %31[a-z_]", word, name);
    at = strstr(at, "-->") + 3;
    at += *at == '\n';
    *ret_end = strcmp(word, "end") == 0;
    if (strcmp(word, "each") == 0 || strcmp(word, "if") == 0 || strcmp(word, "unless") == 0)
        at = fill_block(f, at, values, word, json_object_get(values, name));
    else if (strcmp(word, "part") == 0 || strcmp(word, "slow") == 0)
        at = fill_part(f, at, values, word, name);
    else if (values && (strcmp(word, "style") == 0 || strcmp(word, "script") == 0))
        (void)fputs(strcmp(word, "style") == 0 ? report_page_css : report_page_js, f->to);
    return at;
}

/* Fills the template from `at` to the end of the block or of the template. With values NULL, the text is only
 * skipped. */
static const char *fill(Filling *f, const char *at, const json_t *values)
{
    while (*at) {
        char name[32] = "";
        bool ends = false;
        const size_t n_plain = strcspn(at + 1, "{<") + 1;
        if (at[0] == '{' && at[1] == '{' && sscanf(at, "{{%31[a-z_]", name) == 1) {
            at = strstr(at, "}}") + 2;
            if (values)
                write_value(f, values, name);
        } else if (strncmp(at, "<!--", 4) == 0) {
            at = fill_mark(f, at, values, &ends);
            if (ends)
                return at;
        } else {
            if (values)
                (void)fwrite_unlocked(at, 1, n_plain, f->to);
            at += n_plain;
        }
    }
    return at;
}

static void hash_parts(Page *page)
{
    for (size_t i = 0; i < page->n_parts; i++) {
        PagePart *part = &page->parts[i];
        size_t from = part->begin;
        for (size_t k = i + 1; k < page->n_parts && page->parts[k].begin < part->end; k++) {
            const PagePart *inner = &page->parts[k];
            if (inner->parent != (int)i)
                continue;
            part->hash = hash64_bytes(page->text + from, inner->begin - from, part->hash + 1);
            from = inner->end;
        }
        part->hash = hash64_bytes(page->text + from, part->end - from, part->hash + 1);
    }
}

void template_page(const char *template, const json_t *values, Page *ret)
{
    *ret = (Page){0};
    Filling f = {.page = ret, .part = -1};
    f.to = memory_given(open_memstream(&ret->text, &ret->n_bytes));
    (void)fill(&f, template, values);
    const bool failed = ferror(f.to) != 0;
    (void)memory_given(fclose(f.to) == 0 && !failed ? ret->text : NULL);
    hash_parts(ret);
}

void page_clear(Page *page)
{
    free(page->text);
    free(page->parts);
    *page = (Page){0};
}

/* ---- changes ---- */

static void write_quoted(FILE *to, const char *text, size_t n)
{
    (void)fputc('"', to);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\')
            (void)fputc_unlocked('\\', to);
        if (text[i] == '\n')
            (void)fputs_unlocked("\\n", to);
        else
            (void)fputc_unlocked((unsigned char)text[i] < ' ' ? ' ' : text[i], to);
    }
    (void)fputc('"', to);
}

static const PagePart *find_part(const Page *page, size_t near, const char *id)
{
    if (near < page->n_parts && strcmp(page->parts[near].id, id) == 0)
        return &page->parts[near];
    for (size_t i = 0; i < page->n_parts; i++)
        if (strcmp(page->parts[i].id, id) == 0)
            return &page->parts[i];
    return NULL;
}

bool page_part_differs(const Page *a, const Page *b, const char *id)
{
    const PagePart *in_a = find_part(a, 0, id), *in_b = find_part(b, 0, id);
    return in_a && in_b && in_a->hash != in_b->hash;
}

char *page_changes(const Page *before, Page *now, bool slow)
{
    char *text = NULL;
    size_t n_bytes = 0, sent_end = 0;
    bool any = false;
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    for (size_t i = 0; i < now->n_parts; i++) {
        PagePart *part = &now->parts[i];
        if (part->begin < sent_end)
            continue; /* an enclosing part is sent already */
        const PagePart *was = before ? find_part(before, i, part->id) : NULL;
        if (was && part->slow && !slow)
            part->hash = was->hash;
        if (was && was->hash == part->hash)
            continue;
        (void)fputs(any ? "," : "{", to);
        write_quoted(to, part->id, strlen(part->id));
        (void)fputc(':', to);
        write_quoted(to, now->text + part->begin, part->end - part->begin);
        any = true;
        sent_end = part->end;
    }
    (void)fputs("}", to);
    (void)memory_given(fclose(to) == 0 ? text : NULL);
    if (any)
        return text;
    free(text);
    return NULL;
}
