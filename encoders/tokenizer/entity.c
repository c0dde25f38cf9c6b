/* SPDX-License-Identifier: Apache-2.0 */
/* entity.c - finds an "&", reads the name or number behind it, and looks it up. */
#include "encoders/tokenizer/entity.h"

#include <string.h>

typedef struct Entity {
    const char *name;
    uint32_t codes[3]; /* ends at the first 0 */
    uint8_t kinds;
} Entity;

#include "encoders/tokenizer/entity-tables.inc"

/* ENDED: the name is known as "&name;". OPEN: it is known as "&name". UPPER: only ftfy knows it, in capitals. */
enum { KIND_ENDED = 1, KIND_OPEN = 2, KIND_UPPER = 4 };

enum { NAME_MAX_HTML = 32, NAME_MAX_FTFY = 24, NUMBER_TOO_LARGE = 0x110000, REPLACEMENT = 0xFFFD };

/* The characters that HTML reads for &#128; to &#159;, and that ftfy reads for U+0080 to U+009F. */
static const uint16_t windows_1252[32] = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178,
};

uint32_t code_of_c1(uint32_t code)
{
    return code >= 0x80 && code <= 0x9F ? windows_1252[code - 0x80] : code;
}

static const Entity *find_entity(const char *name, size_t n, unsigned kinds)
{
    size_t lo = 0, hi = ELEMENTSOF(entities);
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        int order = strncmp(entities[middle].name, name, n);
        if (order == 0)
            order = entities[middle].name[n] != '\0';
        if (order == 0)
            return entities[middle].kinds & kinds ? &entities[middle] : NULL;
        if (order < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return NULL;
}

static void add_entity(CodePoints *to, const Entity *entity)
{
    for (size_t i = 0; i < ELEMENTSOF(entity->codes) && entity->codes[i]; i++)
        codes_add(to, entity->codes[i]);
}

static int digit_of(uint32_t code, unsigned base)
{
    int digit = code >= '0' && code <= '9'   ? (int)code - '0'
                : code >= 'a' && code <= 'f' ? (int)code - 'a' + 10
                : code >= 'A' && code <= 'F' ? (int)code - 'A' + 10
                                             : 16;
    return digit < (int)base ? digit : -1;
}

/* Reads "#123" or "#x1f" at from; returns its length, 0 if there is no number. */
static size_t read_number(const uint32_t *from, size_t n, uint32_t *ret)
{
    if (n < 2 || from[0] != '#')
        return 0;
    unsigned base = from[1] == 'x' || from[1] == 'X' ? 16 : 10;
    size_t begin = base == 16 ? 2 : 1, i = begin;
    uint32_t number = 0;
    for (; i < n && digit_of(from[i], base) >= 0; i++)
        number = MIN(number * base + (uint32_t)digit_of(from[i], base), (uint32_t)NUMBER_TOO_LARGE);
    *ret = number;
    return i > begin ? i : 0;
}

/* Adds the character that HTML assigns to a number: none for most control characters and for noncharacters. */
static void add_number(CodePoints *to, uint32_t number)
{
    if (number == 0 || (number >= 0xD800 && number <= 0xDFFF) || number >= NUMBER_TOO_LARGE)
        codes_add(to, REPLACEMENT);
    else if (number >= 0x80 && number <= 0x9F)
        codes_add(to, code_of_c1(number));
    else if (number <= 0x08 || number == 0x0B || (number >= 0x0E && number <= 0x1F) ||
             number == 0x7F || (number >= 0xFDD0 && number <= 0xFDEF) ||
             (number & 0xFFFE) == 0xFFFE)
        return;
    else
        codes_add(to, number);
}

static bool is_in_name(uint32_t code)
{
    return code != '\t' && code != '\n' && code != '\f' && code != ' ' && code != '<' &&
           code != '&' && code != '#' && code != ';';
}

/* Handles a name of n code points behind an "&"; ended: a ";" follows the name. Adds the entity's characters and the
 * rest of the name; if the name begins with no entity, adds "&" and the name. */
static void unescape_name(CodePoints *to, const uint32_t *name, size_t n, bool ended)
{
    char ascii[NAME_MAX_HTML];
    size_t n_ascii = 0, used = 0;
    while (n_ascii < n && name[n_ascii] < 0x80)
        n_ascii++;
    for (size_t i = 0; i < n_ascii; i++)
        ascii[i] = (char)name[i];
    const Entity *entity = NULL;
    if (ended && n_ascii == n) {
        entity = find_entity(ascii, n, KIND_ENDED);
        used = n + 1;
    }
    for (size_t i = MIN(n_ascii, (size_t)ENTITY_OPEN_MAX); !entity && i >= 2; i--) {
        entity = find_entity(ascii, i, KIND_OPEN);
        used = i;
    }
    if (entity) {
        add_entity(to, entity);
    } else {
        codes_add(to, '&');
        used = 0;
    }
    for (size_t i = used; i < n; i++)
        codes_add(to, name[i]);
    if (ended && used <= n)
        codes_add(to, ';');
}

int entities_unescape(CodePoints *to, const uint32_t *from, size_t n)
{
    /* The result is never longer than the input: an entity of two characters has at least four. */
    int r = codes_reserve(to, n + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n;) {
        uint32_t code = from[i++], number;
        if (code != '&') {
            codes_add(to, code);
            continue;
        }
        size_t length = read_number(from + i, n - i, &number);
        if (length) {
            add_number(to, number);
            i += length;
            i += i < n && from[i] == ';';
            continue;
        }
        while (length < NAME_MAX_HTML && i + length < n && is_in_name(from[i + length]))
            length++;
        if (!length) {
            codes_add(to, '&');
            continue;
        }
        bool ended = i + length < n && from[i + length] == ';';
        unescape_name(to, from + i, length, ended);
        i += length + ended;
    }
    return 0;
}

static bool is_alphanumeric(uint32_t code)
{
    return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') ||
           (code >= 'A' && code <= 'Z');
}

/* Adds the character that ftfy reads for the entity at from, behind "&". Returns the entity's length, or 0 if it is not
 * replaced. */
static size_t fix_entity(CodePoints *to, const uint32_t *from, size_t n)
{
    char name[NAME_MAX_FTFY];
    size_t hash = n > 0 && from[0] == '#', length = 0;
    while (length < NAME_MAX_FTFY && hash + length < n && is_alphanumeric(from[hash + length])) {
        name[length] = (char)from[hash + length];
        length++;
    }
    if (!length || hash + length == n || from[hash + length] != ';')
        return 0;
    if (!hash) {
        const Entity *entity = find_entity(name, length, KIND_ENDED | KIND_UPPER);
        if (!entity)
            return 0;
        add_entity(to, entity);
        return length + 1;
    }
    uint32_t number;
    if (read_number(from, n, &number) != length + 1 || number == ';')
        return 0;
    add_number(to, number);
    return length + 2;
}

int entities_fix(CodePoints *to, const uint32_t *from, size_t n)
{
    int r = codes_reserve(to, n + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n;) {
        uint32_t code = from[i++];
        size_t length = code == '&' ? fix_entity(to, from + i, n - i) : 0;
        if (!length)
            codes_add(to, code);
        i += length;
    }
    return 0;
}
