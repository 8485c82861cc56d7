/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wrapped.c -- for LD_PRELOAD: a wrapper of a function of librdmacm that prints whether it finds the original
 * one, and calls that.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

int
rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	int (*next)(const char *, const char *, const struct rdma_addrinfo *, struct rdma_addrinfo **);

	*(void **)&next = dlsym(RTLD_NEXT, "rdma_getaddrinfo");
	fprintf(stderr, "wrapped: the next one is %s\n", next == NULL ? "not found" : "found");
	return next == NULL ? EAI_FAIL : next(node, service, hints, res);
}
