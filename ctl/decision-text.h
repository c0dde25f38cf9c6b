/* SPDX-License-Identifier: Apache-2.0 */
/* decision-text.h - converts a decision in the form of the leader's log, a line with fields, into a sentence for
 * people.
 *
 * Ownership: the text is the caller's buffer.
 * Errors:    none; a line of an unknown kind keeps its words, and only its fields are removed.
 * Threads:   any.
 */
#pragma once

enum { SENTENCE_BYTES = 1600 };

/* Converts "world 3 of 2 ranks on 2 nodes from step 40: drains n2 JOB=a GENERATION=3 STEP=40" into "job a gets 2 ranks
 * on 2 nodes from step 40 (generation 3): drains n2". line may be NULL. Returns ret. */
const char *decision_text(const char *line, char ret[SENTENCE_BYTES]);
