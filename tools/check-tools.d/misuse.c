/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * misuse WAY... MISUSE PORT -- a verbs program that breaks one rule of strict mode, or none, on a connection
 * to itself, and exits with 0. For each WAY it first becomes another process or loses its descriptors.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES 8 /* of the send queue */

#define CHECK(call) do { if (call) { perror(#call); exit(1); } } while (0)

static struct rdma_cm_id *server, *client;
static struct ibv_mr *mr;
static char memory[4096];
static struct rdma_addrinfo *address;

static void *
serve(void *listener)
{
	struct ibv_mr *messages;

	CHECK(rdma_get_request(listener, &server));
	messages = rdma_reg_msgs(server, memory, sizeof(memory));
	CHECK(messages == NULL);
	CHECK(rdma_accept(server, NULL));
	return NULL;
}

/* A connection between two identifiers of this process. */
static void
connect_self(const char *port, size_t private_len)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *here;
	struct ibv_qp_init_attr attr = {.cap = {ENTRIES, ENTRIES, 1, 1, 0}};
	struct rdma_conn_param param = {.private_data = memory, .private_data_len = private_len,
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *listener;
	pthread_t thread;

	CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &here));
	CHECK(rdma_create_ep(&listener, here, NULL, &attr));
	CHECK(rdma_listen(listener, 1));
	CHECK(pthread_create(&thread, NULL, serve, listener));
	hints.ai_flags = 0;
	CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &address));
	attr.cap.max_send_wr = ENTRIES;
	CHECK(rdma_create_ep(&client, address, NULL, &attr));
	mr = ibv_reg_mr(client->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(mr == NULL);
	CHECK(rdma_connect(client, &param));
	CHECK(pthread_join(thread, NULL));
}

/* A write of the client to the memory of the server, which is a part of the same array. */
static void
post(int flags, enum ibv_wr_opcode opcode)
{
	static struct ibv_mr *target;
	struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad;

	if (target == NULL)
		target = ibv_reg_mr(server->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(target == NULL);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
	wr.wr.rdma.rkey = target->rkey;
	CHECK(ibv_post_send(client->qp, &wr, &bad));
}

static void
poll_one(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(id->send_cq, 1, &wc)) == 0)
		;
	CHECK(got < 0 || wc.status != IBV_WC_SUCCESS);
}

static void
wait_event(int signal)
{
	(void)signal;
	_exit(0);
}

static void
misuse(const char *what, const char *port)
{
	connect_self(port, strcmp(what, "private") == 0 ? 57 : 0);
	if (strcmp(what, "queue") == 0) {
		for (int i = 0; i <= ENTRIES; i++)
			post(0, IBV_WR_RDMA_WRITE);
	} else if (strcmp(what, "inline") == 0) {
		post(IBV_SEND_SIGNALED | IBV_SEND_INLINE, IBV_WR_RDMA_READ);
		poll_one(client);
	} else if (strcmp(what, "bytes") == 0) {
		post(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE);
		memory[0]++;
		poll_one(client);
	} else if (strcmp(what, "region") == 0) {
		post(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE);
		CHECK(ibv_dereg_mr(mr));
	} else if (strcmp(what, "disconnect") == 0) {
		post(0, IBV_WR_RDMA_WRITE);
		CHECK(rdma_disconnect(client));
	} else if (strcmp(what, "late") == 0) {
		post(IBV_SEND_SIGNALED, IBV_WR_SEND);
		/* Until the server has it. */
		sleep(1);
	} else if (strcmp(what, "wait") == 0) {
		struct ibv_cq *cq;
		void *context;

		post(0, IBV_WR_RDMA_WRITE);
		signal(SIGALRM, wait_event);
		alarm(3);
		CHECK(ibv_get_cq_event(client->send_cq_channel, &cq, &context));
	} else if (strncmp(what, "writes=", 7) == 0) {
		for (long left = atol(what + 7); left > 0; left--) {
			post(IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE);
			poll_one(client);
		}
	} else {
		CHECK(strcmp(what, "private") != 0);
	}
}

static void
close_all(void)
{
	for (int fd = 0; fd < 1024; fd++)
		close(fd);
}

/* The child continues; the parent ends with the status of the child. */
static void
become_child(void)
{
	int status;
	pid_t child = fork();

	CHECK(child < 0);
	if (child == 0)
		return;
	CHECK(waitpid(child, &status, 0) != child);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
}

/* As daemon(3), but the first process stays until the daemon has ended. */
static void
become_daemon(void)
{
	int ends[2];
	char byte;

	CHECK(pipe(ends));
	if (fork() > 0) {
		close(ends[1]);
		exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
	}
	setsid();
	if (fork() > 0)
		_exit(0);
	for (int fd = 0; fd < 1024; fd++)
		if (fd != ends[1])
			close(fd);
	CHECK(dup2(ends[1], 900) < 0);
	close(ends[1]);
	CHECK(chdir("/"));
}

int
main(int argc, char *argv[])
{
	int at = 1, is_killed = 0, is_daemon = 0;

	for (; at < argc - 2; at++) {
		if (strcmp(argv[at], "child") == 0) {
			become_child();
		} else if (strcmp(argv[at], "daemon") == 0) {
			become_daemon();
			is_daemon = 1;
		} else if (strcmp(argv[at], "close") == 0) {
			close_all();
		} else if (strcmp(argv[at], "killed") == 0) {
			is_killed = 1;
		} else if (strcmp(argv[at], "user") == 0) {
			CHECK(setgid(65534) || setuid(65534));
		} else if (strcmp(argv[at], "exec") == 0) {
			argv[at] = argv[0];
			execv(argv[0], argv + at);
			return 1;
		} else {
			return 2;
		}
	}
	if (argc < 3)
		return 2;
	misuse(argv[at], argv[at + 1]);
	if (is_killed)
		raise(SIGKILL);
	if (is_daemon)
		CHECK(write(900, "", 1) != 1);
	_exit(0);
}
