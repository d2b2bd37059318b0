//! The secrets of this process: what it writes to the terminal shows none of them. They are known from the moment on in
//! which they are read, so that an error that comes before there is a plan or a record hides them, too.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use loadlab_record::Secrets;

static SECRETS: RwLock<Option<Secrets>> = RwLock::new(None);

/// From here on nothing that is printed shows these.
#[allow(dead_code)] // nothing gives secrets yet
pub fn set(secrets: Secrets) {
    *SECRETS.write().unwrap_or_else(PoisonError::into_inner) = Some(secrets);
}

/// All that were set.
pub fn secrets() -> Secrets {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// A text as it may be shown.
pub fn text(text: &str) -> Cow<'_, str> {
    let secrets = secrets();
    if secrets.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(secrets.mask(text).into_owned()) }
}
