/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Unreliable connections by rdma_cm: queue pairs of type UC in the port space IB.
 *
 *   unreliable -s ADDR PORT     the server, for one connection
 *   unreliable ADDR PORT        the client
 *
 * In each round the client writes LENGTH bytes into the memory of the server, which the reply to its request
 * names, and sends the number of the round. The server verifies the memory and sends the number back. A lost
 * message is not repeated: the program then waits for ever, or fails if a write was lost.
 */

#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 50
/* several packets of each path MTU */
#define LENGTH 20001

/* The memory of the server, in network byte order. */
struct offer {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

static uint8_t memory[LENGTH];
static uint64_t sent, received;

static void must(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

/* A condition without an error number. */
static void check(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		exit(1);
	}
}

static uint8_t pattern(uint64_t round, int at)
{
	return (uint8_t)(round * 7 + (uint64_t)at * 3 + ((uint64_t)at >> 8));
}

static struct rdma_cm_id *endpoint(const char *addr, const char *port, int flags)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_UC};
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;

	attr.sq_sig_all = 1;
	must(rdma_getaddrinfo(addr, port, &hints, &info) == 0, "rdma_getaddrinfo");
	must(rdma_create_ep(&id, info, NULL, &attr) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(info);
	return id;
}

static struct ibv_mr *registered(struct rdma_cm_id *id, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE | access);

	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void complete(int count, struct ibv_wc *wc)
{
	must(count == 1, "a completion");
	check(wc->status == IBV_WC_SUCCESS, ibv_wc_status_str(wc->status));
}

static void receive(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	must(rdma_post_recv(id, NULL, &received, sizeof(received), mr) == 0, "rdma_post_recv");
}

static void send_number(struct rdma_cm_id *id, struct ibv_mr *mr, uint64_t number)
{
	struct ibv_wc wc;

	sent = htobe64(number);
	must(rdma_post_send(id, NULL, &sent, sizeof(sent), mr, 0) == 0, "rdma_post_send");
	complete(rdma_get_send_comp(id, &wc), &wc);
}

static void expect_number(struct rdma_cm_id *id, uint64_t number)
{
	struct ibv_wc wc;

	complete(rdma_get_recv_comp(id, &wc), &wc);
	check(wc.byte_len == sizeof(received) && be64toh(received) == number, "another message than expected");
}

static void serve(const char *addr, const char *port)
{
	struct rdma_cm_id *listener = endpoint(addr, port, RAI_PASSIVE), *id;
	struct ibv_mr *mr, *to, *from;
	struct offer offer;
	struct rdma_conn_param param = {.private_data = &offer, .private_data_len = sizeof(offer)};

	must(rdma_listen(listener, 1) == 0, "rdma_listen");
	must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	check(id->qp->qp_type == IBV_QPT_UC, "the type of the queue pair");
	mr = registered(id, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE);
	from = registered(id, &sent, sizeof(sent), 0);
	to = registered(id, &received, sizeof(received), 0);
	offer.addr = htobe64((uintptr_t)memory);
	offer.rkey = htobe32(mr->rkey);
	receive(id, to);
	must(rdma_accept(id, &param) == 0, "rdma_accept");
	for (uint64_t round = 0; round < ROUNDS; round++) {
		expect_number(id, round);
		for (int at = 0; at < LENGTH; at++)
			check(((volatile uint8_t *)memory)[at] == pattern(round, at), "the data of a write");
		if (round + 1 < ROUNDS)
			receive(id, to);
		send_number(id, from, round);
	}
	must(rdma_disconnect(id) == 0, "rdma_disconnect");
	rdma_dereg_mr(mr);
	rdma_dereg_mr(from);
	rdma_dereg_mr(to);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void request(const char *addr, const char *port)
{
	struct rdma_cm_id *id = endpoint(addr, port, 0);
	struct ibv_mr *mr = registered(id, memory, sizeof(memory), 0);
	struct ibv_mr *from = registered(id, &sent, sizeof(sent), 0);
	struct ibv_mr *to = registered(id, &received, sizeof(received), 0);
	struct rdma_conn_param param = {0};
	struct offer offer;
	struct ibv_wc wc;

	receive(id, to);
	must(rdma_connect(id, &param) == 0, "rdma_connect");
	check(id->event->param.conn.private_data_len >= sizeof(offer), "the private data of the reply");
	memcpy(&offer, id->event->param.conn.private_data, sizeof(offer));
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (int at = 0; at < LENGTH; at++)
			memory[at] = pattern(round, at);
		must(rdma_post_write(id, NULL, memory, sizeof(memory), mr, 0, be64toh(offer.addr), be32toh(offer.rkey)) == 0,
				"rdma_post_write");
		complete(rdma_get_send_comp(id, &wc), &wc);
		send_number(id, from, round);
		expect_number(id, round);
		if (round + 1 < ROUNDS)
			receive(id, to);
	}
	must(rdma_disconnect(id) == 0, "rdma_disconnect");
	rdma_dereg_mr(mr);
	rdma_dereg_mr(from);
	rdma_dereg_mr(to);
	rdma_destroy_ep(id);
	printf("%d writes of %d bytes verified\n", ROUNDS, LENGTH);
}

int main(int argc, char *argv[])
{
	if (argc == 4 && strcmp(argv[1], "-s") == 0)
		serve(argv[2], argv[3]);
	else if (argc == 3)
		request(argv[1], argv[2]);
	else {
		fprintf(stderr, "usage: unreliable [-s] ADDR PORT\n");
		return 2;
	}
	return 0;
}
