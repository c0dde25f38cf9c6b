/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake.c - repairs a text whose UTF-8 was read in another encoding: converts the text back to bytes, and reads
 * these as UTF-8. */
#include "encoders/tokenizer/mojibake.h"

#include "encoders/tokenizer/entity.h"
#include "encoders/tokenizer/mojibake-signs.h"

#include <string.h>

enum {
    /* The byte that stands for U+FFFD in the Windows encodings. No text of these encodings has this byte. */
    LOST = 0x1A,
    WINDOWS = 0x7E, /* the bits of the Windows encodings */
    /* Number of Mac OS Roman. Its blanks are not restored to U+00A0, since a dash would look like the first byte of a
     * UTF-8 character. */
    MACINTOSH = 8,
    NO_BREAK_SPACE = 0xA0,
    GROWTH = 5, /* bytes per character, at most; for example, a lost byte becomes three bytes */
    ALL_ENCODINGS = (1 << MOJIBAKE_ENCODINGS) - 1,
};
static const uint8_t REPLACEMENT[3] = {0xEF, 0xBF, 0xBD};

void mojibake_free(Mojibake *mojibake)
{
    for (size_t i = 0; i < MOJIBAKE_DEPTH; i++) {
        codes_free(&mojibake->text[i]);
        codes_free(&mojibake->made[i]);
    }
    free(mojibake->bytes[0]);
    free(mojibake->bytes[1]);
    *mojibake = (Mojibake){0};
}

void mojibake_begin(Mojibake *mojibake, size_t n)
{
    mojibake->work = MOJIBAKE_WORK + MOJIBAKE_WORK_FACTOR * n;
}

static bool spend(Mojibake *mojibake, size_t n)
{
    bool enough = mojibake->work >= n;
    mojibake->work = enough ? mojibake->work - n : 0;
    return enough;
}

static int reserve_bytes(Mojibake *mojibake, size_t n)
{
    if (mojibake->room >= n)
        return 0;
    size_t room = MAX(n, 2 * mojibake->room);
    for (size_t i = 0; i < ELEMENTSOF(mojibake->bytes); i++) {
        uint8_t *bytes = realloc(mojibake->bytes[i], room);
        if (!bytes)
            return -ENOMEM;
        mojibake->bytes[i] = bytes;
    }
    mojibake->room = room;
    return 0;
}

static bool is_next(uint8_t byte) { return (byte & 0xC0) == 0x80; }
static bool is_between(uint8_t byte, uint8_t first, uint8_t last)
{
    return byte >= first && byte <= last;
}

/* Reports whether the bytes begin with "\xC3 " that stands for an "a" with a grave accent and a blank. They do not if
 * a second blank follows, or if the rest of a Portuguese word that begins with this letter follows. */
static bool is_a_grave(const uint8_t *bytes, size_t n)
{
    static const char *const words[] = {" ", "quele", "quela", "quilo", "s "};
    if (n < 2 || bytes[0] != 0xC3 || bytes[1] != ' ')
        return false;
    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (n - 2 >= strlen(words[i]) && memcmp(bytes + 2, words[i], strlen(words[i])) == 0)
            return false;
    return true;
}

/* Returns the length of a UTF-8 character in which U+00A0 became a blank; 0: there is no such character, or it is very
 * rare. */
static size_t blanked_length(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[1] == ' ' && memchr("\xC2\xC3\xC5\xCE\xD0\xD9", b[0], 6))
        return 2;
    if (n >= 3 && is_between(b[0], 0xE0, 0xE3)) {
        bool second = is_next(b[1]) && b[1] != 0x85 && b[1] != NO_BREAK_SPACE,
             third = is_next(b[2]) && b[2] != 0x85 && b[2] != NO_BREAK_SPACE;
        return (second && b[2] == ' ') || (b[0] >= 0xE2 && b[1] == ' ' && third) ? 3 : 0;
    }
    if (n < 4 || b[0] != 0xF0)
        return 0;
    int n_blanks = 0, n_next = 0;
    for (size_t i = 1; i < 4; i++) {
        n_blanks += b[i] == ' ';
        n_next += is_next(b[i]);
    }
    return n_blanks == 1 && n_next == 2 ? 4 : 0;
}

/* Restores U+00A0 where it became a blank; returns the number of bytes in `to`. */
static size_t restore_blanks(const uint8_t *from, size_t n, uint8_t *to)
{
    size_t n_to = 0;
    for (size_t i = 0; i < n; i++) {
        to[n_to++] = from[i];
        if (is_a_grave(from + i, n - i))
            to[n_to++] = NO_BREAK_SPACE;
    }
    for (size_t i = 0, length; i < n_to; i += MAX(length, (size_t)1)) {
        length = blanked_length(to + i, n_to - i);
        for (size_t j = i; j < i + length; j++)
            to[j] = to[j] == ' ' ? NO_BREAK_SPACE : to[j];
    }
    return n_to;
}

/* Reports whether n bytes may be the later bytes of a UTF-8 character, some of them lost. At most one "?" is taken for
 * a lost byte. */
static bool some_lost(const uint8_t *bytes, size_t n)
{
    size_t n_lost = 0, n_asked = 0, n_there = 0;
    for (size_t i = 0; i < n; i++) {
        n_lost += bytes[i] == LOST;
        n_asked += bytes[i] == '?';
        n_there += is_next(bytes[i]);
    }
    return n_lost + n_asked + n_there == n && n_lost + n_asked > 0 && n_asked <= 1;
}

/* Returns the length of the UTF-8 character or the pair of surrogates at b if some of its bytes are lost, and 1 for a
 * lost byte that begins neither; 0: no byte is lost there. */
static size_t lossy_length(const uint8_t *b, size_t n)
{
    if (n >= 6 && b[0] == 0xED && is_between(b[1], 0xA0, 0xAF) && b[3] == 0xED &&
        is_between(b[4], 0xB0, 0xBF)) {
        bool lost[2] = {b[2] == LOST || b[2] == '?', b[5] == LOST || b[5] == '?'};
        if ((lost[0] || lost[1]) && (lost[0] || is_next(b[2])) && (lost[1] || is_next(b[5])))
            return 6;
    }
    if (b[0] == LOST)
        return 1;
    size_t length = is_between(b[0], 0xC2, 0xDF)   ? 2
                    : is_between(b[0], 0xE0, 0xEF) ? 3
                    : is_between(b[0], 0xF0, 0xF4) ? 4
                                                   : 0;
    if (!length || length > n || !some_lost(b + 1, length - 1))
        return 0;
    return length == 2 && b[1] == '?' && b[0] > 0xC3 ? 0 : length;
}

static size_t replace_lossy(const uint8_t *from, size_t n, uint8_t *to)
{
    size_t n_to = 0;
    for (size_t i = 0, length; i < n; i += MAX(length, (size_t)1)) {
        length = lossy_length(from + i, n - i);
        if (!length) {
            to[n_to++] = from[i];
            continue;
        }
        memcpy(to + n_to, REPLACEMENT, sizeof(REPLACEMENT));
        n_to += sizeof(REPLACEMENT);
    }
    return n_to;
}

/* Converts, in place, each pair of surrogates of three bytes to a character, and Java's two bytes for U+0000 to one
 * byte; returns the new number of bytes. As in ftfy, the first of the two bytes and a line feed that ends the text
 * also become one byte. */
static size_t join_variants(uint8_t *b, size_t n)
{
    size_t n_to = 0;
    for (size_t i = 0; i < n;) {
        if (b[i] == 0xC0 && i + 1 < n && (b[i + 1] == 0x80 || (b[i + 1] == '\n' && i + 2 == n))) {
            b[n_to++] = 0;
            i += 2;
        } else if (n - i >= 6 && b[i] == 0xED && is_between(b[i + 1], 0xA0, 0xAF) &&
                   is_next(b[i + 2]) && b[i + 3] == 0xED && is_between(b[i + 4], 0xB0, 0xBF) &&
                   is_next(b[i + 5])) {
            uint32_t code = 0x10000 + ((b[i + 1] & 0x0Fu) << 16 | (b[i + 2] & 0x3Fu) << 10 |
                                       (b[i + 4] & 0x0Fu) << 6 | (b[i + 5] & 0x3Fu));
            n_to += code_encode(code, b + n_to);
            i += 6;
        } else {
            b[n_to++] = b[i++];
        }
    }
    return n_to;
}

/* Returns the encodings that have all characters of the text, one bit each. */
static unsigned possible_encodings(const CodePoints *text)
{
    unsigned possible = ALL_ENCODINGS;
    for (size_t i = 0; i < text->n && possible; i++) {
        if (text->at[i] >= 0x80)
            possible &= mojibake_sign(text->at[i])->encodings;
        else if (text->at[i] == LOST)
            possible &= ~(unsigned)WINDOWS;
    }
    return possible;
}

/* Encodes the text in an encoding and reads the bytes as UTF-8; -EILSEQ if they are not UTF-8. */
static int try_encoding(Mojibake *mojibake, unsigned encoding, const CodePoints *text,
                        CodePoints *made)
{
    uint8_t *bytes = mojibake->bytes[0], *others = mojibake->bytes[1];
    size_t n = text->n;
    bool variants = false;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = text->at[i];
        bytes[i] = code < 0x80 ? (uint8_t)code : mojibake_sign(code)->bytes[encoding];
        variants = variants || bytes[i] == 0xED || bytes[i] == 0xC0;
    }
    if (encoding != MACINTOSH) {
        n = restore_blanks(bytes, n, others);
        bytes = mojibake->bytes[1];
        others = mojibake->bytes[0];
    }
    if (1u << encoding & WINDOWS) {
        n = replace_lossy(bytes, n, others);
        bytes = others;
    }
    if (variants)
        n = join_variants(bytes, n);
    return codes_decode(made, (const char *)bytes, n);
}

static bool differs(const CodePoints *a, const CodePoints *b)
{
    return a->n != b->n || (a->n && memcmp(a->at, b->at, a->n * sizeof(*a->at)) != 0);
}

/* Returns the number of characters at codes that may be the bytes of one UTF-8 character; 0: there are none. */
static size_t character_length(const uint32_t *codes, size_t n)
{
    uint32_t kinds = mojibake_sign(codes[0])->kinds;
    size_t n_next = 0;
    while (n_next < 3 && n_next + 1 < n &&
           (codes[n_next + 1] == ' ' || mojibake_sign(codes[n_next + 1])->kinds & MOJIBAKE_NEXT))
        n_next++;
    return kinds & MOJIBAKE_FIRST_OF_2 && n_next >= 1   ? 2
           : kinds & MOJIBAKE_FIRST_OF_3 && n_next >= 2 ? 3
           : kinds & MOJIBAKE_FIRST_OF_4 && n_next >= 3 ? 4
                                                        : 0;
}

static int append(CodePoints *to, const uint32_t *from, size_t n)
{
    int r = codes_reserve(to, n + 1);
    if (r < 0)
        return r;
    if (n)
        memcpy(to->at + to->n, from, n * sizeof(*from));
    to->n += n;
    return 0;
}

static int repair_at(Mojibake *mojibake, size_t depth, const uint32_t *from, size_t n);

/* Repairs only the parts that look like adjacent UTF-8 characters. */
static int repair_parts(Mojibake *mojibake, size_t depth, const CodePoints *text, CodePoints *made)
{
    int r = 0;
    made->n = 0;
    for (size_t i = 0, length; i < text->n && r >= 0; i += MAX(length, (size_t)1)) {
        length = 0;
        if (i == 0 || !(mojibake_sign(text->at[i - 1])->kinds & MOJIBAKE_NEXT_ONLY))
            for (size_t more;
                 i + length < text->n &&
                 (more = character_length(text->at + i + length, text->n - i - length));
                 length += more)
                continue;
        const CodePoints *part = &mojibake->text[depth + 1];
        bool repair = length && length < text->n && depth + 1 < MOJIBAKE_DEPTH;
        if (repair)
            r = repair_at(mojibake, depth + 1, text->at + i, length);
        if (r >= 0)
            r = repair ? append(made, part->at, part->n)
                       : append(made, text->at + i, MAX(length, (size_t)1));
    }
    return r;
}

/* Makes one step of the repair into made[depth]; returns 1 if it changed the text, 0 if nothing more can be done. */
static int repair_step(Mojibake *mojibake, size_t depth)
{
    const CodePoints *text = &mojibake->text[depth];
    CodePoints *made = &mojibake->made[depth];
    int r = reserve_bytes(mojibake, GROWTH * text->n + 1);
    unsigned possible = possible_encodings(text);
    for (unsigned encoding = 0; r >= 0 && encoding < MOJIBAKE_ENCODINGS; encoding++) {
        if (!(possible >> encoding & 1))
            continue;
        if (!spend(mojibake, text->n))
            return 0;
        int tried = try_encoding(mojibake, encoding, text, made);
        if (tried != -EILSEQ)
            return tried < 0 ? tried : differs(text, made);
    }
    if (r >= 0)
        r = repair_parts(mojibake, depth, text, made);
    if (r < 0 || differs(text, made))
        return r < 0 ? r : 1;
    for (size_t i = 0; i < made->n; i++)
        made->at[i] = code_of_c1(made->at[i]);
    return differs(text, made);
}

/* Repairs n code points into text[depth]. */
static int repair_at(Mojibake *mojibake, size_t depth, const uint32_t *from, size_t n)
{
    CodePoints *text = &mojibake->text[depth], *made = &mojibake->made[depth];
    int r = codes_copy(text, from, n);
    while (r >= 0 && spend(mojibake, 2 * text->n) && mojibake_shows(text->at, text->n)) {
        r = repair_step(mojibake, depth);
        if (r <= 0)
            break;
        CodePoints before = *text;
        *text = *made;
        *made = before;
    }
    return r < 0 ? r : 0;
}

int mojibake_repair(Mojibake *mojibake, CodePoints *line)
{
    if (!spend(mojibake, line->n) || !mojibake_shows(line->at, line->n))
        return 0;
    int r = repair_at(mojibake, 0, line->at, line->n);
    if (r < 0)
        return r;
    CodePoints before = *line;
    *line = mojibake->text[0];
    mojibake->text[0] = before;
    return 0;
}
