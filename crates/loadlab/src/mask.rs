//! The secrets of this process: what it writes to the terminal shows none of them. They are known from the moment on in
//! which they are read, so that an error that comes before there is a plan or a record hides them, too.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use loadlab_record::Secrets;

static SECRETS: RwLock<Option<Secrets>> = RwLock::new(None);

/// From here on nothing that is printed shows these. Those that are too short are left out.
pub fn add(values: Vec<String>) {
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    let secrets = secrets.get_or_insert_default();
    for value in values {
        let _ = secrets.add(value.as_bytes());
    }
}

/// The same.
pub fn add_all(more: &Secrets) {
    SECRETS.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().add_all(more);
}

/// All that were set.
pub fn secrets() -> Secrets {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// A text as it may be shown.
pub fn text(text: &str) -> Cow<'_, str> {
    match secrets().mask(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}
