//! The live screen: what a run is doing, redrawn a few times a second on the terminal's alternate screen, so that the
//! earlier contents come back at the end.
//!
//! Events change the state ([`crate::live`]); a separate thread draws it. A thread that reports an event waits for a
//! lock and never for the terminal. However the program ends – cleanly, by a second Ctrl-C, by a panic – [`restore`]
//! gives the terminal back.

mod draw;

use std::io::{Stderr, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use loadlab_record::sync::{lock, wait_timeout};
use loadlab_system::background;

use crate::live::Live;

/// Time between two frames: faster is not readable.
const PERIOD: Duration = Duration::from_millis(200);
/// A smaller terminal has no room for a screen.
const LEAST: Rect = Rect { x: 0, y: 0, width: 36, height: 12 };

/// The alternate screen is shown.
static SHOWN: AtomicBool = AtomicBool::new(false);
/// The terminal's settings before the screen took it over.
static BEFORE: OnceLock<Termios> = OnceLock::new();

/// A screen that is being drawn.
pub struct Screen {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    live: Arc<Live>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Screen {
    /// Takes over the terminal behind standard error; `None` if it is too small, or no thread can be started to draw.
    pub fn start(live: Arc<Live>, colour: bool) -> Option<Screen> {
        let area = area()?;
        let shared = Arc::new(Shared { live, ended: Mutex::new(false), end: Condvar::new() });
        let drawn = shared.clone();
        take_terminal();
        let drawing = move || {
            background::enter();
            drawn.draw(area, colour);
        };
        match std::thread::Builder::new().name("screen".into()).spawn(drawing) {
            Ok(thread) => Some(Screen { shared, thread: Mutex::new(Some(thread)) }),
            Err(_) => {
                restore();
                None
            }
        }
    }

    /// Ends the drawing and gives the terminal back.
    pub fn stop(&self) {
        *lock(&self.shared.ended) = true;
        self.shared.end.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Draws until the end, or until the terminal is gone.
    fn draw(&self, mut shown: Rect, colour: bool) {
        let options = TerminalOptions { viewport: Viewport::Fixed(shown) };
        let Ok(mut terminal) = Terminal::with_options(CrosstermBackend::new(stderr()), options) else {
            return;
        };
        let mut ended = lock(&self.ended);
        while !*ended && SHOWN.load(Ordering::Acquire) {
            match area() {
                Some(now) if now != shown => {
                    shown = now;
                    // This clears it, too; `clear` would ask the terminal where its cursor is, on standard output.
                    if terminal.resize(shown).is_err() {
                        return;
                    }
                }
                Some(_) => {}
                // Too small by now: nothing is drawn until it is larger, and then everything.
                None => shown = Rect::default(),
            }
            let (state, now_s) = self.live.read(|state, now_s| (state.clone(), now_s));
            let is_drawn = shown.area() > 0;
            if is_drawn && terminal.draw(|frame| draw::draw(frame, &state, now_s, colour)).is_err() {
                return;
            }
            ended = wait_timeout(&self.end, ended, PERIOD);
        }
    }
}

/// Standard error, bypassing `output`.
#[expect(
    clippy::disallowed_methods,
    reason = "the screen takes the whole terminal; `disarm` makes its cells harmless"
)]
fn stderr() -> Stderr {
    std::io::stderr()
}

/// The terminal behind standard error, if it is large enough.
fn area() -> Option<Rect> {
    let size = tcgetwinsize(stderr()).ok()?;
    let (width, height) = (size.ws_col.min(300), size.ws_row.min(200));
    (width >= LEAST.width && height >= LEAST.height).then_some(Rect { width, height, ..LEAST })
}

/// Shows the alternate screen. Keys are not read and must not be shown; Ctrl-C keeps working.
fn take_terminal() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        // A message on the alternate screen would disappear with it.
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
    if let Ok(mut modes) = tcgetattr(stderr()) {
        let _ = BEFORE.set(modes.clone());
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        let _ = tcsetattr(stderr(), OptionalActions::Now, &modes);
    }
    SHOWN.store(true, Ordering::Release);
    let _ = execute!(stderr(), EnterAlternateScreen, Hide);
}

/// Gives the terminal back as it was. Does nothing if no screen is shown; may be called from anywhere.
pub fn restore() {
    if !SHOWN.swap(false, Ordering::AcqRel) {
        return;
    }
    let _ = execute!(stderr(), LeaveAlternateScreen, Show);
    let _ = stderr().flush();
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(stderr(), OptionalActions::Now, before);
    }
}
