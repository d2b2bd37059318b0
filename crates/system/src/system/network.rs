//! The network of an isolated component, changed while it runs.

use std::net::IpAddr;

use super::System;
use crate::error::Result;
use crate::netns::{Net, no_link};

/// Changes to the network of an isolated component while it runs. All of them need [`crate::Isolation::Each`].
impl System {
    /// Gives the system the run's namespaces: components that come up from now on get their own.
    pub fn isolate(&mut self, net: Net) {
        self.net = Some(net);
    }

    /// A component's address in the run's namespaces, if it has one; known before it is up.
    pub fn own_address(&self, component: &str) -> Option<IpAddr> {
        self.net.as_ref()?.address(component)
    }

    /// Disconnects a component: nothing reaches it and nothing it sends arrives. Its connections stay open and hang.
    ///
    /// # Errors
    /// It is not up, or has no network link.
    pub fn disconnect(&self, component: &str) -> Result<()> {
        self.net(component, "disconnect")?
            .at_port(component, "disconnect", &|port| format!("link set {port} down"))
    }

    /// Reconnects a component.
    ///
    /// # Errors
    /// It is not up, or has no network link.
    pub fn reconnect(&self, component: &str) -> Result<()> {
        self.net(component, "reconnect")?
            .at_port(component, "reconnect", &|port| format!("link set {port} up"))
    }

    /// Limits a component's link to this many bytes per second, each way; `None` removes the limit.
    ///
    /// # Errors
    /// It is not up, or has no network link; the kernel cannot apply the limit.
    pub fn set_bandwidth(&self, component: &str, bytes_per_s: Option<u64>) -> Result<()> {
        self.net(component, "limit the bandwidth of")?.set_bandwidth(component, bytes_per_s)
    }

    /// The limit set by [`System::set_bandwidth`], read back.
    pub(crate) fn bandwidth(&self, component: &str) -> Result<Option<u64>> {
        self.net(component, "read the bandwidth of")?.bandwidth(component)
    }

    fn net(&self, component: &str, doing: &'static str) -> Result<&Net> {
        self.net.as_ref().ok_or_else(|| no_link(component, doing))
    }
}
