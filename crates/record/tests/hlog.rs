//! `latency.hlog` as others read it, and as we read it back.

use std::collections::BTreeMap;
use std::path::Path;

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use loadlab_record::Histogram;
use loadlab_record::counts::histogram::MAX_NS;
use loadlab_record::counts::hlog::{self, Encoder, HlogError, Interval, Log};
use loadlab_record::counts::load::{Series, TagMeasured};
use proptest::prelude::*;

type ByTag = BTreeMap<String, TagMeasured>;

fn of(values_ns: &[u64]) -> Histogram {
    let mut h = Histogram::new();
    values_ns.iter().for_each(|v| h.record(*v));
    h
}

fn log_of(response_ok: Histogram) -> Vec<u8> {
    let series = Series { response_ok, ..Series::default() };
    let lines = Encoder::new().unwrap().interval("main", 3.0, 1.0, &series, &ByTag::new()).unwrap().to_vec();
    [hlog::HEADER.as_bytes(), &lines].concat()
}

fn read(bytes: &[u8]) -> Result<Log, HlogError> {
    hlog::read(bytes, Path::new("latency.hlog"))
}

/// A log of two loads, three seconds, several series and a tag that needs escaping.
fn rich_log() -> (Vec<u8>, Vec<(String, Histogram)>) {
    let (mut log, mut encoder) = (hlog::HEADER.as_bytes().to_vec(), Encoder::new().unwrap());
    let mut expected = Vec::new();
    for second in 0..3u64 {
        for load in ["browse", "buy; 50% off"] {
            let mut series = Series::default();
            let mut tag = TagMeasured::default();
            for i in 1..2000 {
                series.response_ok.record(i * i * 37 + second);
                series.late.record(i * 3);
                tag.response_ok.record(i * 1_000_003);
            }
            tag.response_censored.record(30_000_000_000);
            let by_tag = BTreeMap::from([("a page, of %2C.things".to_owned(), tag.clone())]);
            log.extend(encoder.interval(load, second as f64, 1.0, &series, &by_tag).unwrap());
            expected.extend([
                ("response".to_owned(), series.response_ok),
                ("late".to_owned(), series.late),
                ("tag.a page, of %2C.things.response".to_owned(), tag.response_ok),
                ("tag.a page, of %2C.things.response_censored".to_owned(), tag.response_censored),
            ]);
        }
    }
    (log, expected)
}

fn close(got_ns: u64, want_ns: u64) -> bool {
    got_ns.abs_diff(want_ns) <= (want_ns / 500).max(1_000)
}

#[test]
fn every_series_comes_back() {
    let (bytes, expected) = rich_log();
    let log = read(&bytes).unwrap();
    assert_eq!((log.intervals.len(), log.torn_line), (expected.len(), None));
    for (interval, (tag, histogram)) in log.intervals.iter().zip(&expected) {
        assert_eq!((&*interval.tag, interval.count()), (tag.as_str(), histogram.count()));
        assert_eq!(interval.histogram().max_ns(), histogram.max_ns(), "{tag}");
        for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let (got, want) = (interval.histogram().quantile_ns(quantile), histogram.quantile_ns(quantile));
            assert!(close(got.unwrap(), want.unwrap()), "{tag} {quantile}: {got:?} {want:?}");
        }
    }
    let loads: Vec<_> = log.intervals.iter().filter_map(|i| i.load.as_deref()).collect();
    assert_eq!(loads.iter().filter(|l| **l == "buy; 50% off").count(), expected.len() / 2);
    assert_eq!((log.intervals[8].from_s, log.intervals[8].to_s()), (1.0, 2.0));
    assert_eq!(log.intervals[2].request_tag(), Some("a page, of %2C.things"));
    assert_eq!((log.intervals[3].series(), log.intervals[0].request_tag()), ("response_censored", None));
}

/// What the crate's own reader makes of our log: tag, start, length, histogram in microseconds.
fn as_others_read(bytes: &[u8]) -> Vec<(String, f64, f64, hdrhistogram::Histogram<u64>)> {
    use base64::Engine as _;
    let mut out = Vec::new();
    let mut times = 0;
    for entry in IntervalLogIterator::new(bytes) {
        match entry.unwrap() {
            LogEntry::Interval(i) => {
                let binary = base64::engine::general_purpose::STANDARD.decode(i.encoded_histogram()).unwrap();
                let histogram = Deserializer::new().deserialize(&mut binary.as_slice()).unwrap();
                let tag = i.tag().unwrap().as_str().to_owned();
                out.push((tag, i.start_timestamp().as_secs_f64(), i.duration().as_secs_f64(), histogram));
            }
            LogEntry::StartTime(at) | LogEntry::BaseTime(at) => {
                assert!(at.is_zero());
                times += 1;
            }
        }
    }
    assert_eq!(times, 2);
    out
}

#[test]
fn the_crates_own_iterator_reads_it_and_merged_percentiles_agree() {
    let (bytes, expected) = rich_log();
    let others = as_others_read(&bytes);
    assert_eq!(others.len(), expected.len());
    let mut merged = hdrhistogram::Histogram::<u64>::new_with_bounds(1, MAX_NS / 1000 + 1, 3).unwrap();
    let mut truth = Histogram::new();
    for ((tag, from_s, length_s, micros), (_, histogram)) in others.iter().zip(&expected) {
        assert!(from_s.fract() == 0.0 && *length_s == 1.0);
        if tag == "response" {
            merged.add(micros).unwrap();
            truth.merge(histogram);
        }
    }
    for quantile in [0.1, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
        let got = merged.value_at_quantile(quantile) * 1_000;
        assert!(close(got, truth.quantile_ns(quantile).unwrap()), "{quantile}: {got}");
    }
    assert_eq!(others[2].0, "tag.a%20page%2C%20of%20%252C.things.response");
}

#[test]
fn values_below_a_microsecond_count_as_one_unless_they_are_zero() {
    let bytes = log_of(of(&[0, 1, 499, 501, 1_499, 1_501]));
    let micros = &as_others_read(&bytes)[0].3;
    let counts: Vec<_> = (0..4).map(|us| micros.count_at(us)).collect();
    assert_eq!(counts, [1, 4, 1, 0]);
    assert_eq!(read(&bytes).unwrap().intervals[0].histogram().max_ns(), Some(1_501));
}

#[test]
fn the_header_is_of_version_1_3_and_empty_series_have_no_line() {
    let text = String::from_utf8(log_of(of(&[1_000]))).unwrap();
    assert!(text.starts_with("#[Histogram log format version 1.3]\n"));
    let lines: Vec<_> = text.lines().skip(4).map(|l| l.chars().take(40).collect::<String>()).collect();
    assert_eq!(lines[0].split(',').next(), Some("\"StartTimestamp\""));
    assert_eq!(lines[1], "#[Load: main]");
    assert!(lines[2].starts_with("Tag=response,3.000000,1.000000,1.000,"), "{}", lines[2]);
    assert_eq!(lines.len(), 3);
    assert_eq!(String::from_utf8(log_of(Histogram::new())).unwrap(), hlog::HEADER);
}

#[test]
fn a_log_cut_anywhere_loses_its_last_line_and_nothing_else() {
    let (bytes, expected) = rich_log();
    let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last..bytes.len() {
        let log = read(&bytes[..cut]).unwrap();
        // without its newline only, the line is whole
        let whole = cut + 1 == bytes.len();
        assert_eq!(log.intervals.len(), expected.len() - usize::from(!whole), "cut at {cut}");
        assert_eq!(log.torn_line.is_some(), !whole && cut > last, "cut at {cut}");
    }
}

#[test]
fn damage_elsewhere_is_an_error_that_names_the_place() {
    let good = log_of(of(&[1_000]));
    let check = |line: &str, expect: &str| {
        let mut bytes = hlog::HEADER.as_bytes().to_vec();
        bytes.extend(line.as_bytes());
        bytes.extend(b"\n");
        bytes.extend(&good);
        let error = read(&bytes).unwrap_err().to_string();
        assert_eq!(error.lines().next().unwrap(), expect);
        assert!(error.contains("\nhint: "), "{error}");
    };
    check("nonsense", "latency.hlog:6:1: a start in seconds and `,` expected");
    check("Tag=response", "latency.hlog:6:5: `,` expected after the tag");
    check("Tag=a,1.0,one,1.0,", "latency.hlog:6:11: a length in seconds expected, found `one`");
    check(
        "Tag=a,1.0,1.0,1.0,????",
        "latency.hlog:6:19: histogram is not base64: Invalid symbol 63, offset 0.",
    );
    check("Tag=a,1.0,1.0,1.0,AAAA", "latency.hlog:6:19: histogram is truncated");
    check("Tag=a,1.0,1.0,1.0,AAAAAAAA", "latency.hlog:6:19: histogram is not in format V2 (cookie 0x0)");
    check("#[Load: x", "latency.hlog:6:10: `]` expected");
}

/// An uncompressed V2 histogram.
fn v2(digits: u32, lowest: u64, counts: &[u8]) -> Vec<u8> {
    let mut plain = 0x1c84_9313u32.to_be_bytes().to_vec();
    plain.extend((counts.len() as u32).to_be_bytes());
    plain.extend(0u32.to_be_bytes());
    plain.extend(digits.to_be_bytes());
    plain.extend(lowest.to_be_bytes());
    plain.extend(u64::MAX.to_be_bytes());
    plain.extend(1f64.to_be_bytes());
    plain.extend(counts);
    plain
}

fn line_of(binary: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(binary);
    format!("0.0,1.0,0.0,{encoded}\n").into_bytes()
}

#[test]
fn other_layouts_are_read_too() {
    // one digit: 32 slots up to 31, then 16 for every doubling; units of 4 µs
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    for (lowest, digits) in [(1, 0), (1, 1), (4, 2), (1, 5), (1000, 3)] {
        let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(lowest, 1 << 40, digits).unwrap();
        for i in 1..1000u64 {
            theirs.record(i * i * 1_000 + lowest).unwrap();
        }
        let mut binary = Vec::new();
        V2Serializer::new().serialize(&theirs, &mut binary).unwrap();
        let ours = read(&line_of(&binary)).unwrap().intervals[0].histogram();
        assert_eq!(ours.count(), theirs.len());
        for quantile in [0.1, 0.5, 0.9, 0.99] {
            let (ours, theirs) =
                (ours.quantile_ns(quantile).unwrap() / 1000, theirs.value_at_quantile(quantile));
            let width = theirs as f64 / 10f64.powi(i32::from(digits)) + lowest as f64 + theirs as f64 / 900.0;
            assert!(ours.abs_diff(theirs) as f64 <= width, "{lowest} {digits} {quantile}: {ours} {theirs}");
        }
    }
}

#[test]
fn impossible_histograms_are_refused() {
    let refused = |binary: &[u8]| read(&line_of(binary)).unwrap_err().message;
    assert!(refused(&v2(9, 1, &[2])).contains("9 digits"));
    assert!(refused(&v2(3, 0, &[2])).contains("from 0"));
    assert!(refused(&v2(3, 1, &[0x80])).contains("ends inside a count"));
    assert!(
        refused(&v2(3, 1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]))
            .contains("a second can contain")
    );
    // a skip of 2^40 slots, then a count
    assert!(refused(&v2(3, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 2])).contains("beyond 64 bits"));
    assert!(refused(&v2(3, u64::MAX, &[2, 2, 2, 2])).contains("beyond 64 bits"));
}

fn values() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0u32..45).prop_flat_map(|bits| 0u64..1 << bits), 1..300)
}

proptest! {
    #[test]
    fn percentiles_survive_to_a_fifth_of_a_percent(seconds in prop::collection::vec(values(), 1..4), q in 0.0f64..=1.0) {
        let (mut truth, mut got) = (Histogram::new(), Histogram::new());
        for second in seconds {
            truth.merge(&of(&second));
            read(&log_of(of(&second))).unwrap().intervals[0].merge_into(&mut got);
        }
        prop_assert_eq!(truth.count(), got.count());
        prop_assert_eq!(truth.max_ns(), got.max_ns());
        let (truth, got) = (truth.quantile_ns(q).unwrap(), got.quantile_ns(q).unwrap());
        prop_assert!(close(got, truth), "{} {}", got, truth);
    }

    #[test]
    fn an_interval_of_a_histogram_is_that_histogram(values in values()) {
        let histogram = of(&values);
        let back = Interval::of(None, "response", 0.0, 1.0, &histogram).histogram();
        prop_assert_eq!(back.count(), histogram.count());
        prop_assert_eq!(back.max_ns(), histogram.max_ns());
        prop_assert_eq!(back.quantile_ns(0.5), histogram.quantile_ns(0.5));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = read(&line_of(&bytes));
        for mut counts in [v2(3, 1, &bytes), v2(5, u64::MAX, &bytes), v2(0, 7, &bytes)] {
            if let Ok(log) = read(&line_of(&counts)) {
                log.intervals.iter().for_each(|i| drop(i.histogram()));
            }
            if let Some(byte) = bytes.first() {
                let at = usize::from(*byte) % counts.len();
                counts[at] ^= 0x55;
                let _ = read(&line_of(&counts));
            }
        }
    }

    #[test]
    fn a_flipped_byte_never_makes_it_panic(at in 0usize..4000, flip in 1u8..) {
        let mut bytes = log_of(of(&(1..500).map(|i| i * i * i).collect::<Vec<_>>()));
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = read(&bytes);
    }
}
