/* SPDX-License-Identifier: Apache-2.0 */
/* exit-code.c - see exit-code.h. */
#include "protocol/exit-code.h"

#include <errno.h>

ExitCode exit_code_of_store(int r)
{
    switch (r) {
    case -EBADMSG:
    case -ENOENT:
        return EXIT_DATA_CORRUPT;
    case -EINVAL:
    case -EPROTONOSUPPORT:
        return EXIT_NEVER_RETRY;
    case -ENOMEM:
        return EXIT_RETRY;
    default:
        return EXIT_STORE_UNREACHABLE;
    }
}

bool exit_is_refusal(int r)
{
    return r == -EACCES || r == -EPERM || r == -EROFS || r == -ENOTDIR || r == -ENAMETOOLONG ||
           r == -EISDIR;
}

int exit_errno_of_named(int r)
{
    switch (r) {
    case -ENOENT:
    case -ENOTDIR:
    case -EISDIR:
    case -ELOOP:
    case -ENAMETOOLONG:
    case -EFBIG:
        return -EINVAL;
    default:
        return r;
    }
}

const char *exit_code_class(int code)
{
    if (code < 0)
        return "signal";

    switch (code) {
    case EXIT_DONE:
        return "done";
    case EXIT_RETRY:
        return "retry";
    case EXIT_NEVER_RETRY:
        return "never-retry";
    case EXIT_DEVICE_FAULT:
        return "device-fault";
    case EXIT_PEER_LOST:
        return "peer-lost";
    case EXIT_DATA_CORRUPT:
        return "data-corrupt";
    case EXIT_STORE_UNREACHABLE:
        return "store-unreachable";
    case EXIT_NON_FINITE:
        return "non-finite";
    case EXIT_NUMERICS:
        return "numerics";
    case EXIT_NOT_OWNER:
        return "not-owner";
    default:
        return "exit";
    }
}
