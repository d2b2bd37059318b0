//! Keeps reports on disk until the coordinator has them for good: what an agent sent may be lost in transit, and only
//! the agent can resend it. Each report is written and synced before it is sent.
//!
//! Each file holds a limited number of reports. A file that was cut off in the middle of a report, by a full disk or a
//! crash, is read up to that point.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;

/// Number of reports in one file: about a minute's worth.
const PER_FILE: u64 = 64;
/// Bytes before each report: its length, its checksum and its number.
const HEAD_BYTES: usize = 16;
/// Longer than any report; a greater length means damage.
const MOST_BYTES: usize = 256 << 20;

/// The reports of one agent in one slot.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// The file being written, and the number of its first report.
    open: Option<(u64, File)>,
    /// Number of the next report.
    next: u64,
}

impl Spool {
    /// Opens a folder, creating it if needed, and continues after the last complete report in it.
    ///
    /// # Errors
    /// An I/O error.
    pub fn open(dir: &Path) -> io::Result<Spool> {
        fs::create_dir_all(dir)?;
        let mut spool = Spool { dir: dir.to_owned(), open: None, next: 0 };
        let firsts = files(dir)?;
        spool.next = firsts.first().copied().unwrap_or(0);
        for first in firsts {
            let bytes = fs::read(path(dir, first))?;
            let (_, count) = whole_reports(&bytes, first);
            // Nothing can follow a report that was lost.
            if first != spool.next {
                fs::remove_file(path(dir, first))?;
                continue;
            }
            spool.next = first + count;
        }
        Ok(spool)
    }

    /// Number of the next report.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Writes and syncs a report; returns its number.
    ///
    /// # Errors
    /// An I/O error. The report is then not kept, and the next one gets its number.
    pub fn append(&mut self, report: &[u8]) -> io::Result<u64> {
        let number = self.next;
        let first = number - number % PER_FILE;
        let mut file = match self.open.take().filter(|(of, _)| *of == first) {
            Some((_, file)) => file,
            None => self.cut(first)?,
        };
        // If this fails, the file is not kept open: it may contain a partial report, which is cut off before the next
        // one.
        file.write_all(&framed(number, report)).and_then(|()| file.sync_data())?;
        self.open = Some((first, file));
        self.next += 1;
        Ok(number)
    }

    /// Opens a file for appending, creating it if needed, and cuts off what follows its last complete report.
    fn cut(&self, first: u64) -> io::Result<File> {
        let path = path(&self.dir, first);
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        file.set_len(whole_reports(&bytes, first).0 as u64)?;
        // Also sync the folder, which holds the file's name.
        File::open(&self.dir)?.sync_all()?;
        Ok(file)
    }

    /// The first `most` reports in a folder from a number on, in order. Reports may be appended meanwhile.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read(dir: &Path, number: u64, most: usize) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut reports = Vec::new();
        for first in files(dir)? {
            if first + PER_FILE <= number {
                continue;
            }
            let bytes = fs::read(path(dir, first))?;
            let mut rest = bytes.as_slice();
            let mut expected = first;
            while let Some((of, report)) = take(&mut rest).filter(|(of, _)| *of == expected) {
                expected += 1;
                if reports.len() == most {
                    return Ok(reports);
                }
                if of >= number {
                    reports.push((of, report.to_vec()));
                }
            }
        }
        Ok(reports)
    }
}

/// The first report numbers of all files in a folder, ascending.
fn files(dir: &Path) -> io::Result<Vec<u64>> {
    let mut firsts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(".reports")?.parse::<u64>().ok());
        firsts.extend(first);
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// The file whose first report has this number.
fn path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:010}.reports"))
}

/// A report as stored in a file.
fn framed(number: u64, report: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEAD_BYTES + report.len());
    framed.extend_from_slice(&(report.len() as u32).to_le_bytes());
    framed.extend_from_slice(&checksum(number, report).to_le_bytes());
    framed.extend_from_slice(&number.to_le_bytes());
    framed.extend_from_slice(report);
    framed
}

fn checksum(number: u64, report: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(&(report.len() as u64).to_le_bytes());
    sum.update(&number.to_le_bytes());
    sum.update(report);
    sum.sum()
}

/// The first report in these bytes, with its number; `None` if it is cut off or damaged.
fn take<'b>(bytes: &mut &'b [u8]) -> Option<(u64, &'b [u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [length, sum] =
        [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let number = u64::from_le_bytes(head[8..].try_into().ok()?);
    let length = usize::try_from(length).ok().filter(|length| *length <= MOST_BYTES)?;
    let (report, rest) = rest.split_at_checked(length)?;
    if checksum(number, report) != sum {
        return None;
    }
    *bytes = rest;
    Some((number, report))
}

/// How many bytes are complete reports numbered from `first` on, and how many reports those are.
fn whole_reports(bytes: &[u8], first: u64) -> (usize, u64) {
    let (mut rest, mut count, mut whole) = (bytes, 0, 0);
    while take(&mut rest).is_some_and(|(number, _)| number == first + count) {
        count += 1;
        whole = bytes.len() - rest.len();
    }
    (whole, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(number: u64) -> Vec<u8> {
        (0..number % 40).map(|i| (number * 7 + i) as u8).collect()
    }

    fn filled(dir: &Path, count: u64) -> Spool {
        let mut spool = Spool::open(dir).unwrap();
        (0..count).for_each(|n| assert_eq!(spool.append(&report(n)).unwrap(), n));
        spool
    }

    fn numbers(spool: &Spool, from: u64) -> Vec<u64> {
        let reports = Spool::read(&spool.dir, from, usize::MAX).unwrap();
        reports.iter().for_each(|(number, bytes)| assert_eq!(*bytes, report(*number)));
        reports.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let spool = filled(dir.path(), 200);
        assert_eq!(numbers(&spool, 0), (0..200).collect::<Vec<_>>());
        assert_eq!(numbers(&spool, 150), (150..200).collect::<Vec<_>>());
        let some: Vec<u64> = Spool::read(dir.path(), 126, 4).unwrap().into_iter().map(|(n, _)| n).collect();
        assert_eq!(some, [126, 127, 128, 129]);
        let mut again = Spool::open(dir.path()).unwrap();
        assert_eq!((again.next(), again.append(&report(200)).unwrap()), (200, 200));
        assert_eq!(numbers(&again, 199), [199, 200]);
    }

    /// The state after a write that failed halfway, on a full disk.
    #[test]
    fn a_part_of_a_report_is_cut_off_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = filled(dir.path(), 70);
        let (first, mut file) = spool.open.take().unwrap();
        file.write_all(&framed(70, &report(70))[..HEAD_BYTES + 5]).unwrap();
        assert_eq!((first, spool.append(&report(70)).unwrap()), (64, 70));
        assert_eq!(numbers(&spool, 60), (60..=70).collect::<Vec<_>>());
        assert_eq!(Spool::open(dir.path()).unwrap().next(), 71);
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        fs::write(dir.path().join("x.reports"), "mine").unwrap();
        let spool = filled(dir.path(), 3);
        assert_eq!(numbers(&spool, 0), [0, 1, 2]);
        assert!(dir.path().join("notes.txt").exists() && dir.path().join("x.reports").exists());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However a file was cut off or damaged, the complete reports before that point are read, and new ones follow
        /// them.
        #[test]
        fn a_damaged_spool_goes_on_after_what_is_whole(count in 1u64..100, at in 0.0f64..1.0, flips: bool) {
            let dir = tempfile::tempdir().unwrap();
            let spool = filled(dir.path(), count);
            let firsts = files(&spool.dir).unwrap();
            let file = path(&spool.dir, firsts[(firsts.len() as f64 * at) as usize]);
            let mut bytes = fs::read(&file).unwrap();
            let place = (bytes.len() as f64 * (at * 7.0).fract()) as usize;
            if flips {
                bytes[place] ^= 0x10;
            } else {
                bytes.truncate(place);
            }
            fs::write(&file, &bytes).unwrap();
            let mut again = Spool::open(dir.path()).unwrap();
            let next = again.next();
            prop_assert!(next < count);
            prop_assert_eq!(numbers(&again, 0), (0..next).collect::<Vec<_>>());
            prop_assert_eq!(again.append(&report(next)).unwrap(), next);
            prop_assert_eq!(numbers(&again, 0), (0..=next).collect::<Vec<_>>());
        }
    }
}
