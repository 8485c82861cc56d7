// cannot convert\|no matching function\|no viable conversion
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

#include <vector>

rpma::conn send(rpma::conn_req &req, const std::vector<rpma::offer_bytes> &offers) {
#ifdef RIGHT
	return std::move(req).start({offers.data(), offers.size()});
#else
	return std::move(req).start(offers);
#endif
}
