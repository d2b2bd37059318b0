//! Maps addresses of processes and of the kernel to functions.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use blazesym::Pid;
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use loadlab_record::watch::profile::KERNEL;

/// How often a perf map of code made at run time is read: its process may be in the middle of writing a line.
const TRIES: usize = 5;
/// Longer names are cut: those of generic functions have no bound.
const MAX_NAME_CHARS: usize = 400;

/// Finds names of functions.
pub(super) struct Names {
    symbolizer: Symbolizer,
}

/// A function's name, or a description in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub text: String,
    /// Whether `text` is the name of a function.
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

    /// The functions at addresses of a process, which must still exist.
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

    /// Names via `/proc/PID/map_files`, which are right in any mount namespace, if permitted; else by path.
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
        // Use the running kernel's own symbols; an image on disk may be another kernel's, and takes seconds to read.
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

/// A function with this name, on one line and not too long.
fn function(text: &str) -> Name {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = text.char_indices().nth(MAX_NAME_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    Name { text, is_function: true }
}

/// Finds callers missing from stacks: code without frame pointers, as in most distributions' C libraries, leaves its
/// caller's frame pointer as it is, so the return address into that caller is not on the recorded chain. But the next
/// return address is, and the call instruction before it shows which function it called.
pub(super) struct Calls {
    maps: String,
    memory: Option<File>,
}

impl Calls {
    pub fn of_process(pid: u32) -> Calls {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Calls { maps, memory: File::open(format!("/proc/{pid}/mem")).ok() }
    }

    /// For each pair of inner and outer address, the entry of the function missing between them. Only if that function
    /// is in the outer address's file and the inner address is in another: within one file, a missing function cannot
    /// be distinguished from a call that was inlined or replaced by a jump.
    pub fn between(&self, pairs: &BTreeSet<(u64, u64)>) -> HashMap<(u64, u64), u64> {
        let maps = Maps::read(&self.maps);
        let Some(memory) = &self.memory else { return HashMap::new() };
        let mut targets: HashMap<u64, Option<u64>> = HashMap::new();
        let missing = |(inner, outer): &(u64, u64)| {
            let target = *targets.entry(*outer).or_insert_with(|| called_before(memory, *outer));
            let target = target?;
            let file = |address: u64| maps.file(address);
            let is_missing = file(target)? == file(*outer)? && file(target) != file(*inner);
            is_missing.then_some(((*inner, *outer), target))
        };
        pairs.iter().filter_map(missing).collect()
    }
}

/// The target of the call that returns to this address, if the instruction shows it (x86-64).
fn called_before(memory: &File, address: u64) -> Option<u64> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    const CALL: u8 = 0xe8;
    const CALL_AT: [u8; 2] = [0xff, 0x15];
    let mut code = [0; 6];
    memory.read_exact_at(&mut code, address.checked_sub(6)?).ok()?;
    let [first, second, distance @ ..] = code;
    let target = address.checked_add_signed(i32::from_le_bytes(distance).into())?;
    if [first, second] == CALL_AT {
        let mut pointer = [0; 8];
        memory.read_exact_at(&mut pointer, target).ok()?;
        return Some(u64::from_le_bytes(pointer));
    }
    (second == CALL).then_some(target)
}

/// The mappings of a process.
struct Maps<'a>(Vec<(std::ops::Range<u64>, &'a str)>);

impl Maps<'_> {
    /// Parses lines such as `7f00-7fff r-xp 00000000 fd:00 123   /lib/libc.so.6`.
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

    /// The path of the file mapped at an address.
    fn file(&self, address: u64) -> Option<&str> {
        let (_, path) = self.0.iter().find(|(range, _)| range.contains(&address))?;
        path.starts_with('/').then_some(path)
    }

    /// The name of the file mapped at an address, in brackets.
    fn module(&self, address: u64) -> String {
        let found = self.0.iter().find(|(range, _)| range.contains(&address));
        let path = found.map_or("", |(_, path)| path.trim_end_matches(" (deleted)"));
        let file = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        match (found, file) {
            (None, _) => "[unknown]".to_owned(),
            (_, None) => "[made at run time]".to_owned(),
            // `[vdso]` and the like already have brackets.
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

    /// Calls back from another file, and says where it returns to.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_caller_of_code_without_frame_pointers_is_found_by_the_call_before() {
        let own = called_before as *const () as u64;
        let code = fs::read(std::env::current_exe().unwrap()).unwrap();
        let pid = std::process::id();
        let calls = Calls::of_process(pid);
        let maps = Maps::read(&calls.maps);
        // Any call in this program's code: its target, and its return address.
        let (range, path) = maps.0.iter().find(|(range, _)| range.contains(&own)).unwrap();
        assert!(!code.is_empty() && maps.file(own) == Some(*path));
        let memory = calls.memory.as_ref().unwrap();
        let call = |at: &u64| {
            called_before(memory, *at).filter(|target| range.contains(target)).map(|target| (*at, target))
        };
        let (outer, target) = (own..range.end).find_map(|at| call(&at)).unwrap();
        let libc = libc::getpid as *const () as u64;
        assert_ne!(maps.file(libc), maps.file(own), "the tests have a C library of their own");
        let pairs = BTreeSet::from([(libc, outer), (own, outer)]);
        assert_eq!(calls.between(&pairs), HashMap::from([((libc, outer), target)]));
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
        assert_eq!(function(&"é".repeat(500)).text.chars().count(), MAX_NAME_CHARS + 1);
    }
}
