/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c -- see engine.h */
#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC "rpm1"
/* The interval at which a waiting server checks whether fio has to end. */
#define LOOK_MS 100
#define OPTION(NAME, LNAME, TYPE, MEMBER, HELP, ...)                                               \
	{                                                                                          \
		.name = NAME, .lname = LNAME, .type = TYPE, .off1 = offsetof(struct options, MEMBER), \
		.help = HELP, .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_LIBRPMA, __VA_ARGS__ \
	}

struct fio_option engine_options[] = {
	OPTION("role", "role", FIO_OPT_STR_STORE, role, "client, which does the I/O, or server, whose memory it is",
		.def = "client"),
	OPTION("serverip", "rpma_server_ip", FIO_OPT_STR_STORE, serverip, "address of the server", .def = ""),
	OPTION("port", "rpma_port", FIO_OPT_STR_STORE, port, "port of the first subjob; each has the next one", .def = "7204"),
	OPTION("direct_write_to_pmem", "direct_write_to_pmem", FIO_OPT_BOOL, direct_write_to_pmem,
		"server: writes that are flushed are persistent without the server's program", .def = "0"),
	OPTION("busy_wait_polling", "busy_wait_polling", FIO_OPT_BOOL, busy_wait_polling,
		"poll for completions instead of sleeping until there is one", .def = "1"),
	{.name = NULL},
};

static struct options *
options(struct thread_data *td)
{
	return td->eo;
}

static struct engine *
engine(struct thread_data *td)
{
	return td->io_ops_data;
}

int
engine_failed(struct thread_data *td, const char *call, int ret)
{
	int errnum = ret == RPMA_E_NOMEM ? ENOMEM : ret == RPMA_E_INVAL ? EINVAL : EIO;
	const char *why = rpma_err_last();

	log_err("fio: librpma: %s failed: %s%s%s\n", call, rpma_err_2str(ret), why[0] != '\0' ? ": " : "", why);
	td_verror(td, errnum, call);
	return -1;
}

int
engine_is_server(struct thread_data *td)
{
	const char *role = options(td)->role;

	if (strcmp(role, "server") == 0)
		return 1;
	if (strcmp(role, "client") == 0)
		return 0;
	log_err("fio: librpma: role=%s is neither client nor server\n", role);
	td_verror(td, EINVAL, "role");
	return -1;
}

/* The port of this subjob. */
static int
port_of(struct thread_data *td, char port[8])
{
	char *end;
	unsigned long first = strtoul(options(td)->port, &end, 10);
	unsigned long n = first + td->subjob_number;

	if (*options(td)->port == '\0' || *end != '\0' || n == 0 || n > UINT16_MAX) {
		log_err("fio: librpma: port=%s: the ports of the subjobs must be from 1 to 65535\n", options(td)->port);
		td_verror(td, EINVAL, "port");
		return -1;
	}
	snprintf(port, 8, "%lu", n);
	return 0;
}

int
engine_new(struct thread_data *td)
{
	struct options *o = options(td);
	struct ibv_context *device = NULL;
	struct engine *e;
	int ret, is_server = engine_is_server(td);

	if (is_server < 0)
		return -1;
	if (o->serverip == NULL || o->serverip[0] == '\0') {
		log_err("fio: librpma: serverip is missing: the address that the server listens on\n");
		td_verror(td, EINVAL, "serverip");
		return -1;
	}
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return engine_failed(td, "calloc", RPMA_E_NOMEM);
	td->io_ops_data = e;
	e->is_server = is_server;
	e->room = td->o.iodepth;
	e->queued = calloc(e->room, sizeof(e->queued[0]));
	e->posted = calloc(e->room, sizeof(e->posted[0]));
	e->done = calloc(e->room, sizeof(e->done[0]));
	if (e->queued == NULL || e->posted == NULL || e->done == NULL)
		return engine_failed(td, "calloc", RPMA_E_NOMEM);
	ret = rpma_utils_get_ibv_context(o->serverip, is_server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
		&device);
	if (ret != 0)
		return engine_failed(td, "rpma_utils_get_ibv_context", ret);
	ret = rpma_peer_new(device, &e->peer);
	return ret != 0 ? engine_failed(td, "rpma_peer_new", ret) : 0;
}

int
engine_register(struct thread_data *td, struct memory *memory, int usage)
{
	int ret = rpma_mr_reg(engine(td)->peer, memory->ptr, memory->size, usage, &memory->mr);

	return ret != 0 ? engine_failed(td, "rpma_mr_reg", ret) : 0;
}

int
engine_map(struct thread_data *td)
{
	struct memory *memory = &engine(td)->data;
	const char *name = td->files_index > 0 ? td->files[0]->file_name : "malloc";
	struct stat stat;
	void *ptr;
	int fd = -1;

	memory->size = td->o.size;
	memory->is_file = strcmp(name, "malloc") != 0;
	if (td->files_index > 1) {
		log_err("fio: librpma: the server maps one file, not %u\n", td->files_index);
		td_verror(td, EINVAL, "filename");
		return -1;
	}
	if (memory->size == 0) {
		log_err("fio: librpma: the server needs a size\n");
		td_verror(td, EINVAL, "size");
		return -1;
	}
	if (memory->is_file) {
		fd = open(name, O_RDWR | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &stat) != 0) {
			td_verror(td, errno, name);
			return -1;
		}
		if (S_ISREG(stat.st_mode) && (uint64_t)stat.st_size < memory->size && ftruncate(fd, (off_t)memory->size) != 0) {
			td_verror(td, errno, "ftruncate");
			close(fd);
			return -1;
		}
	}
	ptr = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (fd >= 0)
		close(fd);
	if (ptr == MAP_FAILED) {
		td_verror(td, errno, "mmap");
		return -1;
	}
	memory->ptr = ptr;
	return 0;
}

int
engine_listen(struct thread_data *td)
{
	char port[8];
	int ret;

	if (port_of(td, port) != 0)
		return -1;
	ret = rpma_ep_listen(engine(td)->peer, options(td)->serverip, port, &engine(td)->ep);
	return ret != 0 ? engine_failed(td, "rpma_ep_listen", ret) : 0;
}

/* Waits until one of the library's descriptors is readable; -1 if fio has to end first. */
static int
await_event(struct thread_data *td, int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	while (poll(&poll_fd, 1, LOOK_MS) == 0)
		if (td->terminate)
			return -1;
	return 0;
}

static int
next_request(struct thread_data *td, const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req)
{
	int fd, ret = rpma_ep_get_fd(engine(td)->ep, &fd);

	if (ret == 0 && await_event(td, fd) != 0)
		return -1;
	if (ret == 0)
		ret = rpma_ep_next_conn_req(engine(td)->ep, cfg, req);
	return ret != 0 ? engine_failed(td, "rpma_ep_next_conn_req", ret) : 0;
}

int
engine_request(struct thread_data *td, struct queues queues, struct rpma_conn_req **req)
{
	struct engine *e = engine(td);
	struct rpma_conn_cfg *cfg = NULL;
	char port[8];
	int ret = rpma_conn_cfg_new(&cfg);

	if (ret != 0)
		return engine_failed(td, "rpma_conn_cfg_new", ret);
	ret = rpma_conn_cfg_set_sq_size(cfg, queues.send);
	if (ret == 0)
		ret = rpma_conn_cfg_set_rq_size(cfg, queues.receive);
	if (ret == 0)
		ret = rpma_conn_cfg_set_cq_size(cfg, queues.send + queues.receive);
	if (ret != 0)
		ret = engine_failed(td, "rpma_conn_cfg_set", ret);
	else if (e->is_server)
		ret = next_request(td, cfg, req);
	else if ((ret = port_of(td, port)) == 0 && (ret = rpma_conn_req_new(e->peer, options(td)->serverip, port, cfg, req)) != 0)
		ret = engine_failed(td, "rpma_conn_req_new", ret);
	rpma_conn_cfg_delete(&cfg);
	return ret;
}

/* The server's offer of e->data. */
static int
describe(struct thread_data *td, struct offer *offer, unsigned depth)
{
	struct engine *e = engine(td);
	struct rpma_peer_cfg *cfg = NULL;
	size_t region = 0, config = 0;
	int ret;

	memset(offer, 0, sizeof(*offer));
	memcpy(offer->magic, MAGIC, sizeof(offer->magic));
	offer->persistent = e->data.is_file;
	offer->depth = depth;
	ret = rpma_mr_get_descriptor_size(e->data.mr, &region);
	if (ret == 0)
		ret = rpma_peer_cfg_new(&cfg);
	if (ret == 0)
		ret = rpma_peer_cfg_set_direct_write_to_pmem(cfg, options(td)->direct_write_to_pmem);
	if (ret == 0)
		ret = rpma_peer_cfg_get_descriptor_size(cfg, &config);
	if (ret == 0 && region + config > sizeof(offer->bytes))
		ret = RPMA_E_NOSUPP;
	if (ret == 0)
		ret = rpma_mr_get_descriptor(e->data.mr, offer->bytes);
	if (ret == 0)
		ret = rpma_peer_cfg_get_descriptor(cfg, offer->bytes + region);
	rpma_peer_cfg_delete(&cfg);
	offer->region_len = (uint8_t)region;
	offer->config_len = (uint8_t)config;
	return ret != 0 ? engine_failed(td, "describing the memory", ret) : 0;
}

/* Creates the client's objects from the server's offer. */
static int
take(struct thread_data *td)
{
	struct engine *e = engine(td);
	struct rpma_conn_private_data data = {NULL, 0};
	struct rpma_peer_cfg *cfg = NULL;
	bool direct = false;
	struct offer offer;
	int ret = rpma_conn_get_private_data(e->conn, &data);

	if (ret != 0)
		return engine_failed(td, "rpma_conn_get_private_data", ret);
	/* a device may append zeros */
	if (data.len >= sizeof(offer))
		memcpy(&offer, data.ptr, sizeof(offer));
	if (data.len < sizeof(offer) || memcmp(offer.magic, MAGIC, sizeof(offer.magic)) != 0 ||
		offer.region_len + offer.config_len > (int)sizeof(offer.bytes)) {
		log_err("fio: librpma: the server does not use one of these engines\n");
		td_verror(td, EPROTO, "private data");
		return -1;
	}
	e->depth = offer.depth;
	ret = rpma_mr_remote_from_descriptor(offer.bytes, offer.region_len, &e->remote);
	if (ret == 0)
		ret = rpma_mr_remote_get_size(e->remote, &e->remote_size);
	if (ret == 0)
		ret = rpma_peer_cfg_from_descriptor(offer.bytes + offer.region_len, offer.config_len, &cfg);
	if (ret == 0)
		ret = rpma_peer_cfg_get_direct_write_to_pmem(cfg, &direct);
	if (ret == 0)
		ret = rpma_conn_apply_remote_peer_cfg(e->conn, cfg);
	rpma_peer_cfg_delete(&cfg);
	e->flush_type = offer.persistent && direct ? RPMA_FLUSH_TYPE_PERSISTENT : RPMA_FLUSH_TYPE_VISIBILITY;
	return ret != 0 ? engine_failed(td, "taking the server's offer", ret) : 0;
}

int
engine_establish(struct thread_data *td, struct rpma_conn_req **req, unsigned depth)
{
	struct engine *e = engine(td);
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct offer offer;
	struct rpma_conn_private_data data = {&offer, sizeof(offer)};
	int ret;

	if (e->is_server && describe(td, &offer, depth) != 0) {
		rpma_conn_req_delete(req);
		return -1;
	}
	ret = rpma_conn_req_connect(req, e->is_server ? &data : NULL, &e->conn);
	if (ret == 0)
		ret = rpma_conn_get_cq(e->conn, &e->cq);
	if (ret == 0)
		ret = rpma_conn_next_event(e->conn, &event);
	if (ret != 0)
		return engine_failed(td, "connecting", ret);
	if (event != RPMA_CONN_ESTABLISHED) {
		log_err("fio: librpma: no connection to %s: %s: %s\n", options(td)->serverip, rpma_utils_conn_event_2str(event),
			rpma_err_last());
		td_verror(td, ECONNREFUSED, "connect");
		return -1;
	}
	e->established = true;
	return e->is_server ? 0 : take(td);
}

int
engine_use_buffers(struct thread_data *td)
{
	struct engine *e = engine(td);

	e->data.ptr = td->orig_buffer;
	e->data.size = td->orig_buffer_size;
	return engine_register(td, &e->data, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC);
}

int
engine_check_size(struct thread_data *td)
{
	uint64_t end = td->o.start_offset + td->o.size;

	if (end <= engine(td)->remote_size)
		return 0;
	log_err("fio: librpma: the job needs %llu bytes, the server has %zu\n", (unsigned long long)end, engine(td)->remote_size);
	td_verror(td, EINVAL, "size");
	return -1;
}

int
engine_await_end(struct thread_data *td)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int fd, ret = rpma_conn_get_event_fd(engine(td)->conn, &fd);

	if (ret == 0 && await_event(td, fd) != 0)
		return -1;
	if (ret == 0)
		ret = rpma_conn_next_event(engine(td)->conn, &event);
	if (ret != 0)
		return engine_failed(td, "rpma_conn_next_event", ret);
	if (event == RPMA_CONN_CLOSED)
		return 0;
	log_err("fio: librpma: the connection has ended with %s\n", rpma_utils_conn_event_2str(event));
	td_verror(td, ECONNRESET, "connection");
	return -1;
}

void
engine_delete(struct thread_data *td)
{
	struct engine *e = engine(td);
	enum rpma_conn_event event;

	if (e == NULL)
		return;
	if (e->established) {
		rpma_conn_disconnect(e->conn);
		/* the server has already received the event of the end */
		if (!e->is_server)
			rpma_conn_next_event(e->conn, &event);
	}
	if (e->conn != NULL)
		rpma_conn_delete(&e->conn);
	rpma_mr_remote_delete(&e->remote);
	if (e->messages.mr != NULL)
		rpma_mr_dereg(&e->messages.mr);
	if (e->data.mr != NULL)
		rpma_mr_dereg(&e->data.mr);
	rpma_ep_shutdown(&e->ep);
	rpma_peer_delete(&e->peer);
	if (e->is_server && e->data.ptr != NULL)
		munmap(e->data.ptr, e->data.size);
	free(e->messages.ptr);
	free(e->queued);
	free(e->posted);
	free(e->done);
	free(e);
	td->io_ops_data = NULL;
}

int
engine_iomem_alloc(struct thread_data *td, size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ptr == MAP_FAILED) {
		td_verror(td, errno, "mmap");
		return 1;
	}
	td->orig_buffer = ptr;
	return 0;
}

void
engine_iomem_free(struct thread_data *td)
{
	struct engine *e = engine(td);

	/* fio frees the buffers before the engine's data */
	if (e != NULL && !e->is_server && e->data.mr != NULL)
		rpma_mr_dereg(&e->data.mr);
	if (td->orig_buffer != NULL)
		munmap(td->orig_buffer, td->orig_buffer_size);
	td->orig_buffer = NULL;
}

int
engine_get_file_size(struct thread_data *td, struct fio_file *f)
{
	/* only the server knows the size, and it is queried later: see post_init of the engines */
	f->real_file_size = td->o.size;
	fio_file_set_size_known(f);
	return 0;
}

int
engine_open_file(struct thread_data *td, struct fio_file *f)
{
	(void)td, (void)f;
	return 0;
}

int
engine_close_file(struct thread_data *td, struct fio_file *f)
{
	(void)td, (void)f;
	return 0;
}

enum fio_q_status
engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = engine(td);

	/*
	 * a sync after all writes have completed is done already: the writes complete only when they are
	 * persistent
	 */
	if (io_u->ddir != DDIR_READ && io_u->ddir != DDIR_WRITE)
		return FIO_Q_COMPLETED;
	if (e->n_queued + e->n_posted + e->n_done == e->room)
		return FIO_Q_BUSY;
	e->queued[e->n_queued++] = io_u;
	return FIO_Q_QUEUED;
}

int
engine_commit(struct thread_data *td, end_run end)
{
	struct engine *e = engine(td);
	struct run run = {0};
	struct timespec now;

	fio_gettime(&now, NULL);
	for (unsigned i = 0; i < e->n_queued; i++) {
		struct io_u *io_u = e->queued[i];
		size_t at = (size_t)((char *)io_u->xfer_buf - e->data.ptr);
		bool ends = i + 1 == e->n_queued || e->queued[i + 1]->ddir == DDIR_READ;
		int ret;

		if (io_u->ddir == DDIR_READ) {
			ret = rpma_read(e->conn, e->data.mr, at, e->remote, io_u->offset, io_u->xfer_buflen,
				RPMA_F_COMPLETION_ALWAYS, io_u);
		} else {
			uint64_t begin = io_u->offset, end_ = io_u->offset + io_u->xfer_buflen;

			if (run.first == NULL)
				run = (struct run){io_u, io_u, begin, end_};
			run.last = io_u;
			run.begin = begin < run.begin ? begin : run.begin;
			run.end = end_ > run.end ? end_ : run.end;
			ret = rpma_write(e->conn, e->remote, io_u->offset, e->data.mr, at, io_u->xfer_buflen,
				RPMA_F_COMPLETION_ON_ERROR, io_u);
		}
		if (ret != 0)
			return engine_failed(td, "posting", ret);
		if (io_u->ddir == DDIR_WRITE && ends) {
			if (end(td, &run) != 0)
				return -1;
			run = (struct run){0};
		}
	}
	for (unsigned i = 0; i < e->n_queued; i++) {
		struct io_u *io_u = e->queued[i];

		memcpy(&io_u->issue_time, &now, sizeof(now));
		io_u_queued(td, io_u);
		e->posted[e->n_posted++] = io_u;
	}
	e->n_queued = 0;
	return 0;
}

void
engine_done(struct engine *e, struct io_u *first, struct io_u *last, int error)
{
	unsigned from = 0, to = 0;

	while (first != NULL && from < e->n_posted && e->posted[from] != first)
		from++;
	for (to = from; to < e->n_posted; to++) {
		struct io_u *io_u = e->posted[to];

		io_u->error = error;
		e->done[e->n_done++] = io_u;
		if (io_u == last) {
			to++;
			break;
		}
	}
	memmove(e->posted + from, e->posted + to, (e->n_posted - to) * sizeof(e->posted[0]));
	e->n_posted -= to - from;
}

int
engine_completion(struct thread_data *td, struct ibv_wc *wc, bool wait)
{
	struct engine *e = engine(td);
	int ret;

	while ((ret = rpma_cq_get_wc(e->cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION) {
		if (!wait)
			return 1;
		/* a client's outstanding operations complete in any case */
		if (e->is_server && td->terminate)
			return -1;
		if (!options(td)->busy_wait_polling) {
			int fd;

			if (e->is_server && (ret = rpma_cq_get_fd(e->cq, &fd)) == 0 && await_event(td, fd) != 0)
				return -1;
			ret = rpma_cq_wait(e->cq);
			if (ret != 0 && ret != RPMA_E_NO_COMPLETION)
				return engine_failed(td, "rpma_cq_wait", ret);
		}
	}
	return ret != 0 ? engine_failed(td, "rpma_cq_get_wc", ret) : 0;
}

struct io_u *
engine_event(struct thread_data *td, int event)
{
	struct engine *e = engine(td);
	struct io_u *io_u = e->done[event];

	/* fio takes them in order */
	if ((unsigned)event + 1 == e->n_done)
		e->n_done = 0;
	return io_u;
}
