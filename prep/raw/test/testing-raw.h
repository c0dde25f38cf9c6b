/* SPDX-License-Identifier: Apache-2.0 */
/* testing-raw.h - tars that a test builds member by member, and what their samples are as text.
 *
 * Ownership: begin() makes a folder and a tar that end() takes away.
 * Units:     bytes.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   main thread only.
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
/* The last member's header, to be changed; mend() makes its checksum right again. */
TarHeader *last_header(Made *made, size_t n_payload);
void mend(TarHeader *h);
void add_typed(Made *made, char type, const char *name, const char *text, size_t n);
void write_tar(Made *made, const char *name);

/* The caption is a .json's "caption", and nothing else is asked for. */
extern const RawOptions plain;
/* The samples as text, a line each: "key: picture|caption" or "key: reason"; then why the unit is set aside. All bytes
 * of each unit must be counted, and whoever only counts must meet the same samples. */
void describe(const char *uri, const RawOptions *options, char *text, size_t size);
void expect(Made *made, const RawOptions *options, const char *wanted);
