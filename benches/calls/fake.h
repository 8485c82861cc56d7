/* SPDX-License-Identifier: BSD-3-Clause */

/* Controls for the stub device and connection manager, which do nothing by themselves. */

#ifndef FAKE_H
#define FAKE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* the only device */
extern struct ibv_context *const fake_context;

/* how many completions a poll finds; it returns no more than it was asked for */
extern int fake_completions;

/* what the next events of a connection are, from now on */
extern enum rdma_cm_event_type fake_event;

#endif
