//! Addresses of processes and of the kernel → functions.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use loadlab_record::profile::KERNEL;

/// How often a list of code made at run time is read: its process may be writing a line of it.
const TRIES: usize = 5;
/// Longer names are cut: those of generic functions have no bound.
const LONGEST: usize = 400;

/// Finds names of functions.
pub(super) struct Names {
    symbolizer: Symbolizer,
}

/// A function, or what is known in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub text: String,
    /// It is that of a function.
    pub is_function: bool,
}

impl Name {
    fn unknown(text: String) -> Name {
        Name { text, is_function: false }
    }
}

impl Names {
    pub fn new() -> Names {
        let builder = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false);
        Names { symbolizer: builder.enable_demangling(true).build() }
    }

    /// The functions at addresses of a process, which must still be there.
    pub fn of_process(&self, pid: u32, addresses: &[u64]) -> Vec<Name> {
        let maps = match fs::read_to_string(format!("/proc/{pid}/maps")) {
            Ok(maps) => maps,
            Err(error) => {
                let is_hidden = error.kind() == io::ErrorKind::PermissionDenied;
                let text = if is_hidden { "[another user's process]" } else { "[ended process]" };
                return addresses.iter().map(|_| Name::unknown(text.into())).collect();
            }
        };
        let found = self.symbolized(pid, addresses);
        let maps = Maps::read(&maps);
        let name = |(place, address): (usize, &u64)| {
            let symbol = found.get(place).and_then(Option::as_ref);
            symbol.map_or_else(|| Name::unknown(maps.module(*address)), |text| function(text))
        };
        addresses.iter().enumerate().map(name).collect()
    }

    /// Names by `/proc/PID/map_files`, which are right in any mount namespace, if that is allowed; else by path.
    fn symbolized(&self, pid: u32, addresses: &[u64]) -> Vec<Option<String>> {
        for attempt in 0..TRIES {
            for map_files in [true, false] {
                let mut process = Process::new(Pid::from(pid));
                (process.map_files, process.perf_map) = (map_files, attempt + 1 < TRIES);
                let source = Source::Process(process);
                if let Ok(found) = self.symbolizer.symbolize(&source, Input::AbsAddr(addresses)) {
                    return found.iter().map(text_of).collect();
                }
            }
        }
        Vec::new()
    }

    /// The functions at addresses of the kernel.
    pub fn of_kernel(&self, addresses: &[u64]) -> HashMap<u64, Name> {
        // The running kernel's own list; an image on disk may be another's, and is read for seconds.
        let kernel = Kernel { vmlinux: blazesym::MaybeDefault::None, ..Kernel::default() };
        let found = self.symbolizer.symbolize(&Source::Kernel(kernel), Input::AbsAddr(addresses));
        let found = found.map_or(Vec::new(), |found| found.iter().map(text_of).collect());
        let name = |(place, address): (usize, &u64)| {
            let symbol = found.get(place).and_then(Option::as_ref);
            let text = symbol.map_or("[unknown]", String::as_str);
            (*address, Name { text: format!("{text}{KERNEL}"), is_function: symbol.is_some() })
        };
        addresses.iter().enumerate().map(name).collect()
    }
}

fn text_of(symbolized: &Symbolized<'_>) -> Option<String> {
    let name = symbolized.as_sym()?.name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// A function of that name, on one line and not too long.
fn function(text: &str) -> Name {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    Name { text, is_function: true }
}

/// What is mapped into a process.
struct Maps<'a>(Vec<(std::ops::Range<u64>, &'a str)>);

impl Maps<'_> {
    /// Lines such as `7f00-7fff r-xp 00000000 fd:00 123   /lib/libc.so.6`.
    fn read(text: &str) -> Maps<'_> {
        let line = |line: &'_ str| -> Option<(std::ops::Range<u64>, usize)> {
            let (first, last) = line.split(' ').next()?.split_once('-')?;
            let range = u64::from_str_radix(first, 16).ok()?..u64::from_str_radix(last, 16).ok()?;
            let mut fields = 0;
            let mut was_blank = true;
            let path = line.char_indices().find(|(_, c)| {
                fields += u32::from(was_blank && *c != ' ');
                was_blank = *c == ' ';
                fields == 6
            });
            Some((range, path.map_or(line.len(), |(at, _)| at)))
        };
        Maps(text.lines().filter_map(|text| line(text).map(|(range, at)| (range, &text[at..]))).collect())
    }

    /// The file that an address belongs to, in brackets.
    fn module(&self, address: u64) -> String {
        let found = self.0.iter().find(|(range, _)| range.contains(&address));
        let path = found.map_or("", |(_, path)| path.trim_end_matches(" (deleted)"));
        let file = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        match (found, file) {
            (None, _) => "[unknown]".to_owned(),
            (_, None) => "[made at run time]".to_owned(),
            // `[vdso]` and the like have their brackets.
            (_, Some(name)) if name.starts_with('[') => name,
            (_, Some(name)) => format!("[{}]", function(&name).text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_symbol_has_the_name_of_its_file() {
        let maps = Maps::read(
            "1000-2000 r-xp 00000000 fd:00 123                        /usr/sbin/my server (deleted)\n\
             2000-3000 rwxp 00000000 00:00 0 \n\
             3000-4000 r-xp 00000000 00:00 0                          [vdso]\n\
             odd\n",
        );
        let modules = [0x1000, 0x1fff, 0x2000, 0x3abc, 0x4000].map(|address| maps.module(address));
        assert_eq!(modules, ["[my server]", "[my server]", "[made at run time]", "[vdso]", "[unknown]"]);
    }

    #[test]
    fn functions_of_this_process_and_of_the_kernel_have_names() {
        let own = what_has_no_symbol_has_the_name_of_its_file as *const () as u64;
        let names = Names::new().of_process(std::process::id(), &[own, 1]);
        assert!(names[0].text.contains("what_has_no_symbol_has_the_name_of_its_file"), "{names:?}");
        assert_eq!((names[0].is_function, names[1].text.as_str()), (true, "[unknown]"));
        assert_eq!(Names::new().of_process(u32::MAX >> 1, &[1])[0].text, "[ended process]");
        assert_eq!(Names::new().of_kernel(&[1])[&1].text, "[unknown] [kernel]");
    }

    #[test]
    fn long_names_and_breaks_of_lines_are_cut() {
        assert_eq!(function("a\nb").text, "a b");
        assert_eq!(function(&"é".repeat(500)).text.chars().count(), LONGEST + 1);
    }
}
