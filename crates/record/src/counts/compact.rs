//! Histograms as few bytes, exactly: for messages between processes. Numbers are varints (LEB128), so small ones take a
//! byte. The forms hold what the interval log's ([`crate::counts::hlog`]) does not: exact sums and extremes.

use crate::counts::dependence::InOrder;
use crate::counts::histogram::Histogram;
use crate::counts::numbers::{ExactNumbers, Numbers};

/// The bytes are not what was written: cut short, or of another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a damaged histogram")]
pub struct Damaged;

/// What reading returns.
pub type Result<T> = std::result::Result<T, Damaged>;

/// Appends a number.
pub fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front.
///
/// # Errors
/// The bytes do not begin with a number.
pub fn read_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Damaged)?;
        *bytes = rest;
        let part = u64::from(first & 0x7f);
        if shift == 63 && part > 1 {
            return Err(Damaged);
        }
        value |= part << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Damaged)
}

/// Appends a number's 64 bits as they are.
pub fn write_f64(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Takes a number's 64 bits from the front.
///
/// # Errors
/// There are too few bytes.
pub fn read_f64(bytes: &mut &[u8]) -> Result<f64> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
    *bytes = rest;
    Ok(f64::from_le_bytes(*first))
}

/// A value that has a compact form.
pub trait Compact: Sized {
    /// Appends the value.
    fn write_to(&self, out: &mut Vec<u8>);
    /// Takes a value from the front.
    ///
    /// # Errors
    /// The bytes do not begin with such a value.
    fn read_from(bytes: &mut &[u8]) -> Result<Self>;
}

impl Compact for Histogram {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_varint(self.count(), out);
        let (Some(min_ns), Some(max_ns)) = (self.min_ns(), self.max_ns()) else { return };
        let sum_ns = self.sum_ns();
        [sum_ns as u64, (sum_ns >> 64) as u64, min_ns, max_ns].into_iter().for_each(|n| write_varint(n, out));
        let mut before = 0;
        for (index, count) in self.counts() {
            // The first distance may be 0, later ones are at least 1.
            write_varint((index - before) as u64, out);
            write_varint(count, out);
            before = index;
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Result<Histogram> {
        let mut histogram = Histogram::new();
        read_into(&mut histogram, bytes)?;
        Ok(histogram)
    }
}

/// Takes a histogram from the front and puts it into an existing one, whose memory is reused.
///
/// # Errors
/// The bytes do not begin with a histogram; the existing one is then empty.
pub fn read_into(histogram: &mut Histogram, bytes: &mut &[u8]) -> Result<()> {
    histogram.clear();
    let count = read_varint(bytes)?;
    if count == 0 {
        return Ok(());
    }
    let (low, high) = (read_varint(bytes)?, read_varint(bytes)?);
    let sum_ns = u128::from(high) << 64 | u128::from(low);
    let (min_ns, max_ns) = (read_varint(bytes)?, read_varint(bytes)?);
    let (mut left, mut index, mut counts) = (count, 0usize, Vec::new());
    while left > 0 {
        let step = usize::try_from(read_varint(bytes)?).map_err(|_| Damaged)?;
        let n = read_varint(bytes)?;
        if n == 0 || step == 0 && !counts.is_empty() {
            return Err(Damaged);
        }
        index = index.checked_add(step).ok_or(Damaged)?;
        left = left.checked_sub(n).ok_or(Damaged)?;
        counts.push((index, n));
    }
    histogram.set_counts(&counts, sum_ns, min_ns, max_ns).ok_or(Damaged)
}

impl Compact for Numbers {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_varint(self.count(), out);
        if self.count() == 0 {
            return;
        }
        let ExactNumbers { zeros, sum, min, max } = self.exact();
        write_varint(zeros, out);
        [sum, min, max].into_iter().for_each(|n| write_f64(n, out));
        for (place, count) in self.counts() {
            write_varint(place as u64, out);
            write_varint(count, out);
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Result<Numbers> {
        let count = read_varint(bytes)?;
        if count == 0 {
            return Ok(Numbers::default());
        }
        let zeros = read_varint(bytes)?;
        let (sum, min, max) = (read_f64(bytes)?, read_f64(bytes)?, read_f64(bytes)?);
        let (mut left, mut counts) = (count.checked_sub(zeros).ok_or(Damaged)?, Vec::new());
        while left > 0 {
            let place = usize::try_from(read_varint(bytes)?).map_err(|_| Damaged)?;
            let n = read_varint(bytes)?;
            if n == 0 {
                return Err(Damaged);
            }
            left = left.checked_sub(n).ok_or(Damaged)?;
            counts.push((place, n));
        }
        Numbers::from_counts(&counts, ExactNumbers { zeros, sum, min, max }).ok_or(Damaged)
    }
}

impl Compact for InOrder {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_varint(self.len() as u64, out);
        for (due_ns, response_ns) in self.requests() {
            out.extend_from_slice(&due_ns.to_le_bytes());
            out.extend_from_slice(&response_ns.to_le_bytes());
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Result<InOrder> {
        let count = usize::try_from(read_varint(bytes)?).map_err(|_| Damaged)?;
        if count > InOrder::CAPACITY || bytes.len() < count * 8 {
            return Err(Damaged);
        }
        let (own, rest) = bytes.split_at(count * 8);
        *bytes = rest;
        let number = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
        Ok(InOrder::from_requests(own.chunks_exact(8).map(|pair| (number(&pair[..4]), number(&pair[4..])))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(what: &impl Compact) -> Vec<u8> {
        let mut bytes = Vec::new();
        what.write_to(&mut bytes);
        bytes
    }

    fn reads_back<T: Compact + PartialEq + std::fmt::Debug>(what: &T) {
        let bytes = written(what);
        let mut rest: &[u8] = &[&bytes[..], b"more"].concat();
        assert_eq!(T::read_from(&mut rest).as_ref(), Ok(what));
        assert_eq!(rest, b"more");
        // However the bytes are cut, they are not taken for a whole value.
        for length in 0..bytes.len() {
            assert!(T::read_from(&mut &bytes[..length]).is_err(), "{length} of {}", bytes.len());
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            values in prop::collection::vec(0u64..1 << 50, 0..50),
            numbers in prop::collection::vec(-1e12f64..1e12, 0..50),
            requests in prop::collection::vec((0u64..1 << 40, 0u64..1 << 40), 0..20),
            number: u64,
        ) {
            let (mut histogram, mut own, mut in_order) = (Histogram::new(), Numbers::default(), InOrder::default());
            values.iter().for_each(|v| histogram.record(*v));
            numbers.iter().for_each(|n| own.record(*n));
            requests.iter().for_each(|(due, took)| in_order.record(*due, *took));
            reads_back(&histogram);
            reads_back(&own);
            reads_back(&in_order);
            let mut bytes = Vec::new();
            write_varint(number, &mut bytes);
            prop_assert_eq!(read_varint(&mut bytes.as_slice()), Ok(number));
        }

        /// Whatever the bytes are, reading terminates, and what it returns is whole.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(histogram) = Histogram::read_from(&mut bytes.as_slice()) {
                reads_back(&histogram);
            }
            if let Ok(numbers) = Numbers::read_from(&mut bytes.as_slice()) {
                prop_assert!(numbers.count() > 0 || numbers == Numbers::default());
            }
            let _ = InOrder::read_from(&mut bytes.as_slice());
        }
    }
}
