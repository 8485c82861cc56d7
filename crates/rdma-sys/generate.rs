// SPDX-License-Identifier: BSD-3-Clause
//! Generates the declarations that `src/lib.rs` includes from `headers.h`.

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
use std::env;
use std::path::Path;
use std::process::exit;

/// The oldest supported versions: those of rdma-core 28.
const LIBRARIES: [(&str, &str); 2] = [("libibverbs", "1.8.28"), ("librdmacm", "1.2.28")];

/// Enumerations whose values are combined with `|`.
const FLAGS: &str = "ibv_(.*_flags|.*_mask|odp_.*|.*_cap_bits|device_cap_flags|.*_caps)|ib_uverbs_(access_flags|advise_mr_flag|query_port_flags)";
/// Enumerations whose values are used alone.
const ALTERNATIVES: &str = "ibv_(node_type|transport_type|atomic_cap|mtu|port_state|wc_status|wc_opcode|mw_type|rate|srq_type|\
	wq_type|wq_state|qp_type|qp_state|mig_state|wr_opcode|event_type)|ib_uverbs_advise_mr_advice|rdma_cm_event_type|\
	rdma_driver_id|rdma_port_space";

/// Values of enumerations without a name, and macros.
const NAMELESS: &str = "RAI_.*|RDMA_OPTION_.*|IBV_LINK_LAYER_.*|IBV_WC_STANDARD_FLAGS";

/// Types from libc that replace generated ones implement Copy, so that types that contain them can derive it.
#[derive(Debug)]
struct OfLibc;

impl ParseCallbacks for OfLibc {
    fn blocklisted_type_implements_trait(&self, _: &str, derived: DeriveTrait) -> Option<ImplementsTrait> {
        Some(if derived == DeriveTrait::Copy { ImplementsTrait::Yes } else { ImplementsTrait::No })
    }
}

/// Writes `verbs.rs` to `OUT_DIR`.
pub fn declarations() {
    let mut include = Vec::new();
    for (name, version) in LIBRARIES {
        match pkg_config::Config::new().cargo_metadata(false).atleast_version(version).probe(name) {
            Ok(library) => include.extend(library.include_paths),
            Err(why) => fail(&format!("{name} {version} or newer is needed (rdma-core 28): {why}")),
        }
    }
    let bindings = bindgen::Builder::default()
        .header("headers.h")
        .clang_args(include.iter().map(|path| format!("-I{}", path.display())))
        .use_core()
        .parse_callbacks(Box::new(OfLibc))
        .allowlist_item("(ibv|rdma|verbs)_.*|ib_uverbs_access_flags|ib_uverbs_advise_mr_(advice|flag)|ib_uverbs_query_port_flags")
        .allowlist_item(NAMELESS)
        .ignore_functions()
        .blocklist_type("in6_addr|_*pthread_.*|__atomic_wide_counter.*|sockaddr.*|timespec")
        .bitfield_enum(FLAGS)
        .constified_enum_module(ALTERNATIVES)
        .prepend_enum_name(false)
        .derive_debug(false)
        .generate_comments(false)
        .formatter(bindgen::Formatter::None)
        .generate();
    let bindings = bindings.unwrap_or_else(|why| fail(&format!("bindgen cannot read the headers: {why}")));
    let out = env::var_os("OUT_DIR").unwrap_or_else(|| fail("cargo sets OUT_DIR"));
    if let Err(why) = bindings.write_to_file(Path::new(&out).join("verbs.rs")) {
        fail(&format!("cannot write the declarations: {why}"));
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1);
}
