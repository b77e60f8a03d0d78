"""The system's calls that change kbproc's own files: a store's log, sources and settings.

Each name is the call itself, so that going through this module costs nothing. A test puts
recorders in their places, and then knows what a crash leaves after each call. So callers name the
module at each call (`disk.write(…)`) and import no single name from it.
"""

from __future__ import annotations

import os

open = os.open
close = os.close
write = os.write
write_at = os.pwrite
truncate = os.ftruncate
sync = os.fsync
# Syncs the bytes, and the size if it has grown; macOS has only the call that syncs everything.
sync_data = getattr(os, "fdatasync", os.fsync)
rename = os.rename
unlink = os.unlink
make_folder = os.mkdir
remove_folder = os.rmdir
