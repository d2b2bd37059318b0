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
        key("file", Shape::Text, "A file of CSV or JSON Lines, relative to the plan's folder."),
        key(
            "format",
            Shape::OneOf(&["csv", "json_lines"]),
            "Format of the file. Default: by its extension, `.csv`, `.jsonl` or `.ndjson`.",
        ),
        key("order", Shape::OneOf(&["sequential", "shuffled"]), "The order of rows. Default sequential."),
        key(
            "once",
            Shape::Bool,
            "Use each row once: a user that finds none left ends. Default false: start again at the first row.",
        ),
        key(
            "per",
            Shape::OneOf(&["journey", "user"]),
            "Who gets a row: each journey (default), or each user, which keeps it.",
        ),
    ],
    required: &["file"],
    groups: &[],
    needs: &[],
};

pub(crate) static CAPTURE: Section = Section {
    id: "capture",
    called: "a capture",
    doc: "A value captured from a response.",
    keys: &[
        key("json", Shape::Text, "From the JSON body: a JSON pointer such as `/token`."),
        key("header", Shape::Text, "The value of a header field."),
        key("regex", Shape::Text, "From the body: the first group of a regular expression."),
        key("body", Shape::Bool, "The whole body: `true`."),
        key(
            "number",
            Shape::Bool,
            "The value must be a number, and is reported with its percentiles. Default false.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: &["json", "header", "regex", "body"], why: "a value has one source" }],
    needs: &[],
};

pub(crate) static EXPECT: Section = Section {
    id: "expected",
    called: "an expected value",
    doc: "What a value must be, where a plain value does not say it.",
    keys: &[
        key("exists", Shape::Bool, "Whether it must be present (`true`) or absent (`false`)."),
        key("contains", Shape::Text, "A text that it must contain."),
        key("number", Shape::Text, "A comparison that the number must satisfy: `> 3`, or `>= 1 and < 10`."),
    ],
    required: &[],
    groups: &[Group { keys: &["exists", "contains", "number"], why: "a value has one expectation" }],
    needs: &[],
};

pub(crate) static AUTH: Section = Section {
    id: "auth",
    called: "`auth`",
    doc: "Credentials of a request.",
    keys: &[
        key("basic", Shape::In(&BASIC), "User name and password."),
        key("bearer", Shape::Text, "A token."),
    ],
    required: &[],
    groups: &[Group { keys: &["basic", "bearer"], why: "a request has one `authorization` header" }],
    needs: &[],
};

pub(crate) static BASIC: Section = Section {
    id: "basic",
    called: "`basic`",
    doc: "User name and password.",
    keys: &[
        key("user", Shape::Text, "The user name, without a colon."),
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
        key("filename", Shape::Text, "The file name to send. Default: the file's own name."),
        key("type", Shape::Text, "Its media type. Default for files: `application/octet-stream`."),
    ],
    required: &["name"],
    groups: &[Group { keys: &["text", "file"], why: "a part has one content" }],
    needs: &[Need { key: "filename", needs: &["file"], hint: "a `text` is a plain field" }],
};

pub(crate) static TLS: Section = Section {
    id: "tls",
    called: "`tls`",
    doc: "TLS settings for `https` targets.",
    keys: &[
        key("ca", Shape::Text, "Certificates to trust instead of the machine's: a PEM file."),
        key("cert", Shape::Text, "The client's certificate: a PEM file."),
        key("key", Shape::Text, "The certificate's key: a PEM file."),
        key("insecure", Shape::Bool, "Accept any certificate. Default false."),
        key("resumption", Shape::Bool, "Resume sessions where the server allows it. Default true."),
        key(
            "versions",
            Shape::ListOf(&Shape::OneOf(&["1.2", "1.3"])),
            "TLS versions that may be used. Default both.",
        ),
    ],
    required: &[],
    groups: &[],
    needs: &[
        Need { key: "cert", needs: &["key"], hint: "a certificate needs its key" },
        Need { key: "key", needs: &["cert"], hint: "a key needs its certificate" },
    ],
};

pub(crate) static SESSIONS: Section = Section {
    id: "sessions",
    called: "`sessions`",
    doc: "Users that arrive, make one journey and leave.",
    keys: &[
        key("rate", Shape::Rate, "The rate at which users arrive."),
        key(
            "arrivals",
            Shape::OneOf(&["constant", "poisson"]),
            "How arrivals are spread in time. Default constant.",
        ),
        key(
            "max_users",
            Shape::Count(1, MAX_USERS),
            "Maximum number of users at a time. Default 10000; reaching it raises a doubt.",
        ),
    ],
    required: &["rate"],
    groups: &[],
    needs: &[],
};

pub(crate) static MESSAGE: Section = Section {
    id: "message",
    called: "a message",
    doc: "A message on a WebSocket, and the expected reply.",
    keys: &[
        key("pause", Shape::Duration, "How long the user waits before the message. Alone: nothing is sent."),
        key(
            "send",
            Shape::Message,
            "What is sent: a text, `{json: ANYTHING}`, or bytes: `{file: PATH}`, `{hex: …}`.",
        ),
        key(
            "expect",
            Shape::SomeOf(&CHECK),
            "What the reply must be: `contains` (may hold variables), `json`, `size`.",
        ),
        key(
            "on_unexpected",
            Shape::OneOf(&["ignore", "fail"]),
            "What happens on an unexpected message: `ignore` waits for the next one (default), `fail` fails the check.",
        ),
        key("timeout", Shape::Duration, "Longest wait for the reply. Default: the load's `timeout`."),
        key(
            "capture",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&CAPTURE)),
            "Values captured from the reply, by name: `${NAME}` from the next message on.",
        ),
        key(
            "tags",
            Shape::ListOf(&Shape::Text),
            "Series that the message counts for, in addition to those of its step.",
        ),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};

pub(crate) static WEBSOCKET_SEND: Section = Section {
    id: "send",
    called: "`send`",
    doc: "A message that is not a plain text.",
    keys: &[
        key("json", Shape::Any, "Sent as JSON, in a text message."),
        key("file", Shape::Text, "A file, relative to the plan's folder, sent as bytes."),
        key("hex", Shape::Text, "Bytes in hexadecimal, two digits each, such as `00 ff`."),
    ],
    required: &[],
    groups: &[Group { keys: &["json", "file", "hex"], why: "a message has one content" }],
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
        key("urls", Shape::Text, "A file with URLs to GET, one per line, taken in turn."),
        key("websocket", Shape::Text, "URL of a WebSocket to open."),
        key("messages", Shape::ListOf(&Shape::SomeOf(&MESSAGE)), "The messages on the WebSocket, in order."),
        key("repeat", Shape::Count(1, 10_000), "How many times all messages are sent. Default 1."),
        key(
            "hold",
            Shape::Duration,
            "How long the WebSocket is held open after the last message, before it is closed. Default 0.",
        ),
        key("subprotocols", Shape::ListOf(&Shape::Text), "Subprotocols to offer, in order of preference."),
        key("headers", Shape::MapOf(HEADER_PATTERN, &Shape::Text), "Header fields of the request."),
        key("auth", Shape::In(&AUTH), "Credentials: `{basic: …}` or `{bearer: TOKEN}`."),
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
        key("body", Shape::Body, "The body: a text, `{file: PATH}`, or `{json: ANYTHING}`."),
        key(
            "tags",
            Shape::ListOf(&Shape::Text),
            "Series that the request counts for; `--tags` selects by them.",
        ),
        key("check", Shape::SomeOf(&CHECK), "When a response counts as ok. Default: status below 400."),
        key(
            "capture",
            Shape::MapOf(WORD_PATTERN, &Shape::In(&CAPTURE)),
            "Values captured from the response, by name: `${NAME}` in later steps.",
        ),
        key(
            "weight",
            Shape::Count(1, 1_000_000),
            "How often this step is taken compared with the others: each round takes one of them.",
        ),
        key(
            "on_failure",
            Shape::OneOf(&["continue", "end", "leave"]),
            "What happens when the step fails: the next step follows, the journey ends (default if the step \
             captures something), or the user leaves.",
        ),
    ],
    required: &[],
    groups: &[Group { keys: STEP_KINDS, why: "a step makes one request" }],
    needs: &[
        Need {
            key: "messages",
            needs: &["websocket"],
            hint: "only a WebSocket has `messages`; a request has a `body`",
        },
        Need { key: "repeat", needs: &["websocket"], hint: "write a request once for each time it is sent" },
        Need {
            key: "hold",
            needs: &["websocket"],
            hint: "`think` of the load is a pause after each request",
        },
        Need { key: "subprotocols", needs: &["websocket"], hint: "only a WebSocket offers subprotocols" },
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
    doc: "When a response counts as ok.",
    keys: &[
        key("status", Shape::Status, "The status that counts as ok, or a list of them."),
        key(
            "header",
            Shape::MapOf(HEADER_PATTERN, &Shape::Expect),
            "Expected values of header fields, by name.",
        ),
        key("contains", Shape::Texts, "A text that the body must contain, or a list of them."),
        key(
            "json",
            Shape::MapOf(POINTER_PATTERN, &Shape::Expect),
            "Expected values in the JSON body, by JSON pointer.",
        ),
        key("size", Shape::Text, "The body's size, such as `< 10kB`."),
        key("time", Shape::Text, "The time from the start, such as `< 200ms`."),
    ],
    required: &[],
    groups: &[],
    needs: &[],
};
