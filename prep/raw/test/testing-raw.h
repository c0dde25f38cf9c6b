/* SPDX-License-Identifier: Apache-2.0 */
/* testing-raw.h - builds tars in tests, member by member, and writes their samples as text.
 *
 * Units: bytes. Threads: main thread only.
 * Ownership: begin() makes a folder and a tar; end() removes both.
 * Errors:    none: a failure ends the test.
 */
#pragma once

#include "data/test/testing-scratch.h"
#include "prep/raw/raw-set.h"
#include "prep/raw/tar-header.h"
#include "prep/raw/tar-read.h"
#include "prep/raw/tar-write.h"

typedef struct Made {
    Scratch scratch;
    TarWriter tar;
} Made;

Made begin(void);
void end(Made *made);
void add(Made *made, const char *name, const char *text);
/* Returns the last member's header for a test to change; mend() then corrects the checksum. */
TarHeader *last_header(Made *made, size_t n_payload);
void mend(TarHeader *h);
void add_typed(Made *made, char type, const char *name, const char *text, size_t n);
void write_tar(Made *made, const char *name);

/* Options of most tests: "caption" is the key of the caption in a .json; fields are not requested. */
extern const RawOptions plain;
/* Writes the samples as text, one line each: "key: picture|caption" or "key: reason"; then, if a unit is rejected, why.
 * Also checks that the counts cover all bytes of each unit, and that a reader without `whole` gives the same
 * samples. */
void describe(const char *uri, const RawOptions *options, char *text, size_t size);
void expect(Made *made, const RawOptions *options, const char *wanted);
