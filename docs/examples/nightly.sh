#!/usr/bin/env bash
# Every night: is the store well, is there a copy of it, and does the copy open?
#   nightly.sh BACKUPS       the store is the one that KBPROC_STORE or a profile names
set -euo pipefail
backups=$1
today=$backups/$(date +%Y-%m-%d)
mkdir -p "$backups"

kbproc doctor --strict --format json --jq .data.healthy
[ -e "$today" ] || kbproc store backup "$today" --format json --jq .data.seq

# A backup that nobody has opened is a hope: every record of this one is read.
kbproc --store "$today" events verify --format json --jq .data
kbproc --store "$today" status --format json --jq .data.total_documents

# Fourteen stay; older ones go only now that a newer one has been tried.
find "$backups" -mindepth 1 -maxdepth 1 -name '????-??-??' | sort -r | tail -n +15 | xargs -r rm -r
