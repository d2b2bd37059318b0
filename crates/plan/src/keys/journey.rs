//! The keys of journeys beyond a plain request. See [`crate::keys`].

use crate::keys::shape::{
    ANY_PATTERN, Group, HEADER_PATTERN, MAX_USERS, Need, POINTER_PATTERN, STEP_KINDS, Section, Shape,
    WORD_PATTERN, key,
};

pub(crate) static FEED: Section = Section {
    id: "feed",
    called: "a feed",
    doc: "Rows of data for users.",
    keys: &[
        key("file", Shape::Text, "CSV or JSON lines, relative to the plan's folder."),
        key(
            "format",
            Shape::OneOf(&["csv", "json_lines"]),
            "What the file holds. Default: what its name ends in, `.csv`, `.jsonl` or `.ndjson`.",
        ),
        key("order", Shape::OneOf(&["sequential", "shuffled"]), "The order of rows. Default sequential."),
        key(
            "once",
            Shape::Bool,
            "Each row once: a user that finds none left ends. Default false: from the beginning again.",
        ),
        key(
            "per",
            Shape::OneOf(&["journey", "user"]),
            "Who gets a row: each journey (default), or each user, for good.",
        ),
    ],
    required: &["file"],
    groups: &[],
    needs: &[],
};

pub(crate) static CAPTURE: Section = Section {
    id: "capture",
    called: "a capture",
    doc: "A value kept from an answer.",
    keys: &[
        key("json", Shape::Text, "Of the JSON body: a JSON pointer such as `/token`."),
        key("header", Shape::Text, "The value of a header field."),
        key("regex", Shape::Text, "Of the body: the first group of a regular expression."),
        key("body", Shape::Bool, "The whole body: `true`."),
        key(
            "number",
            Shape::Bool,
            "It must be a number, and is shown as one with its percentiles. Default false.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: &["json", "header", "regex", "body"], why: "a value comes from one place" }],
    needs: &[],
};

pub(crate) static EXPECT: Section = Section {
    id: "expected",
    called: "an expected value",
    doc: "What a value must be, when it is not just a value.",
    keys: &[
        key("exists", Shape::Bool, "It is there (`true`), or it is not (`false`)."),
        key("contains", Shape::Text, "A text with this one in it."),
        key("number", Shape::Text, "A number that compares so: `> 3`, or `>= 1 and < 10`."),
    ],
    required: &[],
    groups: &[Group { keys: &["exists", "contains", "number"], why: "one expectation for a value" }],
    needs: &[],
};

pub(crate) static AUTH: Section = Section {
    id: "auth",
    called: "`auth`",
    doc: "Who sends a request.",
    keys: &[
        key("basic", Shape::In(&BASIC), "A user and a password."),
        key("bearer", Shape::Text, "A token."),
    ],
    required: &[],
    groups: &[Group { keys: &["basic", "bearer"], why: "a request has one `authorization`" }],
    needs: &[],
};

pub(crate) static BASIC: Section = Section {
    id: "basic",
    called: "`basic`",
    doc: "A user and a password.",
    keys: &[
        key("user", Shape::Text, "The user's name, without a colon."),
        key("password", Shape::Text, "The password."),
    ],
    required: &["user", "password"],
    groups: &[],
    needs: &[],
};

pub(crate) static PART: Section = Section {
    id: "part",
    called: "a part",
    doc: "One part of a multipart body.",
    keys: &[
        key("name", Shape::Text, "The field's name."),
        key("text", Shape::Text, "A text."),
        key("file", Shape::Text, "A file, relative to the plan's folder."),
        key("filename", Shape::Text, "What the server is told it is called. Default: the file's own name."),
        key("type", Shape::Text, "Its media type. Default for files: `application/octet-stream`."),
    ],
    required: &["name"],
    groups: &[Group { keys: &["text", "file"], why: "a part holds one thing" }],
    needs: &[Need { key: "filename", needs: &["file"], hint: "a `text` is a plain field" }],
};

pub(crate) static TLS: Section = Section {
    id: "tls",
    called: "`tls`",
    doc: "How `https` targets are trusted.",
    keys: &[
        key("ca", Shape::Text, "Certificates to trust besides the machine's: a PEM file."),
        key("cert", Shape::Text, "Our own certificate: a PEM file."),
        key("key", Shape::Text, "Its key: a PEM file."),
        key("insecure", Shape::Bool, "Take any certificate. Default false."),
        key("resumption", Shape::Bool, "Resume sessions where the server allows it. Default true."),
        key(
            "versions",
            Shape::ListOf(&Shape::OneOf(&["1.2", "1.3"])),
            "Versions that may be used. Default both.",
        ),
    ],
    required: &[],
    groups: &[],
    needs: &[
        Need { key: "cert", needs: &["key"], hint: "a certificate is shown with its key" },
        Need { key: "key", needs: &["cert"], hint: "a key belongs to a certificate" },
    ],
};

pub(crate) static SESSIONS: Section = Section {
    id: "sessions",
    called: "`sessions`",
    doc: "Users that arrive, make one journey and leave.",
    keys: &[
        key("rate", Shape::Rate, "How many arrive."),
        key("arrivals", Shape::OneOf(&["constant", "poisson"]), "How they are spread. Default constant."),
        key(
            "max_users",
            Shape::Count(1, MAX_USERS),
            "Most users at a time. Default 10000; reaching it is a doubt.",
        ),
    ],
    required: &["rate"],
    groups: &[],
    needs: &[],
};

pub(crate) static MESSAGE: Section = Section {
    id: "message",
    called: "a message",
    doc: "Something said on a WebSocket, and what comes back.",
    keys: &[
        key("pause", Shape::Duration, "How long the user waits before it. Alone: nothing is sent."),
        key(
            "send",
            Shape::Message,
            "What is sent: a text, `{json: ANYTHING}`, or bytes: `{file: PATH}`, `{hex: …}`.",
        ),
        key(
            "expect",
            Shape::SomeOf(&CHECK),
            "What an answer must be: `contains` (with variables, if need be), `json`, `size`.",
        ),
        key(
            "on_unexpected",
            Shape::OneOf(&["ignore", "fail"]),
            "What an unexpected message does: `ignore` waits for the next one (default), `fail` is a failed check.",
        ),
        key("timeout", Shape::Duration, "Longest wait for it. Default: the load's `timeout`."),
        key(
            "capture",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&CAPTURE)),
            "Values kept from the answer, by name: `${NAME}` from the next message on.",
        ),
        key("tags", Shape::ListOf(&Shape::Text), "Series it counts for, besides those of its step."),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};

pub(crate) static WEBSOCKET_SEND: Section = Section {
    id: "send",
    called: "`send`",
    doc: "A message that is not just a text.",
    keys: &[
        key("json", Shape::Any, "Sent as JSON, a text."),
        key("file", Shape::Text, "A file, relative to the plan's folder, sent as bytes."),
        key("hex", Shape::Text, "Bytes, two digits each, such as `00 ff`."),
    ],
    required: &[],
    groups: &[Group { keys: &["json", "file", "hex"], why: "a message is one thing" }],
    needs: &[],
};

pub(crate) static STEP: Section = Section {
    id: "step",
    called: "a step",
    doc: "One request of a journey.",
    keys: &[
        key("get", Shape::Text, "URL to GET."),
        key("post", Shape::Text, "URL to POST to."),
        key("put", Shape::Text, "URL to PUT to."),
        key("delete", Shape::Text, "URL to DELETE."),
        key("patch", Shape::Text, "URL to PATCH."),
        key("head", Shape::Text, "URL for HEAD."),
        key("options", Shape::Text, "URL for OPTIONS."),
        key("urls", Shape::Text, "A file with URLs to GET, one a line, taken in turn."),
        key("websocket", Shape::Text, "URL of a WebSocket to talk to."),
        key("messages", Shape::ListOf(&Shape::SomeOf(&MESSAGE)), "What is said on the WebSocket, in order."),
        key("repeat", Shape::Count(1, 10_000), "How often all messages are said. Default 1."),
        key(
            "hold",
            Shape::Duration,
            "How long the WebSocket is held after the last message, before the goodbye. Default 0.",
        ),
        key("subprotocols", Shape::ListOf(&Shape::Text), "Subprotocols to offer, the best first."),
        key("headers", Shape::MapOf(HEADER_PATTERN, &Shape::Text), "Header fields of the request."),
        key("auth", Shape::In(&AUTH), "Who sends it: `{basic: …}` or `{bearer: TOKEN}`."),
        key(
            "form",
            Shape::MapOf(ANY_PATTERN, &Shape::Text),
            "Fields of a form, sent as `application/x-www-form-urlencoded`.",
        ),
        key(
            "multipart",
            Shape::ListOf(&Shape::In(&PART)),
            "Parts of a form, texts and files, sent as `multipart/form-data`.",
        ),
        key("body", Shape::Body, "Its body: a text, `{file: PATH}`, or `{json: ANYTHING}`."),
        key(
            "tags",
            Shape::ListOf(&Shape::Text),
            "Series this request counts for; also what `--tags` chooses by.",
        ),
        key("check", Shape::SomeOf(&CHECK), "When an answer is good. Default: status below 400."),
        key(
            "capture",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&CAPTURE)),
            "Values kept from the answer, by name: `${NAME}` in later steps.",
        ),
        key(
            "weight",
            Shape::Count(1, 1_000_000),
            "How often this step is taken beside the others: each round takes one of them.",
        ),
        key(
            "on_failure",
            Shape::OneOf(&["continue", "end", "leave"]),
            "What follows when it fails: the next step, the end of this journey (default where it captures something), or the user leaves.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: STEP_KINDS, why: "a step is one request" }],
    needs: &[
        Need { key: "messages", needs: &["websocket"], hint: "a request has a `body`" },
        Need { key: "repeat", needs: &["websocket"], hint: "write a request out as often as it is sent" },
        Need {
            key: "hold",
            needs: &["websocket"],
            hint: "`think` of the load is a pause after each request",
        },
        Need { key: "subprotocols", needs: &["websocket"], hint: "they are what a WebSocket may speak" },
    ],
};

pub(crate) static BODY: Section = Section {
    id: "body",
    called: "`body`",
    doc: "The body of a request.",
    keys: &[
        key("file", Shape::Text, "A file, relative to the plan's folder, sent as it is."),
        key("json", Shape::Any, "Sent as JSON; sets the content type unless a header does."),
    ],
    required: &[],
    groups: &[Group { keys: &["file", "json"], why: "a request has one body" }],
    needs: &[],
};

pub(crate) static CHECK: Section = Section {
    id: "check",
    called: "`check`",
    doc: "When an answer is good.",
    keys: &[
        key("status", Shape::Status, "The status that is good, or a list of them."),
        key("header", Shape::MapOf(HEADER_PATTERN, &Shape::Expect), "What header fields must be, by name."),
        key("contains", Shape::Texts, "A text that the body must contain, or a list of them."),
        key(
            "json",
            Shape::MapOf(POINTER_PATTERN, &Shape::Expect),
            "What values of the JSON body must be, by JSON pointer.",
        ),
        key("size", Shape::Text, "The body's size, such as `< 10kB`."),
        key("time", Shape::Text, "The time from the start, such as `< 200ms`."),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};
