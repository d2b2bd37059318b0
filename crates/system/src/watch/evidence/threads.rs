//! What threads do, and what they wait for.
