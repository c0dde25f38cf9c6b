/* SPDX-License-Identifier: Apache-2.0 */
/* testing-endpoint.h - a small HTTP server on loopback, for which a test makes the answers: replies, garbage, late
 * answers or none.
 *
 * Ownership: endpoint_start() gives the caller a FakeEndpoint; a request's texts are valid only during the callback.
 * Units:     bytes.
 * Errors:    a failure of the setup ends the process.
 * Threads:   `answer` is called on the endpoint's thread, one request at a time.
 */
#pragma once

#include "base/macro.h"

typedef struct FakeEndpoint FakeEndpoint;

typedef struct EndpointRequest {
    const char *method, *path;
    const char *head; /* all header lines, the request line included */
    const char *body;
    unsigned number; /* number of the request, from 1 */
} EndpointRequest;

/* Writes the answer to `ret`; it is sent unchanged, then the connection is closed. Returns false to send nothing: then
 * the connection stays open until the endpoint stops. */
typedef bool (*EndpointAnswer)(void *context, const EndpointRequest *request, char *ret,
                               size_t size);

/* Starts an endpoint. address is like "127.0.0.1:0"; for port 0 the kernel chooses a port. */
FakeEndpoint *endpoint_start(const char *address, EndpointAnswer answer, void *context);
void endpoint_stop(FakeEndpoint *endpoint);
int endpoint_port(const FakeEndpoint *endpoint);
/* Makes a whole reply; date 0: without a Date header. */
void endpoint_reply(char *ret, size_t size, int status, int64_t date, const char *body);
/* Returns whether the head has this line; the case of letters does not matter. */
bool endpoint_has_header(const EndpointRequest *request, const char *line);
