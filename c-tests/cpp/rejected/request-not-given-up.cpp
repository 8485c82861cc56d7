// discards qualifiers\|is an lvalue\|expects an rvalue
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

rpma::conn twice(rpma::conn_req &req) {
#ifdef RIGHT
	return std::move(req).connect();
#else
	return req.connect();
#endif
}
