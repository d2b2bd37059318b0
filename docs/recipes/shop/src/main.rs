//! A small shop, to be loaded by the recipes of docs/recipes.md: logins, items, orders, uploads, a chat over
//! WebSockets, and the same over HTTP/2. It counts its requests, and forgets everything when it ends.
//!
//! ```text
//! cargo run --package shop -- 8080        # on 127.0.0.1; HTTP/1.1, WebSocket and HTTP/2 on one port
//! ```
//!
//! One thread per connection. It is no example of how to write a server, and knows nothing of loadlab.

#![expect(clippy::print_stdout, reason = "a program")]

mod chat;
mod http1;
mod http2;

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// How many kinds of items there are, numbered from 1.
const ITEMS: u64 = 20;

/// A request, in any protocol.
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// What the shop knows and counts.
#[derive(Default)]
pub(crate) struct Shop {
    tokens: Mutex<BTreeSet<String>>,
    pub(crate) logins: AtomicU64,
    pub(crate) logouts: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) items: AtomicU64,
    pub(crate) searches: AtomicU64,
    pub(crate) orders: AtomicU64,
    pub(crate) uploads: AtomicU64,
    pub(crate) uploaded_bytes: AtomicU64,
    pub(crate) chats: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) http2_connections: AtomicU64,
    /// Answers with a status of 400 or above.
    pub(crate) refused: AtomicU64,
}

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8080);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("the shop is open: http://{}/", listener.local_addr()?);
    let shop = Arc::new(Shop::default());
    for stream in listener.incoming().flatten() {
        let shop = shop.clone();
        std::thread::spawn(move || serve(&shop, stream));
    }
    Ok(())
}

/// One connection, in the protocol its first bytes show.
fn serve(shop: &Arc<Shop>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut first = [0; 3];
    match stream.peek(&mut first) {
        Ok(3) if &first == b"PRI" => http2::serve(shop, stream),
        Ok(1..) => http1::serve(shop, stream),
        _ => {}
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

impl Shop {
    /// Answers a request.
    pub(crate) fn answer(&self, asked: &Asked) -> Answer {
        let answer = self.route(asked);
        if answer.status >= 400 {
            count(&self.refused);
        }
        answer
    }

    fn route(&self, asked: &Asked) -> Answer {
        let path: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
        match (asked.method.as_str(), path.as_slice()) {
            ("GET", [""]) => {
                count(&self.pages);
                Answer { status: 200, content_type: "text/html", body: "<h1>The shop</h1>".to_owned() }
            }
            ("GET", ["health"]) => json_of(200, &json!({ "open": true })),
            ("GET", ["stats"]) => json_of(200, &self.stats()),
            ("POST", ["login"]) => self.login(&asked.body),
            ("POST", ["logout"]) => match self.user_of(asked) {
                Some(token) => {
                    self.tokens().remove(&token);
                    json_of(200, &json!({ "logouts": count(&self.logouts) }))
                }
                None => nobody(),
            },
            ("GET", ["items"]) => {
                count(&self.items);
                let items: Vec<Value> = (1..=ITEMS).map(item).collect();
                json_of(200, &json!({ "items": items }))
            }
            ("GET", ["items", id]) => match id.parse() {
                Ok(id @ 1..=ITEMS) => {
                    count(&self.items);
                    json_of(200, &item(id))
                }
                _ => json_of(404, &json!({ "error": "there is no such item" })),
            },
            ("GET", ["search"]) => json_of(200, &json!({ "hits": count(&self.searches) % ITEMS })),
            ("POST", ["orders"]) => self.order(asked),
            ("POST", ["pictures"]) => self.picture(asked),
            ("PUT", ["files", _]) => self.uploaded(asked.body.len()),
            _ => json_of(404, &json!({ "error": "there is nothing here" })),
        }
    }

    fn stats(&self) -> Value {
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "logins": n(&self.logins), "logouts": n(&self.logouts), "pages": n(&self.pages),
            "items": n(&self.items), "searches": n(&self.searches), "orders": n(&self.orders),
            "uploads": n(&self.uploads), "uploaded_bytes": n(&self.uploaded_bytes), "chats": n(&self.chats),
            "messages": n(&self.messages), "http2_connections": n(&self.http2_connections),
            "refused": n(&self.refused), "logged_in": self.tokens().len(),
        })
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user of the request's token, if the shop issued it.
    fn user_of(&self, asked: &Asked) -> Option<String> {
        let token = asked.authorization.as_deref()?.strip_prefix("Bearer ")?;
        self.tokens().get(token).cloned()
    }

    /// A form with `user` and `password`, which is the user's name backwards.
    fn login(&self, body: &[u8]) -> Answer {
        let form = http1::form(body);
        let field = |name: &str| form.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v.as_str());
        let user = field("user");
        if user.is_empty() || field("password") != user.chars().rev().collect::<String>() {
            return nobody();
        }
        let token = format!("{user}-{}", count(&self.logins));
        self.tokens().insert(token.clone());
        json_of(200, &json!({ "token": token, "user": user }))
    }

    /// JSON with an `item` and a `count`, from a logged-in user.
    fn order(&self, asked: &Asked) -> Answer {
        if self.user_of(asked).is_none() {
            return nobody();
        }
        let order: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        match (order["item"].as_u64(), order["count"].as_u64()) {
            (Some(1..=ITEMS), Some(1..)) => json_of(201, &json!({ "order": count(&self.orders) })),
            _ => json_of(400, &json!({ "error": "an order has an item and a count" })),
        }
    }

    /// A multipart form, one part of which is called `picture`.
    fn picture(&self, asked: &Asked) -> Answer {
        let is_form = asked
            .content_type
            .as_deref()
            .is_some_and(|kind| kind.starts_with("multipart/form-data; boundary="));
        let has_picture = asked.body.windows(14).any(|w| w == b"name=\"picture\"");
        match is_form && has_picture {
            true => self.uploaded(asked.body.len()),
            false => json_of(415, &json!({ "error": "a form with a picture is wanted" })),
        }
    }

    fn uploaded(&self, bytes: usize) -> Answer {
        self.uploaded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        count(&self.uploads);
        json_of(201, &json!({ "bytes": bytes }))
    }
}

fn item(id: u64) -> Value {
    json!({ "id": id, "name": format!("item {id}"), "price": id * 3, "stock": 1000 })
}

fn nobody() -> Answer {
    json_of(401, &json!({ "error": "who are you?" }))
}

fn json_of(status: u16, value: &Value) -> Answer {
    Answer { status, content_type: "application/json", body: value.to_string() }
}
