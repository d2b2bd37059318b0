//! Files that agents need, such as bodies and feeds. They are sent in pieces through the run's stream and verified
//! against the signed announcement.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use sha2::{Digest, Sha256};

use super::{Subjects, SwarmError, follow, publish_until_stored};
use crate::message::FileOffer;

/// Maximum total size of a run's files: the server and each agent store them on disk.
const MOST_BYTES: u64 = 1 << 30;
/// Size of a piece of a file: an agent's client holds several hundred pieces in memory.
const PIECE_BYTES: usize = 128 << 10;
/// How long the server may take to accept a piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);

/// Describes files before they are sent.
///
/// # Errors
/// A file cannot be read, or the files are too large in total.
pub fn offered(paths: &[PathBuf]) -> Result<Vec<FileOffer>, SwarmError> {
    let mut sum = 0;
    let mut offers = Vec::new();
    for path in paths {
        let offer = offer_of(path).map_err(|error| failed(path, &unread(&error)))?;
        sum += offer.bytes;
        if sum > MOST_BYTES {
            let gib = MOST_BYTES >> 30;
            return Err(failed(path, &format!("the files of the plan have more than {gib} GiB")));
        }
        offers.push(offer);
    }
    Ok(offers)
}

fn offer_of(path: &Path) -> io::Result<FileOffer> {
    let (mut file, mut hash, mut bytes) = (File::open(path)?, Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hash.update(&piece[..read]);
        bytes += read as u64;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(FileOffer { name, bytes, sha256: format!("{:x}", hash.finalize()) })
}

fn failed(path: &Path, why: &str) -> SwarmError {
    SwarmError::File { path: path.display().to_string(), why: why.to_owned() }
}

fn unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "it does not exist\nhint: agents receive files before the plan's commands run, which cannot make them"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Uploads files to the server in pieces of at most `most_bytes`.
///
/// # Errors
/// A file cannot be read, or the server does not accept it.
pub async fn send(
    context: &Context,
    subjects: &Subjects,
    paths: &[PathBuf],
    most_bytes: usize,
) -> Result<(), SwarmError> {
    let mut piece = vec![0; PIECE_BYTES.min(most_bytes)];
    for (index, path) in paths.iter().enumerate() {
        let unread = |error: io::Error| failed(path, &error.to_string());
        let mut file = File::open(path).map_err(unread)?;
        for number in 0.. {
            let read = file.read(&mut piece).map_err(unread)?;
            if read == 0 {
                break;
            }
            let id = format!("{}/file/{index}/{number}", subjects.run);
            let message = PublishMessage::build().payload(piece[..read].to_vec().into()).message_id(id);
            let sent = tokio::time::timeout(
                PIECE_TIMEOUT,
                publish_until_stored(context, subjects.file(index), message),
            );
            if sent.await.is_err() {
                let s = PIECE_TIMEOUT.as_secs();
                return Err(failed(path, &format!("the NATS server did not take a part of it within {s} s")));
            }
        }
    }
    Ok(())
}

/// Receives files into a folder that only this user can read. Returns their paths in the order of `offers`.
///
/// # Errors
/// A file cannot be written, or differs from what was announced; in words.
pub async fn receive(
    context: &Context,
    subjects: &Subjects,
    offers: &[FileOffer],
    dir: &Path,
) -> Result<Vec<PathBuf>, String> {
    if offers.is_empty() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for (index, offer) in offers.iter().enumerate() {
        files.push(Receiving::begin(offer, &dir.join(index.to_string()))?);
    }
    let mut outcome = Ok(());
    if !files.iter().all(Receiving::is_whole) {
        follow(context, subjects, subjects.files(), |message| {
            let index = message.subject.rsplit('.').next().and_then(|index| index.parse::<usize>().ok());
            if let Some(file) = index.and_then(|index| files.get_mut(index)) {
                outcome = file.take(&message.payload);
            }
            outcome.is_ok() && !files.iter().all(Receiving::is_whole)
        })
        .await;
    }
    outcome?;
    files.into_iter().map(Receiving::end).collect()
}

/// A file that arrives in pieces.
struct Receiving<'o> {
    offer: &'o FileOffer,
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl<'o> Receiving<'o> {
    /// Creates the file in its own folder.
    fn begin(offer: &'o FileOffer, dir: &Path) -> Result<Self, String> {
        // The announcement is signed, but the name may still not be a valid file name.
        let name = Path::new(&offer.name).file_name().unwrap_or("file".as_ref());
        let path = dir.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let file =
            made.and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path));
        let file = file.map_err(|error| unwritten(&path, &error))?;
        Ok(Receiving { offer, path, file, hash: Sha256::new(), bytes: 0 })
    }

    fn is_whole(&self) -> bool {
        self.bytes >= self.offer.bytes
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        self.bytes += piece.len() as u64;
        // No one who can write to the stream may fill the disk.
        if self.bytes > self.offer.bytes {
            return Err(self.changed());
        }
        self.hash.update(piece);
        self.file.write_all(piece).map_err(|error| unwritten(&self.path, &error))
    }

    fn end(self) -> Result<PathBuf, String> {
        match self.is_whole() && format!("{:x}", self.hash.clone().finalize()) == self.offer.sha256 {
            true => Ok(self.path),
            false => Err(self.changed()),
        }
    }

    fn changed(&self) -> String {
        format!(
            "the file `{}` is not what the coordinator announced; was it changed meanwhile?",
            self.offer.name
        )
    }
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}\nhint: --spool names another folder", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_announced_is_accepted_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("rows.csv");
        std::fs::write(&path, "id\n1\n2\n").expect("written");
        let offers = offered(std::slice::from_ref(&path)).expect("it can be read");
        assert_eq!((offers[0].name.as_str(), offers[0].bytes), ("rows.csv", 7));
        // `printf 'id\n1\n2\n' | sha256sum`
        assert_eq!(offers[0].sha256, "1d1c91d15ace6e21ea5f551e16e717f326992bdf800f6696628859be29b906bf");
        let received = |name: &str, pieces: &[&str]| {
            let mut file = Receiving::begin(&offers[0], &dir.path().join(name))?;
            pieces.iter().try_for_each(|piece| file.take(piece.as_bytes()))?;
            file.end()
        };
        let path = received("whole", &["id\n1", "\n2\n"]).expect("it is the same");
        assert_eq!(std::fs::read_to_string(path).expect("there"), "id\n1\n2\n");
        for (name, pieces) in
            [("changed", &["id\n1\n3\n"][..]), ("short", &["id\n"]), ("long", &["id\n1\n2\n", "3"])]
        {
            let why = received(name, pieces).expect_err(name);
            assert!(why.contains("`rows.csv` is not what the coordinator announced"), "{why}");
        }
    }

    #[test]
    fn names_do_not_leave_the_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, is) in [("../../evil", "evil"), ("/etc/evil", "evil"), ("..", "file"), ("", "file")] {
            let offer = FileOffer { name: name.to_owned(), bytes: 0, sha256: String::new() };
            let place = dir.path().join(format!("{}-{is}", name.len()));
            assert_eq!(Receiving::begin(&offer, &place).expect("made").path, place.join(is));
        }
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = offered(&["/nonexistent/feed.csv".into()]).expect_err("it is missing").to_string();
        assert!(
            error.starts_with("the file /nonexistent/feed.csv cannot be sent to agents: it does not exist"),
            "{error}"
        );
    }
}
