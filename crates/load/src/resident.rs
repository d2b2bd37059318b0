//! Memory that this process holds but no longer uses: code that only its start-up needed.
//!
//! The kernel maps code in 64 KiB pieces around what is used, and functions that run once lie among those that run all
//! the time. After reading a command line and a plan, half of the mapped code is never used again.

use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Releases the mapped pages of files that nothing writes to: code and tables. Pages used again are mapped again, from
/// the page cache, by a fault that reads nothing. Applies to the whole process; do not call it while a load runs.
#[expect(unsafe_code, reason = "madvise, which gives memory back")]
pub fn leave_start_behind() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives free memory back to the kernel; nothing refers to it.
    let _ = unsafe { libc::malloc_trim(0) };
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for range in unwritten(&maps) {
        let (start, length) = (std::ptr::without_provenance_mut(range.start), range.len());
        // SAFETY: the mapping is private, cannot be written to, and has no page of its own: the next read finds the
        // same bytes, those of the file. If it is gone by now, the kernel refuses.
        let _ = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
    }
}

/// Mappings of files that cannot be written to and have no written page. A library's relocated tables have written
/// pages, and so has code in which a debugger has set breakpoints. `maps` is `/proc/self/smaps` (proc_pid_smaps(5)).
fn unwritten(maps: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut open: Option<Range<usize>> = None;
    // Private pages, in memory and swapped out; both are listed for every mapping, in this order.
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some(kib)) => open = open.filter(|_| kib == "0"),
            (Some("Swap:"), Some("0")) => ranges.extend(open.take()),
            (Some(range), Some("r-xp" | "r--p")) => {
                let of_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
                open = range_of(range).filter(|_| of_file);
            }
            (Some(range), _) if !range.ends_with(':') => open = None,
            _ => {}
        }
    }
    ranges
}

fn range_of(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_pages_are_released() {
        let map = |head: &str, anonymous: u32, swap: u32| {
            format!(
                "{head}\nSize:                100 kB\nRss:                  60 kB\nAnonymous:       {anonymous} kB\n\
                 AnonHugePages:         0 kB\nSwap:                  {swap} kB\nSwapPss:               0 kB\n\
                 VmFlags: rd ex mr mw me sd \n"
            )
        };
        let maps = [
            map("1000-2000 r--p 00000000 fe:00 11   /bin/it", 0, 0),
            map("2000-5000 r-xp 00001000 fe:00 11   /bin/it with a name", 0, 0),
            map("5000-6000 r--p 00004000 fe:00 11   /bin/it", 8, 0),
            map("6000-7000 r-xp 00005000 fe:00 11   /bin/it", 0, 4),
            map("7000-8000 rw-p 00006000 fe:00 11   /bin/it", 0, 0),
            map("8000-9000 r--s 00000000 fe:00 12   /lib/shared", 0, 0),
            map("9000-a000 r-xp 00000000 00:00 0    [vdso]", 0, 0),
            map("a000-b000 r--p 00000000 00:00 0 ", 0, 0),
            map("b000-d000 ---p 00000000 fe:00 11   /bin/it", 0, 0),
            map("7f00-7f10 r-xp 00000000 fe:00 13   /lib/c", 0, 0),
        ];
        assert_eq!(unwritten(&maps.concat()), [0x1000..0x2000, 0x2000..0x5000, 0x7f00..0x7f10]);
        assert!(unwritten("").is_empty());
        assert!(unwritten("nonsense\nr-xp r-xp\nAnonymous:\nSwap: 0 kB").is_empty());
    }

    #[test]
    fn the_program_continues_without_its_startup_pages() {
        let holds_this = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let code = the_program_continues_without_its_startup_pages as fn() as usize;
            unwritten(&maps).iter().any(|range| range.contains(&code))
        };
        assert!(holds_this());
        leave_start_behind();
        assert!(holds_this());
    }
}
