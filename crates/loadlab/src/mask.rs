//! The secrets of this process, redacted from its output. They are registered as soon as they are read, so that an
//! error before there is a plan or a record is redacted, too.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use loadlab_record::Secrets;

static SECRETS: RwLock<Option<Secrets>> = RwLock::new(None);

/// Redacts these values from all further output. Values that are too short are left out.
pub fn add(values: Vec<String>) {
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    let secrets = secrets.get_or_insert_default();
    for value in values {
        let _ = secrets.add(value.as_bytes());
    }
}

/// As [`add`], for existing [`Secrets`].
pub fn add_all(more: &Secrets) {
    SECRETS.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().add_all(more);
}

/// All secrets so far.
pub fn secrets() -> Secrets {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// A text with its secrets masked.
pub fn text(text: &str) -> Cow<'_, str> {
    match secrets().mask(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}
