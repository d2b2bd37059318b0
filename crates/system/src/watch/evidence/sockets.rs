//! The kernel's table of sockets, by component.
