// SPDX-License-Identifier: BSD-3-Clause
// Tests in separate processes: alone, or in pairs of a server and a client.
#ifndef HARNESS_HPP
#define HARNESS_HPP 1

#include <rpma.hpp>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#define REQUIRE(condition)                                                                                             \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			throw std::logic_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition); \
	} while (0)

/** The code of the rpma::error that a call throws; none is a failure. */
std::error_code thrown(const std::function<void()> &call);

/** Its text. */
std::string message(const std::function<void()> &call);

/**
 * The functions of librpma that delete or disconnect an object, in the order of the calls; emptied when read.
 */
std::string deletions();

/** While true, rpma_conn_disconnect succeeds and does nothing: the connection does not end. */
extern bool ignores_disconnect;

/** Where a server listens. */
struct place {
	const char *addr = "127.0.0.1";
	std::string port;
	int ready = -1;

	/** Lets the client begin. */
	void start_client() const;

	/** Listens, then lets the client begin. */
	rpma::endpoint listen(rpma::peer &peer) const;
};

/* A side may end by an exception of this class on purpose. */
struct on_purpose {};

struct test {
	const char *name;
	std::function<void(const place &)> server, client;
};

std::vector<test> alone();
std::vector<test> pairs();

#endif
