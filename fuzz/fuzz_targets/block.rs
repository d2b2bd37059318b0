//! Drives `loadlab_fuzz::block::target`: by libFuzzer when built for fuzzing, over files otherwise.
#![cfg_attr(feature = "engine", no_main)]

#[cfg(feature = "engine")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| loadlab_fuzz::block::target(data));

#[cfg(not(feature = "engine"))]
fn main() -> std::process::ExitCode {
    loadlab_fuzz::replay(loadlab_fuzz::block::target)
}
