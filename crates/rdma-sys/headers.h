/* SPDX-License-Identifier: BSD-3-Clause */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
