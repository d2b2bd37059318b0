//! `latency.hlog`: an HdrHistogram interval log, so that other HdrHistogram tools can read our records.
//!
//! Format 1.3: a header, then one line per interval and non-empty series: `Tag=SERIES,FROM_S,LENGTH_S,MAX_US,BASE64`.
//! The last field is a V2 histogram (deflated, then base64), three significant digits, values in **microseconds**.
//! Tags are the names of [`Series::all`]; the requests of one tag are under `tag.NAME.response`,
//! `tag.NAME.response_censored` and `tag.NAME.response_failed` (`%`, `,`, `=`, white space and controls of NAME as
//! `%XX`). A comment `#[Load: NAME]` names the load of the plan that the lines below it belong to; other readers skip
//! it. Times are on the trial's clock. A series without a value in an interval has no line.
//!
//! Our histograms are in nanoseconds: every bucket is written as its midpoint (within the exact minimum and maximum),
//! rounded to the nearest microsecond but to no less than 1 µs unless it is 0. The exact maximum is in the third field
//! and is restored from there. A percentile read back is therefore within 0.2 % or 1 µs of the original.
//!
//! Reading never panics, whatever the bytes: the payload is decoded here, with limits, and not by the
//! `hdrhistogram` crate, which trusts lengths in the header.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::{Decompress, FlushDecompress, Status};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::counts::compact::{read_varint, write_varint};
use crate::counts::histogram::{Histogram, MAX_NS};
use crate::counts::load::{Series, TagMeasured};

/// The first lines of every log. The clock of the timestamps starts at 0, so both times are 0.
pub const HEADER: &str = "#[Histogram log format version 1.3]\n\
    #[loadlab: values are microseconds, times are seconds from the start of the first load]\n\
    #[BaseTime: 0.000 (seconds since epoch)]\n\
    #[StartTime: 0.000 (seconds since epoch)]\n\
    \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// Significant digits of the histograms written.
const DIGITS: u8 = 3;
/// No histogram of five digits inflates to more than this.
const MAX_INFLATED_BYTES: u64 = 1 << 24;
/// A count beyond this is damage: no second has so many requests, and sums must not overflow.
const MAX_COUNT: u64 = 1 << 44;
const V2_COOKIE: u32 = 0x1c84_9313;
const V2_DEFLATED_COOKIE: u32 = 0x1c84_9314;
const V2_HEADER_BYTES: usize = 40;

/// Why a log could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {message}\nhint: {hint}", .path.display())]
pub struct HlogError {
    /// The log.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: u64,
    /// Column in bytes, from 1.
    pub column: u64,
    /// What is wrong there.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
}

/// Turns intervals into lines of the log. Keeps its buffers, so that a second costs no large allocations.
pub struct Encoder {
    serializer: V2DeflateSerializer,
    micros: hdrhistogram::Histogram<u64>,
    binary: Vec<u8>,
    lines: Vec<u8>,
}

impl Encoder {
    /// An encoder for the lines that follow [`HEADER`].
    ///
    /// # Errors
    /// Only if the `hdrhistogram` crate refused our bounds, which are constants.
    pub fn new() -> io::Result<Encoder> {
        let micros = hdrhistogram::Histogram::new_with_bounds(1, MAX_NS / 1000 + 1, DIGITS);
        Ok(Encoder {
            serializer: V2DeflateSerializer::new(),
            micros: micros.map_err(|e| io::Error::other(format!("histogram bounds: {e}")))?,
            binary: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// The lines of one interval of one load, to be written in one call. Empty if nothing was timed in it.
    ///
    /// # Errors
    /// Only if a count is above 2^63.
    pub fn interval(
        &mut self,
        load: &str,
        from_s: f64,
        length_s: f64,
        series: &Series,
        by_tag: &BTreeMap<String, TagMeasured>,
    ) -> io::Result<&[u8]> {
        self.lines.clear();
        let times = format!("{},{}", seconds(from_s), seconds(length_s));
        // Repeated every time, so that no line depends on one that may not have reached the disk.
        writeln!(self.lines, "#[Load: {}]", escape(load, false))?;
        let nothing = self.lines.len();
        for (name, histogram) in series.all() {
            self.line(name, &times, histogram)?;
        }
        for (tag, measured) in by_tag {
            let tag = escape(tag, true);
            self.line(&format!("tag.{tag}.response"), &times, &measured.response_ok)?;
            self.line(&format!("tag.{tag}.response_censored"), &times, &measured.response_censored)?;
            self.line(&format!("tag.{tag}.response_failed"), &times, &measured.response_failed)?;
        }
        if self.lines.len() == nothing {
            self.lines.clear();
        }
        Ok(&self.lines)
    }

    fn line(&mut self, tag: &str, times: &str, histogram: &Histogram) -> io::Result<()> {
        let (Some(min_ns), Some(max_ns)) = (histogram.min_ns(), histogram.max_ns()) else {
            return Ok(());
        };
        self.micros.reset();
        for bucket in histogram.buckets() {
            let middle_ns = (bucket.low_ns + (bucket.high_ns - bucket.low_ns) / 2).clamp(min_ns, max_ns);
            self.micros.saturating_record_n(to_micros(middle_ns), bucket.count);
        }
        self.binary.clear();
        self.serializer
            .serialize(&self.micros, &mut self.binary)
            .map_err(|e| io::Error::other(format!("histogram `{tag}`: {e}")))?;
        let (whole, thousandths) = (max_ns / 1000, max_ns % 1000);
        let encoded = BASE64.encode(&self.binary);
        writeln!(self.lines, "Tag={tag},{times},{whole}.{thousandths:03},{encoded}")
    }
}

/// A nanosecond value in the log's microseconds: the nearest, but nothing that took time becomes 0.
fn to_micros(ns: u64) -> u64 {
    match ns {
        0 => 0,
        _ => ((ns + 500) / 1000).max(1),
    }
}

/// Seconds in the log's form. The Rust port reads neither signs nor integers without a point.
fn seconds(value: f64) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    format!("{value:.6}")
}

fn escape(name: &str, in_tag: bool) -> String {
    let mut out = String::new();
    for c in name.chars() {
        let special = match in_tag {
            true => c == ',' || c == '=' || c.is_whitespace(),
            false => c == '\n' || c == '\r',
        };
        if special || c == '%' || c.is_control() {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("%{b:02X}")));
        } else {
            out.push(c);
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One line of a log: one series of one load in one interval. A few bytes per distinct value, since readers keep one
/// for every second of every series; [`Interval::histogram`] builds the histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Load of the plan, if the log names it.
    pub load: Option<Arc<str>>,
    /// Series name as in [`Series::all`], or `tag.NAME.SERIES`.
    pub tag: Arc<str>,
    /// Start, seconds on the trial's clock.
    pub from_s: f64,
    /// Length in seconds.
    pub length_s: f64,
    values: Values,
    max_ns: u64,
}

/// Values in nanoseconds and how often each, ascending: varints of the distance from the one before, and of the count.
type Values = Box<[u8]>;

fn packed(values: impl Iterator<Item = (u64, u64)>, out: &mut Vec<u8>) -> Values {
    out.clear();
    let mut before = 0;
    for (value, count) in values {
        write_varint(value - before, out);
        write_varint(count, out);
        before = value;
    }
    out.as_slice().into()
}

impl Interval {
    /// An interval from a histogram, for callers that have one and want it evaluated like one from a record.
    pub fn of(load: Option<&str>, tag: &str, from_s: f64, length_s: f64, histogram: &Histogram) -> Interval {
        let (min_ns, max_ns) = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
        let middle = |low: u64, high: u64| (low + (high - low) / 2).clamp(min_ns, max_ns);
        Interval {
            load: load.map(Arc::from),
            tag: Arc::from(tag),
            from_s,
            length_s,
            values: packed(
                histogram.buckets().map(|b| (middle(b.low_ns, b.high_ns), b.count)),
                &mut Vec::new(),
            ),
            max_ns,
        }
    }

    /// End, seconds on the trial's clock.
    pub fn to_s(&self) -> f64 {
        self.from_s + self.length_s
    }

    /// How many values it holds.
    pub fn count(&self) -> u64 {
        self.values().map(|(_, count)| count).sum()
    }

    /// The series of [`Series::all`] it belongs to, without the tag of the requests.
    pub fn series(&self) -> &str {
        match self.request_tag() {
            Some(_) => self.tag.rsplit('.').next().unwrap_or(&self.tag),
            None => &self.tag,
        }
    }

    /// Whether it is of this series or tag.
    pub fn is(&self, tag: &str) -> bool {
        *self.tag == *tag
    }

    /// The tag of the requests it is about; `None` for all requests of the load.
    pub fn request_tag(&self) -> Option<&str> {
        self.tag.strip_prefix("tag.")?.rsplit_once('.').map(|(tag, _)| tag)
    }

    /// Its values as a histogram in nanoseconds.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        self.merge_into(&mut histogram);
        histogram
    }

    /// Its values in nanoseconds, ascending, each with how often it was counted; to the log's precision.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut rest, mut value) = (&*self.values, 0);
        std::iter::from_fn(move || {
            // Values packed by this module can always be read.
            value += read_varint(&mut rest).ok()?;
            Some((value, read_varint(&mut rest).ok()?))
        })
    }

    /// Adds its values to a histogram.
    pub fn merge_into(&self, histogram: &mut Histogram) {
        let mut values = self.values().peekable();
        while let Some((ns, count)) = values.next() {
            if values.peek().is_some() {
                histogram.record_n(ns, count);
            } else {
                histogram.record_n(ns.min(self.max_ns), count - 1);
                histogram.record_n(self.max_ns, 1);
            }
        }
    }
}

/// A log as read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Its intervals, in the order of the file.
    pub intervals: Vec<Interval>,
    /// Number of an incomplete last line, which was left out.
    pub torn_line: Option<u64>,
}

/// Reads a log. `path` is only for messages.
///
/// Timestamps are taken as they are: a `BaseTime` other than 0 is not added. An unterminated last line that cannot be
/// parsed was cut off when its writer ended, and is left out.
///
/// # Errors
/// The first line that is not a comment, a legend or an interval, with its place.
pub fn read(bytes: &[u8], path: &Path) -> Result<Log, HlogError> {
    let mut log = Log::default();
    let mut reader = LineReader::default();
    for (line, number) in bytes.split_inclusive(|b| *b == b'\n').zip(1u64..) {
        let ended = line.ends_with(b"\n");
        let outcome = std::str::from_utf8(line)
            .map_err(|e| (e.valid_up_to(), "not UTF-8 text".to_owned()))
            .and_then(|text| reader.line(text.trim_end_matches(['\n', '\r'])));
        match outcome {
            Ok(found) => log.intervals.extend(found),
            Err(_) if !ended => log.torn_line = Some(number),
            Err((at, message)) => {
                return Err(HlogError {
                    path: path.to_owned(),
                    line: number,
                    column: at as u64 + 1,
                    message,
                    hint: "the file is damaged here; delete this line to read the rest",
                });
            }
        }
    }
    Ok(log)
}

/// An error of a line: byte offset and message.
type At<T> = Result<T, (usize, String)>;

/// Reads lines. Keeps its buffers and each name once: an hour of a dozen cases has 300,000 intervals.
#[derive(Default)]
struct LineReader {
    load: Option<Arc<str>>,
    /// Tag names as escaped in the log, and their unescaped form.
    tags: HashMap<String, Arc<str>>,
    binary: Vec<u8>,
    plain: Vec<u8>,
    slots: Vec<FilledSlot>,
    packed: Vec<u8>,
    inflater: Option<Decompress>,
}

impl LineReader {
    fn line(&mut self, line: &str) -> At<Option<Interval>> {
        if let Some(name) = line.strip_prefix("#[Load: ") {
            let name = name.strip_suffix(']').ok_or((line.len(), "`]` expected".to_owned()))?;
            self.load = Some(unescape(name).into());
            return Ok(None);
        }
        if line.is_empty() || line.starts_with('#') || line.starts_with("\"StartTimestamp\"") {
            return Ok(None);
        }
        let (mut rest, mut name) = (line, "");
        if let Some(after) = line.strip_prefix("Tag=") {
            (name, rest) = after.split_once(',').ok_or((4, "`,` expected after the tag".to_owned()))?;
        }
        let at = |rest: &str| line.len() - rest.len();
        let mut next_number = |what: &str| -> At<f64> {
            let start = at(rest);
            let (field, after) = rest.split_once(',').ok_or((start, format!("{what} and `,` expected")))?;
            rest = after;
            let number = field.trim().parse::<f64>().ok().filter(|n| n.is_finite());
            number.ok_or_else(|| (start, format!("{what} expected, found `{}`", shortened(field))))
        };
        let from_s = next_number("a start in seconds")?;
        let length_s = next_number("a length in seconds")?;
        let max_us = next_number("a maximum")?;
        let (values, max_ns) = self.decode(rest, max_us).map_err(|message| (at(rest), message))?;
        Ok(Some(Interval { load: self.load.clone(), tag: self.tag(name), from_s, length_s, values, max_ns }))
    }

    fn tag(&mut self, name: &str) -> Arc<str> {
        if let Some(tag) = self.tags.get(name) {
            return tag.clone();
        }
        let tag: Arc<str> = unescape(name).into();
        self.tags.insert(name.to_owned(), tag.clone());
        tag
    }

    /// Values and exact maximum of an encoded histogram.
    fn decode(&mut self, encoded: &str, max_us: f64) -> Result<(Values, u64), String> {
        self.binary.clear();
        let decoded = BASE64.decode_vec(encoded.trim(), &mut self.binary);
        decoded.map_err(|e| format!("histogram is not base64: {e}"))?;
        let cookie = u32_at(&self.binary, 0).ok_or("histogram is truncated")?;
        let plain = match cookie {
            V2_COOKIE => &self.binary,
            V2_DEFLATED_COOKIE => {
                inflate(&self.binary, &mut self.inflater, &mut self.plain)?;
                &self.plain
            }
            _ => return Err(format!("histogram is not in format V2 (cookie {cookie:#x})")),
        };
        decode_v2(plain, &mut self.slots)?;
        let Some(&FilledSlot { low: low_us, high: high_us, .. }) = self.slots.last() else {
            return Ok((Box::default(), 0));
        };
        // Another writer may scale its maximum column, so the maximum is used only if it is plausible: in the last
        // slot, or no further from it than a bucket's middle is from its end.
        let (lowest, highest) = (low_us as f64 * 0.999 - 1.0, high_us as f64 * 1.001 + 1.0);
        let plausible = (lowest..=highest).contains(&max_us);
        let middle_ns = |low: u64, high: u64| -> u64 {
            let ns = (u128::from(low) + u128::from(high)) * 500;
            u64::try_from(ns).unwrap_or(u64::MAX).min(MAX_NS)
        };
        let max_ns = if plausible { (max_us * 1000.0).round() as u64 } else { middle_ns(low_us, high_us) };
        let values = self.slots.iter().map(|slot| (middle_ns(slot.low, slot.high), slot.count));
        Ok((packed(values, &mut self.packed), max_ns))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn inflate(binary: &[u8], inflater: &mut Option<Decompress>, plain: &mut Vec<u8>) -> Result<(), String> {
    let length = u32_at(binary, 4).ok_or("histogram is truncated")?;
    let mut payload = binary.get(8..).unwrap_or_default();
    if payload.len() as u64 != u64::from(length) {
        return Err(format!("histogram declares {length} bytes but has {}", payload.len()));
    }
    let inflater = inflater.get_or_insert_with(|| Decompress::new(true));
    inflater.reset(true);
    plain.clear();
    loop {
        plain.reserve(4 << 10);
        let before = (inflater.total_in(), plain.len());
        let status = inflater
            .decompress_vec(payload, plain, FlushDecompress::None)
            .map_err(|e| format!("cannot inflate the histogram: {e}"))?;
        payload = &payload[(inflater.total_in() - before.0) as usize..];
        if plain.len() as u64 > MAX_INFLATED_BYTES {
            return Err("histogram inflates beyond the largest possible size".to_owned());
        }
        match status {
            Status::StreamEnd => return Ok(()),
            _ if (inflater.total_in(), plain.len()) == before => {
                return Err("cannot inflate the histogram: it is cut".to_owned());
            }
            _ => {}
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Maps the slots of a histogram to their values.
struct Layout {
    /// log2 of the slots per power of two.
    half_bits: u32,
    /// log2 of the smallest distinguishable difference.
    unit_bits: u32,
}

impl Layout {
    fn read(header: &[u8]) -> Option<Result<Layout, String>> {
        let (normalizing, digits) = (u32_at(header, 8)?, u32_at(header, 12)?);
        let (lowest, ratio) = (u64_at(header, 16)?, f64::from_bits(u64_at(header, 32)?));
        if digits > 5 || lowest == 0 || normalizing != 0 || ratio != 1.0 {
            return Some(Err(format!(
                "histogram with {digits} digits from {lowest}, offset {normalizing}, ratio {ratio} is not supported"
            )));
        }
        let slots = (2 * 10u64.pow(digits)).next_power_of_two();
        Some(Ok(Layout { half_bits: slots.trailing_zeros() - 1, unit_bits: lowest.ilog2() }))
    }

    /// Smallest and largest value of a slot; `None` beyond 64 bits.
    fn bounds(&self, slot: usize) -> Option<(u64, u64)> {
        let half = 1usize << self.half_bits;
        let (shift, sub) = match slot < 2 * half {
            true => (0, slot),
            false => ((slot >> self.half_bits) - 1, (slot & (half - 1)) + half),
        };
        let shift = u32::try_from(shift).ok()?.checked_add(self.unit_bits)?;
        let low = (sub as u64).checked_mul(1u64.checked_shl(shift)?)?;
        Some((low, low.checked_add((1u64 << shift) - 1)?))
    }
}

/// A non-empty slot of a V2 histogram.
struct FilledSlot {
    /// Its smallest value.
    low: u64,
    /// Its largest value.
    high: u64,
    count: u64,
}

/// The non-empty slots of an inflated V2 histogram.
fn decode_v2(plain: &[u8], out: &mut Vec<FilledSlot>) -> Result<(), String> {
    out.clear();
    if u32_at(plain, 0) != Some(V2_COOKIE) {
        return Err("histogram has no V2 header".to_owned());
    }
    let layout = Layout::read(plain).ok_or("histogram is truncated")??;
    let length = u32_at(plain, 4).ok_or("histogram is truncated")?;
    let mut payload = plain.get(V2_HEADER_BYTES..).ok_or("histogram is truncated")?;
    if payload.len() as u64 != u64::from(length) {
        return Err(format!("histogram declares {length} bytes of counts but has {}", payload.len()));
    }
    let (mut slot, mut total) = (0usize, 0u64);
    while !payload.is_empty() {
        let number = zigzag(varint(&mut payload).ok_or("histogram ends inside a count")?);
        let skip = match number {
            ..0 => usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX),
            _ => 1,
        };
        if number > 0 {
            let count = number.unsigned_abs();
            let (low, high) = layout.bounds(slot).ok_or("histogram has a value beyond 64 bits")?;
            total = total.saturating_add(count);
            if total > MAX_COUNT {
                return Err("histogram counts more than a second can contain".to_owned());
            }
            out.push(FilledSlot { low, high, count });
        }
        slot = slot.saturating_add(skip);
    }
    Ok(())
}

/// LEB128 in HdrHistogram's variant: the ninth byte is taken whole.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for i in 0..9 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if i == 8 {
            return Some(value | u64::from(*byte) << 56);
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
