//! What only `/proc/PID` reports of a target's processes, summed up.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use loadlab_record::watch::sample::Sample;
use rustix::fs::{Mode, OFlags};

use crate::cgroup::read::{CachedFile, keyed};
use crate::process::open_files;

/// Maximum number of processes of one target whose files are kept open; files of further processes are opened for each
/// reading. Loadlab needs its descriptors for connections.
const CACHED_PROCESSES: usize = 64;
/// The limit on open files, which hardly ever changes, is read again after this many readings: the kernel writes
/// sixteen lines for it.
const LIMITS_EVERY: u32 = 10;

/// The processes of a target.
#[derive(Debug, Default)]
pub(super) struct Processes {
    files: HashMap<u32, ProcessFiles>,
    /// As of the last reading.
    pids: Vec<u32>,
}

impl Processes {
    /// Their ids as of the last reading.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Their limits may have changed: the next reading reads them.
    pub(super) fn read_limits_again(&mut self) {
        self.files.values_mut().for_each(|files| files.files_limit.1 = 0);
    }

    /// There are none any more: their ids may soon be those of others.
    pub(super) fn forget(&mut self) {
        self.files.clear();
        self.pids.clear();
    }

    /// Sums up over the processes what only `/proc/PID` reports.
    pub(super) fn sum(&mut self, pids: &[u32], buffer: &mut Vec<u8>) -> ProcessSums {
        self.files.retain(|pid, _| pids.contains(pid));
        pids.clone_into(&mut self.pids);
        let mut sums = ProcessSums {
            resident: Some(0),
            open_files: Some(0),
            files_share: None,
            read: Some(0),
            written: Some(0),
        };
        for &pid in pids {
            if let Some(files) = self.files.get_mut(&pid)
                && files.add_to(&mut sums, buffer)
            {
                continue;
            }
            // A new process, or another one that has the pid now.
            let mut files = ProcessFiles::open(pid);
            files.add_to(&mut sums, buffer);
            if self.files.len() < CACHED_PROCESSES {
                self.files.insert(pid, files);
            }
        }
        sums
    }
}

/// Files of one process, kept open. They stay bound to that process even if its pid is reused.
#[derive(Debug)]
struct ProcessFiles {
    pid: u32,
    memory: CachedFile,
    io: CachedFile,
    limits: CachedFile,
    /// The limit on open files, and readings since it was last read; at 0 it is read.
    files_limit: (Option<u64>, u32),
    descriptors: Option<OwnedFd>,
}

/// Sums over processes; a value is `None` as soon as one of them may not be read.
#[derive(Debug)]
pub(super) struct ProcessSums {
    resident: Option<u64>,
    open_files: Option<u64>,
    /// The highest share of its limit on open files among the processes.
    files_share: Option<f64>,
    read: Option<u64>,
    written: Option<u64>,
}

impl ProcessSums {
    /// Puts the sums into a sample.
    pub(super) fn fill(&self, sample: &mut Sample) {
        sample.resident_bytes = self.resident;
        sample.open_files = self.open_files;
        sample.open_files_share = self.files_share;
        sample.block_read_bytes = self.read;
        sample.block_written_bytes = self.written;
    }
}

impl ProcessFiles {
    fn open(pid: u32) -> ProcessFiles {
        let dir = format!("/proc/{pid}");
        let dir = Path::new(&dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        ProcessFiles {
            pid,
            memory: CachedFile::open(&dir.join("statm")),
            io: CachedFile::open(&dir.join("io")),
            limits: CachedFile::open(&dir.join("limits")),
            files_limit: (None, 0),
            descriptors: rustix::fs::open(dir.join("fd"), flags, Mode::empty()).ok(),
        }
    }

    /// Adds this process; `false` if it has ended.
    fn add_to(&mut self, sums: &mut ProcessSums, buffer: &mut Vec<u8>) -> bool {
        let Some(pages) = self.memory.read(buffer).and_then(|t| t.split(' ').nth(1)?.parse::<u64>().ok())
        else {
            return false;
        };
        add(&mut sums.resident, Some(pages * rustix::param::page_size() as u64));
        let open = self.open_files();
        add(&mut sums.open_files, open);
        let (limit, age) = &mut self.files_limit;
        if *age == 0 {
            *limit = self.limits.read(buffer).and_then(open_files::parsed).and_then(|limit| limit.current);
        }
        *age = (*age + 1) % LIMITS_EVERY;
        let share = open.zip(*limit);
        let share = share.filter(|(_, limit)| *limit > 0).map(|(open, limit)| open as f64 / limit as f64);
        sums.files_share = share.map(|s| s.max(sums.files_share.unwrap_or(0.0))).or(sums.files_share);
        let io = self.io.read(buffer);
        add(&mut sums.read, io.and_then(|text| keyed(text, "read_bytes:")));
        add(&mut sums.written, io.and_then(|text| keyed(text, "write_bytes:")));
        true
    }

    fn open_files(&self) -> Option<u64> {
        let descriptors = self.descriptors.as_ref()?;
        // Since Linux 6.2 the folder's size is the number of descriptors; before that, it is 0.
        match rustix::fs::fstat(descriptors).map(|s| s.st_size) {
            Ok(size) if size > 0 => Some(size as u64),
            _ => Some(fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?.count() as u64),
        }
    }
}

fn add(sum: &mut Option<u64>, value: Option<u64>) {
    *sum = sum.zip(value).map(|(sum, value)| sum + value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_counted_as_they_are() {
        let files = ProcessFiles::open(std::process::id());
        let dir = fs::read_dir("/proc/self/fd").unwrap();
        // Other tests in this process open and close files meanwhile: the count is bounded, not exact.
        assert!(files.open_files().unwrap() > 2 && dir.count() > 2);
    }
}
