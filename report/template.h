/* SPDX-License-Identifier: Apache-2.0 */
/* template.h - makes an HTML page from a template and values, and finds the changes between two pages.
 *
 *     {{name}}             the value of this name, escaped, because values come from outside
 *     <!-- each name -->   the block up to its <!-- end -->, once for each object of the list `name`;
 *                          inside the block, only names of this object exist
 *     <!-- if name -->     the block, if the text or list `name` exists and is not empty
 *     <!-- unless name --> the block, in all other cases
 *     <!-- part name -->   the block is the content of an element whose id is `name` or, if there is a value
 *                          "row", ROW-name. Parts may be nested.
 *     <!-- slow name -->   a part that has no inner parts and is sent less often
 *     <!-- style -->       page.css, and <!-- script --> page.js, which are not escaped
 *
 * Other comments of the template are omitted.
 *
 * Ownership: template_page() gives the caller a Page; page_clear() frees it. page_changes() returns a string that the
 *            caller frees. A json_t that a function returns is borrowed.
 * Units:     bytes.
 * Errors:    none. A mark without a value shows "?", and is counted.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

#include <jansson.h>

enum { PART_ID_BYTES = 96 };

typedef struct PagePart {
    char id[PART_ID_BYTES];
    size_t begin, end; /* range in the page's text: the element's content */
    int parent;        /* index of the enclosing part; -1: none */
    bool slow;
    uint64_t hash; /* hash of the content without inner parts */
} PagePart;

typedef struct Page {
    char *text;
    size_t n_bytes;
    PagePart *parts; /* a part comes before its inner parts */
    size_t n_parts, room;
    int n_missing; /* marks without a value: a bug in this program */
} Page;

void template_page(const char *template, const json_t *values, Page *ret);
void page_clear(Page *page);
/* Tells whether both pages have the part, with different contents. */
bool page_part_differs(const Page *a, const Page *b, const char *id);
/* Returns {"id": "content", ...} with the fewest parts that turn page `before` into `now`, or NULL if nothing changed.
 * Without slow, slow parts count as unchanged, and `now` gets their old hashes. With before NULL, returns the outermost
 * parts. */
char *page_changes(const Page *before, Page *now, bool slow);

/* Sets values of an object, or of a new object at the end of a list. Returns this object. The format has a name and one
 * conversion of printf() for each value: "x=%.1f step=%lld cause=%s". */
json_t *template_put(json_t *to, const char *format, ...) _printf_(2, 3);
/* Adds a new empty list to the object under this name and returns it. */
json_t *template_list(json_t *object, const char *name);

extern const char report_job_html[], report_cluster_html[], report_words_html[], report_page_css[],
    report_page_js[];
