//! Files that loadlab writes: its own, whole or not at all and never through a link, and those that the user names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes a file beside its place, waits until it is on disk, and renames it into place: a reader sees the old file or
/// the new one. A symbolic link at either path is replaced and never followed.
///
/// # Errors
/// The system's error; the old file is then unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let moved = write_and_sync(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if let Err(e) = moved {
        // Best effort: a leftover is ignored by readers.
        let _ = fs::remove_file(&beside);
        return Err(e);
    }
    // The name is on disk only once its folder is.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // `create_new` follows no link. A leftover of a killed run is removed, and so is a link.
    let create = || OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = create().or_else(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| create()),
        _ => Err(e),
    })?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Opens a file that the user named for writing, as a shell's `>` does: its old content is discarded, and a link such
/// as `/dev/stdout` is followed. But it refuses a file that another user has put under that name into a world-writable
/// folder, such as `/tmp`: the kernel can refuse that itself (`fs.protected_symlinks`, `fs.protected_regular`), but not
/// every system enables it.
///
/// # Errors
/// The system's error, or that the file belongs to another user.
pub fn create_named(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(found), Ok(folder)) = (fs::symlink_metadata(path), fs::metadata(folder))
        && is_planted(found.uid(), FolderAccess { owner: folder.uid(), mode: folder.mode() }, user())
    {
        let kind = if found.is_symlink() { "symbolic link" } else { "file" };
        let why =
            format!("there is a {kind} of another user (uid {}) in a world-writable folder", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    File::create(path)
}

/// Who may write to a folder.
#[derive(Clone, Copy, Debug)]
struct FolderAccess {
    owner: u32,
    mode: u32,
}

/// Whether one owner's file in another owner's folder was planted, by the rule the kernel applies where that is
/// enabled.
fn is_planted(owner: u32, folder: FolderAccess, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o002;
    let is_for_everybody = folder.mode & (STICKY | OTHERS_WRITE) == STICKY | OTHERS_WRITE;
    is_for_everybody && owner != user && owner != folder.owner
}

/// Why an existing folder must not hold a record: others could put their own links or files where the record's files
/// will be.
///
/// # Errors
/// The system's error when inspecting it.
pub fn why_untrusted(folder: &Path) -> io::Result<Option<String>> {
    let user = user();
    let link = fs::symlink_metadata(folder)?;
    if link.is_symlink() && link.uid() != user && link.uid() != 0 {
        return Ok(Some(format!("it is a symbolic link of another user (uid {})", link.uid())));
    }
    let found = fs::metadata(folder)?;
    Ok(shared(found.uid(), found.mode(), user))
}

fn shared(owner: u32, mode: u32, user: u32) -> Option<String> {
    const OTHERS_WRITE: u32 = 0o022;
    if owner != user {
        return Some(format!("it belongs to another user (uid {owner}; loadlab runs as {user})"));
    }
    let can_write = mode & OTHERS_WRITE;
    (can_write != 0).then(|| format!("others can write to it (mode {:04o})", mode & 0o7777))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, file) = (dir.path().join("victim"), dir.path().join("report.html"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &file).unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("report.html.tmp")).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing lies beside it");
        // A leftover of a killed run is no obstacle.
        fs::write(dir.path().join("report.html.tmp"), "half").unwrap();
        replace(&file, b"newer").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
    }

    #[test]
    fn a_named_file_is_written_as_a_shell_would() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "old and long").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        create_named(&link).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(create_named(Path::new("/dev/null")).is_ok());
        assert!(create_named(&dir.path().join("no/such")).is_err());
    }

    #[test]
    fn what_others_put_into_a_folder_for_everybody_is_planted() {
        let (root, me, mallory) = (0, 1000, 1001);
        let folder = |owner, mode| FolderAccess { owner, mode };
        let (tmp, home, shared) = (folder(root, 0o41777), folder(me, 0o40755), folder(mallory, 0o40777));
        for (owner, folder, user, expect) in [
            (mallory, tmp, me, true),
            (mallory, tmp, root, true),
            (me, tmp, me, false),
            (root, tmp, me, false),
            (mallory, home, me, false),
            (mallory, shared, me, false),
            (me, tmp, root, true),
        ] {
            assert_eq!(is_planted(owner, folder, user), expect, "{owner} in {folder:?} for {user}");
        }
    }

    #[test]
    fn folders_that_others_can_write_to() {
        let check = |owner, mode, expect: Option<&str>| {
            let found = shared(owner, mode, 1000);
            match expect {
                None => assert_eq!(found, None),
                Some(reason) => assert!(found.as_deref().is_some_and(|f| f.contains(reason)), "{found:?}"),
            }
        };
        check(1000, 0o40755, None);
        check(1000, 0o40700, None);
        check(0, 0o40755, Some("another user (uid 0; loadlab runs as 1000)"));
        check(1001, 0o40700, Some("another user"));
        check(1000, 0o40775, Some("mode 0775"));
        check(1000, 0o41777, Some("mode 1777"));
    }

    #[test]
    fn ones_own_folders() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(why_untrusted(dir.path()).unwrap(), None);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(why_untrusted(&link).unwrap(), None, "a link of one's own");
        assert!(why_untrusted(&dir.path().join("none")).is_err());
    }
}
