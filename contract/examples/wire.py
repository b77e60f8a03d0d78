"""kbproc's wire in Python's standard library; server.py has the methods.

One thread takes one line after another. A write decides, appends one record to STORE/log.ndjson,
syncs it and folds it into rows in memory; a read looks at the rows. A request that waits is parked.
"""

import base64
import difflib
import hashlib
import json
import os
import re
import select
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
KIT = next(one for one in (HERE.parent, HERE.parent.parent) if (one / "schemas" / "v1").is_dir())
ERRORS = {row["type"]: row for row in json.loads((HERE.parent / "errors.json").read_text())}
LINE, IN_FLIGHT, PARTS = 16 << 20, 64, []
# Params that this server does not know what to do with; the schemas have them.
LATER = {"fields", "budget_tokens", "status", "path_prefix", "url", "where", "since", "until"}
LATER |= {"full", "created_after", "created_before", "updated_after", "origin", "revision"}


class Refusal(Exception):
    """An error for the client; `field` is the name of the param that is wrong."""

    def __init__(self, type, message, field=None, **more):
        super().__init__(message)
        row = ERRORS[type]
        data = {"schema": "error/1", "type": type, "message": message, "hint": row["hint"]}
        data |= {"doc_url": f"docs/errors.md#{type.replace('.', '')}"}
        data |= {"exit_code": row["exit_code"], "retryable": row["retryable"], "detail": {}, **more}
        data |= {} if field is None else {"field": f"$.params{field and '.' + field}"}
        self.error = {"code": row["code"], "message": message, "data": data}


# ------------------------------------------------------------------ params
METHODS = {}  # name: (kind, function)
UNCOUNTED = ("client_token", "dry_run", "confirm", "timeout_ms")  # a token may come with others
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
KINDS |= {"boolean": bool, "null": type(None)}


def method(name, kind="read"):
    return lambda function: METHODS.setdefault(name, (kind, function))[1]


def checked(name, params):
    """Returns the params as the schema has them, defaults filled in. Raises Refusal."""
    schema = json.loads((KIT / "schemas" / "v1" / f"{name}.params.json").read_text())
    if isinstance(params, dict) and (later := LATER & params.keys()):
        raise Refusal("input.invalid_params", "This server does not know it.", min(later))
    return fit(params, schema, schema.get("$defs", {}), "")


def fit(value, schema, defs, place):
    """Returns the value, where it fits a schema as those of params are. Raises Refusal."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].split("/")[-1]]
    for number, variant in enumerate(schema.get("anyOf", ())):
        try:
            return fit(value, variant, defs, place)
        except Refusal:
            if number == len(schema["anyOf"]) - 1:
                raise
    kind, size = schema.get("type"), len(value) if isinstance(value, (str, list)) else 0
    is_fit = kind is None or isinstance(value, KINDS[kind])
    is_fit &= not isinstance(value, bool) or kind in (None, "boolean")
    is_fit &= "enum" not in schema or value in schema["enum"]
    if is_fit and kind in ("integer", "number"):
        is_fit = schema.get("minimum", value) <= value <= schema.get("maximum", value)
    least = max(schema.get("minLength", 0), schema.get("minItems", 0))
    is_fit &= least <= size <= schema.get("maxLength", schema.get("maxItems", size))
    if not is_fit or (kind == "string" and not re.search(schema.get("pattern", ""), value)):
        raise Refusal("input.invalid_params", f"{place or 'params'} is of another kind.", place)
    if kind == "array":
        items = enumerate(value)
        return [fit(item, schema.get("items", {}), defs, f"{place}[{n}]") for n, item in items]
    return members(value, schema, defs, f"{place}." * bool(place)) if kind == "object" else value


def members(value, schema, defs, place):
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name in value:
        if name not in properties and rest is False:
            raise Refusal("input.invalid_params", f"There is no {name}.", f"{place}{name}")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            raise Refusal("input.invalid_params", f"{name} is required.", f"{place}{name}")
    whole = {name: one.get("default") for name, one in properties.items()}
    for name, one in value.items():
        if one is not None or name not in properties:
            whole[name] = fit(one, properties.get(name, rest), defs, f"{place}{name}")
    return whole


# ------------------------------------------------------------------- store
def now():
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


class Rows:
    """The state that records describe: a row by table and key."""

    def __init__(self, records=()):
        self.tables = {name: {} for name in ("kb", "doc", "agent", "session", "message")}
        self.last = {"doc": 0, "session": 0, "message": 0}
        for record in records:
            self.fold(record)

    def fold(self, record):
        for table, key, row in record["puts"]:
            self.tables[table][key] = row
            if table in self.last:
                self.last[table] = max(self.last[table], key)

    def all(self, table):
        return [row for row in self.tables[table].values() if not row["deleted"]]

    def get(self, table, key, field):
        row = self.tables[table].get(key)
        if row is None or row["deleted"]:
            raise Refusal("resource.not_found", f"There is no {table} {key}.", field)
        return row


class Store:
    """The records of the log, and the rows that they make."""

    def __init__(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.file = os.open(Path(folder, "log.ndjson"), os.O_RDWR | os.O_CREAT, 0o600)
        self.rows, self.records, self.tokens = Rows(), [], {}
        with open(self.file, "rb", closefd=False) as file:
            whole = file.read()
        end = whole.rfind(b"\n") + 1  # a record that the machine's end cut in half goes
        os.ftruncate(self.file, end)
        os.lseek(self.file, end, os.SEEK_SET)
        for line in whole[:end].splitlines():
            self.take(json.loads(line))
        if not self.records:
            call = Call(self, "store.create", {})
            default = {"slug": "default", "name": "Default", "description": ""}
            call.put("kb.created", "kb", "default", default)
            self.commit(call, "kbproc", None)

    def seq(self):
        return len(self.records)

    def take(self, record):
        self.records.append(record)
        self.rows.fold(record)
        if record["token"]:
            self.tokens[record["method"], record["token"]] = record

    def commit(self, call, actor, result):
        record = {"seq": self.seq() + 1, "ts": now(), "actor": actor, "method": call.method}
        record |= {"token": call.params.get("client_token"), "params": call.counted}
        record |= {"events": call.events, "puts": call.puts, "result": result}
        record |= {"stream": call.stream}
        line = json.dumps(record).encode() + b"\n"
        os.write(self.file, line)
        os.fsync(self.file)
        self.take(json.loads(line))

    def at(self, as_of):
        """Returns the rows of a moment, and its position in the log."""
        if as_of is None:
            return self.rows, self.seq()
        if isinstance(as_of, str):
            as_of = sum(time_of(record["ts"]) <= time_of(as_of) for record in self.records)
        if as_of > self.seq():
            raise Refusal("input.invalid_params", f"The log ends at {self.seq()}.", "as_of")
        return Rows(self.records[:as_of]), as_of


def time_of(stamp):
    return datetime.fromisoformat(stamp.replace("Z", "+00:00"))


class Call:
    """One request: its params, the rows that it sees and what it is about to write."""

    def __init__(self, store, method, params):
        self.store, self.method, self.params = store, method, params
        self.rows, seq = store.at(params.get("as_of"))
        self.meta = {"schema": f"{method}/1", "seq": seq}
        self.puts, self.events, self.targets, self.failures, self.stream = [], [], [], [], []
        self.last, self.answers_to = dict(self.rows.last), None
        self.counted = {name: one for name, one in params.items() if name not in UNCOUNTED}

    def __getattr__(self, name):
        return self.params[name]

    def done(self, data):
        """Returns the result; it says so where some items failed."""
        if self.failures:
            problem = f"{len(self.failures)} items failed."
            partial = {"type": "operation.partial", "exit_code": 3, "message": problem}
            self.meta["partial"] = partial
        return {"data": data, "meta": self.meta}

    def get(self, table, key, field):
        return self.rows.get(table, key, field)

    def id(self, table):
        self.last[table] += 1
        return self.last[table]

    def put(self, event, table, key, row, **changes):
        time = now()
        row = {"deleted": False, "created_at": time, **row, **changes, "updated_at": time}
        row["revision"] = row.get("revision", 0) + 1
        self.puts.append([table, key, row])
        public = {"type": event, "summary": f"{event}: {key}", "kb": row.get("kb")}
        is_document = table == "doc"
        public |= {"document_id": key if is_document else None}
        self.events.append({**public, "revision": row["revision"] if is_document else None})
        return row

    def remove(self, event, table, key, row, kind):
        name = str(row.get("title") or key)
        target = {"kind": kind, "id": key, "name": name, "revision": row["revision"]}
        self.targets.append(target)
        self.put(event, table, key, row, deleted=True)

    def expect(self, row):
        if self.expected_revision not in (None, row["revision"]):
            problem = f"It is at revision {row['revision']}."
            raise Refusal("resource.conflict", problem, "expected_revision")

    def change(self, event, table, key, row, names):
        """Puts the params of these names that are given in the place of the row's."""
        self.expect(row)
        new = {name: self.params[name] for name in names if self.params[name] is not None}
        if not new:
            raise Refusal("input.invalid_params", "There is nothing to change.", "")
        for name in ("title", "text", "name"):
            if not new.get(name, name).strip():
                raise Refusal("input.invalid_params", f"{name} is blank.", name)
        return self.put(event, table, key, row, **new)

    def page(self, items, place=lambda item: item["id"]):
        """Returns the items after the cursor, at most `limit`."""
        self.meta["total"] = len(items)
        items = sorted(items, key=place)
        try:
            after = None if self.cursor is None else json.loads(base64.b64decode(self.cursor))
            items = [item for item in items if after is None or place(item) > after]
        except (ValueError, TypeError):
            raise Refusal("input.invalid_params", "This is no cursor.", "cursor") from None
        some, rest = items[: self.limit], items[self.limit :]
        self.meta |= {"count": len(some), "has_more": bool(rest)}
        if rest:
            place_of_last = json.dumps(place(some[-1])).encode()
            self.meta["next_cursor"] = base64.b64encode(place_of_last).decode()
        return some


# -------------------------------------------------------------------- wire
class Parked:
    """A request that waits: for a position of the log, or, a subscription, for its end."""

    def __init__(self, call, reply):
        self.call, self.reply = call, reply
        wait = call.timeout_ms
        self.deadline = None if wait is None else time.monotonic() + wait / 1000


def whole(value):
    """Returns the value with U+FFFD for each half of a character."""
    if isinstance(value, dict):
        return {whole(name): whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [whole(one) for one in value]
    if not isinstance(value, str):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def say(message):
    data = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


class Server:
    def __init__(self, store):
        self.store, self.parked, self.indexes = store, {}, {}

    def event(self, id, type, **members):
        self.indexes[id] = index = self.indexes.get(id, -1) + 1
        event = {"type": type, "request_id": id, "index": index, **members}
        say({"method": "event", "params": event})

    def line(self, line, is_long):
        if is_long:
            return self.refuse("input.too_large", f"A line has at most {LINE} bytes.")
        if not line.strip():
            return None
        try:
            value = whole(json.loads(line.decode(), parse_constant=int))  # NaN is no JSON
        except (ValueError, RecursionError):
            return self.refuse("input.invalid_json", "The line is not JSON in UTF-8.")
        if not isinstance(value, list):
            return self.take(value, say)
        if not value:
            return self.refuse("input.invalid_request", "The batch is empty.")
        answers, due = [], sum(not isinstance(one, dict) or "id" in one for one in value)

        def collect(answer):
            answers.append({"jsonrpc": "2.0", **answer})
            if len(answers) == due:
                os.write(1, json.dumps(answers).encode() + b"\n")

        for one in value:
            self.take(one, collect)
        return None

    def refuse(self, type, message):
        say({"id": None, "error": Refusal(type, message).error})

    def take(self, request, reply):
        """Carries out one request, and replies if it has an id."""
        id, name, is_request = None, None, True
        try:
            if not isinstance(request, dict):
                raise Refusal("input.invalid_request", "A request is an object.")
            is_request = "id" in request
            if is_request and type(request["id"]) not in (str, int):
                raise Refusal("input.invalid_request", "An id is a string or an integer.")
            id, name = request.get("id"), request.get("method")
            is_known = not request.keys() - {"jsonrpc", "id", "method", "params"}
            if request.get("jsonrpc") != "2.0" or not isinstance(name, str) or not is_known:
                raise Refusal("input.invalid_request", "This is no request of JSON-RPC 2.0.")
            if is_request and id in self.parked:
                raise Refusal("input.invalid_request", "This id is in flight.")
            params = request.get("params", {})
            if name == "$/cancel" and not is_request:
                self.cancel(params.get("id"), "The client cancelled the request.")
            else:
                self.run(name, params, id, reply if is_request else lambda answer: None)
        except Refusal as refusal:
            if is_request:
                reply({"id": id, "error": refusal.error})

    def run(self, name, params, id, reply):
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, 20, 0)
            retry = {"retry": {"method": near[0], "params": params}} if near else {}
            problem = f"There is no method {name}."
            raise Refusal("input.unknown_method", problem, valid_values=near, **retry)
        call = Call(self.store, name, checked(name, params))
        call.answers_to = id
        self.indexes.pop(id, None)
        if call.params.get("min_seq") is not None and call.min_seq > self.store.seq():
            self.parked[id] = Parked(call, reply)
        else:
            self.finish(call, reply)

    def finish(self, call, reply):
        """Carries out a call that waits for nothing, and sends its events and its answer."""
        kind, function = METHODS[call.method]
        id = call.answers_to
        if kind == "wait":
            self.event(id, "init")
            if (call.after_seq or 0) > self.store.seq():
                self.event(id, "warning", message=f"The log ends at {self.store.seq()}.")
            self.parked[id] = Parked(call, reply)
            return self.pump()
        result = self.written(call, kind, function) if kind != "read" else call.done(function(call))
        for event in call.stream:
            self.event(id, **event)
        reply({"id": id, "result": result})
        return self.pump()

    def written(self, call, kind, function):
        """Returns the result of a write: of this one, or of the one that its token stands for."""
        token, counted = call.client_token, call.counted
        first = self.store.tokens.get((call.method, token))
        if first is not None:
            if first["params"] != counted:
                problem = "This token came with other params."
                raise Refusal("resource.conflict", problem, "client_token")
            call.stream, result = first["stream"], first["result"]
            return {**result, "meta": {**result["meta"], "duplicate": True}}
        data = function(call)
        plan = {"action": call.method, "targets": call.targets, "changes": [call.method]}
        plan |= {"events": {"items": call.events, "total": len(call.events)}}
        plan |= {"risk": {"level": "low" if kind == "write" else "medium", "action": call.method}}
        plan["plan_hash"] = digest([call.method, counted, call.targets])
        if call.dry_run:
            call.meta |= {"dry_run": True, "plan": plan}
            return call.done(None)
        if kind == "destructive" and call.confirm != plan["plan_hash"]:
            more = {"plan": plan, "risk": plan["risk"]}
            if call.confirm is None:
                raise Refusal("input.confirmation_required", "A person has to approve.", **more)
            retry = {"method": call.method, "params": {**counted, "dry_run": True}}
            raise Refusal(
                "resource.plan_stale", "Ask for a new plan.", "confirm", retry=retry, **more
            )
        if call.events:
            call.meta["seq"] = self.store.seq() + 1
            self.store.commit(call, "user", call.done(data))
        return call.done(data)

    def pump(self):
        """Sends what subscriptions have not had, and ends waits whose position has come."""
        for id, parked in list(self.parked.items()):
            call = parked.call
            if METHODS[call.method][0] == "wait":
                for record in METHODS[call.method][1](call):
                    self.event(id, "item", item=record)
            elif call.min_seq <= self.store.seq():
                del self.parked[id]
                call = Call(self.store, call.method, call.params)
                call.answers_to = id
                self.finish(call, parked.reply)

    def cancel(self, id, message, type="operation.cancelled"):
        parked = self.parked.pop(id, None)
        if parked is not None:
            error = Refusal(type, message, detail={"seq": self.store.seq()}).error
            parked.reply({"id": id, "error": error})

    def serve(self, wake):
        """Takes lines until stdin or a signal ends it; returns the exit code."""
        buffer, begin, is_long = bytearray(), 0, False
        while True:
            deadlines = [one.deadline for one in self.parked.values() if one.deadline is not None]
            wait = max(0, min(deadlines) - time.monotonic()) if deadlines else None
            ready, _, _ = select.select([0, wake], [], [], wait)
            for id, parked in list(self.parked.items()):
                if parked.deadline is not None and parked.deadline <= time.monotonic():
                    self.cancel(id, "The time is up.", "operation.timeout")
            if wake in ready:
                return 130 if os.read(wake, 1)[0] == signal.SIGINT else 0
            if 0 not in ready:
                continue
            piece = os.read(0, 1 << 20)
            buffer += piece or b"\n"  # a last line may lack its end
            while (end := buffer.find(b"\n", begin)) >= 0:
                self.line(bytes(buffer[:end]), is_long or end > LINE)
                del buffer[: end + 1]
                begin, is_long = 0, False
            begin = len(buffer)
            if begin > LINE:
                buffer, begin, is_long = bytearray(), 0, True
            if not piece:
                return 0


def main():
    store, *more = sys.argv[1:]
    pinned = next((one.partition("=")[2] for one in more if one.startswith("--protocol=")), "1")
    if pinned not in ("1", "1.0"):
        error = Refusal("input.invalid_params", "Not spoken.", valid_values=["1", "1.0"]).error
        say({"id": None, "error": error})
        return 1
    wake, pipe = os.pipe()
    os.set_blocking(pipe, False)
    signal.set_wakeup_fd(pipe)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)
    can = ("batch", "cancel", "streams", "dry_run", "confirm", "client_token")
    capabilities = {
        **dict.fromkeys(can, True),
        "modes": ["fts"],
        "fusion": ["blend"],
        "parts": PARTS,
    }
    capabilities |= {"max_line_bytes": LINE, "max_in_flight": IN_FLIGHT}
    init = {"protocol": "1.0", "server": {"name": "minimal", "version": "1"}, "store": store}
    init |= {"actor": "user", "scopes": ["admin"], "capabilities": capabilities}
    server = None
    try:
        say({"method": "event", "params": {"type": "init", **init}})
        server = Server(Store(store))
        seq = server.store.seq()
        fresh = {"seq": seq, "fulltext_seq": seq, "vector_seq": seq, "pending_embeddings": 0}
        say({"method": "event", "params": {"type": "ready", "seq": seq, "freshness": fresh}})
        code = server.serve(wake)
        for id in list(server.parked):
            server.cancel(id, "The connection ended.")
        return code
    except BrokenPipeError:  # The client no longer reads.
        return 0
