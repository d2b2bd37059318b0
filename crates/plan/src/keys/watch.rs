//! Keys about what components may use, what is measured of them, and what happens to them: a part of the table in
//! `keys`.

use crate::keys::shape::{ANY_PATTERN, Group, Need, Section, Shape, key};

pub(crate) static LIMITS: Section = Section {
    id: "limits",
    called: "`limits`",
    doc: "What a component may use; `none` for no limit but the one that a Compose file sets.",
    keys: &[
        key("cpu", Shape::Cpu, "CPU: `1%` of one core, or `0.5` cores."),
        key("memory", Shape::Size, "Memory, such as `15MiB`."),
        key("memory_swap", Shape::Size, "Memory and swap together; without it there is no swap."),
        key("pids", Shape::CountOrNone, "Processes and threads."),
        key("open_files", Shape::CountOrNone, "Open files of each process."),
        key("block_read", Shape::ByteRate, "Bytes read per second from each disk, such as `10MiB/s`."),
        key("block_write", Shape::ByteRate, "Bytes written per second to each disk."),
        key("block_read_ops", Shape::RateOrNone, "Reads per second from each disk, such as `100/s`."),
        key("block_write_ops", Shape::RateOrNone, "Writes per second to each disk."),
        key("cpuset", Shape::Text, "Cores it may run on, such as `0-1,3`."),
        key(
            "bandwidth",
            Shape::ByteRate,
            "Bytes per second over its link, each way, such as `1MiB/s`; needs `isolate: true`.",
        ),
        key(
            "delay",
            Shape::DurationOrNone,
            "By how much a round trip over its link is longer: half of it each way.",
        ),
        key("jitter", Shape::DurationOrNone, "Maximum variation of the delay."),
        key("packet_loss", Shape::ShareOrNone, "Share of packets on its link that are lost, such as `1%`."),
    ],
    required: &[],
    groups: &[],
    needs: &[
        Need {
            key: "memory_swap",
            needs: &["memory"],
            hint: "it limits memory and swap together; `memory` says how much of that may be memory",
        },
        Need { key: "jitter", needs: &["delay"], hint: "it is the variation of `delay`" },
    ],
};

pub(crate) static PROBE: Section = Section {
    id: "probe",
    called: "a probe",
    doc: "A number read from the system while it runs.",
    keys: &[
        key("http", Shape::Text, "A URL that answers with JSON."),
        key("json", Shape::Text, "Where the number is: a JSON pointer such as `/stored`."),
        key("prometheus", Shape::Text, "A URL that answers in Prometheus' text format."),
        key("metric", Shape::Text, "The metric; samples that match are added up."),
        key("labels", Shape::MapOf(ANY_PATTERN, &Shape::Text), "Labels that the metric's samples must have."),
        key("redis", Shape::Text, "HOST:PORT of a Redis server."),
        key("get", Shape::Text, "The number stored at this key."),
        key("llen", Shape::Text, "The length of the list at this key."),
        key("xlen", Shape::Text, "The length of the stream at this key."),
        key("scard", Shape::Text, "The members of the set at this key."),
        key("zcard", Shape::Text, "The members of the sorted set at this key."),
        key("hlen", Shape::Text, "The fields of the hash at this key."),
        key("strlen", Shape::Text, "The length of the text at this key."),
        key("pfcount", Shape::Text, "The approximate number of distinct elements added at this key."),
        key(
            "call",
            Shape::ListOf(&Shape::Text),
            "Any command that answers with a number, such as `[DBSIZE]`.",
        ),
        key("command", Shape::Command, "A command that prints the number in its last line."),
        key(
            "log",
            Shape::Text,
            "A component whose log lines are counted, from the start of the trial's loads.",
        ),
        key("contains", Shape::Text, "Substring a line must contain."),
    ],
    required: &[],
    groups: &[Group {
        keys: &["http", "prometheus", "redis", "command", "log"],
        why: "a probe has one source",
    }],
    needs: &[
        Need {
            key: "http",
            needs: &["json"],
            hint: "`json: /stored` says where the number is in the response",
        },
        Need { key: "json", needs: &["http"], hint: "`http` is the URL that returns it" },
        Need { key: "prometheus", needs: &["metric"], hint: "`metric` is the name of the metric" },
        Need { key: "metric", needs: &["prometheus"], hint: "`prometheus` is the URL that has it" },
        Need { key: "labels", needs: &["prometheus"], hint: "`prometheus` is the URL that has them" },
        Need {
            key: "redis",
            needs: &["get", "llen", "xlen", "scard", "zcard", "hlen", "strlen", "pfcount", "call"],
            hint: "say what to read: `llen: queue`, or `call: [DBSIZE]`",
        },
        Need { key: "get", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "llen", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "xlen", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "scard", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "zcard", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "hlen", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "strlen", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "pfcount", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "call", needs: &["redis"], hint: "`redis` is HOST:PORT" },
        Need { key: "log", needs: &["contains"], hint: "`contains` is a part of the lines to count" },
        Need { key: "contains", needs: &["log"], hint: "`log` is the component whose lines are counted" },
    ],
};

/// Redis commands with a key whose answer is a number.
pub(crate) const REDIS_KEYS: &[&str] =
    &["get", "llen", "xlen", "scard", "zcard", "hlen", "strlen", "pfcount"];

pub(crate) static EVENT: Section = Section {
    id: "event",
    called: "an event",
    doc: "Something that happens to components during the load.",
    keys: &[
        key("at", Shape::Duration, "Time after the start of the trial's loads."),
        key(
            "do",
            Shape::Text,
            "`kill NAME`, `pause NAME`, `resume NAME`, `restart NAME`, `limit NAME cpu 5%`, `disconnect NAME`, `reconnect NAME`, `bandwidth NAME 1MiB/s`, `delay NAME 40ms`, `packet_loss NAME 1%`, or `none`.",
        ),
    ],
    required: &["at", "do"],
    groups: &[],
    needs: &[],
};

pub(crate) static DURABILITY: Section = Section {
    id: "durability",
    called: "`durability`",
    doc: "After the drain: what was stored, as ids that requests carried as `${unique}`, or as a count.",
    keys: &[
        key("http", Shape::Text, "A URL that lists the ids that were stored."),
        key(
            "json",
            Shape::Text,
            "Where the list is in the response: a JSON pointer. Default: the response is the list.",
        ),
        key("command", Shape::Command, "A command that prints the ids that were stored."),
        key(
            "probe",
            Shape::Text,
            "A probe that counts what was stored: the loss is then only known within bounds.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: &["http", "command", "probe"], why: "what was stored has one source" }],
    needs: &[Need { key: "json", needs: &["http"], hint: "`http` is the URL that lists the ids" }],
};
