//! Links libdigits.a, from DIGITS_DIR or ../build.
use std::{env, path::PathBuf};

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let folder = env::var_os("DIGITS_DIR").map_or(here.join("../build"), PathBuf::from);
    println!("cargo:rerun-if-env-changed=DIGITS_DIR");
    println!("cargo:rerun-if-changed={}", folder.join("libdigits.a").display());
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=digits");
}
