/* SPDX-License-Identifier: Apache-2.0 */
/* testing-viewers.h - viewers of the leader's live page of the cluster: they count the bytes that they receive, and
 * discard them.
 *
 * Units: bytes. Threads: loop thread only.
 * Ownership: testing_viewers_start() gives the caller TestingViewers; testing_viewers_stop() accepts NULL.
 * Errors:    an error, also the end of a stream, ends the program with a text.
 */
#pragma once

#include "base/cleanup.h"

#include <systemd/sd-event.h>

enum { TESTING_VIEWERS_MAX = 32 };

typedef struct TestingViewers TestingViewers;

/* address: an IPv4 address and a port, as in the page field of a leader's record. */
TestingViewers *testing_viewers_start(sd_event *event, const char *address, int n);
TestingViewers *testing_viewers_stop(TestingViewers *viewers);
/* Returns the number of bytes that all viewers have received together. */
uint64_t testing_viewers_bytes(const TestingViewers *viewers);
