//! A trial's samples in compact form.
//!
//! A [`Sample`] has a field for everything that a kernel may report, and most kernels report a third of it: an hour of
//! ten components would take 26 MB that way. Here only reported values take space, a few bytes each, and names are
//! stored once. Readers unpack one trial at a time.

use std::collections::{BTreeMap, HashMap};

use crate::counts::compact::{read_f64, read_varint, write_f64, write_varint};
use crate::watch::sample::{Pressure, Sample, Tcp};

/// Samples in insertion order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedSamples {
    rows: Vec<Row>,
    /// The rows' values, row after row: the numbers of [`walk`] that are present, then names and values of the maps.
    bytes: Vec<u8>,
    /// Each name once.
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    at_s: f64,
    /// Which numbers are present, one bit each; two more bits for the parts that contain numbers.
    present: u64,
    /// Index of the component's name.
    component: u32,
    /// How many entries each map has.
    states: u32,
    probes: u32,
    failed: u32,
}

/// Position behind the samples that a reader has unpacked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    row: usize,
    byte: usize,
}

/// Bits of [`Row::present`].
const HAS_TCP: u64 = 1 << 63;
const HAS_PRESSURE: u64 = 1 << 62;

enum Number<'a> {
    Count(&'a mut Option<u64>),
    Real(&'a mut Option<f64>),
}

/// Every number that a sample may contain, in a fixed order.
fn walk(sample: &mut Sample, mut visit: impl FnMut(Number<'_>)) {
    use Number::{Count, Real};
    // All fields are listed, so that a new one is not forgotten.
    let Sample {
        at_s: _,
        component: _,
        cpu_user_s,
        cpu_system_s,
        cpu_s,
        periods,
        throttled_periods,
        throttled_s,
        memory_bytes,
        resident_bytes,
        cache_bytes,
        memory_limit_bytes,
        memory_peak_bytes,
        minor_faults,
        major_faults,
        oom_kills,
        block_read_bytes,
        block_written_bytes,
        net_in_bytes,
        net_out_bytes,
        pids,
        processes,
        open_files,
        open_files_share,
        tcp,
        pressure,
        load_average,
        probes: _,
        probes_failed: _,
    } = sample;
    for real in [cpu_user_s, cpu_system_s, cpu_s, throttled_s, open_files_share, load_average] {
        visit(Real(real));
    }
    let counts = [
        periods,
        throttled_periods,
        memory_bytes,
        resident_bytes,
        cache_bytes,
        memory_limit_bytes,
        memory_peak_bytes,
        minor_faults,
        major_faults,
        oom_kills,
        block_read_bytes,
        block_written_bytes,
        net_in_bytes,
        net_out_bytes,
        pids,
        processes,
        open_files,
    ];
    for count in counts {
        visit(Count(count));
    }
    // Also visited if absent, so that every number keeps its place.
    walk_pressure(pressure.as_mut().unwrap_or(&mut Pressure::default()), &mut visit);
    walk_tcp(tcp.as_mut().unwrap_or(&mut Tcp::default()), &mut visit);
}

fn walk_pressure(pressure: &mut Pressure, visit: &mut impl FnMut(Number<'_>)) {
    let Pressure { cpu_s, memory_s, io_s } = pressure;
    for real in [cpu_s, memory_s, io_s] {
        visit(Number::Real(real));
    }
}

fn walk_tcp(tcp: &mut Tcp, visit: &mut impl FnMut(Number<'_>)) {
    let Tcp { established, time_wait, orphaned, by_state: _, accept_overflows, syn_drops, retransmits } = tcp;
    for count in [established, time_wait, orphaned, accept_overflows, syn_drops, retransmits] {
        visit(Number::Count(count));
    }
}

impl PackedSamples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All samples, in insertion order.
    pub fn unpacked(&self) -> Vec<Sample> {
        let mut all = Vec::with_capacity(self.rows.len());
        self.unpack_after(&mut Position::default(), &mut all);
        all
    }

    /// Appends the samples behind a position to `into`, in insertion order, and moves the position behind them.
    pub fn unpack_after(&self, from: &mut Position, into: &mut Vec<Sample>) {
        let mut bytes = self.bytes.get(from.byte..).unwrap_or_default();
        let rows = self.rows.get(from.row..).unwrap_or_default();
        into.extend(rows.iter().map(|row| self.unpack(row, &mut bytes)));
        *from = Position { row: self.rows.len(), byte: self.bytes.len() };
    }

    /// By component, each in the order of time.
    pub fn by_component(&self) -> BTreeMap<String, Vec<Sample>> {
        let (mut bytes, mut lists) = (self.bytes.as_slice(), vec![Vec::new(); self.names.len()]);
        for row in &self.rows {
            let sample = self.unpack(row, &mut bytes);
            if let Some(list) = lists.get_mut(row.component as usize) {
                list.push(sample);
            }
        }
        // Names are also those of states and probes, which have no samples.
        let some = lists.into_iter().filter(|list| !list.is_empty());
        let mut by_component: BTreeMap<String, Vec<Sample>> =
            some.map(|list| (list[0].component.clone(), list)).collect();
        by_component.values_mut().for_each(|list| list.sort_by(|a, b| a.at_s.total_cmp(&b.at_s)));
        by_component
    }

    fn unpack(&self, row: &Row, bytes: &mut &[u8]) -> Sample {
        // Each row has as many values as were packed for it.
        let number = |bytes: &mut &[u8]| read_varint(bytes).unwrap_or_default();
        let real = |bytes: &mut &[u8]| read_f64(bytes).unwrap_or_default();
        let name = |number: u64| self.names.get(number as usize).cloned().unwrap_or_default();
        let mut sample = Sample {
            at_s: row.at_s,
            component: name(row.component.into()),
            tcp: (row.present & HAS_TCP != 0).then(Tcp::default),
            pressure: (row.present & HAS_PRESSURE != 0).then(Pressure::default),
            ..Sample::default()
        };
        let mut bit = 1;
        walk(&mut sample, |place| {
            if row.present & bit != 0 {
                match place {
                    Number::Count(value) => *value = Some(number(bytes)),
                    Number::Real(value) => *value = Some(real(bytes)),
                }
            }
            bit <<= 1;
        });
        for _ in 0..row.states {
            let (state, count) = (name(number(bytes)), number(bytes));
            sample.tcp.get_or_insert_default().by_state.insert(state, count);
        }
        sample.probes = (0..row.probes).map(|_| (name(number(bytes)), real(bytes))).collect();
        sample.probes_failed = (0..row.failed).map(|_| (name(number(bytes)), name(number(bytes)))).collect();
        sample
    }
}

impl FromIterator<Sample> for PackedSamples {
    fn from_iter<I: IntoIterator<Item = Sample>>(samples: I) -> PackedSamples {
        let mut packer = Packer::default();
        samples.into_iter().for_each(|sample| packer.pack(sample));
        packer.packed()
    }
}

impl From<Vec<Sample>> for PackedSamples {
    fn from(samples: Vec<Sample>) -> PackedSamples {
        samples.into_iter().collect()
    }
}

/// Packs one sample after another.
#[derive(Debug, Default)]
pub struct Packer {
    packed: PackedSamples,
    numbers: HashMap<String, u32>,
}

impl Packer {
    /// The samples packed so far.
    pub fn so_far(&self) -> &PackedSamples {
        &self.packed
    }

    /// All samples packed so far.
    pub fn packed(mut self) -> PackedSamples {
        self.packed.rows.shrink_to_fit();
        self.packed.bytes.shrink_to_fit();
        self.packed
    }

    /// Packs one sample.
    pub fn pack(&mut self, mut sample: Sample) {
        let mut present = 0;
        if sample.tcp.is_some() {
            present |= HAS_TCP;
        }
        if sample.pressure.is_some() {
            present |= HAS_PRESSURE;
        }
        let mut bit = 1;
        let bytes = &mut self.packed.bytes;
        walk(&mut sample, |number| {
            match number {
                Number::Count(Some(value)) => write_varint(*value, bytes),
                Number::Real(Some(value)) => write_f64(*value, bytes),
                Number::Count(None) | Number::Real(None) => {
                    bit <<= 1;
                    return;
                }
            }
            present |= bit;
            bit <<= 1;
        });
        let states = sample.tcp.map(|tcp| tcp.by_state).unwrap_or_default();
        let row = Row {
            at_s: sample.at_s,
            present,
            component: self.name(sample.component),
            states: states.len() as u32,
            probes: sample.probes.len() as u32,
            failed: sample.probes_failed.len() as u32,
        };
        self.packed.rows.push(row);
        for (state, count) in states {
            self.write_name(state);
            write_varint(count, &mut self.packed.bytes);
        }
        for (probe, value) in sample.probes {
            self.write_name(probe);
            write_f64(value, &mut self.packed.bytes);
        }
        for (probe, why) in sample.probes_failed {
            self.write_name(probe);
            self.write_name(why);
        }
    }

    fn write_name(&mut self, name: String) {
        let number = self.name(name);
        write_varint(number.into(), &mut self.packed.bytes);
    }

    fn name(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.packed.names.len() as u32;
        self.packed.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_sample() -> impl Strategy<Value = Sample> {
        let names = || prop::sample::select(vec!["edge", "host", "db", ""]);
        let numbers = prop::collection::vec(prop::option::of(any::<u64>()), 32);
        let probes = || prop::collection::btree_map(names().prop_map(str::to_owned), -1e9..1e9, 0..3);
        let failed = prop::collection::btree_map("[a-c]", "[x-z]{0,3}", 0..3);
        let states = prop::collection::btree_map("[A-C]", any::<u64>(), 0..3);
        let parts = (prop::option::of(states), any::<bool>(), probes(), failed);
        (names(), -9.0..1e6, numbers, parts).prop_map(|(name, at_s, numbers, parts)| {
            let (states, has_pressure, probes, probes_failed) = parts;
            let mut sample = Sample {
                at_s,
                component: name.to_owned(),
                tcp: states.map(|by_state| Tcp { by_state, ..Tcp::default() }),
                pressure: has_pressure.then(Pressure::default),
                probes,
                probes_failed,
                ..Sample::default()
            };
            let mut numbers = numbers.into_iter();
            walk(&mut sample, |number| {
                let value = numbers.next().expect("as many as a sample has");
                match number {
                    Number::Count(place) => *place = value,
                    // In a range where integers are exact.
                    Number::Real(place) => *place = value.map(|v| v as f64),
                }
            });
            assert_eq!(numbers.next(), None, "the strategy has as many numbers as a sample");
            sample
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_again(samples in prop::collection::vec(any_sample(), 0..9)) {
            let packed = PackedSamples::from(samples.clone());
            prop_assert_eq!(packed.len(), samples.len());
            prop_assert_eq!(packed.unpacked(), samples.clone());
            let mut apart: Vec<Sample> = packed.by_component().into_values().flatten().collect();
            let mut expect = samples;
            for list in [&mut apart, &mut expect] {
                list.sort_by(|a, b| a.component.cmp(&b.component).then(a.at_s.total_cmp(&b.at_s)));
            }
            prop_assert_eq!(apart, expect);
        }
    }

    proptest! {
        #[test]
        fn a_reader_unpacks_each_sample_once(samples in prop::collection::vec(any_sample(), 0..9), at in 0usize..9) {
            let (mut packer, mut position, mut read) = (Packer::default(), Position::default(), Vec::new());
            for (number, sample) in samples.iter().enumerate() {
                if number == at {
                    packer.so_far().unpack_after(&mut position, &mut read);
                    prop_assert_eq!(&read[..], &samples[..at]);
                }
                packer.pack(sample.clone());
            }
            packer.so_far().unpack_after(&mut position, &mut read);
            packer.so_far().unpack_after(&mut position, &mut read);
            prop_assert_eq!(read, samples);
        }
    }

    #[test]
    fn unknown_figures_take_no_space() {
        let sample = Sample { cpu_s: Some(1.0), component: "edge".to_owned(), ..Sample::default() };
        let packed = PackedSamples::from(vec![sample; 1000]);
        assert_eq!((packed.bytes.len(), packed.names.len()), (8 * 1000, 1));
        assert!(size_of::<Row>() <= 32, "{}", size_of::<Row>());
    }
}
