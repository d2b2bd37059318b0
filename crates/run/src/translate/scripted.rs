//! Decides which steps need more than plain requests: users that remember, choose or check responses.

use loadlab_plan as plan;

/// Whether users have to remember, choose or check anything.
pub(crate) fn needs_script<'s>(
    load: &plan::LoadSpec,
    mut steps: impl Iterator<Item = &'s plan::Step>,
) -> bool {
    let script = &load.script;
    let around = !script.user_setup.is_empty() || !script.user_teardown.is_empty() || script.is_mix;
    let keeps = script.cookies || script.redirects > 0 || !script.feeds.is_empty() || load.http.compression;
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    around || keeps || sessions || steps.any(|s| s.websocket.is_some() || is_special(s) || has_variables(s))
}

pub fn is_special(step: &plan::Step) -> bool {
    let goes_on = step.on_failure == plan::OnFailure::Continue;
    !step.captures.is_empty() || !step.checks.is_empty() || !goes_on
}

pub fn has_variables(step: &plan::Step) -> bool {
    let varies = |t: &plan::Template| t.variables().next().is_some();
    let body = match &step.body {
        plan::Body::Empty | plan::Body::File(_) => false,
        plan::Body::Text(text) | plan::Body::Json(text) | plan::Body::Form(text) => varies(text),
        plan::Body::Multipart(parts) => parts.iter().any(|part| match &part.content {
            plan::PartContent::Text(text) => varies(text),
            plan::PartContent::File(..) => false,
        }),
    };
    let auth = step.auth.as_ref().is_some_and(|auth| match auth {
        plan::Auth::Basic { user, password } => varies(user) || varies(password),
        plan::Auth::Bearer(token) => varies(token),
    });
    varies(&step.url) || step.headers.iter().any(|(_, value)| varies(value)) || body || auth
}
