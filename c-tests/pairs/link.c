/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c -- see link.h */
#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void
expect_ret(int ret, int expected, const char *call, const char *file, int line)
{
	if (ret != expected)
		fail(file, line, call, "returned %d (%s), expected %d (%s)", ret, rpma_err_2str(ret),
			expected, rpma_err_2str(expected));
}

bool
on_device(void)
{
	/* not RPMA_PROVIDER, which a test may unset */
	const char *provider = getenv("PAIRS_PROVIDER");

	return provider != NULL && strcmp(provider, "rdma-core") == 0;
}

bool
over_roce(void)
{
	const char *transport = getenv("SOFTVERBS_TRANSPORT");

	return on_device() || (transport != NULL && strcmp(transport, "roce") == 0);
}

const char *
not_soft(void)
{
	static const char *const providers[] = {"PAIRS_PROVIDER", "PAIRS_TARGET_PROVIDER", "PAIRS_INITIATOR_PROVIDER"};

	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (getenv(providers[i]) != NULL && strcmp(getenv(providers[i]), "soft") != 0)
			return "";
	return NULL;
}

static struct rpma_peer *
new_peer(const char *addr, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;

	OK(rpma_utils_get_ibv_context(addr, type, &dev));
	EXPECT(dev != NULL);
	OK(rpma_peer_new(dev, &peer));
	return peer;
}

void
open_target(struct node *node, struct side *side)
{
	*node = (struct node){.side = side};
	node->peer = new_peer(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	OK(rpma_ep_listen(node->peer, side->addr, side->port, &node->ep));
	notify(side, 'L');
}

void
open_peer(struct node *node, struct side *side)
{
	*node = (struct node){.side = side};
	node->peer = new_peer(side->addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
}

void
open_initiator(struct node *node, struct side *side)
{
	await(side, 'L');
	open_peer(node, side);
}

void
close_node(struct node *node)
{
	OK(rpma_ep_shutdown(&node->ep));
	EXPECT(node->ep == NULL);
	OK(rpma_peer_delete(&node->peer));
	EXPECT(node->peer == NULL);
}

void
region_reg(struct node *node, struct region *region, void *ptr, size_t size, int usage)
{
	*region = (struct region){.ptr = ptr, .size = size};
	OK(rpma_mr_reg(node->peer, ptr, size, usage, &region->mr));
}

void
region_new(struct node *node, struct region *region, size_t size, int usage)
{
	const char *memory = getenv("PAIRS_MEMORY");

	if (memory != NULL && strcmp(memory, "memfd") == 0)
		region_sealed(node, region, size, usage);
	else
		region_reg(node, region, pages(size), size, usage);
}

void
region_sealed(struct node *node, struct region *region, size_t size, int usage)
{
	int file = -1;

	/* the library searches the descriptor when it registers the memory */
	region_reg(node, region, sealed_pages(size, &file), size, usage);
	EXPECT(close(file) == 0, "%s", strerror(errno));
}

void
region_free(struct region *region)
{
	OK(rpma_mr_dereg(&region->mr));
	EXPECT(munmap(region->ptr, region->size) == 0, "%s", strerror(errno));
}

struct rpma_conn_cfg *
sizes(uint32_t cq, uint32_t sq, uint32_t rq, uint32_t rcq)
{
	struct rpma_conn_cfg *cfg = NULL;

	OK(rpma_conn_cfg_new(&cfg));
	if (cq != 0)
		OK(rpma_conn_cfg_set_cq_size(cfg, cq));
	if (sq != 0)
		OK(rpma_conn_cfg_set_sq_size(cfg, sq));
	if (rq != 0)
		OK(rpma_conn_cfg_set_rq_size(cfg, rq));
	if (rcq != 0)
		OK(rpma_conn_cfg_set_rcq_size(cfg, rcq));
	return cfg;
}

struct rpma_conn_req *
next_req(struct node *node, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = NULL;

	OK(rpma_ep_next_conn_req(node->ep, cfg, &req));
	return req;
}

struct rpma_conn_req *
new_req(struct node *node, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = NULL;

	OK(rpma_conn_req_new(node->peer, node->side->addr, node->side->port, cfg, &req));
	return req;
}

int
try_link(struct link *link, struct rpma_conn_req **req, const struct region *offer)
{
	struct rpma_peer_cfg *pcfg = NULL;
	char words[DESCRIPTOR_SIZE + 1];
	struct rpma_conn_private_data pdata = {words, sizeof(words)};
	size_t size;
	int ret;

	*link = (struct link){0};
	if (offer != NULL) {
		OK(rpma_mr_get_descriptor_size(offer->mr, &size));
		EXPECT(size == DESCRIPTOR_SIZE);
		OK(rpma_mr_get_descriptor(offer->mr, words));
		OK(rpma_peer_cfg_new(&pcfg));
		OK(rpma_peer_cfg_get_descriptor_size(pcfg, &size));
		EXPECT(size == 1);
		OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
		OK(rpma_peer_cfg_get_descriptor(pcfg, words + DESCRIPTOR_SIZE));
		OK(rpma_peer_cfg_delete(&pcfg));
	}
	ret = rpma_conn_req_connect(req, offer != NULL ? &pdata : NULL, &link->conn);
	EXPECT(*req == NULL);
	if (ret == 0)
		OK(rpma_conn_get_cq(link->conn, &link->cq));
	return ret;
}

void
start_link(struct link *link, struct rpma_conn_req **req, const struct region *offer)
{
	OK(try_link(link, req, offer));
}

/*
 * The other side sent no private data. InfiniBand and RoCE carry a fixed number of bytes, padded with zeros,
 * without the length; software RDMA over iWARP carries the length.
 */
static bool
is_nothing(const struct rpma_conn_private_data *pdata)
{
	const unsigned char *bytes = pdata->ptr;

	if (bytes == NULL || !over_roce())
		return bytes == NULL;
	for (unsigned i = 0; i < pdata->len; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

void
finish_link(struct link *link)
{
	struct rpma_conn_private_data pdata;
	struct rpma_peer_cfg *pcfg = NULL;

	expect_event(link, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_private_data(link->conn, &pdata));
	if (is_nothing(&pdata))
		return;
	EXPECT(pdata.len >= DESCRIPTOR_SIZE + 1, "%u", pdata.len);
	memcpy(link->descriptor, pdata.ptr, DESCRIPTOR_SIZE);
	OK(rpma_mr_remote_from_descriptor(link->descriptor, DESCRIPTOR_SIZE, &link->remote));
	OK(rpma_mr_remote_get_size(link->remote, &link->remote_size));
	OK(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + DESCRIPTOR_SIZE, 1, &pcfg));
	OK(rpma_conn_apply_remote_peer_cfg(link->conn, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
}

void
accept_link(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg,
	const struct region *offer)
{
	struct rpma_conn_req *req = next_req(node, cfg);

	start_link(link, &req, offer);
	finish_link(link);
}

void
connect_link(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg,
	const struct region *offer)
{
	struct rpma_conn_req *req = new_req(node, cfg);

	start_link(link, &req, offer);
	finish_link(link);
}

void
accept_with_region(struct node *node, struct link *link, struct region *region, struct side *side, size_t size,
	int usage, const struct rpma_conn_cfg *cfg)
{
	open_target(node, side);
	region_new(node, region, size, usage);
	accept_link(node, link, cfg, region);
}

void
connect_with_region(struct node *node, struct link *link, struct region *region, struct side *side, size_t size,
	int usage, const struct rpma_conn_cfg *cfg)
{
	open_initiator(node, side);
	region_new(node, region, size, usage);
	connect_link(node, link, cfg, NULL);
}

void
close_with_region(struct node *node, struct region *region)
{
	region_free(region);
	close_node(node);
}

void
expect_event(struct link *link, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(link->conn, &event));
	EXPECT(event == expected, "%s, expected %s", rpma_utils_conn_event_2str(event),
		rpma_utils_conn_event_2str(expected));
}

void
expect_broken(struct link *link)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(link->conn, &event));
	EXPECT(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST, "%s",
		rpma_utils_conn_event_2str(event));
}

void
end_broken(struct link *link)
{
	if (over_roce()) {
		int ret = rpma_conn_disconnect(link->conn);

		/* the other side may have disconnected first */
		EXPECT(ret == 0 || ret == RPMA_E_PROVIDER, "%d", ret);
	}
	expect_broken(link);
}

void
delete_link(struct link *link)
{
	OK(rpma_mr_remote_delete(&link->remote));
	OK(rpma_conn_delete(&link->conn));
	EXPECT(link->conn == NULL);
}

void
end_link(struct link *link)
{
	OK(rpma_conn_disconnect(link->conn));
	expect_event(link, RPMA_CONN_CLOSED);
	delete_link(link);
}

void
await_end(struct link *link)
{
	expect_event(link, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(link->conn));
	delete_link(link);
}

void
next_wc(struct rpma_cq *cq, struct ibv_wc *wc)
{
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION)
		OK(rpma_cq_wait(cq));
	OK(ret);
}

void
expect_wc(struct rpma_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	next_wc(cq, &wc);
	EXPECT(wc.status == IBV_WC_SUCCESS, "status %d of operation %llu", wc.status,
		(unsigned long long)wc.wr_id);
	EXPECT(wc.wr_id == wr_id, "operation %llu, expected %llu", (unsigned long long)wc.wr_id,
		(unsigned long long)wr_id);
	EXPECT(wc.opcode == opcode, "opcode %d, expected %d", wc.opcode, opcode);
}

void
expect_no_wc(struct rpma_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 20; i++) {
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(cq, 1, &wc, NULL));
		sleep_ms(5);
	}
}

void
read_part(struct link *link, struct region *dst, size_t dst_offset, size_t src_offset, size_t len)
{
	OK(rpma_read(link->conn, dst->mr, dst_offset, link->remote, src_offset, len,
		RPMA_F_COMPLETION_ALWAYS, (void *)77));
	expect_wc(link->cq, 77, IBV_WC_RDMA_READ);
}

void
write_part(struct link *link, size_t dst_offset, struct region *src, size_t src_offset, size_t len)
{
	OK(rpma_write(link->conn, link->remote, dst_offset, src->mr, src_offset, len,
		RPMA_F_COMPLETION_ALWAYS, (void *)88));
	expect_wc(link->cq, 88, IBV_WC_RDMA_WRITE);
}

#define DIRECT_WITHIN_MS 10000 /* far longer than the agreement on shared memory takes */

/* How many reads in a row complete in the call that posts them, at most 10. */
static unsigned
direct_reads(struct link *link, struct region *local, size_t len)
{
	for (unsigned n = 0; n < 10; n++) {
		struct ibv_wc wc;
		int ret;

		OK(rpma_read(link->conn, local->mr, 0, link->remote, 0, len, RPMA_F_COMPLETION_ALWAYS, (void *)77));
		ret = rpma_cq_get_wc(link->cq, 1, &wc, NULL);
		if (ret == RPMA_E_NO_COMPLETION) {
			expect_wc(link->cq, 77, IBV_WC_RDMA_READ);
			return n;
		}
		OK(ret);
	}
	return 10;
}

bool
direct_copies_are_on(void)
{
	const char *local = getenv("SOFTVERBS_LOCAL");

	return !on_device() && (local == NULL || strcmp(local, "1") == 0 || strcmp(local, "auto") == 0);
}

void
await_direct(struct link *link, struct region *local, size_t len)
{
	uint64_t began = now_ms();

	for (;;) {
		write_part(link, 0, local, 0, len);
		if (direct_reads(link, local, len) == 10)
			return;
		EXPECT(now_ms() - began < DIRECT_WITHIN_MS, "no direct copy after %d ms", DIRECT_WITHIN_MS);
		sleep_ms(10);
	}
}

void
serve(struct side *side, size_t size, uint32_t seed_before, uint32_t seed_after)
{
	struct node node;
	struct region region;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, size, USAGE_ALL);
	fill_pattern(region.ptr, size, seed_before);
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	check_pattern(region.ptr, size, seed_after, "the target's region at the end");
	close_with_region(&node, &region);
}

void
serve_anything(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, 4096, USAGE_ALL, NULL);
	await_end(&link);
	close_with_region(&node, &region);
}
