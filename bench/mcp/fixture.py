"""The server that the official conformance suite needs, on the session of `kbproc mcp`.

`McpSession` and `protocol` of `kbproc mcp` offer the suite's own tools, prompts and resources over
stdin and stdout; `bridge.py` speaks HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Callable
from typing import Any

from kbproc.base.pipes import claim, leave
from kbproc.surfaces.mcp import protocol
from kbproc.surfaces.mcp.protocol import PUBLIC, STALE, McpRequest, McpSession, Refusal
from kbproc.surfaces.wire.lines import InputLines, Signals
from kbproc.surfaces.wire.outbox import Outbox

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmM"
    "IQAAAABJRU5ErkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
KEY = os.urandom(32)
Message = dict[str, Any]


def text(content_text: str) -> Message:
    return {"type": "text", "text": content_text}


def content(*parts: Message) -> Message:
    return {"content": list(parts)}


def later(ms: int, *steps: Callable[[], None]) -> None:
    """Runs the steps, each that many milliseconds after the one before."""

    def run(remaining: tuple[Callable[[], None], ...]) -> None:
        remaining[0]()
        if remaining[1:]:
            threading.Timer(ms / 1000, run, (remaining[1:],)).start()

    run(steps)


def form(message: str, **properties: Any) -> Message:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"mode": "form", "message": message, "requestedSchema": schema}


def elicit(message: str, **properties: Any) -> Message:
    return {"method": "elicitation/create", "params": form(message, **properties)}


def sample(prompt: str, most: int) -> Message:
    messages = [{"role": "user", "content": text(prompt)}]
    params = {"messages": messages, "maxTokens": most}
    return {"method": "sampling/createMessage", "params": params}


ROOTS = {"method": "roots/list", "params": {}}


def signed(state: str) -> str:
    return f"{state}.{hmac.new(KEY, state.encode(), hashlib.sha256).hexdigest()}"


def opened(request: McpRequest) -> str | None:
    """Returns the request's state; raises Refusal if this server did not sign it."""
    state = request.params.get("requestState")
    if state is None:
        return None
    if not isinstance(state, str) or not hmac.compare_digest(
        signed(state.rpartition(".")[0]), state
    ):
        raise Refusal(protocol.INVALID_PARAMS, "requestState is not what was given out.")
    return state.rpartition(".")[0]


def responses(request: McpRequest) -> Message:
    answers = request.params.get("inputResponses")
    return answers if isinstance(answers, dict) else {}


def required(state: str | None = None, **requests: Message) -> Message:
    result: Message = {"resultType": "input_required", "inputRequests": requests}
    return {**result, "requestState": signed(state)} if state else result


# --------------------------------------------------------------------------------- tools


def _input(request: McpRequest) -> None:
    """Runs the tools that ask for input, since 2026-07-28."""
    got, name = responses(request), request.params["name"].removeprefix(_INPUT)
    state = opened(request)
    request.reply(_ROUNDS[name](got, state, request))


def _answered(got: Message, key: str, member: str) -> Any:
    """Returns the accepted form's item, or None if its type is wrong."""
    one = got.get(key)
    if not isinstance(one, dict) or one.get("action") != "accept":
        return None
    value = one.get("content")
    item = value.get(member) if isinstance(value, dict) else None
    return item if isinstance(item, str | bool) else None


def _one(got: Message, state: str | None, request: McpRequest) -> Message:
    name = _answered(got, "user_name", "name")
    if name is None:
        return required(user_name=elicit("What is your name?", name={"type": "string"}))
    return content(text(f"Hello, {name}!"))


def _sampling(got: Message, state: str | None, request: McpRequest) -> Message:
    if "capital_question" not in got:
        return required(capital_question=sample("What is the capital of France?", 100))
    return content(text(json.dumps(got["capital_question"])))


def _roots(got: Message, state: str | None, request: McpRequest) -> Message:
    if "client_roots" not in got:
        return required(client_roots=ROOTS)
    return content(text(json.dumps(got["client_roots"])))


def _state(got: Message, state: str | None, request: McpRequest) -> Message:
    if "confirm" not in got or state is None:
        return required("one", confirm=elicit("Please confirm", ok={"type": "boolean"}))
    return content(text("state-ok"))


def _many(got: Message, state: str | None, request: McpRequest) -> Message:
    requests = {
        "user_name": elicit("What is your name?", name={"type": "string"}),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    if state is None or requests.keys() - got.keys():
        return required("many", **requests)
    return content(text("all is there"))


def _rounds(got: Message, state: str | None, request: McpRequest) -> Message:
    if state == "two" and "step2" in got:
        return content(text("both steps are done"))
    if state == "one" and "step1" in got:
        color = {"type": "string"}
        return required("two", step2=elicit("Step 2: What is your favorite color?", color=color))
    return required("one", step1=elicit("Step 1: What is your name?", name={"type": "string"}))


def _capable(got: Message, state: str | None, request: McpRequest) -> Message:
    can = request.capabilities
    requests = {}
    if "elicitation" in can:
        requests["form"] = elicit("What is your name?", name={"type": "string"})
    if "sampling" in can:
        requests["model"] = sample("Say hello", 50)
    if "roots" in can:
        requests["roots"] = ROOTS
    return required("capable", **requests) if requests and not got else content(text("done"))


_INPUT = "test_input_required_result_"
_ROUNDS: dict[str, Callable[[Message, str | None, McpRequest], Message]] = {
    "elicitation": _one,
    "sampling": _sampling,
    "list_roots": _roots,
    "request_state": _state,
    "tampered_state": _state,
    "multiple_inputs": _many,
    "multi_round": _rounds,
    "capabilities": _capable,
}


def _logs(request: McpRequest) -> None:
    later(
        50,
        lambda: request.log("info", "Tool execution started"),
        lambda: request.log("info", "Tool processing data"),
        lambda: request.log("info", "Tool execution completed"),
        lambda: request.reply(content(text("done"))),
    )


def _progress(request: McpRequest) -> None:
    later(
        50,
        lambda: request.progress(0, 100),
        lambda: request.progress(50, 100),
        lambda: request.progress(100, 100),
        lambda: request.reply(content(text("done"))),
    )


def _needs(request: McpRequest, name: str) -> None:
    """Raises Refusal if the client has not declared the capability."""
    if name not in request.capabilities:
        missing = {"requiredCapabilities": {name: {}}}
        raise Refusal(protocol.MISSING_CAPABILITY, f"The client needs {name}.", missing)


def _sample(request: McpRequest) -> None:
    _needs(request, "sampling")
    prompt = sample(request.params["arguments"]["prompt"], 100)

    def then(answer: Message) -> None:
        reply_text = answer.get("content", {}).get("text", "")
        request.reply(content(text(f"LLM response: {reply_text}")))

    request.ask(prompt["method"], prompt["params"], then)


def _elicit(question: str, **properties: Any) -> Callable[[McpRequest], None]:
    def run(request: McpRequest) -> None:
        _needs(request, "elicitation")
        arguments = request.params.get("arguments") or {}
        params = form(arguments.get("message", question), **properties)
        del params["mode"]

        def then(answer: Message) -> None:
            action, reply_text = answer.get("action"), json.dumps(answer.get("content"))
            request.reply(content(text(f"{question}: action={action}, content={reply_text}")))

        request.ask("elicitation/create", params, then)

    return run


def _missing(request: McpRequest) -> None:
    _needs(request, "sampling")
    request.reply(content(text("it can")))


def _changed(kind: str) -> Callable[[McpRequest], None]:
    def run(request: McpRequest) -> None:
        request.reply(content(text("changed")))
        tell(kind)

    return run


def _says(*parts: Message, is_error: bool = False) -> Callable[[McpRequest], None]:
    result = {**content(*parts), **({"isError": True} if is_error else {})}
    return lambda request: request.reply(result)


def resource(uri: str, kind: str, body: str) -> Message:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": body}}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [
    {"const": f"value{n}", "title": f"{name} Option"} for n, name in ((1, "First"), (2, "Second"))
]
TOOLS: dict[str, Callable[[McpRequest], None]] = {
    "test_simple_text": _says(text("This is a simple text response for testing.")),
    "test_image_content": _says(IMAGE),
    "test_audio_content": _says({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": _says(
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _says(
        text("Multiple content types test:"),
        IMAGE,
        resource(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ),
    "test_error_handling": _says(
        text("This tool intentionally returns an error for testing"), is_error=True
    ),
    "test_tool_with_logging": _logs,
    "test_logging_tool": _logs,
    "test_tool_with_progress": _progress,
    "test_sampling": _sample,
    "test_elicitation": _elicit(
        "User response",
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    ),
    "test_elicitation_sep1034_defaults": _elicit(
        "Elicitation completed",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": _elicit(
        "Elicitation completed",
        untitledSingle={"type": "string", "enum": _OPTIONS},
        titledSingle={"type": "string", "oneOf": _TITLED},
        legacyEnum={
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti={"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": _TITLED}},
    ),
    "test_missing_capability": _missing,
    "test_streaming_elicitation": lambda request: request.reply(
        required(user_name=elicit("What is your name?", name={"type": "string"}))
        if not responses(request)
        else content(text("done"))
    ),
    "test_trigger_tool_change": _changed("tools"),
    "test_trigger_prompt_change": _changed("prompts"),
    **{f"{_INPUT}{name}": _input for name in _ROUNDS},
}
_ARGUMENTS = {"test_sampling": "prompt", "test_elicitation": "message"}


def call_tool(request: McpRequest) -> None:
    tool = TOOLS.get(str(request.params.get("name")))
    if tool is None:
        raise Refusal(protocol.INVALID_PARAMS, "There is no such tool.")
    tool(request)


def list_tools(request: McpRequest) -> None:
    tools = []
    for name in TOOLS:
        schema: Message = {"type": "object", "properties": {}}
        if (argument := _ARGUMENTS.get(name)) is not None:
            schema = {"type": "object", "properties": {argument: {"type": "string"}}}
            schema["required"] = [argument]
        tools.append(
            {"name": name, "description": f"{name}, for the suite.", "inputSchema": schema}
        )
    request.reply({"tools": tools}, cache=PUBLIC)


# ---------------------------------------------------------------- prompts, resources, more


def said_by_user(part: Message) -> Message:
    return {"role": "user", "content": part}


PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


def list_prompts(request: McpRequest) -> None:
    prompts = [
        {
            "name": name,
            "description": f"{name}, for the suite.",
            "arguments": [{"name": one, "description": one, "required": True} for one in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    request.reply({"prompts": prompts}, cache=PUBLIC)


def get_prompt(request: McpRequest) -> None:
    name, arguments = request.params.get("name"), request.params.get("arguments") or {}
    if name == "test_input_required_result_prompt":
        if "user_context" not in responses(request):
            context = {"type": "string"}
            question = elicit("What context should the prompt use?", context=context)
            request.reply(required(user_context=question))
            return
        messages = [said_by_user(text(json.dumps(responses(request)["user_context"])))]
    elif name == "test_simple_prompt":
        messages = [said_by_user(text("This is a simple prompt for testing."))]
    elif name == "test_prompt_with_arguments":
        one, two = arguments.get("arg1"), arguments.get("arg2")
        messages = [said_by_user(text(f"Prompt with arguments: arg1='{one}', arg2='{two}'"))]
    elif name == "test_prompt_with_embedded_resource":
        body = "Embedded resource content for testing."
        messages = [
            said_by_user(resource(arguments.get("resourceUri", ""), "text/plain", body)),
            said_by_user(text("Please process the embedded resource above.")),
        ]
    elif name == "test_prompt_with_image":
        messages = [said_by_user(IMAGE), said_by_user(text("Please analyze the image above."))]
    else:
        raise Refusal(protocol.INVALID_PARAMS, "There is no such prompt.")
    request.reply({"messages": messages})


RESOURCES = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://example-resource": {"mimeType": "text/plain", "text": "An example."},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}


def list_resources(request: McpRequest) -> None:
    resources = [
        {"uri": uri, "name": uri, "mimeType": one["mimeType"]} for uri, one in RESOURCES.items()
    ]
    request.reply({"resources": resources}, cache=PUBLIC)


def list_templates(request: McpRequest) -> None:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template"}
    request.reply({"resourceTemplates": [template]}, cache=PUBLIC)


def read_resource(request: McpRequest) -> None:
    uri = str(request.params.get("uri"))
    entry = RESOURCES.get(uri)
    if uri.startswith("test://template/") and uri.endswith("/data"):
        id = uri.removeprefix("test://template/").removesuffix("/data")
        data = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
        entry = {"mimeType": "application/json", "text": json.dumps(data)}
    if entry is None:
        code = protocol.INVALID_PARAMS if request.is_modern else protocol.NOT_FOUND_LEGACY
        raise Refusal(code, "There is no such resource.", {"uri": uri})
    request.reply({"contents": [{"uri": uri, **entry}]}, cache=STALE)


def complete(request: McpRequest) -> None:
    request.reply({"completion": {"values": ["paris", "park", "party"], "hasMore": False}})


STREAMS: dict[Any, tuple[McpRequest, Message]] = {}


def listen(request: McpRequest) -> None:
    filters = request.params.get("notifications")
    if not isinstance(filters, dict):
        raise Refusal(protocol.INVALID_PARAMS, "params.notifications must be an object.")
    honoured = {name: value for name, value in filters.items() if value}
    meta = {protocol.SUBSCRIPTION: request.id}
    params = {"notifications": honoured, "_meta": meta}
    name = "notifications/subscriptions/acknowledged"
    request.session.send(protocol.notification_line(name, params))
    STREAMS[request.id] = request, honoured
    request.on_cancel = lambda: STREAMS.pop(request.id, None) and None


def tell(kind: str) -> None:
    for id, (request, honoured) in list(STREAMS.items()):
        if honoured.get(f"{kind}ListChanged"):
            params = {"_meta": {protocol.SUBSCRIPTION: id}}
            name = f"notifications/{kind}/list_changed"
            request.session.send(protocol.notification_line(name, params))


def accept(request: McpRequest) -> None:
    request.reply({})


HANDLERS = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "resources/subscribe": accept,
    "resources/unsubscribe": accept,
    "completion/complete": complete,
    "subscriptions/listen": listen,
}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}


def main() -> int:
    reader, writer = claim()
    outbox = Outbox(writer)
    session = McpSession(
        HANDLERS,
        outbox.send,
        described={"capabilities": CAPABILITIES, "instructions": "A server for the suite."},
        server={"name": "kbproc-fixture", "version": "1"},
    )
    for line in InputLines(reader, 16 << 20, Signals(), answers=writer, parent=os.getppid()):
        if isinstance(line, bytes):
            session.receive(line)
    outbox.flush(2.0)
    return 0


if __name__ == "__main__":
    leave(main())
