//! The secrets of this process, redacted from its output. They are registered as soon as they are read, so that an
//! error before there is a plan or a record is redacted, too.

use std::borrow::Cow;
use std::sync::Mutex;

use loadlab_record::Secrets;
use loadlab_record::sync::lock;

static SECRETS: Mutex<Option<Secrets>> = Mutex::new(None);

/// Redacts these values from all further output. Values that are too short are left out.
pub fn add(values: Vec<String>) {
    let mut secrets = lock(&SECRETS);
    let secrets = secrets.get_or_insert_default();
    for value in values {
        let _ = secrets.add(value.as_bytes());
    }
}

/// As [`add`], for existing [`Secrets`].
pub fn add_all(more: &Secrets) {
    lock(&SECRETS).get_or_insert_default().add_all(more);
}

/// All secrets so far.
pub fn secrets() -> Secrets {
    lock(&SECRETS).clone().unwrap_or_default()
}

/// A text with its secrets masked.
pub fn text(text: &str) -> Cow<'_, str> {
    match secrets().mask(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}
