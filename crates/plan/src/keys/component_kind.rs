//! Keys of components that loadlab does not start as processes: containers, Compose services, things that already run.

use crate::keys::shape::{ANY_PATTERN, Group, NAME_PATTERN, Need, Section, Shape, key};

const MOST_PORT: u64 = 65_535;

pub(crate) static CONTAINER: Section = Section {
    id: "container",
    called: "`container`",
    doc: "A container of Docker or Podman.",
    keys: &[
        key("image", Shape::Text, "Its image, such as `nginx:1.22`; pulled if it is not on this machine."),
        key(
            "build",
            Shape::TextOr(&BUILD),
            "The folder with the Dockerfile that its image is built from, before the first trial.",
        ),
        key(
            "command",
            Shape::Command,
            "In place of the image's: a line for its shell, or a list of words for its entry point.",
        ),
        key("entrypoint", Shape::ListOf(&Shape::Text), "In place of the image's entry point."),
        key(
            "port",
            Shape::Count(1, MOST_PORT),
            "The port in the container that is reached as the component's `port`.",
        ),
        key(
            "ports",
            Shape::MapOf(NAME_PATTERN, &Shape::Count(1, MOST_PORT)),
            "Ports in the container that are reached as the component's `ports` of these names.",
        ),
        key(
            "volumes",
            Shape::ListOf(&Shape::Text),
            "`./folder:/in/container` or `name:/in/container`, with `:ro` for reading only; one by name lives as long as the run.",
        ),
        key(
            "network",
            Shape::Text,
            "`run` (default): a bridge made for the run, where containers reach each other by name; `host`, \
             `none`, or an existing network.",
        ),
        key("health", Shape::In(&HEALTH), "How the engine checks its health. Default: as the image says."),
        key("user", Shape::Text, "The user its processes run as."),
    ],
    required: &[],
    groups: &[Group { keys: &["image", "build"], why: "either an existing image or one that is built" }],
    needs: &[],
};

pub(crate) static BUILD: Section = Section {
    id: "build",
    called: "`build`",
    doc: "An image that is built.",
    keys: &[
        key(
            "context",
            Shape::Text,
            "The folder that is sent to the engine, without what `.dockerignore` names.",
        ),
        key("dockerfile", Shape::Text, "The Dockerfile, from that folder on. Default `Dockerfile`."),
        key("args", Shape::MapOf(ANY_PATTERN, &Shape::Text), "Values for its `ARG`s."),
        key("target", Shape::Text, "The stage to stop at."),
    ],
    required: &["context"],
    groups: &[],
    needs: &[],
};

pub(crate) static HEALTH: Section = Section {
    id: "health",
    called: "`health`",
    doc: "A command that checks a container's health.",
    keys: &[
        key(
            "command",
            Shape::Command,
            "A line for the container's shell, or a list of words; exit status 0 is healthy.",
        ),
        key("interval", Shape::Duration, "Time from one check to the next. Default 1s."),
        key("timeout", Shape::Duration, "A check that takes longer has failed. Default 5s."),
        key("retries", Shape::Count(1, 1000), "How many failures make it unhealthy. Default 3."),
    ],
    required: &["command"],
    groups: &[],
    needs: &[],
};

pub(crate) static COMPOSE: Section = Section {
    id: "compose",
    called: "`compose`",
    doc: "An existing Compose file.",
    keys: &[
        key("file", Shape::Text, "The file, relative to the plan's folder."),
        key(
            "env",
            Shape::MapOf(crate::keys::ENV_PATTERN, &Shape::Text),
            "Values of the variables `${…}` in the file.",
        ),
        key(
            "lifetime",
            Shape::OneOf(&["trial", "case", "experiment"]),
            "How long all of it lives: as for components. Default trial.",
        ),
        key("timeout", Shape::Duration, "How long bringing it up may take. Default 5m."),
    ],
    required: &["file"],
    groups: &[],
    needs: &[],
};

pub(crate) static EXTERNAL: Section = Section {
    id: "external",
    called: "`external`",
    doc: "Something that runs already.",
    keys: &[
        key("pid", Shape::Text, "A process, with those it started."),
        key(
            "command",
            Shape::Text,
            "The process whose program or command line begins with this text, with those it started.",
        ),
        key("cgroup", Shape::Text, "A control group: a path such as `system.slice/nginx.service`."),
        key("container", Shape::Text, "A container, by its name or id."),
        key(
            "prometheus",
            Shape::Text,
            "An endpoint with metrics of the program itself (`process_*`), of cAdvisor or of node_exporter.",
        ),
        key(
            "match",
            Shape::MapOf(ANY_PATTERN, &Shape::Text),
            "Labels that the endpoint's metrics must have.",
        ),
    ],
    required: &[],
    groups: &[Group {
        keys: &["pid", "command", "cgroup", "container", "prometheus"],
        why: "one way to find it",
    }],
    needs: &[Need { key: "match", needs: &["prometheus"], hint: "labels belong to metrics" }],
};
