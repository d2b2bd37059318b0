//! The request bodies of the lab: generated JSON records, the same bytes on every machine.
//!
//! Nothing generated is kept in the repository: `stair-stepper bodies DIR` writes the files before the load, and leaves
//! files that are already correct alone.

use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;

/// The sizes of the load, by tag: the most bytes of a body, which falls short by less than one record.
pub const SIZES: [(&str, usize); 4] =
    [("tiny", 30_000), ("small", 300_000), ("medium", 600_000), ("large", 2_000_000)];

/// Chosen once; another value makes other bodies of the same sizes.
const SEED: u64 = 0x5741_4952;

const WORDS: [&str; 48] = [
    "amber", "anchor", "basin", "birch", "bridge", "canvas", "cedar", "cinder", "cobalt", "copper", "delta",
    "ember", "falcon", "fern", "flint", "garnet", "granite", "harbor", "hazel", "indigo", "island", "jasper",
    "juniper", "kestrel", "lantern", "lichen", "maple", "marble", "meadow", "mica", "nectar", "nickel",
    "oak", "olive", "onyx", "orchard", "pebble", "pine", "quarry", "quartz", "raven", "reef", "saffron",
    "slate", "thistle", "umber", "willow", "zinc",
];

/// One record: text, numbers, flags and lists, short strings and a long one, about 1 KB in all.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    index: usize,
    guid: String,
    is_active: bool,
    balance: String,
    age: u64,
    name: String,
    company: String,
    email: String,
    phone: String,
    address: String,
    registered: String,
    latitude: f64,
    longitude: f64,
    about: String,
    tags: Vec<String>,
    friends: Vec<Friend>,
}

#[derive(Serialize)]
struct Friend {
    id: usize,
    name: String,
}

/// Writes `tiny.json`, `small.json`, `medium.json` and `large.json` to `folder`, which is created if missing. A file
/// with the right content is not touched.
pub fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, at_most_bytes) in SIZES {
        let path = folder.join(format!("{name}.json"));
        let body = body(at_most_bytes);
        if fs::read(&path).is_ok_and(|present| present == body.as_bytes()) {
            continue;
        }
        // Under a temporary name first: concurrent readers of the folder see only complete files.
        let unfinished = folder.join(format!("{name}.json.{}", std::process::id()));
        fs::write(&unfinished, body)?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(())
}

/// A widget with as many records as fit into `at_most_bytes`.
fn body(at_most_bytes: usize) -> String {
    const HEAD: &str = "{\"eventType\":\"stair-step\",\"payload\":[\n";
    const BETWEEN: &str = ",\n";
    const TAIL: &str = "\n]}\n";
    let mut random = Random(SEED);
    let mut body = String::with_capacity(at_most_bytes);
    body.push_str(HEAD);
    for index in 0.. {
        let record = serde_json::to_string(&record(index, &mut random)).expect("a record can be serialised");
        if body.len() + BETWEEN.len() + record.len() + TAIL.len() > at_most_bytes {
            break;
        }
        if index > 0 {
            body.push_str(BETWEEN);
        }
        body.push_str(&record);
    }
    body.push_str(TAIL);
    body
}

fn record(index: usize, random: &mut Random) -> Record {
    let (first, last) = (random.word(), random.word());
    Record {
        index,
        guid: format!("{:016x}-{:016x}", random.next(), random.next()),
        is_active: random.below(2) == 0,
        balance: format!("{}.{:02}", 1_000 + random.below(3_000), random.below(100)),
        age: 20 + random.below(50),
        name: format!("{first} {last}"),
        company: random.words(2),
        email: format!("{first}.{last}@{}.example", random.word()),
        phone: format!("+1 555 {:07}", random.below(10_000_000)),
        address: format!("{} {} street, {}", 1 + random.below(999), random.word(), random.words(2)),
        registered: format!(
            "20{:02}-{:02}-{:02}T12:00:00Z",
            random.below(24),
            1 + random.below(12),
            1 + random.below(28)
        ),
        latitude: random.degrees(90),
        longitude: random.degrees(180),
        about: random.words(60),
        tags: (0..7).map(|_| random.word().to_owned()).collect(),
        friends: (0..3).map(|id| Friend { id, name: random.words(2) }).collect(),
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): four lines instead of a dependency.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; the slight bias of the remainder does not matter here.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `-limit` to `limit`, in millionths. The division comes last: six decimals stay six decimals in
    /// JSON, and a body that is parsed and serialised again keeps its length.
    fn degrees(&mut self, limit: i64) -> f64 {
        let millionths = self.below(2 * limit as u64 * 1_000_000) as i64 - limit * 1_000_000;
        millionths as f64 / 1e6
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len() as u64) as usize]
    }

    fn words(&mut self, count: usize) -> String {
        let words: Vec<&str> = (0..count).map(|_| self.word()).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A folder for one test, removed when dropped.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("stair-stepper-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn bodies_are_widgets_of_about_their_size() {
        for (name, at_most_bytes) in SIZES {
            let body = body(at_most_bytes);
            assert!(
                body.len() <= at_most_bytes && body.len() > at_most_bytes - 1_500,
                "{name}: {}",
                body.len()
            );
            let widget: Value = serde_json::from_str(&body).unwrap();
            assert!(widget["eventType"].is_string());
            assert!(widget["payload"].as_array().unwrap().len() >= 20, "{name}");
        }
    }

    #[test]
    fn bodies_are_the_same_every_time() {
        assert_eq!(body(30_000), body(30_000));
    }

    #[test]
    fn only_what_is_missing_or_wrong_is_written() {
        let scratch = Scratch::new("bodies");
        write(&scratch.0).unwrap();
        let written = |name: &str| fs::metadata(scratch.0.join(name)).unwrap().modified().unwrap();
        let (tiny, small) = (written("tiny.json"), written("small.json"));
        fs::write(scratch.0.join("small.json"), "spoilt").unwrap();
        fs::remove_file(scratch.0.join("large.json")).unwrap();
        write(&scratch.0).unwrap();
        assert_eq!(written("tiny.json"), tiny);
        assert!(written("small.json") >= small);
        assert_eq!(fs::read_to_string(scratch.0.join("small.json")).unwrap(), body(300_000));
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), SIZES.len());
    }
}
