//! The meanings of colours in charts. Each meaning has its own colours, so that none means two things: failures are
//! red, the generator is grey, percentiles are shades of one blue, and a component has the same hue in all charts.
//!
//! It names colours, which the style sheet defines for light and dark pages. Where hues run out, or colour-blind
//! readers may confuse them, lines are dashed.

/// Hues for cases and other similar things: `--c0` to `--c5`.
const HUES: usize = 6;
/// Hues for components: all but the first, which is the load's.
const OF_COMPONENTS: usize = HUES - 1;
/// Ways to draw a line, the first without gaps.
const DASHES: usize = 4;

/// The colour of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of several similar things, such as cases, by its index among them. The first is also the load's colour.
    Nth(usize),
    /// A component, by its index in the system.
    Component(usize),
    /// A kind of failure, by its index among those that occurred.
    Failure(usize),
    /// A percentile.
    Percentile {
        /// Its index among the percentiles shown: the smallest is the darkest on a light page.
        rank: usize,
        /// The index of its load among several.
        load: usize,
    },
    /// The load generator.
    Generator,
    /// The requested value, or something common to several lines: not a measurement itself.
    Asked,
}

impl Colour {
    /// Name of the colour in the style sheet, without its dashes: `c2`.
    pub fn name(self) -> String {
        match self {
            Colour::Nth(i) => format!("c{}", i % HUES),
            Colour::Component(i) => format!("c{}", 1 + i % OF_COMPONENTS),
            Colour::Failure(i) => format!("f{}", i % 3),
            Colour::Percentile { rank, .. } => format!("p{}", rank % 4),
            Colour::Generator => "own".to_owned(),
            Colour::Asked => "asked".to_owned(),
        }
    }

    /// How its line is dashed: 0 means solid, up to 3.
    pub fn dash(self) -> usize {
        match self {
            Colour::Nth(i) => i / HUES % DASHES,
            Colour::Component(i) => i / OF_COMPONENTS % DASHES,
            Colour::Failure(i) => i % DASHES,
            Colour::Percentile { load, .. } => load % DASHES,
            Colour::Generator | Colour::Asked => 0,
        }
    }

    /// Classes of an element in this colour: `c2 d1`.
    pub fn classes(self) -> String {
        match self.dash() {
            0 => self.name(),
            dash => format!("{} d{dash}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn twenty_components_look_different_and_none_like_something_else() {
        let looks: BTreeSet<String> = (0..20).map(|i| Colour::Component(i).classes()).collect();
        assert_eq!(looks.len(), 20);
        let percentile = |rank| Colour::Percentile { rank, load: 0 };
        let others =
            [Colour::Nth(0), Colour::Failure(0), Colour::Failure(1), Colour::Generator, Colour::Asked];
        for other in others.into_iter().chain((0..4).map(percentile)) {
            assert!(!(0..40).any(|i| Colour::Component(i).name() == other.name()), "{other:?}");
        }
    }

    /// Linear red, green and blue as seen by eyes that lack one kind of cone (Machado, Oliveira and Fernandes 2009,
    /// severity 1.0): protanopia, deuteranopia, tritanopia; and by eyes with all cones.
    const EYES: [[[f64; 3]; 3]; 4] = [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    ];

    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour")) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn times(matrix: &[[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| (0..3).map(|i| row[i] * v[i]).sum::<f64>().clamp(0.0, 1.0))
    }

    /// CIE L*a*b*, in which a distance of about 2 is just visible.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// `--name: #123456` of the light and of the dark page.
    fn sheets() -> [BTreeMap<String, String>; 2] {
        let css: &str = &crate::assets::STYLE;
        let (light, dark) = css.split_once("@media (prefers-color-scheme: dark)").expect("two sheets");
        [light, dark].map(|sheet| {
            let rules = sheet.split(['{', '}', ';']).filter_map(|rule| rule.trim().split_once(": #"));
            let named = rules.filter_map(|(name, hex)| Some((name.strip_prefix("--")?, hex)));
            named.map(|(name, hex)| (name.to_owned(), format!("#{hex}"))).collect()
        })
    }

    #[test]
    fn colours_need_no_colour_vision() {
        for sheet in sheets() {
            let of = |name: &str| linear(sheet.get(name).unwrap_or_else(|| panic!("no {name}: {sheet:?}")));
            let hues: Vec<String> = (0..HUES).map(|i| format!("c{i}")).collect();
            let mut alike: Vec<Vec<&str>> =
                vec![hues.iter().map(String::as_str).chain(["f0", "own"]).collect()];
            alike.push(vec!["p0", "p1", "p2", "p3"]);
            for (eye, group) in EYES.iter().flat_map(|eye| alike.iter().map(move |group| (eye, group))) {
                for (i, a) in group.iter().enumerate() {
                    for b in &group[i + 1..] {
                        let (x, y) = (lab(times(eye, of(a))), lab(times(eye, of(b))));
                        let apart = (0..3).map(|i| (x[i] - y[i]).powi(2)).sum::<f64>().sqrt();
                        assert!(apart >= 10.0, "{a} and {b} are {apart:.0} apart");
                    }
                }
            }
            // Lines need a contrast of 3 to 1 (WCAG 2.1, 1.4.11); the palest shade is dotted and labelled.
            let bright = |name: &str| {
                let [r, g, b] = of(name);
                0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
            };
            for name in alike.iter().flatten() {
                let (a, b) = (bright(name), bright("paper"));
                assert!(a.max(b) / a.min(b) >= 2.9, "{name} has a contrast of {:.1}", a.max(b) / a.min(b));
            }
        }
    }
}
