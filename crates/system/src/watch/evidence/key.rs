//! The key of a pair of components, over TCP, Unix sockets and UDP alike.

/// Who asks whom, and at which address: [`loadlab_record::watch::evidence::Pair`] defines each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PairKey {
    pub from: String,
    pub to: String,
    pub address: String,
}
