/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - restarts the controller when etcd was restored from a snapshot.
 *
 * After a restore everything that the controller has read, remembers or would write belongs to a history that is gone.
 *
 * Ownership: borrows the client and the loop.
 * Units:     none.
 * Errors:    the loop ends with -ERESTART, once.
 * Threads:   loop thread only.
 */
#pragma once

#include "etcd/etcd.h"

void begin_anew_with_another_history(Etcd *etcd, sd_event *event);
