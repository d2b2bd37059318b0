//! The network of an isolated component, changed while it runs.

use std::net::IpAddr;

use super::System;
use crate::error::Result;
use crate::netns::{Net, no_link};

/// What can be done to the network of an isolated component while it runs. All of them need [`crate::Isolation::Each`].
impl System {
    /// Gives the system the run's namespaces: components that come up from now on are put into theirs.
    pub fn isolate(&mut self, net: Net) {
        self.net = Some(net);
    }

    /// Where a component is or will be reached, if it has an address of its own in the run's namespaces.
    pub fn own_address(&self, component: &str) -> Option<IpAddr> {
        self.net.as_ref()?.address(component)
    }

    /// Cuts a component off: nothing reaches it and nothing it sends arrives. Its connections stay open and hang.
    ///
    /// # Errors
    /// It has no link of its own, or is not up.
    pub fn cut(&self, component: &str) -> Result<()> {
        self.net(component, "cut off")?.at_port(component, "cut off", &|port| format!("link set {port} down"))
    }

    /// Joins a component that was cut off.
    ///
    /// # Errors
    /// It has no link of its own, or is not up.
    pub fn heal(&self, component: &str) -> Result<()> {
        self.net(component, "join")?.at_port(component, "join", &|port| format!("link set {port} up"))
    }

    /// Lets at most so many bytes a second go over a component's link, each way; `None` lets all through again.
    ///
    /// # Errors
    /// It has no link of its own, or is not up; the kernel cannot do it.
    pub fn narrow(&self, component: &str, bytes_per_s: Option<u64>) -> Result<()> {
        self.net(component, "narrow")?.narrow(component, bytes_per_s)
    }

    /// What [`System::narrow`] has set, read back.
    pub(crate) fn width(&self, component: &str) -> Result<Option<u64>> {
        self.net(component, "look at")?.width(component)
    }

    fn net(&self, component: &str, doing: &'static str) -> Result<&Net> {
        self.net.as_ref().ok_or_else(|| no_link(component, doing))
    }
}
