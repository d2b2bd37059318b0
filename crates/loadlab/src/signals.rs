//! Ctrl-C and its relatives: the first one ends the load in good order, the second one ends loadlab at once
//! (the guardian then takes the system down).

use loadlab_system::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A token that is cancelled by SIGINT, SIGTERM or SIGHUP.
pub fn cancel_on_signal() -> std::io::Result<Cancel> {
    let cancel = Cancel::new();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    let token = cancel.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if token.is_cancelled() {
                crate::exit::note("ended at once; what is still up is taken down in the background");
                std::process::exit(130);
            }
            token.cancel();
        }
    })?;
    Ok(cancel)
}

/// Whoever starts loadlab under `nohup` wants it to outlive the terminal.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data for which zeroes are valid, and with no new action given sigaction(2) only
    // fills it in.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut present) == 0 && present.sa_sigaction == libc::SIG_IGN
    }
}
