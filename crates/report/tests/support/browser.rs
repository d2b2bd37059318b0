//! A headless Chromium, driven through its DevTools protocol: real clicks, real keys, and everything a page writes to
//! its console.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// No answer takes longer, however slow the machine: an expression may wait for many charts, one after the other.
const LONGEST: Duration = Duration::from_secs(300);
/// A picture that is not there by then may never come, unless the page changes.
const PICTURE: Duration = Duration::from_secs(10);
/// So many times the page is changed for a picture.
const MOST_REDRAWS: usize = 30;
/// Changes nothing that anybody would see, and changes it back.
const REDRAW: &str = "(() => { const style = document.documentElement.style; style.opacity = '0.999'; \
                      setTimeout(() => { style.opacity = ''; }, 100); })()";

/// A browser with one page.
pub struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    next: u64,
    /// What the page wrote on its console, and what it threw.
    pub console: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. Without one, reports cannot be tested, and that is a failure.
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let mut process = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-dev-shm-usage",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--remote-debugging-port=0", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium is installed: reports are tested in it");
        let mut lines = BufReader::new(process.stderr.take().expect("its stderr")).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| l.strip_prefix("DevTools listening on ").map(str::to_owned))
            .expect("chromium tells where it listens");
        // Its later output must be drained, or it blocks.
        std::thread::spawn(move || lines.for_each(drop));
        let address = url.trim_start_matches("ws://").split('/').next().unwrap_or_default().to_owned();
        let stream = TcpStream::connect(address).expect("chromium listens");
        stream.set_read_timeout(Some(LONGEST)).expect("a time limit");
        let (socket, _) = tungstenite::client(&url, stream).expect("a WebSocket");
        let mut browser = Browser {
            process,
            socket,
            session: String::new(),
            next: 0,
            console: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    fn answer(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.receive().expect("chromium answers");
            if message["id"] == json!(id) {
                return message;
            }
        }
    }

    /// Sends a command. Returns its number, which its answer has, too.
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(command.to_string())).expect("chromium takes commands");
        id
    }

    /// The next message that is not of the console.
    fn receive(&mut self) -> Result<Value, tungstenite::Error> {
        loop {
            let message = self.socket.read()?;
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            let said = match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => &message["params"]["exceptionDetails"],
                Some("Log.entryAdded") => &message["params"]["entry"],
                Some("Runtime.consoleAPICalled") => &message["params"]["args"],
                _ => return Ok(message),
            };
            self.console.push(said.to_string());
        }
    }

    /// Opens a file.
    pub fn go(&mut self, file: &Path) {
        self.visit(&format!("file://{}", file.display()));
    }

    /// Goes to an address without waiting.
    pub fn visit(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Opens a report and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        self.go(file);
        self.until_report();
    }

    /// Waits until the page is a report with live charts.
    pub fn until_report(&mut self) {
        self.until(
            "document.readyState === 'complete' && typeof loadlab !== 'undefined' && loadlab.readyMs > 0",
        );
    }

    /// The value of an expression in the page; awaits a promise.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    pub fn until(&mut self, expression: &str) {
        let promise = format!(
            "new Promise((done) => {{ const end = performance.now() + 60000; const look = () => ({expression}) ? done(true) : \
             performance.now() > end ? done(false) : setTimeout(look, 10); look(); }})"
        );
        assert_eq!(
            self.patient_value(&promise),
            json!(true),
            "never came: {expression}\nconsole: {:?}",
            self.console
        );
    }

    /// The value of a promise; one that disappears because the page becomes another is evaluated again there.
    fn patient_value(&mut self, promise: &str) -> Value {
        for _ in 0..20 {
            let params = json!({ "expression": promise, "awaitPromise": true, "returnByValue": true });
            let answer = self.answer("Runtime.evaluate", params);
            if answer["error"].is_null() {
                let result = &answer["result"];
                assert!(result["exceptionDetails"].is_null(), "{promise}: {}", result["exceptionDetails"]);
                return result["result"]["value"].clone();
            }
        }
        panic!("the page never stood still for {promise}");
    }

    /// The middle of an element, after scrolling it into view.
    fn place(&mut self, selector: &str) -> (f64, f64) {
        let selector = json!(selector);
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector}); if (!e) return null; \
             e.scrollIntoView({{ block: 'center', behavior: 'instant' }}); const r = e.getBoundingClientRect(); \
             return [r.left + r.width / 2, r.top + r.height / 2]; }})()"
        ));
        let at = |i: usize| place[i].as_f64().unwrap_or_else(|| panic!("nothing is {selector}"));
        (at(0), at(1))
    }

    /// Clicks on an element, with a mouse; again if the click missed it, since a chart that is drawn further up
    /// meanwhile moves the page away under the mouse.
    pub fn click(&mut self, selector: &str) {
        let look = format!(
            "(() => {{ const e = document.querySelector({}); window.isMissed = null; \
             const heed = (event) => {{ window.isMissed = !e.contains(event.target); }}; \
             addEventListener('click', heed, {{ capture: true, once: true }}); }})()",
            json!(selector)
        );
        for _ in 0..100 {
            self.value(&look);
            let (x, y) = self.place(selector);
            for kind in ["mousePressed", "mouseReleased"] {
                self.mouse(kind, x, y);
            }
            if self.value("window.isMissed") != json!(true) {
                return;
            }
        }
        panic!("never clicked: {selector}\nconsole: {:?}", self.console);
    }

    /// Moves the mouse to the middle of an element.
    pub fn hover(&mut self, selector: &str) {
        let (x, y) = self.place(selector);
        self.mouse("mouseMoved", x - 1.0, y);
        self.mouse("mouseMoved", x, y);
    }

    /// Moves the mouse to the middle of an element until an expression holds: a chart that is drawn further up
    /// meanwhile moves the page away under the mouse.
    pub fn hover_until(&mut self, selector: &str, expression: &str) {
        for _ in 0..100 {
            self.hover(selector);
            let soon = format!(
                "new Promise((done) => {{ const end = performance.now() + 300; const look = () => ({expression}) ? done(true) : \
                 performance.now() > end ? done(false) : setTimeout(look, 10); look(); }})"
            );
            if self.value(&soon) == json!(true) {
                return;
            }
        }
        panic!("never came under the mouse: {expression}\nconsole: {:?}", self.console);
    }

    /// Drags across the middle part of an element, from left to right.
    pub fn drag(&mut self, selector: &str, by: f64) {
        let (x, y) = self.place(selector);
        self.mouse("mouseMoved", x - by / 2.0, y);
        self.mouse("mousePressed", x - by / 2.0, y);
        self.mouse("mouseMoved", x, y);
        self.mouse("mouseMoved", x + by / 2.0, y);
        self.mouse("mouseReleased", x + by / 2.0, y);
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let pressed = if kind == "mouseMoved" { 1 } else { 0 };
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let params =
            json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": pressed, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Presses a key where the focus is.
    pub fn key(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// Chooses an option of a select, as a reader would.
    pub fn choose(&mut self, selector: &str, value: &str) {
        self.value(&format!(
            "(() => {{ const s = document.querySelector({}); s.value = {}; s.dispatchEvent(new Event('change')); }})()",
            json!(selector),
            json!(value)
        ));
    }

    /// Sets this width and height, light or dark.
    pub fn screen(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        // Redrawing for the new size moves what is below.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))");
    }

    /// A picture of the visible part, for inspection.
    pub fn picture(&mut self, file: &Path) {
        use base64::Engine as _;
        let shot = self.capture();
        let text = shot["result"]["data"].as_str().unwrap_or_else(|| panic!("no picture: {shot}"));
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        std::fs::write(file, bytes).expect("the target folder can be written");
    }

    /// The answer with a picture. Chromium takes it from the next frame that it draws, and now and then draws none
    /// while the page stands still.
    fn capture(&mut self) -> Value {
        let asked = self.send("Page.captureScreenshot", json!({ "format": "png" }));
        let mut times = 0;
        loop {
            match self.receive_within(PICTURE) {
                Ok(message) if message["id"] == json!(asked) => return message,
                Ok(_) => {}
                Err(error) => {
                    times += 1;
                    assert!(times < MOST_REDRAWS, "no picture: {error}");
                    self.send("Runtime.evaluate", json!({ "expression": REDRAW }));
                }
            }
        }
    }

    /// The next message, if it comes in time.
    fn receive_within(&mut self, time: Duration) -> Result<Value, tungstenite::Error> {
        self.wait_at_most(time);
        let came = self.receive();
        self.wait_at_most(LONGEST);
        came
    }

    fn wait_at_most(&self, time: Duration) {
        self.socket.get_ref().set_read_timeout(Some(time)).expect("a time limit");
    }

    /// Fails the test with the contents of the console unless it is empty.
    pub fn is_silent(&self) {
        assert!(self.console.is_empty(), "on the console: {:#?}", self.console);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
