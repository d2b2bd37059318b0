//! `template`: whatever is put into a request stays in its place, and equal values write equal bytes.
//!
//! Input: byte 0 selects the place, byte 1 the variable, bytes 2–9 are the seed; then a captured value, a zero byte,
//! and a CSV file.

use loadlab_load::journey::capture::{CaptureSlots, Captured};
use loadlab_load::journey::rows::Rows;
use loadlab_load::journey::template::{Template, TemplateError, Values};
use loadlab_load::random::Random;
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::{Unit, Variable};

const ESCAPES: [Escape; 7] =
    [Escape::Raw, Escape::Url, Escape::UrlRaw, Escape::UrlTarget, Escape::Json, Escape::Form, Escape::Header];

fn variable(choice: u8, seed: u64) -> Variable {
    let (a, b) = (seed as i64, (seed as i64).rotate_left(17));
    match choice % 8 {
        0 => Variable::Capture { slot: u16::from(choice / 8 % 2), is_number: false },
        1 => Variable::Feed { feed: 0, column: u16::from(choice / 8 % 3) },
        2 => Variable::Uuid,
        3 => Variable::Random { low: a.min(b), high: a.max(b) },
        4 => Variable::Now(Unit::Rfc3339),
        5 => Variable::Now(Unit::Nanos),
        6 => Variable::Sequence,
        _ => Variable::User,
    }
}

fn written(
    template: &Template,
    feeds: &[Rows],
    slots: &CaptureSlots,
    seed: u64,
    before: &[u8],
) -> Result<Vec<u8>, TemplateError> {
    let mut random = Random::new(seed);
    let mut values = Values {
        user: seed,
        iteration: seed >> 7,
        sequence: seed >> 3,
        id: seed >> 5,
        now_ns: seed,
        feeds,
        rows: &[(seed % 3) as u32],
        captured: Captured { shared: slots, own: slots },
        random: &mut random,
    };
    let mut out = before.to_vec();
    template.write(&mut values, &mut out)?;
    assert_eq!(&out[..before.len()], before, "what was there before is touched");
    Ok(out.split_off(before.len()))
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [place, which, rest @ ..] = data else { return };
    let Some((seed, rest)) = rest.split_at_checked(8) else { return };
    let seed = u64::from_le_bytes(seed.try_into().expect("eight bytes"));
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    let (value, table) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());

    let columns = loadlab_load::journey::rows::csv_columns(table).unwrap_or_default();
    let feeds: Vec<Rows> = Rows::from_csv(table, &columns).into_iter().collect();
    let mut slots = CaptureSlots::new(1);
    let kept = slots.set(0, value).is_ok();
    assert_eq!(kept, slots.get(0).is_some());

    let escape = ESCAPES[usize::from(*place) % ESCAPES.len()];
    let mut template = Template::fixed(b"<");
    template.push(variable(*which, seed), escape);
    let fixed = template.push_text(value, escape);
    assert!(fixed.is_ok() || escape == Escape::Header, "only headers refuse texts");

    let first = written(&template, &feeds, &slots, seed, b"before");
    assert_eq!(first, written(&template, &feeds, &slots, seed, b""), "the same values, other bytes");
    if let Ok(bytes) = &first {
        in_its_place(&bytes[1..], escape);
    }
    let mut nested = Template::default();
    nested.push_base64(template);
    match (first, written(&nested, &feeds, &slots, seed, b"x")) {
        (Ok(plain), Ok(encoded)) => {
            assert_eq!(encoded.len(), plain.len().div_ceil(3) * 4, "the length of base64");
            assert!(encoded.iter().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b)));
        }
        (Err(a), Err(b)) => assert_eq!(a, b),
        (plain, encoded) => panic!("{plain:?} and in base64 {encoded:?}"),
    }
}

fn in_its_place(bytes: &[u8], escape: Escape) {
    match escape {
        Escape::Raw => {}
        Escape::Header => assert!(!bytes.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f)),
        Escape::Json => {
            let text = [b"\"", bytes, b"\""].concat();
            assert!(serde_json::from_slice::<String>(&text).is_ok(), "{text:?} is no JSON text");
        }
        Escape::Url | Escape::Form => {
            let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%+*".contains(b);
            assert!(bytes.iter().all(plain), "{bytes:?}");
        }
        Escape::UrlRaw | Escape::UrlTarget => {
            assert!(bytes.iter().all(|b| (0x21..0x7f).contains(b) && *b != b'#'), "{bytes:?}");
        }
    }
}
