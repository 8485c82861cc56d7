/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c -- connecting the two sides, and the accounting of the send queue. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_TRIES 8

char *
map_pages(const struct side *side, size_t size)
{
	int fd = side->opt.memfd ? memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
	char *p;

	REQUIRE(!side->opt.memfd ||
			(fd >= 0 && posix_fallocate(fd, 0, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0),
		"memfd_create: %s", strerror(errno));
	/* the descriptor stays open: the library needs it when the memory is registered */
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		(fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, fd, 0);
	REQUIRE(p != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
	return p;
}

/* A free port: rpma_ep_listen() does not return the one that the system would choose. */
static void
free_port(char port[PORT_LEN])
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, ADDR, &sin.sin_addr);
	REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&sin, len) == 0, "bind: %s", strerror(errno));
	REQUIRE(getsockname(fd, (struct sockaddr *)&sin, &len) == 0, "getsockname: %s", strerror(errno));
	close(fd);
	snprintf(port, PORT_LEN, "%u", ntohs(sin.sin_port));
}

void
expect_event(struct rpma_conn *conn, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == expected, "connection event '%s', expected '%s'",
		rpma_utils_conn_event_2str(event), rpma_utils_conn_event_2str(expected));
}

static struct rpma_conn_cfg *
configure(struct link *link, const struct link_sizes *sizes)
{
	struct rpma_conn_cfg *cfg = NULL;

	CHECK(rpma_conn_cfg_new(&cfg));
	CHECK(rpma_conn_cfg_set_sq_size(cfg, sizes->sq));
	CHECK(rpma_conn_cfg_set_rq_size(cfg, sizes->rq));
	CHECK(rpma_conn_cfg_set_cq_size(cfg, sizes->sq + sizes->rq));
	if (sizes->srq > 0 && !link->side->initiator) {
		struct rpma_srq_cfg *srq_cfg = NULL;

		CHECK(rpma_srq_cfg_new(&srq_cfg));
		CHECK(rpma_srq_cfg_set_rq_size(srq_cfg, sizes->srq));
		CHECK(rpma_srq_cfg_set_rcq_size(srq_cfg, sizes->srq));
		CHECK(rpma_srq_new(link->peer, srq_cfg, &link->srq));
		CHECK(rpma_srq_cfg_delete(&srq_cfg));
		for (uintptr_t i = 0; i < sizes->srq; i++)
			CHECK(rpma_srq_recv(link->srq, link->in_mr, i * SLOT, SLOT, (void *)i));
		CHECK(rpma_conn_cfg_set_srq(cfg, link->srq));
	}
	return cfg;
}

static void
post_receives(struct link *link, struct rpma_conn_req *req, uint32_t rq)
{
	if (link->srq != NULL)
		return;
	for (uintptr_t i = 0; i < rq; i++)
		CHECK(rpma_conn_req_recv(req, link->in_mr, i * SLOT, SLOT, (void *)i));
}

struct rpma_ep *
listen_anywhere(struct rpma_peer *peer, char port[PORT_LEN])
{
	struct rpma_ep *ep = NULL;
	int ret, tries = 0;

	do {
		free_port(port);
		ret = rpma_ep_listen(peer, ADDR, port, &ep);
	} while (ret != 0 && ++tries < LISTEN_TRIES);
	CHECK(ret);
	return ep;
}

static void
listen_and_accept(struct link *link, struct rpma_conn_cfg *cfg, uint32_t rq,
	const struct rpma_conn_private_data *own)
{
	char port[PORT_LEN] = "";

	link->ep = listen_anywhere(link->peer, port);
	ctl_send(link->side, port, sizeof(port));
	for (unsigned i = 0; i < link->conns; i++) {
		struct rpma_conn_req *req = NULL;

		CHECK(rpma_ep_next_conn_req(link->ep, cfg, &req));
		post_receives(link, req, rq);
		CHECK(rpma_conn_req_connect(&req, own, &link->conn[i]));
		expect_event(link->conn[i], RPMA_CONN_ESTABLISHED);
	}
}

static void
connect_all(struct link *link, struct rpma_conn_cfg *cfg, uint32_t rq,
	const struct rpma_conn_private_data *own)
{
	char port[PORT_LEN];

	ctl_recv(link->side, port, sizeof(port));
	for (unsigned i = 0; i < link->conns; i++) {
		struct rpma_conn_req *req = NULL;

		CHECK(rpma_conn_req_new(link->peer, ADDR, port, cfg, &req));
		post_receives(link, req, rq);
		CHECK(rpma_conn_req_connect(&req, own, &link->conn[i]));
		expect_event(link->conn[i], RPMA_CONN_ESTABLISHED);
	}
}

void
link_open(struct link *link, struct side *side, const struct link_sizes *sizes)
{
	struct ibv_context *dev = NULL;
	struct rpma_conn_cfg *cfg;
	struct rpma_conn_private_data own = {NULL, 0}, other = {NULL, 0};
	uint32_t receives = sizes->rq > sizes->srq ? sizes->rq : sizes->srq;
	char desc[UINT8_MAX];
	size_t desc_size;

	memset(link, 0, sizeof(*link));
	link->side = side;
	link->conns = side->opt.conns;
	link->use = link->conns - 1;
	link->sq_size = sizes->sq;
	REQUIRE(side->opt.signal * 2 <= sizes->sq, "one signalled in %u is too few for a send queue of %u",
		side->opt.signal, sizes->sq);
	link->conn = calloc(link->conns, sizeof(struct rpma_conn *));
	link->cq = calloc(link->conns, sizeof(struct rpma_cq *));
	REQUIRE(link->conn != NULL && link->cq != NULL, "no memory");

	link->in_size = sizes->in > receives * SLOT ? sizes->in : receives * SLOT;
	link->out_size = sizes->out;
	link->in = map_pages(side, link->in_size);
	link->out = map_pages(side, link->out_size);
	CHECK(rpma_utils_get_ibv_context(ADDR, side->initiator ? RPMA_UTIL_IBV_CONTEXT_REMOTE
		: RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
	CHECK(rpma_peer_new(dev, &link->peer));
	CHECK(rpma_mr_reg(link->peer, link->in, link->in_size, RPMA_MR_USAGE_WRITE_DST |
		RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
		&link->in_mr));
	CHECK(rpma_mr_reg(link->peer, link->out, link->out_size, RPMA_MR_USAGE_WRITE_SRC |
		RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_SEND, &link->out_mr));

	CHECK(rpma_mr_get_descriptor_size(link->in_mr, &desc_size));
	REQUIRE(desc_size <= sizeof(desc), "a descriptor of %zu bytes", desc_size);
	CHECK(rpma_mr_get_descriptor(link->in_mr, desc));
	own.ptr = desc;
	own.len = (uint8_t)desc_size;

	cfg = configure(link, sizes);
	if (side->initiator)
		connect_all(link, cfg, sizes->rq, &own);
	else
		listen_and_accept(link, cfg, sizes->rq, &own);
	CHECK(rpma_conn_cfg_delete(&cfg));

	for (unsigned i = 0; i < link->conns; i++)
		CHECK(rpma_conn_get_cq(link->conn[i], &link->cq[i]));
	CHECK(rpma_conn_get_private_data(link->conn[link->use], &other));
	CHECK(rpma_mr_remote_from_descriptor(other.ptr, other.len, &link->remote));
	/* the library's threads exist now and keep their CPUs */
	if (side->opt.free)
		pin_here(side);
	ctl_barrier(side);
}

void
link_close(struct link *link)
{
	for (unsigned i = 0; i < link->conns; i++) {
		if (link->side->initiator)
			CHECK(rpma_conn_disconnect(link->conn[i]));
		expect_event(link->conn[i], RPMA_CONN_CLOSED);
		if (!link->side->initiator)
			CHECK(rpma_conn_disconnect(link->conn[i]));
		CHECK(rpma_conn_delete(&link->conn[i]));
	}
	if (link->srq != NULL)
		CHECK(rpma_srq_delete(&link->srq));
	if (link->ep != NULL)
		CHECK(rpma_ep_shutdown(&link->ep));
	CHECK(rpma_mr_remote_delete(&link->remote));
	CHECK(rpma_mr_dereg(&link->in_mr));
	CHECK(rpma_mr_dereg(&link->out_mr));
	CHECK(rpma_peer_delete(&link->peer));
	munmap(link->in, link->in_size);
	munmap(link->out, link->out_size);
	free(link->conn);
	free(link->cq);
}

bool
has_completed(struct rpma_cq *cq)
{
	struct ibv_wc wc;
	int ret = rpma_cq_get_wc(cq, 1, &wc, NULL);

	if (ret == RPMA_E_NO_COMPLETION)
		return false;
	CHECK(ret);
	REQUIRE(wc.status == IBV_WC_SUCCESS, "a completion with enum ibv_wc_status %d", wc.status);
	return true;
}

void
await_completion(struct rpma_cq *cq)
{
	while (!has_completed(cq))
		;
}

int
link_flags(struct link *link)
{
	link->posted++;
	if (++link->since < link->side->opt.signal)
		return RPMA_F_COMPLETION_ON_ERROR;
	link->since = 0;
	link->signalled++;
	return RPMA_F_COMPLETION_ALWAYS;
}

void
link_done(struct link *link, const struct ibv_wc *wc)
{
	REQUIRE(wc->status == IBV_WC_SUCCESS, "a completion with enum ibv_wc_status %d",
		wc->status);
	REQUIRE(link->signalled > 0, "a completion of an unsignalled request, opcode %d",
		wc->opcode);
	link->signalled--;
	link->posted -= link->side->opt.signal;
}

bool
link_reap(struct link *link)
{
	struct ibv_wc wc;
	int ret = rpma_cq_get_wc(link->cq[link->use], 1, &wc, NULL);

	if (ret == RPMA_E_NO_COMPLETION)
		return false;
	CHECK(ret);
	link_done(link, &wc);
	return true;
}

void
link_room(struct link *link)
{
	while (link->posted >= link->sq_size)
		link_reap(link);
}

void
link_drain(struct link *link)
{
	while (link->signalled > 0)
		link_reap(link);
}
