//! Which values are left out of JSON.

/// For serde's `skip_serializing_if`: no, zero and nothing are left out, and read back as such.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
