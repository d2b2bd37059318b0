//! Half a megabyte of the program is addresses to be put right as it starts. Packed they are a few kilobytes, and so is the
//! memory they take. Linkers that do not know how to say so and go on.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
