#!/usr/bin/env bash
# A harness in bash: one request after the other over one process, and an exactly-once retry.
set -euo pipefail
store=$1

coproc KB { exec kbproc serve --store "$store"; }
pid=$KB_PID                        # bash forgets both once the process has ended
exec 3<&"${KB[0]}" 4>&"${KB[1]}"

ask() {  # ask ID METHOD PARAMS: events go to stderr, the answer to stdout
    printf '{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}\n' "$1" "$2" "$3" >&4
    local line
    while IFS= read -r line <&3; do
        case $line in
            *'"method":"event"'*) printf '%s\n' "$line" >&2 ;;
            *) printf '%s\n' "$line"; return ;;
        esac
    done
    return 1  # it has ended without an answer
}

ask 1 doc.create '{"title":"Tides","text":"High tide is at noon.","client_token":"tides-1"}'
ask 2 search '{"query":"high tide","limit":1,"text":false}'
ask 3 chat '{"question":"When is high tide?"}'

kill -9 "$pid"
wait "$pid" 2>/dev/null || true
exec 3<&- 4>&-
# Whether the first write was done can't be known from here: asked again, it is not done twice.
kbproc call --store "$store" doc.create title=Tides text="High tide is at noon." client_token=tides-1
