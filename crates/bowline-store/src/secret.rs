//! A secret as the store keeps it.

/// A secret of the installation, in the form in which it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// Of a signing key: its number, which tokens name.
    pub name: String,
    pub is_signing_key: bool,
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredSecret({})", self.name)
    }
}
