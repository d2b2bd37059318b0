//! `--ui`: the live screen as a page in the browser, on loopback only.
//!
//! The page is self-contained and loads nothing from elsewhere. Its data comes as server-sent events made from the very
//! state the screen draws ([`crate::live`]): a few times a second one thread copies the state, serialises it once, and
//! hands it to every page through a short queue. A page that does not keep up is dropped, and reconnects by itself; no
//! thread that reports an event ever waits for a page. When everything is over the page becomes the report.
//!
//! Only [`guard`] admits requests: a client without the token learns nothing except that there is one.

pub mod bench;
mod feed;
mod page;
mod snapshot;

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_record::text::hex::to_hex;
use loadlab_system::{Cancel, clock};

use crate::args::serving::Address;
use crate::exit::CommandEnd;
use crate::live::Live;
use crate::output;
use crate::serve::guard::{self, Admitted, Refusal};
use crate::serve::{CLIENT_TIMEOUT, answer_each, read_head, refuse, spawn, write_answer};
use feed::Feed;

/// By default, open pages have this long to fetch the report.
const FETCH_TIMEOUT_NS: u64 = 10_000_000_000;
/// Time between two checks whether they have fetched it.
const POLL_INTERVAL_NS: u64 = 20_000_000;

/// The live page, served until the program ends.
pub struct Ui {
    site: Arc<Site>,
    url: String,
}

/// What the server serves: the live page and its feed, in the end the report.
struct Site {
    token: String,
    feed: Feed,
    page: String,
    /// What the page has become; unset while the run lasts.
    end: OnceLock<End>,
    /// How many times the report was sent in full.
    taken: AtomicUsize,
}

/// What the page becomes when everything is over.
enum End {
    Report(String),
    /// There is no record to report on.
    Nothing,
}

impl Ui {
    /// Starts listening, and prints the address.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn serve(address: Address, live: Arc<Live>) -> Result<Ui, CommandEnd> {
        let Address(address) = address;
        let cannot = |e: std::io::Error| {
            let hint = match e.kind() {
                ErrorKind::AddrInUse => "\nhint: `--ui` without a port takes one that is free",
                _ => "",
            };
            CommandEnd::error(Exit::BadPlan, format!("--ui: cannot serve the page on {address}: {e}{hint}"))
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let given = listener.local_addr().map_err(cannot)?;
        let site = Arc::new(Site {
            token: token().map_err(cannot)?,
            feed: Feed::default(),
            page: page::page(&live.read(|state, _| state.title.clone())),
            end: OnceLock::new(),
            taken: AtomicUsize::new(0),
        });
        let url = format!("http://{given}/{}/", site.token);
        live.page(&url);
        let fed = site.clone();
        spawn("ui-feed", move || fed.feed.run(&live)).map_err(cannot)?;
        let asked = site.clone();
        answer_each(listener, "ui", move |stream| asked.answer(stream)).map_err(cannot)?;
        crate::exit::note(&format!("live in the browser: {url}"));
        Ok(Ui { site, url })
    }

    /// Turns the page into the report and waits: for `wait` if it is given; else until Ctrl-C on a terminal, and
    /// without one until the open pages have the report.
    pub fn serve_report(&self, report: Option<String>, wait: Option<Duration>, cancel: &Cancel) {
        let end = report.map_or(End::Nothing, End::Report);
        let is_report = matches!(end, End::Report(_));
        let _ = self.site.end.set(end);
        let pages = self.site.feed.end(is_report);
        let taking_until_ns = clock::now_ns().saturating_add(FETCH_TIMEOUT_NS);
        // A user who pressed Ctrl-C to end the load wants the terminal back.
        let stays = !cancel.is_cancelled();
        match wait {
            Some(wait) if stays => {
                let ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
                cancel.wait_until(clock::now_ns().saturating_add(ns));
            }
            None if stays && is_report && output::err_is_terminal() && output::out_is_terminal() => {
                crate::exit::note(&format!("the report stays at {} until Ctrl-C", self.url));
                cancel.wait_until(u64::MAX);
            }
            _ => {
                let never = Cancel::new();
                while is_report
                    && self.site.taken.load(Ordering::Acquire) < pages
                    && clock::now_ns() < taking_until_ns
                {
                    never.wait_until(clock::now_ns() + POLL_INTERVAL_NS);
                }
            }
        }
    }
}

/// 128 bits from the kernel, in hexadecimal.
fn token() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(to_hex(&bytes))
}

impl Site {
    /// Answers the one request of a connection.
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let Some(head) = read_head(&mut stream)? else {
            return refuse(&mut stream, &Refusal::GARBLED);
        };
        match guard::admit(&head, &self.token) {
            Err(refusal) => refuse(&mut stream, &refusal),
            Ok(Admitted { path: "", is_head }) => match self.end.get() {
                Some(End::Report(html)) => {
                    write_page(&mut stream, html, None, is_head)?;
                    self.taken.fetch_add(usize::from(!is_head), Ordering::AcqRel);
                    // Wait until the browser has read everything: a reset of the connection would discard unread data.
                    stream.shutdown(std::net::Shutdown::Write)?;
                    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
                    let _ = stream.read(&mut [0; 64]);
                    Ok(())
                }
                _ => write_page(&mut stream, &self.page, Some(&page::policy()), is_head),
            },
            Ok(Admitted { path: "live", is_head: false }) => self.feed.follow(&mut stream),
            Ok(_) => refuse(&mut stream, &Refusal::NOT_FOUND),
        }
    }
}

fn write_page(
    stream: &mut TcpStream,
    html: &str,
    policy: Option<&str>,
    is_head: bool,
) -> std::io::Result<()> {
    let policy = policy.map_or(String::new(), |p| format!("Content-Security-Policy: {p}\r\n"));
    let fields = format!("Content-Type: text/html; charset=utf-8\r\n{policy}");
    write_answer(stream, "200 OK", &fields, html, is_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_served() {
        let text = |t: &str| t.parse::<Address>().map(|a| a.0.to_string());
        for (given, expect) in [
            ("0", Ok("127.0.0.1:0")),
            ("8089", Ok("127.0.0.1:8089")),
            ("127.0.0.2:80", Ok("127.0.0.2:80")),
            ("[::1]:0", Ok("[::1]:0")),
        ] {
            assert_eq!(text(given), expect.map(str::to_owned), "{given}");
        }
        for given in ["0.0.0.0:80", "10.0.0.1:80", "[::]:0"] {
            assert!(text(given).is_err_and(|e| e.contains("on loopback only")), "{given}");
        }
        for given in ["", "70000", "localhost:80", "127.0.0.1"] {
            assert!(text(given).is_err_and(|e| e.contains("is not a port")), "{given}");
        }
    }

    #[test]
    fn tokens_are_long_and_unlike_one_another() {
        let (a, b) = (token().unwrap(), token().unwrap());
        assert_eq!((a.len(), b.len()), (32, 32));
        assert_ne!(a, b);
    }
}
