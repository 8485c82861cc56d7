// use of deleted function\|call to deleted member function
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

rpma::local_slice dangling(rpma::peer &peer) {
#ifdef RIGHT
	static const auto region = peer.reg(rpma::memory::zeroed(64), rpma::usage::send);
	return region.slice();
#else
	return peer.reg(rpma::memory::zeroed(64), rpma::usage::send).slice();
#endif
}
