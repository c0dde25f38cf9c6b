/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - a controller begins anew when etcd was restored from a snapshot: what it knows, remembers and
 * would write belongs to a history that is gone.
 *
 * Ownership: borrows both.
 * Units:     none.
 * Errors:    the loop ends with -ERESTART, once.
 * Threads:   loop thread only.
 */
#pragma once

#include "etcd/etcd.h"

void begin_anew_with_another_history(Etcd *etcd, sd_event *event);
