/* SPDX-License-Identifier: Apache-2.0 */
/* template.h - a page of HTML from a template and values, and what has changed between two of them.
 *
 *     {{name}}             the value of that name, escaped: values come from outside
 *     <!-- each name -->   what follows up to its <!-- end -->, once for each object of that list;
 *                          inside, only that object's names count
 *     <!-- if name -->     what follows, when there is such a text or list and it is not empty
 *     <!-- unless name --> what follows otherwise
 *     <!-- part name -->   what follows is the content of an element whose id is that name or, where there is a value
 *                          "row", ROW-name. Parts may lie in each other.
 *     <!-- slow name -->   such a part, without others inside, that is sent seldom
 *     <!-- style -->       page.css, and <!-- script --> page.js: they are ours and are not escaped
 *
 * Other comments of the template are left out.
 *
 * Ownership: template_page() gives the caller a Page; page_clear() frees it. page_changes() gives a string to free.
 *            A json_t that a function returns is borrowed.
 * Units:     bytes.
 * Errors:    none. A place without a value shows "?", and is counted.
 * Threads:   any.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

#include <jansson.h>

enum { PART_ID_BYTES = 96 };

typedef struct PagePart {
    char id[PART_ID_BYTES];
    size_t begin, end; /* in the text: the element's content */
    int parent;        /* index; -1: none */
    bool slow;
    uint64_t hash; /* of the content without the parts inside */
} PagePart;

typedef struct Page {
    char *text;
    size_t n_bytes;
    PagePart *parts; /* a part comes before those inside it */
    size_t n_parts, room;
    int n_missing; /* places without a value: an error of ours */
} Page;

void template_page(const char *template, const json_t *values, Page *ret);
void page_clear(Page *page);
/* Tells whether both have the part and it looks other. */
bool page_part_differs(const Page *a, const Page *b, const char *id);
/* Returns {"id": "content", ...} with the least parts that make `before` look like `now`; NULL: they look the same.
 * Without slow, slow parts are as before, and `now` takes their hashes over. before NULL: the outermost parts. */
char *page_changes(const Page *before, Page *now, bool slow);

/* Sets values of an object, or of a new object at the end of a list; returns that object. The format
 * has a name and one conversion of printf() for each value: "x=%.1f step=%lld cause=%s". */
json_t *template_put(json_t *to, const char *format, ...) _printf_(2, 3);
/* Returns a new, empty list, which the object holds under that name. */
json_t *template_list(json_t *object, const char *name);

extern const char report_job_html[], report_cluster_html[], report_words_html[], report_page_css[],
    report_page_js[];
