/* SPDX-License-Identifier: Apache-2.0 */
/* decision-text.h - a decision as a person reads it: what the leader's log says in a line with fields, as a sentence.
 *
 * Ownership: the text is the caller's buffer.
 * Units:     none.
 * Errors:    none; a line of a kind that is not known keeps its words, and loses only its fields.
 * Threads:   any.
 */
#pragma once

enum { SENTENCE_BYTES = 1600 };

/* "world 3 of 2 ranks on 2 nodes from step 40: drains n2 JOB=a GENERATION=3 STEP=40" becomes
 * "job a goes on with 2 ranks on 2 nodes from step 40 (generation 3): drains n2". line may be NULL. Returns ret. */
const char *decision_text(const char *line, char ret[SENTENCE_BYTES]);
