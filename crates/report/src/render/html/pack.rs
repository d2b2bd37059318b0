//! Packs values of charts compactly, so that a report of many long cases stays small enough to send.
//!
//! A packed group is, deflated (RFC 1951) and in base64: the length of its JSON as four bytes, lowest first; the JSON,
//! in which each line's `values` is the number of its values; then all values in the order of the lines, as three
//! planes of one byte each: the exponent, and the low and the high byte of a signed mantissa. Neighbours have the same
//! exponent, so that its plane costs next to nothing. `base.js` reads it.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// The exponent of a missing value.
const MISSING: i8 = i8::MIN;

/// A group: its JSON and the values of all its lines in order. `None` if deflating failed, which writing to memory
/// does not.
pub(super) fn pack<'a>(json: &str, lines: impl Iterator<Item = &'a [Option<f64>]>) -> Option<String> {
    let mut planes: [Vec<u8>; 3] = Default::default();
    for value in lines.flatten() {
        let (mantissa, exponent) = value.map_or((0, MISSING), shortened);
        let [low, high] = mantissa.to_le_bytes();
        for (plane, byte) in planes.iter_mut().zip([exponent.to_le_bytes()[0], low, high]) {
            plane.push(byte);
        }
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(7));
    encoder.write_all(&u32::try_from(json.len()).ok()?.to_le_bytes()).ok()?;
    encoder.write_all(json.as_bytes()).ok()?;
    for plane in &planes {
        encoder.write_all(plane).ok()?;
    }
    Some(BASE64.encode(encoder.finish().ok()?))
}

/// A value as mantissa × 10^exponent, to 0.25 % or better: three digits, four if the first is 1, as many as the page
/// shows. Whole numbers below 2,000 are exact.
fn shortened(value: f64) -> (i16, i8) {
    if !value.is_finite() || value.abs() >= 1e100 {
        return (0, MISSING);
    }
    if value.abs() < 1e-100 {
        return (0, 0);
    }
    if value.fract() == 0.0 && value.abs() < 2000.0 {
        return (value as i16, 0);
    }
    let exponent = value.abs().log10().floor() as i32 - 2;
    let at = |exponent: i32| (value / 10f64.powi(exponent)).round();
    let (mantissa, exponent) = match at(exponent) {
        m if m.abs() < 200.0 => (at(exponent - 1), exponent - 1),
        m => (m, exponent),
    };
    (mantissa as i16, exponent as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_near_and_small_whole_ones_exact() {
        for (value, expect) in [
            (0.0, (0, 0)),
            (1.0, (1, 0)),
            (1999.0, (1999, 0)),
            (-42.0, (-42, 0)),
            (0.5, (500, -3)),
            (1.2345, (1235, -3)),
            (99.96, (1000, -1)),
            (314_572_800.0, (315, 6)),
            (-0.012_34, (-1234, -5)),
            (f64::NAN, (0, MISSING)),
            (1e-120, (0, 0)),
        ] {
            assert_eq!(shortened(value), expect, "{value}");
        }
        for i in 1..20_000 {
            let value = f64::from(i) * 0.37;
            let (mantissa, exponent) = shortened(value);
            let back = f64::from(mantissa) * 10f64.powi(i32::from(exponent));
            assert!((back / value - 1.0).abs() <= 0.0026, "{value} → {back}");
        }
    }
}
