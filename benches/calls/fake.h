/* SPDX-License-Identifier: BSD-3-Clause */

/* Controls for the stub device and connection manager, which do nothing by themselves. */

#ifndef FAKE_H
#define FAKE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* the only device */
extern struct ibv_context *const fake_context;

/* the number of completions that a poll finds; it returns no more than requested */
extern int fake_completions;

/* the type of all further events of a connection */
extern enum rdma_cm_event_type fake_event;

#endif
