//! Ctrl-C and its relatives: the first one ends the load in good order, the second one ends loadlab at once
//! (the guardian then takes the system down).

use loadlab_system::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A token that is cancelled by SIGINT, SIGTERM or SIGHUP.
pub fn cancel_on_signal() -> std::io::Result<Cancel> {
    let cancel = Cancel::new();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let token = cancel.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if token.is_cancelled() {
                std::process::exit(130);
            }
            token.cancel();
        }
    })?;
    Ok(cancel)
}
