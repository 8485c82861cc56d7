// SPDX-License-Identifier: BSD-3-Clause
//! With the feature `bindgen`, generates Rust declarations from the headers of libibverbs and librdmacm,
//! which pkg-config finds. Otherwise there is nothing to do: nothing is linked with the libraries.

#[cfg(feature = "bindgen")]
mod generate;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=generate.rs");
    println!("cargo::rerun-if-changed=headers.h");
    #[cfg(feature = "bindgen")]
    generate::declarations();
}
