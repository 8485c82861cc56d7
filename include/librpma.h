/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librpma.h - remote persistent memory access
 *
 * Generated from the library's source; the text of every function is its contract.
 *
 * Unless said otherwise, arguments are checked in the order of the parameters, functions return 0 or a negative
 * RPMA_E_* code, and what is wrong with a provider call goes to the log. Pointers that are not NULL must be valid:
 * an object must have been given out by this library and not been deleted, and what it was made from must still be
 * there.
 */

#ifndef LIBRPMA_H
#define LIBRPMA_H 1

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdbool.h>
#include <infiniband/verbs.h>

/** An unknown error occurred. */
#define RPMA_E_UNKNOWN (-100000)

/** The operation is not supported. */
#define RPMA_E_NOSUPP (-100001)

/** A call to the RDMA provider failed; the log line says which and why. */
#define RPMA_E_PROVIDER (-100002)

/** Out of memory. */
#define RPMA_E_NOMEM (-100003)

/** An argument is invalid. */
#define RPMA_E_INVAL (-100004)

/** No completion is ready. */
#define RPMA_E_NO_COMPLETION (-100005)

/** No connection event or connection request is ready. */
#define RPMA_E_NO_EVENT (-100006)

/**
 * A temporary failure. Kept for sources that name it; no function returns it.
 */
#define RPMA_E_AGAIN (-100007)

/** The completion queue shares its completion channel. */
#define RPMA_E_SHARED_CHANNEL (-100008)

/** The connection has no shared completion channel. */
#define RPMA_E_NOT_SHARED_CHNL (-100009)

/**
 * The default time in milliseconds that resolving an address or a route may
 * take.
 */
#define RPMA_DEFAULT_TIMEOUT_MS (1000)

/** Kept for sources that name it; no function looks at it. */
#define RPMA_W_WAIT_FOR_COMPLETION (1)

/** Memory usage: a remote peer may read from the region. */
#define RPMA_MR_USAGE_READ_SRC (1)

/** Memory usage: rpma_read may place data in the region. */
#define RPMA_MR_USAGE_READ_DST (2)

/** Memory usage: rpma_write may take data from the region. */
#define RPMA_MR_USAGE_WRITE_SRC (4)

/** Memory usage: a remote peer may write to the region. */
#define RPMA_MR_USAGE_WRITE_DST (8)

/**
 * Memory usage: a remote peer may flush the region with
 * RPMA_FLUSH_TYPE_VISIBILITY.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (16)

/**
 * Memory usage: a remote peer may flush the region with
 * RPMA_FLUSH_TYPE_PERSISTENT.
 */
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (32)

/** Memory usage: rpma_send may take data from the region. */
#define RPMA_MR_USAGE_SEND (64)

/** Memory usage: rpma_recv may place data in the region. */
#define RPMA_MR_USAGE_RECV (128)

/** Flag: a completion is generated only when the operation fails. */
#define RPMA_F_COMPLETION_ON_ERROR (1)

/** Flag: a completion is always generated. */
#define RPMA_F_COMPLETION_ALWAYS (3)

/**
 * The alignment in bytes that the remote offset of an atomic write must have.
 */
#define RPMA_ATOMIC_WRITE_ALIGNMENT (8)

/** What happened to a connection. */
enum rpma_conn_event {
	/** no event; never delivered */
	RPMA_CONN_UNDEFINED = -1,
	/** the connection is established */
	RPMA_CONN_ESTABLISHED = 0,
	/** the connection is closed */
	RPMA_CONN_CLOSED = 1,
	/** the connection is broken */
	RPMA_CONN_LOST = 2,
	/** the remote end rejected the connection, or nothing listens there */
	RPMA_CONN_REJECTED = 3,
	/** the remote end did not answer in time */
	RPMA_CONN_UNREACHABLE = 4,
};

/** How serious a log message is, and as a threshold, which messages pass. */
enum rpma_log_level {
	/** as a threshold: no message passes */
	RPMA_LOG_DISABLED = -1,
	/** the library cannot go on */
	RPMA_LOG_LEVEL_FATAL = 0,
	/** an operation failed */
	RPMA_LOG_LEVEL_ERROR = 1,
	/** something unexpected that did not make the call fail */
	RPMA_LOG_LEVEL_WARNING = 2,
	/** a significant normal event */
	RPMA_LOG_LEVEL_NOTICE = 3,
	/** information */
	RPMA_LOG_LEVEL_INFO = 4,
	/** details for whoever debugs */
	RPMA_LOG_LEVEL_DEBUG = 5,
};

/** The operation that a struct rpma_completion reports. */
enum rpma_op {
	/** rpma_read, and rpma_flush */
	RPMA_OP_READ = 0,
	/** rpma_write, rpma_write_with_imm, rpma_write_atomic and rpma_atomic_write */
	RPMA_OP_WRITE = 1,
	/** kept for sources that name it; a flush is reported as RPMA_OP_READ */
	RPMA_OP_FLUSH = 2,
	/** rpma_send and rpma_send_with_imm */
	RPMA_OP_SEND = 3,
	/** rpma_recv */
	RPMA_OP_RECV = 4,
	/** a receive that was consumed by the remote peer's rpma_write_with_imm */
	RPMA_OP_RECV_RDMA_WITH_IMM = 5,
};

/**
 * Which end of a connection an address given to rpma_utils_get_ibv_context is.
 */
enum rpma_util_ibv_context_type {
	/** the address of an interface of this host */
	RPMA_UTIL_IBV_CONTEXT_LOCAL = 0,
	/** the address of a remote host */
	RPMA_UTIL_IBV_CONTEXT_REMOTE = 1,
};

/** How far a flush pushes the data that was written before it. */
enum rpma_flush_type {
	/** down to the persistent medium */
	RPMA_FLUSH_TYPE_PERSISTENT = 0,
	/** until it is visible to the remote host */
	RPMA_FLUSH_TYPE_VISIBILITY = 1,
};

/** Which threshold rpma_log_set_threshold and rpma_log_get_threshold mean. */
enum rpma_log_threshold {
	/** the main threshold: which messages reach the log function */
	RPMA_LOG_THRESHOLD = 0,
	/**
	 * the auxiliary threshold: which messages the built-in function also prints to
	 * stderr
	 */
	RPMA_LOG_THRESHOLD_AUX = 1,
	/** the number of thresholds; not a threshold itself */
	RPMA_LOG_THRESHOLD_MAX = 2,
};

/** A connection to a remote peer. */
struct rpma_conn;

/** A connection configuration. */
struct rpma_conn_cfg;

/**
 * A connection request: made here and not sent yet, or come in and not answered
 * yet.
 */
struct rpma_conn_req;

/** A completion queue. */
struct rpma_cq;

/** An endpoint that listens for connection requests. */
struct rpma_ep;

/** A region of this process's memory that is registered with a device. */
struct rpma_mr_local;

/** A region of a remote peer's memory. */
struct rpma_mr_remote;

/**
 * A peer: a protection domain on a device, which everything else is made from.
 */
struct rpma_peer;

/** A peer configuration: what one end of a connection declares about itself. */
struct rpma_peer_cfg;

/** A shared receive queue: several connections take their receives from it. */
struct rpma_srq;

/** A configuration for shared receive queues. */
struct rpma_srq_cfg;

/**
 * Private data that one end of a connection hands to the other while the
 * connection is set up.
 */
struct rpma_conn_private_data {
	/** the first byte, or NULL when there is none */
	void *ptr;
	/** the length in bytes, 0 when there is none */
	uint8_t len;
};

/**
 * A completion as rpma_cq_get_completion and rpma_conn_completion_get report
 * it.
 */
struct rpma_completion {
	/** what the caller gave as op_context */
	void *op_context;
	/** the operation; only set when op_status is IBV_WC_SUCCESS */
	enum rpma_op op;
	/**
	 * the number of bytes transferred; only set when op_status is IBV_WC_SUCCESS
	 */
	uint32_t byte_len;
	/** IBV_WC_SUCCESS, or how the operation failed */
	enum ibv_wc_status op_status;
	/**
	 * the wc_flags of the work completion; only set when op_status is
	 * IBV_WC_SUCCESS
	 */
	unsigned int flags;
	/**
	 * the immediate data in host byte order; only set for a receive whose flags
	 * have IBV_WC_WITH_IMM
	 */
	uint32_t imm;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/** The log function that is built into the library, for rpma_log_set_function. */
#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

/**
 * A function that gets the library's messages; see rpma_log_set_function.
 *
 * PARAMETERS
 * - level: the level of the message
 * - file_name: the name of the source file that logs
 * - line_no: the line in that file
 * - function_name: the name of the function that logs
 * - message_format: a format of printf, whose result ends with a newline
 * - ...: the arguments of the format
 */
typedef void rpma_log_function(
	enum rpma_log_level level,
	const char *file_name,
	const int line_no,
	const char *function_name,
	const char *message_format,
	...);

/**
 * Finds the device that serves an address.
 *
 * With RPMA_UTIL_IBV_CONTEXT_LOCAL the device is the one of the local interface
 * that has the address; with RPMA_UTIL_IBV_CONTEXT_REMOTE it is the one through
 * which the remote address is reached. The environment variable RPMA_PROVIDER
 * selects where devices are looked for: "auto" (the default) takes an RDMA
 * device if one serves the address and the software device soft0 otherwise,
 * with one log line of level NOTICE that says which and why; "rdma-core" takes
 * RDMA devices only; "soft" takes the software device only. Everything that is
 * made from the context stays with its provider.
 *
 * PARAMETERS
 * - addr: in: an IPv4 or IPv6 address or a host name
 * - type: in: which end of a connection the address is
 * - ibv_ctx_ptr: out: the context; it belongs to the provider and must not be
 *   closed
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: addr or ibv_ctx_ptr is NULL, or type is neither of its values
 * - RPMA_E_PROVIDER: the address cannot be translated, bound, or resolved
 *   within RPMA_DEFAULT_TIMEOUT_MS; with "rdma-core", no RDMA device serves it,
 *   and the log says what is missing; RPMA_PROVIDER has an unknown value or
 *   names a provider that this build was made without
 *
 * THREADS
 * Not thread safe.
 */
int rpma_utils_get_ibv_context(const char *addr,
			       enum rpma_util_ibv_context_type type,
			       struct ibv_context **ibv_ctx_ptr);

/**
 * Tells whether a device can register memory with on-demand paging.
 *
 * Memory that cannot be pinned, such as a file on a DAX file system, can only
 * be registered on such a device.
 *
 * PARAMETERS
 * - ibv_ctx: in: the context of the device
 * - is_odp_capable: out: 1 if it can, for reads and for writes; 0 if not, also
 *   when the call fails after its arguments were accepted
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_PROVIDER: the device cannot be queried
 *
 * THREADS
 * Thread safe.
 */
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx,
					  int *is_odp_capable);

/**
 * Gives the text for a connection event.
 *
 * PARAMETERS
 * - conn_event: in: an event, or any other number
 *
 * RETURN VALUE
 * A constant string that must not be freed; never NULL.
 *
 * ERRORS
 * None; a number that is no event has a text too.
 *
 * THREADS
 * Thread safe.
 */
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);

/**
 * Gives the text for an error code.
 *
 * PARAMETERS
 * - ret: in: what a function of this library returned, or any other number
 *
 * RETURN VALUE
 * A constant string that must not be freed; never NULL.
 *
 * ERRORS
 * None; a number that is no error code has a text too.
 *
 * THREADS
 * Thread safe.
 */
const char *rpma_err_2str(int ret);

/**
 * Makes a peer: the object that memory, endpoints and connections on a device
 * are made from.
 *
 * PARAMETERS
 * - ibv_ctx: in: the context of the device, from rpma_utils_get_ibv_context or
 *   opened by the application; it must outlive the peer
 * - peer_ptr: out: the peer, to be deleted with rpma_peer_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the device cannot be queried, or gives no protection
 *   domain; or RPMA_NATIVE in the environment is not what librpma_providers(7)
 *   says
 * - RPMA_E_UNKNOWN: the device gives no protection domain and no reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_new(struct ibv_context *ibv_ctx,
		  struct rpma_peer **peer_ptr);

/**
 * Deletes a peer.
 *
 * Everything that was made from it must have been deleted before.
 *
 * PARAMETERS
 * - peer_ptr: in, out: the peer; NULL afterwards, also on failure. A peer that
 *   is NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code. The peer is gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer_ptr is NULL
 * - RPMA_E_PROVIDER: the protection domain cannot be freed, for example because
 *   it is still in use
 *
 * THREADS
 * Thread safe for different peers.
 */
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/**
 * Registers memory, so that a device may access it as the usage says.
 *
 * If the memory cannot be pinned and the device can page on demand, it is
 * registered with on-demand paging. A region for either type of flush can also
 * be read by remote peers that hold its descriptor, because a flush may be
 * carried out as a read.
 *
 * PARAMETERS
 * - peer: in: the peer
 * - ptr: in: the first byte; any alignment
 * - size: in: the length in bytes, not 0
 * - usage: in: one or more of RPMA_MR_USAGE_*, or-ed
 * - mr_ptr: out: the region, to be deregistered with rpma_mr_dereg before the
 *   memory is unmapped or freed
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL, size is 0, or usage is 0 or has other bits
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the device refuses the memory; the log line has its reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_reg(struct rpma_peer *peer,
		void *ptr,
		size_t size,
		int usage,
		struct rpma_mr_local **mr_ptr);

/**
 * Deregisters memory.
 *
 * Once it returns, no remote peer reads or writes the memory through this
 * region any more.
 *
 * PARAMETERS
 * - mr_ptr: in, out: the region; NULL afterwards, also on failure. One that is
 *   NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code. The region is gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr_ptr is NULL
 * - RPMA_E_PROVIDER: the device refuses
 *
 * THREADS
 * Thread safe for different regions.
 */
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);

/**
 * Writes the descriptor of a region, for the application to send to the other
 * end.
 *
 * Whoever has the descriptor and a connection to this peer may access the
 * region as its usage says.
 *
 * PARAMETERS
 * - mr: in: the region
 * - desc: out: room for as many bytes as rpma_mr_get_descriptor_size tells; any
 *   alignment
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);

/**
 * Tells the length of a region's descriptor.
 *
 * PARAMETERS
 * - mr: in: the region
 * - desc_size: out: the length in bytes; 21
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);

/**
 * Tells the address of a region.
 *
 * PARAMETERS
 * - mr: in: the region
 * - ptr: out: the first byte
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);

/**
 * Tells the size of a region.
 *
 * PARAMETERS
 * - mr: in: the region
 * - size: out: the length in bytes
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);

/**
 * Advises the device about how a part of a region will be used.
 *
 * Useful for regions with on-demand paging: pages that are fetched before they
 * are accessed make the first access faster.
 *
 * PARAMETERS
 * - mr: in: the region
 * - offset: in: the start of the part, in bytes from the start of the region
 * - len: in: the length of the part in bytes, at most UINT32_MAX
 * - advice: in: one of IB_UVERBS_ADVISE_MR_ADVICE_*
 * - flags: in: 0, or IB_UVERBS_ADVISE_MR_FLAG_FLUSH to wait until it is done
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr is NULL, len is too large, or the device finds the part or
 *   the advice invalid
 * - RPMA_E_NOSUPP: the device takes no advice
 * - RPMA_E_PROVIDER: the device refuses for another reason
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_advise(struct rpma_mr_local *mr,
		   size_t offset,
		   size_t len,
		   int advice,
		   uint32_t flags);

/**
 * Makes a remote region from a descriptor that came from the other end.
 *
 * PARAMETERS
 * - desc: in: the descriptor; any alignment
 * - desc_size: in: its length in bytes, at least 21; what follows is ignored
 * - mr_ptr: out: the remote region, to be deleted with rpma_mr_remote_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: desc or mr_ptr is NULL, desc_size is too small, the
 *   descriptor declares no usage, or its region would run past the end of the
 *   64-bit address space
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_remote_from_descriptor(const void *desc,
				   size_t desc_size,
				   struct rpma_mr_remote **mr_ptr);

/**
 * Tells the size of a remote region.
 *
 * PARAMETERS
 * - mr: in: the remote region
 * - size: out: the length in bytes
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);

/**
 * Tells which types of flush a remote region can be the target of.
 *
 * PARAMETERS
 * - mr: in: the remote region
 * - flush_type: out: 0, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
 *   RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, or both or-ed
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr,
				  int *flush_type);

/**
 * Deletes a remote region. The memory itself is not affected.
 *
 * PARAMETERS
 * - mr_ptr: in, out: the remote region; NULL afterwards. One that is NULL
 *   already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: mr_ptr is NULL
 *
 * THREADS
 * Thread safe for different regions.
 */
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);

/**
 * Makes a peer configuration: what one end of a connection declares about
 * itself to the other.
 *
 * A new configuration declares no direct write to persistent memory.
 *
 * PARAMETERS
 * - pcfg_ptr: out: the configuration, to be deleted with rpma_peer_cfg_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Deletes a peer configuration.
 *
 * PARAMETERS
 * - pcfg_ptr: in, out: the configuration; NULL afterwards. One that is NULL
 *   already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);

/**
 * Declares whether what is written to this end's persistent memory remotely
 * bypasses its CPU caches.
 *
 * Only with this declaration can the other end flush to persistence. On the
 * software device it may be declared for shared mappings of files, too: they
 * are written back to the file before the flush completes.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - supported: in: whether direct write to persistent memory is declared
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: pcfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg,
					   bool supported);

/**
 * Tells whether direct write to persistent memory is declared.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - supported: out: the declaration
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);

/**
 * Writes the descriptor of a configuration, for the application to send to the
 * other end.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - desc: out: room for as many bytes as rpma_peer_cfg_get_descriptor_size
 *   tells; any alignment
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc);

/**
 * Tells the length of a configuration's descriptor.
 *
 * PARAMETERS
 * - pcfg: in: the configuration
 * - desc_size: out: the length in bytes; 1
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);

/**
 * Makes a configuration from a descriptor that came from the other end.
 *
 * PARAMETERS
 * - desc: in: the descriptor; any alignment. Any byte but 0 declares direct
 *   write to persistent memory.
 * - desc_size: in: its length in bytes, at least 1; what follows the first byte
 *   is ignored
 * - pcfg_ptr: out: the configuration, to be deleted with rpma_peer_cfg_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: desc or pcfg_ptr is NULL, or desc_size is 0
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_peer_cfg_from_descriptor(const void *desc,
				  size_t desc_size,
				  struct rpma_peer_cfg **pcfg_ptr);

/**
 * Makes a connection configuration.
 *
 * Its values at first: timeout RPMA_DEFAULT_TIMEOUT_MS, completion, send and
 * receive queue 10 entries each, no separate receive completion queue, no
 * shared completion channel, no shared receive queue.
 *
 * PARAMETERS
 * - cfg_ptr: out: the configuration, to be deleted with rpma_conn_cfg_delete;
 *   NULL if out of memory
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);

/**
 * Deletes a connection configuration. Connections made with it are not
 * affected.
 *
 * PARAMETERS
 * - cfg_ptr: in, out: the configuration; NULL afterwards. One that is NULL
 *   already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);

/**
 * Sets how long resolving an address and resolving a route may each take.
 *
 * On the software device it is the time that making the TCP connection may
 * take.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - timeout_ms: in: the time in milliseconds, not negative
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL, or timeout_ms is negative
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);

/**
 * Tells how long resolving an address and resolving a route may each take.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - timeout_ms: out: the time in milliseconds
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);

/**
 * Sets the size of a connection's main completion queue.
 *
 * It must have room for every completion that can be outstanding: of the send
 * queue, and of the receive queue unless a separate receive completion queue
 * takes those.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - cq_size: in: the number of entries; values above INT_MAX mean INT_MAX
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg,
			      uint32_t cq_size);

/**
 * Tells the size of a connection's main completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - cq_size: out: the number of entries
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);

/**
 * Sets the size of a connection's send queue.
 *
 * An entry is free again when the completion of its request, or of a later one,
 * has been taken.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - sq_size: in: the number of requests that may be outstanding
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size);

/**
 * Tells the size of a connection's send queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - sq_size: out: the number of requests
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);

/**
 * Sets the size of a connection's receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: in: the number of receives that may be outstanding
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size);

/**
 * Tells the size of a connection's receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: out: the number of receives
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);

/**
 * Sets the size of a connection's separate receive completion queue.
 *
 * Without one, completions of receives come through the main completion queue.
 * With a shared receive queue that has a completion queue of its own, the value
 * is not used.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: in: the number of entries, values above INT_MAX mean INT_MAX; 0
 *   for no separate queue
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg,
			       uint32_t rcq_size);

/**
 * Tells the size of a connection's separate receive completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: out: the number of entries, or 0
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);

/**
 * Sets whether a connection's completion queues share one completion channel.
 *
 * With a shared channel, rpma_conn_wait waits for completions of both queues,
 * and rpma_cq_wait is not possible.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - shared: in: whether the channel is shared
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg,
				    bool shared);

/**
 * Tells whether a connection's completion queues share one completion channel.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - shared: out: whether the channel is shared
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);

/**
 * Sets the shared receive queue that a connection takes its receives from.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - srq: in: the queue; it stays the caller's and must outlive the connections
 *   made with this configuration. It can be replaced but not removed again.
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg,
			  struct rpma_srq *srq);

/**
 * Tells the shared receive queue that a connection takes its receives from.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - srq_ptr: out: the queue, which is not the caller's to delete through this
 *   pointer; NULL if none is set
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg,
			  struct rpma_srq **srq_ptr);

/**
 * Makes a configuration for shared receive queues.
 *
 * Its values at first: receive queue 20 entries, completion queue of its own 20
 * entries.
 *
 * PARAMETERS
 * - cfg_ptr: out: the configuration, to be deleted with rpma_srq_cfg_delete;
 *   NULL if out of memory
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);

/**
 * Deletes a configuration for shared receive queues. Queues made with it are
 * not affected.
 *
 * PARAMETERS
 * - cfg_ptr: in, out: the configuration; NULL afterwards. One that is NULL
 *   already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg_ptr is NULL
 *
 * THREADS
 * Thread safe for different configurations.
 */
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);

/**
 * Sets the size of a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: in: the number of receives that may be outstanding
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);

/**
 * Tells the size of a shared receive queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rq_size: out: the number of receives
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);

/**
 * Sets the size of a shared receive queue's own completion queue.
 *
 * Without one, completions of receives come through the queues of the
 * connection that the message came over.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: in: the number of entries, values above INT_MAX mean INT_MAX; 0
 *   for no queue of its own
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cfg is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg,
			      uint32_t rcq_size);

/**
 * Tells the size of a shared receive queue's own completion queue.
 *
 * PARAMETERS
 * - cfg: in: the configuration
 * - rcq_size: out: the number of entries, or 0
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);

/**
 * Makes a shared receive queue: one queue of receives for several connections.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the queue
 * - cfg: in: the configuration, or NULL for the default one
 * - srq_ptr: out: the queue, to be deleted with rpma_srq_delete; NULL if out of
 *   memory
 *
 * RETURN VALUE
 * 0, or a negative error code. Except as said above, the output is left as it
 * was on failure.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer or srq_ptr is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: a queue cannot be created
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr);

/**
 * Deletes a shared receive queue.
 *
 * The connections that use it must have been deleted before.
 *
 * PARAMETERS
 * - srq_ptr: in, out: the queue; NULL afterwards, also on failure. One that is
 *   NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code: the first, if several things fail. The queue is
 * gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: srq_ptr is NULL
 * - RPMA_E_PROVIDER: something cannot be destroyed
 *
 * THREADS
 * Thread safe for different queues.
 */
int rpma_srq_delete(struct rpma_srq **srq_ptr);

/**
 * Tells a shared receive queue's own completion queue.
 *
 * PARAMETERS
 * - srq: in: the shared receive queue
 * - rcq_ptr: out: its completion queue, which belongs to it; NULL if it has
 *   none
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr);

/**
 * Makes an endpoint that listens for connection requests.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the endpoint and the connections
 *   accepted through it
 * - addr: in: a local IPv4 or IPv6 address or host name
 * - port: in: the port number or service name
 * - ep_ptr: out: the endpoint, to be deleted with rpma_ep_shutdown
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the address cannot be translated, bound or listened on
 *
 * THREADS
 * Not thread safe.
 */
int rpma_ep_listen(struct rpma_peer *peer,
		   const char *addr,
		   const char *port,
		   struct rpma_ep **ep_ptr);

/**
 * Stops listening and deletes the endpoint. Connections accepted through it are
 * not affected.
 *
 * PARAMETERS
 * - ep_ptr: in, out: the endpoint; NULL afterwards, also on failure. One that
 *   is NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code. The endpoint is gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: ep_ptr is NULL
 * - RPMA_E_PROVIDER: the listening identifier cannot be destroyed
 *
 * THREADS
 * Not thread safe.
 */
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);

/**
 * Takes the next connection request.
 *
 * Waits for one, unless the descriptor of rpma_ep_get_fd has been made
 * non-blocking.
 *
 * PARAMETERS
 * - ep: in: the endpoint
 * - cfg: in: the configuration for the connection, or NULL for the default one
 * - req_ptr: out: the request, to be consumed by rpma_conn_req_connect or
 *   refused by rpma_conn_req_delete; NULL if the event that announced it cannot
 *   be acknowledged
 *
 * RETURN VALUE
 * 0, or a negative error code. Except as said above, the output is left as it
 * was on failure. A request that was taken but for which resources are missing
 * has been rejected.
 *
 * ERRORS
 * - RPMA_E_INVAL: ep or req_ptr is NULL; something else than a request happened
 *   on the endpoint; or the configuration combines a shared completion channel
 *   with a shared receive queue that has its own completion queue
 * - RPMA_E_NO_EVENT: the descriptor is non-blocking and no request waits
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: a queue or queue pair cannot be created, or an event not
 *   be read or acknowledged
 *
 * THREADS
 * Not thread safe.
 */
int rpma_ep_next_conn_req(struct rpma_ep *ep,
			  const struct rpma_conn_cfg *cfg,
			  struct rpma_conn_req **req_ptr);

/**
 * Tells the descriptor that is readable when a connection request waits.
 *
 * It may be polled and made non-blocking; it belongs to the endpoint.
 *
 * PARAMETERS
 * - ep: in: the endpoint
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);

/**
 * Makes a request for a connection to a remote peer.
 *
 * Nothing is sent to the remote peer before rpma_conn_req_connect.
 *
 * PARAMETERS
 * - peer: in: the peer; it must outlive the request and its connection
 * - addr: in: the remote IPv4 or IPv6 address or host name
 * - port: in: the port number or service name
 * - cfg: in: the configuration for the connection, or NULL for the default one
 * - req_ptr: out: the request, to be consumed by rpma_conn_req_connect or
 *   deleted by rpma_conn_req_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: peer, addr, port or req_ptr is NULL, or the configuration
 *   combines a shared completion channel with a shared receive queue that has
 *   its own completion queue
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the address cannot be translated, address or route not be
 *   resolved in time, or a queue or queue pair not be created, for example
 *   because the peer is not on the device that leads to the address
 *
 * THREADS
 * Not thread safe.
 */
int rpma_conn_req_new(struct rpma_peer *peer,
		      const char *addr,
		      const char *port,
		      const struct rpma_conn_cfg *cfg,
		      struct rpma_conn_req **req_ptr);

/**
 * Deletes a connection request. One that came in is rejected.
 *
 * PARAMETERS
 * - req_ptr: in, out: the request; NULL afterwards, also on failure. One that
 *   is NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code: the first, if several things fail. The request
 * is gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: req_ptr is NULL
 * - RPMA_E_PROVIDER: the rejection cannot be sent, or something not be
 *   destroyed
 *
 * THREADS
 * Not thread safe.
 */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);

/**
 * Sends a connection request, or accepts one that came in.
 *
 * The connection can be used once rpma_conn_next_event has delivered
 * RPMA_CONN_ESTABLISHED.
 *
 * PARAMETERS
 * - req_ptr: in, out: the request, which is used up; NULL afterwards, also on
 *   failure
 * - pdata: in: private data for the other end, or NULL for none; copied. How
 *   many of the 255 bytes that len allows can be sent is up to the provider (56
 *   for a request on InfiniBand, 251 on the software device).
 * - conn_ptr: out: the connection, to be deleted with rpma_conn_delete
 *
 * RETURN VALUE
 * 0, or a negative error code with conn_ptr left as it was. Unless req_ptr or
 * the request is NULL, the request is gone in either case; one that came in has
 * then been rejected or its connection broken off.
 *
 * ERRORS
 * - RPMA_E_INVAL: req_ptr, the request or conn_ptr is NULL, or pdata is given
 *   with NULL data or length 0
 * - RPMA_E_NOMEM: out of memory
 * - RPMA_E_PROVIDER: the request cannot be sent or accepted, or something that
 *   the connection needs not be created
 *
 * THREADS
 * Thread safe for different requests.
 */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr,
			  const struct rpma_conn_private_data *pdata,
			  struct rpma_conn **conn_ptr);

/**
 * Posts a receive before the connection exists, so that the first message finds
 * it.
 *
 * PARAMETERS
 * - req: in: the request
 * - dst: in: the region for the message, registered with RPMA_MR_USAGE_RECV
 * - offset: in: where in the region, in bytes
 * - len: in: the room in bytes, at most UINT32_MAX
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: req or dst is NULL, or len is too large
 * - RPMA_E_PROVIDER: the receive queue does not take it
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_req_recv(struct rpma_conn_req *req,
		       struct rpma_mr_local *dst,
		       size_t offset,
		       size_t len,
		       const void *op_context);

/**
 * Tells the private data that came with a request.
 *
 * PARAMETERS
 * - req: in: the request
 * - pdata: out: the data and their length; NULL and 0 if there are none, as for
 *   every request that this end made. The data belong to the request, and to
 *   its connection once rpma_conn_req_connect succeeded. The transport may pad
 *   them with zeros, so the length may be larger than what was sent.
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req,
				   struct rpma_conn_private_data *pdata);

/**
 * Deletes a connection, whether or not it was disconnected before.
 *
 * Its completion queues, descriptors and private data go with it. A shared
 * receive queue does not.
 *
 * PARAMETERS
 * - conn_ptr: in, out: the connection; NULL afterwards, also on failure. One
 *   that is NULL already is left alone.
 *
 * RETURN VALUE
 * 0, or a negative error code: the first, if several things fail. The
 * connection is gone in either case.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn_ptr is NULL, or the memory of the flush cannot be
 *   unmapped
 * - RPMA_E_PROVIDER: something cannot be destroyed
 *
 * THREADS
 * Thread safe for different connections.
 */
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/**
 * Asks for the end of a connection.
 *
 * Both ends get RPMA_CONN_CLOSED from rpma_conn_next_event. Requests that are
 * outstanding complete, in error if they are not done yet.
 *
 * PARAMETERS
 * - conn: in: the connection
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL
 * - RPMA_E_PROVIDER: the provider refuses
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_disconnect(struct rpma_conn *conn);

/**
 * Takes the next event of a connection.
 *
 * Waits for one, unless the descriptor of rpma_conn_get_event_fd has been made
 * non-blocking. RPMA_CONN_CLOSED may come twice.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - event: out: the event
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_EVENT: the descriptor is non-blocking and no event waits
 * - RPMA_E_NOMEM: out of memory for the private data that came with the event;
 *   the event is lost
 * - RPMA_E_PROVIDER: an event cannot be read, or not be acknowledged, in which
 *   case the connection's private data are gone
 * - RPMA_E_UNKNOWN: an event that means nothing for a connection
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_next_event(struct rpma_conn *conn,
			 enum rpma_conn_event *event);

/**
 * Tells the descriptor that is readable when a connection event waits.
 *
 * It may be polled and made non-blocking; it belongs to the connection.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);

/**
 * Tells the private data that the other end gave.
 *
 * At the end that connected they are there once RPMA_CONN_ESTABLISHED was
 * delivered; at the end that accepted, from the start.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - pdata: out: the data and their length; NULL and 0 if there are none. The
 *   data belong to the connection. The transport may pad them with zeros, so
 *   the length may be larger than what was sent.
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_private_data(const struct rpma_conn *conn,
			       struct rpma_conn_private_data *pdata);

/**
 * Takes note of what the remote peer declared about itself.
 *
 * Needed before a flush to persistence, which is only possible if the remote
 * peer declared direct write to persistent memory.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - pcfg: in: the remote peer's configuration, from
 *   rpma_peer_cfg_from_descriptor; its values are copied
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn,
				    const struct rpma_peer_cfg *pcfg);

/**
 * Tells the number of a connection's queue pair, by which work completions name
 * it.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - qp_num: out: the number
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);

/**
 * Tells a connection's main completion queue.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - cq_ptr: out: the queue; it belongs to the connection
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);

/**
 * Tells a connection's separate receive completion queue.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - rcq_ptr: out: the queue, which belongs to the connection; NULL if there is
 *   none, also if a shared receive queue has one (see rpma_srq_get_rcq)
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_rcq(const struct rpma_conn *conn,
		      struct rpma_cq **rcq_ptr);

/**
 * Tells the descriptor of a connection's shared completion channel, readable
 * when a completion event waits.
 *
 * It may be polled and made non-blocking; it belongs to the connection.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NOT_SHARED_CHNL: the connection was not configured with a shared
 *   completion channel
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn,
			   int *fd);

/**
 * Waits for completions on a connection's shared completion channel.
 *
 * Waits, unless the descriptor of rpma_conn_get_compl_fd has been made
 * non-blocking, and arms the queue that has completions again. They are then
 * taken with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION; that can be
 * at once.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - flags: in: not used
 * - cq: out: the completion queue that has completions; NULL if it cannot be
 *   armed again
 * - is_rcq: out: whether it is the receive completion queue; may be NULL
 *
 * RETURN VALUE
 * 0, or a negative error code. Except as said above, the outputs are left as
 * they were on failure.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn or cq is NULL
 * - RPMA_E_NOT_SHARED_CHNL: the connection was not configured with a shared
 *   completion channel
 * - RPMA_E_NO_COMPLETION: no event can be taken, for example because the
 *   descriptor is non-blocking and none waits
 * - RPMA_E_PROVIDER: the queue cannot be armed again; is_rcq is set
 * - RPMA_E_UNKNOWN: the event is of a queue that is not this connection's
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_wait(struct rpma_conn *conn,
		   int flags,
		   struct rpma_cq **cq,
		   bool *is_rcq);

/**
 * Starts reading remote memory into local memory.
 *
 * With both regions NULL and offsets and length 0 it is a read of no bytes.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the local region, registered with RPMA_MR_USAGE_READ_DST, or NULL
 * - dst_offset: in: where to, in bytes from the start of the region
 * - src: in: the remote region, registered with RPMA_MR_USAGE_READ_SRC, or NULL
 * - src_offset: in: where from, in bytes
 * - len: in: how many bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code. How it ends, its
 * completion tells; a range outside of either region, too.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or one region is
 *   NULL and anything else is not NULL or 0
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_read(struct rpma_conn *conn,
	      struct rpma_mr_local *dst,
	      size_t dst_offset,
	      const struct rpma_mr_remote *src,
	      size_t src_offset,
	      size_t len,
	      int flags,
	      const void *op_context);

/**
 * Starts writing local memory to remote memory.
 *
 * With both regions NULL and offsets and length 0 it is a write of no bytes.
 * The remote peer is not told.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST, or
 *   NULL
 * - dst_offset: in: where to, in bytes from the start of the region
 * - src: in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC, or
 *   NULL; its bytes must not change until the operation has completed
 * - src_offset: in: where from, in bytes
 * - len: in: how many bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code. How it ends, its
 * completion tells; a range outside of either region, too.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or one region is
 *   NULL and anything else is not NULL or 0
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_write(struct rpma_conn *conn,
	       struct rpma_mr_remote *dst,
	       size_t dst_offset,
	       const struct rpma_mr_local *src,
	       size_t src_offset,
	       size_t len,
	       int flags,
	       const void *op_context);

/**
 * Starts writing local memory to remote memory, and tells the remote peer with
 * immediate data.
 *
 * The write uses up one receive of the remote peer, whose completion has the
 * opcode IBV_WC_RECV_RDMA_WITH_IMM and the immediate data. With both regions
 * NULL and offsets and length 0 only the immediate data are sent.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST, or
 *   NULL
 * - dst_offset: in: where to, in bytes from the start of the region
 * - src: in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC, or
 *   NULL; its bytes must not change until the operation has completed
 * - src_offset: in: where from, in bytes
 * - len: in: how many bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - imm: in: the immediate data in host byte order; the remote work completion
 *   has them in network byte order
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code. How it ends, its
 * completion tells; a range outside of either region, too.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or one region is
 *   NULL and anything else is not NULL or 0
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_write_with_imm(struct rpma_conn *conn,
			struct rpma_mr_remote *dst,
			size_t dst_offset,
			const struct rpma_mr_local *src,
			size_t src_offset,
			size_t len,
			int flags,
			uint32_t imm,
			const void *op_context);

/**
 * Writes 8 bytes of plain memory to remote memory in one piece, after
 * everything that was posted before.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST
 * - dst_offset: in: where to, in bytes from the start of the region; a multiple
 *   of RPMA_ATOMIC_WRITE_ALIGNMENT. The remote address must be aligned too.
 * - src: in: the 8 bytes; copied, no registration needed
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as wr_id of the completion, whose opcode is
 *   IBV_WC_RDMA_WRITE, or IBV_WC_ATOMIC_WRITE where native atomic write was
 *   asked for (see librpma_providers(7))
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn, dst or src is NULL, flags is 0, or dst_offset is not
 *   aligned
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_atomic_write(struct rpma_conn *conn,
		      struct rpma_mr_remote *dst,
		      size_t dst_offset,
		      const char src[8],
		      int flags,
		      const void *op_context);

/**
 * Flushes what was written to remote memory.
 *
 * When the flush has completed, everything that was written over this
 * connection before it, to anywhere in the region, has reached what type says.
 * It is carried out as a read of 8 bytes at dst_offset and completes with the
 * opcode IBV_WC_RDMA_READ. What persistence means at which target is in
 * librpma(7). Where native flush was asked for (see librpma_providers(7)) it is
 * about the given range only, and its opcode is IBV_WC_FLUSH.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote region, registered for this type of flush
 * - dst_offset: in: the start of the range in bytes; at least 8 bytes of the
 *   region must follow
 * - len: in: the length of the range in bytes; not used by a flush that is
 *   carried out as a read
 * - type: in: RPMA_FLUSH_TYPE_PERSISTENT or RPMA_FLUSH_TYPE_VISIBILITY; the
 *   region is not checked for other values
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn or dst is NULL, or flags is 0; or the flush is native
 *   and len more than 32 bits
 * - RPMA_E_NOSUPP: the region is not registered for this type of flush; or the
 *   type is RPMA_FLUSH_TYPE_PERSISTENT and the remote peer has not declared
 *   direct write to persistent memory (see rpma_conn_apply_remote_peer_cfg)
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_flush(struct rpma_conn *conn,
	       struct rpma_mr_remote *dst,
	       size_t dst_offset,
	       size_t len,
	       enum rpma_flush_type type,
	       int flags,
	       const void *op_context);

/**
 * Starts sending a message.
 *
 * It uses up one receive of the remote peer, which must have room for it. With
 * the region NULL and offset and length 0 the message is empty.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - src: in: the region of the message, registered with RPMA_MR_USAGE_SEND, or
 *   NULL; its bytes must not change until the operation has completed
 * - offset: in: where in the region, in bytes
 * - len: in: how many bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or src is NULL
 *   and offset or len is not 0
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_send(struct rpma_conn *conn,
	      const struct rpma_mr_local *src,
	      size_t offset,
	      size_t len,
	      int flags,
	      const void *op_context);

/**
 * Starts sending a message with immediate data.
 *
 * As rpma_send; the completion of the remote receive has the immediate data and
 * IBV_WC_WITH_IMM in wc_flags.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - src: in: the region of the message, registered with RPMA_MR_USAGE_SEND, or
 *   NULL; its bytes must not change until the operation has completed
 * - offset: in: where in the region, in bytes
 * - len: in: how many bytes, at most UINT32_MAX
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - imm: in: the immediate data in host byte order; the remote work completion
 *   has them in network byte order
 * - op_context: in: comes back as wr_id of the completion
 *
 * RETURN VALUE
 * 0 if the operation was started, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, flags is 0, len is too large, or src is NULL
 *   and offset or len is not 0
 * - RPMA_E_PROVIDER: the send queue does not take it, for example because it is
 *   full
 *
 * THREADS
 * Thread safe.
 */
int rpma_send_with_imm(struct rpma_conn *conn,
		       const struct rpma_mr_local *src,
		       size_t offset,
		       size_t len,
		       int flags,
		       uint32_t imm,
		       const void *op_context);

/**
 * Posts a receive on a connection.
 *
 * Receives are used up in the order in which they are posted. With the region
 * NULL and offset and length 0 there is room for an empty message only.
 *
 * PARAMETERS
 * - conn: in: the connection; one with a shared receive queue takes receives
 *   through rpma_srq_recv
 * - dst: in: the region for the message, registered with RPMA_MR_USAGE_RECV, or
 *   NULL
 * - offset: in: where in the region, in bytes
 * - len: in: the room in bytes, at most UINT32_MAX
 * - op_context: in: comes back as wr_id of the completion, which every receive
 *   has
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL, len is too large, or dst is NULL and offset or
 *   len is not 0
 * - RPMA_E_PROVIDER: the receive queue does not take it, for example because it
 *   is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_recv(struct rpma_conn *conn,
	      struct rpma_mr_local *dst,
	      size_t offset,
	      size_t len,
	      const void *op_context);

/**
 * Posts a receive on a shared receive queue.
 *
 * The message that it will hold may come from any of the connections that use
 * the queue. With the region NULL and offset and length 0 there is room for an
 * empty message only.
 *
 * PARAMETERS
 * - srq: in: the shared receive queue
 * - dst: in: the region for the message, registered with RPMA_MR_USAGE_RECV, or
 *   NULL
 * - offset: in: where in the region, in bytes
 * - len: in: the room in bytes, at most UINT32_MAX
 * - op_context: in: comes back as wr_id of the completion, which every receive
 *   has
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: srq is NULL, len is too large, or dst is NULL and offset or
 *   len is not 0
 * - RPMA_E_PROVIDER: the queue does not take it, for example because it is full
 *
 * THREADS
 * Thread safe.
 */
int rpma_srq_recv(struct rpma_srq *srq,
		  struct rpma_mr_local *dst,
		  size_t offset,
		  size_t len,
		  const void *op_context);

/**
 * Tells the descriptor of a completion queue's channel, readable when a
 * completion event waits.
 *
 * It may be polled and made non-blocking; it belongs to the queue, or to the
 * connection if its queues share a channel.
 *
 * PARAMETERS
 * - cq: in: the queue
 * - fd: out: the file descriptor
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_fd(const struct rpma_cq *cq,
		   int *fd);

/**
 * Waits for completions.
 *
 * Waits, unless the descriptor of rpma_cq_get_fd has been made non-blocking,
 * and arms the queue again. Completions are then taken with rpma_cq_get_wc
 * until it returns RPMA_E_NO_COMPLETION; that can be at once, because a
 * completion may have been taken before its event was.
 *
 * PARAMETERS
 * - cq: in: the queue
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: cq is NULL
 * - RPMA_E_SHARED_CHANNEL: the queue shares its channel; see rpma_conn_wait
 * - RPMA_E_NO_COMPLETION: no event can be taken, for example because the
 *   descriptor is non-blocking and none waits
 * - RPMA_E_PROVIDER: the queue cannot be armed again
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_wait(struct rpma_cq *cq);

/**
 * Takes completions off a queue. Never waits.
 *
 * PARAMETERS
 * - cq: in: the queue
 * - num_entries: in: how many to take at most, at least 1
 * - wc: out: room for that many work completions. Of a failed one only wr_id,
 *   status, qp_num and vendor_err are defined. wr_id is the operation's
 *   op_context. A flush has the opcode IBV_WC_RDMA_READ.
 * - num_entries_got: out: how many were taken; may be NULL if num_entries is 1
 *
 * RETURN VALUE
 * 0, or a negative error code with num_entries_got left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: cq or wc is NULL, num_entries is less than 1, or
 *   num_entries_got is NULL and num_entries is more than 1
 * - RPMA_E_NO_COMPLETION: the queue is empty
 * - RPMA_E_PROVIDER: the provider refuses
 * - RPMA_E_UNKNOWN: the provider gave more than asked for
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_wc(struct rpma_cq *cq,
		   int num_entries,
		   struct ibv_wc *wc,
		   int *num_entries_got);

/**
 * Chooses the function that gets the library's messages.
 *
 * A message reaches the function if its level is not above the main threshold
 * (see rpma_log_set_threshold). The function gets the level, the name of a
 * source file, a line, the name of a function, and a printf format with its
 * arguments; the formatted message ends with a newline. It is called in the
 * thread that logs and must not call this library. The built-in function writes
 * to syslog (facility LOG_LOCAL7, name "rpma"), and what is not above the
 * auxiliary threshold to stderr too.
 *
 * PARAMETERS
 * - log_function: in: the function, or RPMA_LOG_USE_DEFAULT_FUNCTION for the
 *   built-in one; it must stay callable from any thread until it is replaced
 *
 * RETURN VALUE
 * 0.
 *
 * ERRORS
 * None.
 *
 * THREADS
 * Thread safe. A message that is being logged in another thread may still reach
 * the function that was set before.
 */
int rpma_log_set_function(rpma_log_function *log_function);

/**
 * Sets a logging threshold.
 *
 * The main threshold is RPMA_LOG_LEVEL_WARNING at first, the auxiliary one
 * RPMA_LOG_DISABLED.
 *
 * PARAMETERS
 * - threshold: in: RPMA_LOG_THRESHOLD for the messages that reach the log
 *   function, RPMA_LOG_THRESHOLD_AUX for those of them that the built-in
 *   function also prints to stderr
 * - level: in: the last level that passes, or RPMA_LOG_DISABLED for none
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: threshold or level is not one of its values
 *
 * THREADS
 * Thread safe.
 */
int rpma_log_set_threshold(enum rpma_log_threshold threshold,
			   enum rpma_log_level level);

/**
 * Tells a logging threshold.
 *
 * PARAMETERS
 * - threshold: in: RPMA_LOG_THRESHOLD or RPMA_LOG_THRESHOLD_AUX
 * - level: out: the last level that passes
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: threshold is not one of its values, or level is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);

/**
 * Tells the descriptor of the main completion queue's channel. New programs use
 * rpma_conn_get_cq and rpma_cq_get_fd.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - fd: out: the file descriptor; it belongs to the connection
 *
 * RETURN VALUE
 * 0, or a negative error code with the output left as it was.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_get_completion_fd(const struct rpma_conn *conn,
				int *fd);

/**
 * Waits for completions of the main completion queue. New programs use
 * rpma_conn_get_cq and rpma_cq_wait.
 *
 * PARAMETERS
 * - conn: in: the connection
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn is NULL
 * - RPMA_E_SHARED_CHANNEL: the connection's queues share their channel; see
 *   rpma_conn_wait
 * - RPMA_E_NO_COMPLETION: no event can be taken, for example because the
 *   descriptor is non-blocking and none waits
 * - RPMA_E_PROVIDER: the queue cannot be armed again
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_completion_wait(struct rpma_conn *conn);

/**
 * Takes one completion off the main completion queue. New programs use
 * rpma_conn_get_cq and rpma_cq_get_wc.
 *
 * Never waits. Receives are not seen if they have a completion queue of their
 * own. A program that was built for release 0.9 gets the completion of that
 * release, which ends before flags.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - cmpl: out: the completion; of a failed operation only op_context and
 *   op_status are set
 *
 * RETURN VALUE
 * 0, also if the operation that completed has failed, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_COMPLETION: the queue is empty
 * - RPMA_E_NOSUPP: a completion of an unknown kind was taken; only op_context
 *   and op_status are set
 * - RPMA_E_PROVIDER: the provider refuses
 * - RPMA_E_UNKNOWN: the provider gave more than asked for
 *
 * THREADS
 * Thread safe.
 */
int rpma_conn_completion_get(struct rpma_conn *conn,
			     struct rpma_completion *cmpl);

/**
 * Takes one completion off a queue. New programs use rpma_cq_get_wc.
 *
 * Never waits.
 *
 * PARAMETERS
 * - cq: in: the queue
 * - cmpl: out: the completion; of a failed operation only op_context and
 *   op_status are set
 *
 * RETURN VALUE
 * 0, also if the operation that completed has failed, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: a pointer is NULL
 * - RPMA_E_NO_COMPLETION: the queue is empty
 * - RPMA_E_NOSUPP: a completion of an unknown kind was taken; only op_context
 *   and op_status are set
 * - RPMA_E_PROVIDER: the provider refuses
 * - RPMA_E_UNKNOWN: the provider gave more than asked for
 *
 * THREADS
 * Thread safe.
 */
int rpma_cq_get_completion(struct rpma_cq *cq,
			   struct rpma_completion *cmpl);

/**
 * Writes 8 bytes of a local region to remote memory in one piece, after
 * everything that was posted before. New programs use rpma_atomic_write.
 *
 * PARAMETERS
 * - conn: in: the connection
 * - dst: in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST
 * - dst_offset: in: where to, in bytes from the start of the region; a multiple
 *   of RPMA_ATOMIC_WRITE_ALIGNMENT. The remote address must be aligned too.
 * - src: in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC
 * - src_offset: in: where from, in bytes
 * - flags: in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
 * - op_context: in: comes back as op_context or wr_id of the completion
 *
 * RETURN VALUE
 * 0, or a negative error code.
 *
 * ERRORS
 * - RPMA_E_INVAL: conn, dst or src is NULL, flags is 0, or dst_offset is not
 *   aligned
 * - RPMA_E_PROVIDER: the send queue does not take it
 *
 * THREADS
 * Thread safe.
 */
int rpma_write_atomic(struct rpma_conn *conn,
		      struct rpma_mr_remote *dst,
		      size_t dst_offset,
		      const struct rpma_mr_local *src,
		      size_t src_offset,
		      int flags,
		      const void *op_context);

#ifdef __cplusplus
} /* extern "C" */
#endif /* __cplusplus */

#endif  /* LIBRPMA_H */
