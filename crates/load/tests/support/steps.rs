//! Journey steps whose requests are rendered anew each time.

use loadlab_load::journey::capture::CaptureSlots;
use loadlab_load::journey::order::StepOrder;
use loadlab_load::journey::script::{Journey, Message, Script};
use loadlab_load::journey::template::Template;
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::Variable;

/// A template from text: `{u}` is the user, `{n}` the sequence number, `{x}` the id, `{i}` the iteration, `{a}` and
/// `{b}` the first columns of feeds 0 and 1, `{c}` the captured value.
pub fn template(text: &str) -> Template {
    let mut template = Template::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{').filter(|(_, a)| a.as_bytes().get(1) == Some(&b'}'))
    {
        template.push_text(before.as_bytes(), Escape::Raw).unwrap();
        let variable = match &after[..1] {
            "u" => Variable::User,
            "n" => Variable::Sequence,
            "x" => Variable::Id,
            "i" => Variable::Iteration,
            "a" => Variable::Feed { feed: 0, column: 0 },
            "b" => Variable::Feed { feed: 1, column: 0 },
            "c" => Variable::Capture { slot: 0, is_number: false },
            other => panic!("{other}"),
        };
        template.push(variable, Escape::Raw);
        rest = &after[2..];
    }
    template.push_text(rest.as_bytes(), Escape::Raw).unwrap();
    template
}

pub fn step(head: &str, body: Option<&str>) -> Script {
    let (first, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = first.split(' ');
    let message = Message {
        method: words.next().unwrap().into(),
        target: template(words.next().unwrap()),
        fields: template(&if fields.is_empty() { String::new() } else { format!("{fields}\r\n") }),
        body: body.map(template),
    };
    Script { has_id: message.has_id(), message: Some(message), ..Script::plain() }
}

/// A journey without steps or state.
pub fn plain_journey() -> Journey {
    Journey {
        step_order: StepOrder::default(),
        scripts: vec![],
        sites: vec![],
        cookies: false,
        feeds: vec![],
        dealings: vec![],
        shared: CaptureSlots::new(0),
        own: 0,
        remembered: vec![],
        numbers: vec![],
        sessions: false,
        unix_ns: Some(1_790_000_000_000_000_000),
    }
}
