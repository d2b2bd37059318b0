//! Profiles in the format of pprof (`profile.proto` of github.com/google/pprof): a file that `go tool pprof`,
//! Speedscope, Pyroscope and others read. Each sample has its component as the label `component`.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::watch::profile::{ComponentProfile, Profile};

/// What one unit of [`Stack::samples`](crate::watch::profile::Stack) is in each value of a sample.
struct Values {
    /// Type and unit of each value; `factors` has how much of it one unit of samples is.
    all: &'static [(&'static str, &'static str)],
    factors: Vec<u64>,
    /// Time during which samples were taken, seconds.
    sampled_s: f64,
}

/// CPU time: samples, and the nanoseconds they stand for.
pub fn cpu(profile: &Profile, mask: &dyn Fn(&str) -> String) -> Vec<u8> {
    let period_ns = 1_000_000_000 / u64::from(profile.rate_per_s.max(1));
    let sampled_s = profile.windows.iter().map(|window| window.to_s - window.from_s).sum();
    let values = Values {
        all: &[("samples", "count"), ("cpu", "nanoseconds")],
        factors: vec![1, period_ns],
        sampled_s,
    };
    zipped(&encoded(&profile.components, &values, period_ns, mask))
}

/// Waits: how long threads waited.
pub fn waits(profile: &Profile, mask: &dyn Fn(&str) -> String) -> Vec<u8> {
    let values =
        Values { all: &[("delay", "nanoseconds")], factors: vec![1_000], sampled_s: profile.waits_s };
    zipped(&encoded(&profile.waits, &values, 1, mask))
}

fn zipped(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(message);
    encoder.finish().unwrap_or_default()
}

fn encoded(
    components: &[ComponentProfile],
    values: &Values,
    period: u64,
    mask: &dyn Fn(&str) -> String,
) -> Vec<u8> {
    let mut strings = Strings::new();
    let mut out = Message::default();
    let value_type = |strings: &mut Strings, (kind, unit): (&str, &str)| {
        let mut message = Message::default();
        message.number(1, strings.index(kind));
        message.number(2, strings.index(unit));
        message
    };
    for value in values.all {
        out.message(1, &value_type(&mut strings, *value));
    }
    // A function and its location have the same number: the index of its name among all strings.
    let mut functions: Vec<u64> = Vec::new();
    for component in components {
        let indices: Vec<u64> = component.names.iter().map(|name| strings.index(&mask(name))).collect();
        functions.extend(&indices);
        let mut label = Message::default();
        label.number(1, strings.index("component"));
        label.number(2, strings.index(&component.component));
        for stack in &component.stacks {
            let mut sample = Message::default();
            let innermost_first = stack.frames.iter().rev();
            sample.numbers(1, innermost_first.filter_map(|frame| indices.get(*frame as usize).copied()));
            sample.numbers(2, values.factors.iter().map(|factor| stack.samples.saturating_mul(*factor)));
            sample.message(3, &label);
            out.message(2, &sample);
        }
    }
    functions.sort_unstable();
    functions.dedup();
    for index in functions {
        let mut line = Message::default();
        line.number(1, index);
        let mut location = Message::default();
        location.number(1, index);
        location.message(4, &line);
        out.message(4, &location);
        let mut function = Message::default();
        for (field, value) in [(1, index), (2, index), (3, index)] {
            function.number(field, value);
        }
        out.message(5, &function);
    }
    let period_type = values.all.last().map(|value| value_type(&mut strings, *value));
    strings.all.iter().for_each(|text| out.bytes(6, text.as_bytes()));
    out.number(10, (values.sampled_s.max(0.0) * 1e9) as u64);
    if let Some(period_type) = period_type {
        out.message(11, &period_type);
    }
    out.number(12, period);
    out.0
}

/// Every text once; the first is empty.
struct Strings {
    all: Vec<String>,
    indices: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Strings {
        Strings { all: vec![String::new()], indices: HashMap::from([(String::new(), 0)]) }
    }

    fn index(&mut self, text: &str) -> u64 {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// Packed.
    fn numbers(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let mut packed = Message::default();
        values.for_each(|value| packed.varint(value));
        self.message(field, &packed);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::watch::profile::{Stack, TimeSpan};

    /// Fields of a message: numbers, and what has a length.
    fn fields(mut bytes: &[u8]) -> Vec<(u32, Result<u64, Vec<u8>>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            let (own, rest) = bytes.split_at(end);
            *bytes = rest;
            own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
        }
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            let value = match key & 7 {
                0 => Ok(value),
                _ => {
                    let (own, rest) = bytes.split_at(value as usize);
                    bytes = rest;
                    Err(own.to_vec())
                }
            };
            out.push(((key >> 3) as u32, value));
        }
        out
    }

    #[test]
    fn stacks_are_samples_with_the_innermost_function_first() {
        let component = ComponentProfile {
            component: "api".into(),
            samples: 300,
            names: vec!["main".into(), "secret".into()],
            stacks: vec![Stack { frames: vec![0, 1], samples: 300 }],
            ..ComponentProfile::default()
        };
        let windows = vec![TimeSpan { from_s: 1.0, to_s: 2.0 }];
        let profile = Profile { rate_per_s: 200, windows, components: vec![component], ..Profile::default() };
        let mut message = Vec::new();
        let zipped = cpu(&profile, &|name| name.replace("secret", "***"));
        flate2::read::GzDecoder::new(zipped.as_slice()).read_to_end(&mut message).unwrap();
        let all = fields(&message);
        let of = |field: u32| {
            all.iter()
                .filter(move |(f, _)| *f == field)
                .map(|(_, v)| v.clone().unwrap_err())
                .collect::<Vec<_>>()
        };
        let texts: Vec<String> = of(6).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
        let index = |text: &str| texts.iter().position(|known| known == text).unwrap() as u8;
        assert_eq!(texts[0], "");
        let sample = fields(&of(2)[0]);
        assert_eq!(sample[0], (1, Err(vec![index("***"), index("main")])));
        // 300 samples of 5 ms
        let packed: Vec<u8> = [0xac, 0x02].into_iter().chain([0x80, 0xde, 0xa0, 0xcb, 0x05]).collect();
        assert_eq!(sample[1], (2, Err(packed)));
        let label = fields(&sample[2].1.clone().unwrap_err());
        assert_eq!(label, [(1, Ok(index("component").into())), (2, Ok(index("api").into()))]);
        let locations: Vec<u64> = of(4).iter().map(|l| fields(l)[0].1.clone().unwrap()).collect();
        assert_eq!(locations, [u64::from(index("main")), u64::from(index("***"))]);
        assert_eq!((of(5).len(), of(1).len()), (2, 2));
        assert!(all.contains(&(10, Ok(1_000_000_000))) && all.contains(&(12, Ok(5_000_000))), "{all:?}");
    }
}
