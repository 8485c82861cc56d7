/* SPDX-License-Identifier: BSD-3-Clause */
/* addresses.c -- local addresses of identifiers, between two processes */
#include "ends.h"

/*
 * Binds a new identifier to this address and the port of the test, and destroys it. Returns 0 or the errno.
 */
static int
bind_once(struct side *side, const char *addr, bool reuse)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_cm_id *id;
	int on = reuse, ret;

	DONE(rdma_getaddrinfo(addr, side->port, &hints, &found));
	DONE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	DONE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	ret = rdma_bind_addr(id, found->ai_src_addr) == 0 ? 0 : errno;
	rdma_freeaddrinfo(found);
	DONE(rdma_destroy_id(id));
	return ret;
}

static void
bound_t(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_cm_id *id;

	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	DONE(rdma_bind_addr(id, found->ai_src_addr));
	rdma_freeaddrinfo(found);
	notify(side, 'B');
	await(side, 'b');
	DONE(rdma_listen(id, 1));
	notify(side, 'L');
	await(side, 'l');
	DONE(rdma_destroy_id(id));
	notify(side, 'D');
}

/* An address to which an identifier of another process is bound, or on which it listens. */
static void
bound_i(struct side *side)
{
	const char *wildcard = strchr(side->addr, ':') != NULL ? "::" : "0.0.0.0";

	for (const char *state = "BL"; *state != '\0'; state++) {
		await(side, *state);
		for (int reuse = 0; reuse <= 1; reuse++) {
			EXPECT(bind_once(side, side->addr, reuse) == EADDRINUSE, "in state %c", *state);
			EXPECT(bind_once(side, wildcard, reuse) == EADDRNOTAVAIL, "in state %c", *state);
		}
		notify(side, *state == 'B' ? 'b' : 'l');
	}
	await(side, 'D');
	EXPECT(bind_once(side, wildcard, false) == 0, "destroyed");
	EXPECT(bind_once(side, side->addr, false) == 0, "destroyed");
}

const struct test addresses[] = {
	{.name = "bound-elsewhere", .target = bound_t, .initiator = bound_i},
	{.name = "bound-elsewhere-ipv6", .target = bound_t, .initiator = bound_i, .addr = "::1"},
	{.name = NULL},
};
