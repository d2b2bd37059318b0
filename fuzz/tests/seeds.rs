//! Runs every target over its seeds, on any toolchain, and checks the seeds themselves: a seed that is refused at its
//! first byte teaches a fuzzer nothing.

use std::path::{Path, PathBuf};

use loadlab_fuzz::{
    block, capture, expr, files_of, hpack, http1, http2, plan, record, secrets, template, websocket,
};
use loadlab_load::protocol::http1::{Memo, Reader};
use loadlab_load::protocol::http2::hpack::Decoder;
use loadlab_load::protocol::http2::{Session, Settings};
use loadlab_load::protocol::websocket::{Event, Socket};
use loadlab_plan::{Options, Plan};
use loadlab_record::expr::Expr;
use loadlab_record::store::read_run;

/// Names and contents of a target's seeds.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let files: Vec<(PathBuf, Vec<u8>)> = files_of(&folder).expect("seeds");
    assert!(files.len() >= 5, "{target}: {} seeds", files.len());
    files
        .into_iter()
        .map(|(p, b)| (p.file_name().expect("a name").to_string_lossy().into_owned(), b))
        .collect()
}

/// Runs a target over each seed as a whole, cut off at many places, and with one byte changed at many places.
fn run(name: &str, target: fn(&[u8])) {
    for (_, bytes) in seeds(name) {
        target(&bytes);
        for i in 1..40 {
            let at = bytes.len() * i / 40;
            target(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(i as u8);
            target(&changed);
        }
    }
    target(&[]);
}

#[test]
fn http1_keeps_its_promises() {
    run("http1", http1::target);
    let answered = |bytes: &[u8]| {
        let (mut reader, mut memo) = (Reader::default(), Memo::default());
        reader.feed(&bytes[2..], bytes[0] & 1 == 1, &mut memo).is_ok_and(|fed| fed.done)
    };
    let good = seeds("http1").iter().filter(|(_, bytes)| answered(bytes)).count();
    assert!(good >= 5, "only {good} seeds begin with a whole answer");
}

#[test]
fn http2_keeps_its_promises() {
    run("http2", http2::target);
    // Most seeds leave the SETTINGS to the target, so only the frames after them are counted.
    let frames = |bytes: &[u8]| {
        let (mut rest, mut count) = (&bytes[2..], 0);
        while let [a, b, c, _, _, _, _, _, _, after @ ..] = rest {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            rest = after.get(length..).unwrap_or_default();
            count += usize::from(after.len() >= length);
        }
        count
    };
    let good = seeds("http2").iter().filter(|(_, bytes)| frames(bytes) >= 2).count();
    assert!(good >= 6, "only {good} seeds are several frames");
    let refused = Session::new(Settings::default()).receive(b"HTTP/1.1 ", &mut Vec::new(), &mut |_| {});
    assert!(refused.is_err());
}

#[test]
fn hpack_keeps_its_promises() {
    run("hpack", hpack::target);
    let first_is_good = |bytes: &[u8]| {
        let block = &bytes[2..2 + usize::from(bytes[1]).min(bytes.len() - 2)];
        Decoder::new(4096, 4096).decode(block, |_, _| {}).is_ok()
    };
    let good = seeds("hpack").iter().filter(|(_, bytes)| first_is_good(bytes)).count();
    assert!(good >= 4, "only {good} seeds begin with a good block");
}

#[test]
fn websocket_keeps_its_promises() {
    run("websocket", websocket::target);
    let messages = |bytes: &[u8]| {
        let mut whole = 0;
        let mut count = |e: Event<'_>| whole += usize::from(matches!(e, Event::Message { end: true, .. }));
        let _ = Socket::new(1000, 1).receive(&bytes[2..], &mut Vec::new(), &mut count);
        whole
    };
    let good = seeds("websocket").iter().filter(|(_, bytes)| messages(bytes) > 0).count();
    assert!(good >= 3, "only {good} seeds hold a whole message");
}

#[test]
fn plan_keeps_its_promises() {
    run("plan", plan::target);
    for (name, bytes) in seeds("plan").iter().filter(|(name, _)| name.ends_with(".yaml")) {
        let text = std::str::from_utf8(bytes).expect("text");
        let result = Plan::parse("plan.yaml", text, &Options::default());
        assert_eq!(
            result.is_err(),
            name == "broken.yaml",
            "{name}: {:?}",
            result.err().map(|e| e.to_string())
        );
    }
}

#[test]
fn expr_keeps_its_promises() {
    run("expr", expr::target);
    for (name, bytes) in seeds("expr") {
        let text = std::str::from_utf8(&bytes).expect("text");
        assert!(Expr::parse(text).is_ok(), "{name}: {text}: {:?}", Expr::parse(text));
    }
}

#[test]
fn template_keeps_its_promises() {
    run("template", template::target);
    let whole =
        seeds("template").iter().filter(|(_, bytes)| bytes.len() > 10 && bytes[10..].contains(&0)).count();
    assert!(whole >= 5, "only {whole} seeds have a value and a table");
}

#[test]
fn capture_keeps_its_promises() {
    run("capture", capture::target);
    let found = |bytes: &[u8]| {
        let pointer = String::from_utf8_lossy(bytes.split(|b| *b == b'\n').next()?).into_owned();
        let body = bytes.iter().position(|b| *b == 0).map(|at| &bytes[at + 1..])?;
        loadlab_load::journey::json::Pointer::parse(&pointer).ok()?.find(body).ok()?.map(drop)
    };
    let good = seeds("capture").iter().filter(|(_, bytes)| found(bytes).is_some()).count();
    assert!(good >= 4, "only {good} seeds hold what they point to");
}

#[test]
fn secrets_keeps_its_promises() {
    run("secrets", secrets::target);
    let masked = |bytes: &[u8]| {
        let mut of = loadlab_record::Secrets::default();
        let length = usize::from(bytes[0]);
        of.add(&bytes[1..=length]).expect("long enough");
        matches!(of.mask_bytes(&bytes[1 + length..]), std::borrow::Cow::Owned(_))
    };
    let good = seeds("secrets").iter().filter(|(_, bytes)| masked(bytes)).count();
    assert!(good >= 5, "only {good} seeds hold their secret");
}

#[test]
fn record_keeps_its_promises() {
    const FILES: [(&str, &str); 6] = [
        ("latency", "latency.hlog"),
        ("ticks", "ticks.jsonl"),
        ("samples", "samples.jsonl"),
        ("events", "events.jsonl"),
        ("examples", "examples.jsonl"),
        ("summary", "summary.json"),
    ];
    run("record", record::target);
    record::clean();
    // Together the seeds form a complete record.
    let dir = std::env::temp_dir().join(format!("loadlab-fuzz-seeds-{}", std::process::id()));
    let trial = dir.join("cases/control/1");
    std::fs::create_dir_all(&trial).expect("a folder");
    for (name, bytes) in seeds("record") {
        let place = FILES.iter().find(|(seed, _)| *seed == name).map(|(_, file)| trial.join(file));
        let place = if name == "manifest" { Some(dir.join("manifest.json")) } else { place };
        place.iter().for_each(|place| std::fs::write(place, &bytes[2..]).expect("a file"));
    }
    let run = read_run(&dir);
    std::fs::remove_dir_all(&dir).expect("the folder");
    let run = run.expect("a whole record");
    assert_eq!(run.notes, Vec::<String>::new());
    let trial = &run.cases[0].trials[0];
    assert!(trial.summary.is_some() && trial.intervals.len() >= 4 && trial.ticks.len() == 2, "{trial:?}");
    assert!(!trial.samples.is_empty() && !trial.events.is_empty() && !trial.examples.is_empty());
}

#[test]
fn block_keeps_its_promises() {
    run("block", block::target);
    let whole = |bytes: &[u8]| loadlab_swarm::block::unpack(&block::deflated(&bytes[1..])).is_ok();
    let good = seeds("block").iter().filter(|(_, bytes)| whole(bytes)).count();
    assert!(good >= 5, "only {good} seeds are whole");
}
