// SPDX-License-Identifier: BSD-3-Clause
// Shares 4096 bytes of a file: whoever connects may read and write them, without the participation of this
// program.
#include <rpma.hpp>

#include <cstdio>

int main(int argc, char **argv) {
	if (argc != 4)
		return std::fprintf(stderr, "usage: %s ADDR PORT FILE\n", argv[0]), 2;
	try {
		using rpma::usage;
		auto peer = rpma::peer::open(argv[1]);
		auto shared = peer.reg(rpma::memory::file(argv[3], 4096),
			usage::read_src | usage::write_dst | usage::flush_persistent);
		auto endpoint = peer.listen(argv[1], argv[2]);
		std::printf("listening on %s:%s\n", argv[1], argv[2]);
		std::fflush(stdout);
		for (;;) {
			auto req = endpoint.next();
			// the offer tells the client what it needs, and that a flush reaches the file
			std::error_code failed; // of a client that has gone
			auto conn = std::move(req).connect(shared.offer(true), failed);
			if (conn)
				conn.wait_closed();
		}
	} catch (const rpma::error &error) {
		return std::fprintf(stderr, "%s\n", error.what()), 1;
	}
}
