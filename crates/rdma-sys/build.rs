// SPDX-License-Identifier: BSD-3-Clause
//! Finds libibverbs and librdmacm with pkg-config. With the feature `bindgen`, generates Rust declarations
//! from their headers.

#[cfg(feature = "bindgen")]
mod generate;

use std::process::exit;

/// The oldest supported versions: those of rdma-core 28.
const LIBRARIES: [(&str, &str); 2] = [("libibverbs", "1.8.28"), ("librdmacm", "1.2.28")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=generate.rs");
    println!("cargo::rerun-if-changed=headers.h");
    let mut include = Vec::new();
    for (name, version) in LIBRARIES {
        match pkg_config::Config::new().atleast_version(version).probe(name) {
            Ok(library) => include.extend(library.include_paths),
            Err(why) => fail(&format!("{name} {version} or newer is needed (rdma-core 28): {why}")),
        }
    }
    #[cfg(feature = "bindgen")]
    generate::declarations(&include);
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1);
}
