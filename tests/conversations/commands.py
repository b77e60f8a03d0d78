"""Every command of the shell once, in an order that satisfies their needs.

The goldens contain the output on both streams, in every format.
"""

from __future__ import annotations

COMMANDS = [
    line.split("|")
    for line in r"""
ping
version
describe|kb.get
schema|ping.result
exit-codes
docs|errors#store.locked
docs|errors#store.loked
kb|create|handbook|--description|How we work.
kb|list
kb|get|handbook
kb|update|handbook|--name|Handbook
kb|status|default
start|docs|--no-model|--dry-run
doc|ingest|docs/git-admin.md|docs/setup-notes.txt
doc|create|--title|Draft|--text|Not finished.|--tags|draft|--kb|handbook
doc|wait
doc|list
doc|get|1|--text
doc|update|3|--title|Second draft
doc|history|3
doc|download|1|--length|64
doc|fetch|http://127.0.0.1/secrets
doc|reparse|1
chunk|list|1
chunk|get|1|--after|1
chunk|map|--kb|nowhere
tag|list
search|install git|--fts-only
search|install git|--fts-only|--explain|--limit|1
search|zebra|--fts-only
kb|check|default
knowledge|store|--title|The CI cache is keyed by branch|--body|Each branch begins empty.
knowledge|store|--title|The CI cache is keyed by lock file|--body|It goes with the lock file.
knowledge|supersede|4|5
knowledge|get|5
knowledge|list
knowledge|search|cache|--mode|fts
knowledge|unsupersede|4|5
knowledge|verify|4|--review-after|2100-01-01
knowledge|list|--due
knowledge|duplicates|--min-score|0.3
agent|create|gitea|--description|Looks after Gitea.|--kbs|default
agent|list
agent|get|gitea
agent|update|gitea|--quotas.notes-stored|50
agent|status|gitea
agent|check|gitea
note|put|deploys|# Deploys\n\nOn Friday.\n|--agent|gitea
note|list|--agent|gitea
note|get|deploys|--agent|gitea
note|search|friday|--agent|gitea|--mode|fts
note|sync
note|history|deploys|--agent|gitea
note|delete|deploys|--agent|gitea
note|delete|deploys|--agent|gitea|-y
doc|delete|3
doc|delete|3|--dry-run
doc|delete|3|-y
doc|restore|3
chunk|delete|1|-y
knowledge|delete|4|-y
session|create|Setting up Git|--kb|default
session|ask|1|How is git installed?
session|resume|1|1
session|stop|1|1
chat|What do zebras eat?
agent|invoke|gitea|How is git installed?
session|list
session|search|zebras
session|get|1
session|delete|1|-y
events|read|--limit|2
events|verify
events|subscribe|--after-seq|0|--timeout|0
events|revert|--seqs|2|--dry-run
sql|query|select kb, count(*) as documents from documents group by kb order by kb
eval|asked|--model|none
eval|docs
model|list
model|install|--dry-run
model|install|no-such-model
model|use|hash|--kind|hash|--dry-run
index|rebuild
status
doctor
store|export|all.ndjson|--kb|handbook
store|import|all.ndjson
store|backup|copy
cluster|status
cluster|init|nats://127.0.0.1:1|--stream|team|--dry-run
cluster|join|nats://127.0.0.1:1|--stream|team
cluster|leave
store|move|--to|nats://127.0.0.1:1|--dry-run
store|move|--to|file
cluster|reseed
store|compact|2027-01-01|-y
store|purge|2|-y
agent|delete|gitea|-y
plan|list
plan|approve|00000000000000000000000000000000
plan|refuse|00000000000000000000000000000000
kb|delete|handbook|-y
watch|add|docs|--glob|*.md
watch|list
watch|remove|docs
kb|update|default|--review|all
knowledge|store|--title|Ports|--body|SSH has port 22.
knowledge|store|--title|Posts|--body|SSH has port 23.
review|list
review|edit|7|--tags|ssh
review|approve|7
review|reject|8
hook|report
hook|forget
kb|get|handbok
kb|lst
list|--limt|3
search
list|--limit|many
contract|requirements|ids
contract|export|kit
contract|check|--exec|false|--only|ids.as_sent
contract|client|--exec|false|--only|client.requests
""".strip().splitlines()
]
# Commands without an answer of their own, or of the repository; or that read logs of the home.
WITHOUT = {
    *(
        "call",
        "serve",
        "mcp",
        "open",
        "work",
        "gen",
        "completion",
        "help",
        "hook",
        "skills install",
        "watch follow",
    ),
    *("chats add", "chats export"),
}


def in_format(format: str) -> list[list[str]]:
    lines = [[word.replace("\\n", "\n") for word in line] for line in COMMANDS]
    return [[*line, "--format", format] for line in lines]
