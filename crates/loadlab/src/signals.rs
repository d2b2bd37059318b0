//! Ctrl-C and similar signals: the first one ends the load cleanly, the second one ends loadlab at once (the guardian
//! then takes the system down). SIGQUIT, from `Ctrl-\`, ends it as it ends any program, but gives the terminal back.

use loadlab_analysis::Exit;
use loadlab_system::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::exit::CommandEnd;

/// A token that is cancelled by SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// The signals cannot be handled: how the command ends.
pub fn cancel_on_signal() -> Result<Cancel, CommandEnd> {
    let cannot = |error| CommandEnd::error(Exit::CouldNotRun, format!("cannot handle signals: {error}"));
    handle().map_err(cannot)
}

#[expect(clippy::exit, reason = "the second signal ends loadlab at once")]
fn handle() -> std::io::Result<Cancel> {
    let cancel = Cancel::new();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    for signal in [SIGHUP, SIGQUIT].into_iter().filter(|signal| !is_ignored(*signal)) {
        signals.add_signal(signal)?;
    }
    let token = cancel.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGQUIT {
                crate::screen::restore();
                let _ = emulate_default_handler(signal);
            }
            if token.is_cancelled() {
                crate::screen::restore();
                crate::exit::note("stopped at once; whatever is still up is taken down in the background");
                std::process::exit(130);
            }
            token.cancel();
        }
    })?;
    Ok(cancel)
}

/// Whether a signal is ignored, as SIGHUP is under `nohup`: such a user wants loadlab to outlive the terminal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
