"""`python -m tools.mutants`: puts mended defects back, one at a time, and says which test finds each.

The defects are the last thirty that were mended in log, store, sharing, watching and history.
This rule chose them, and was written before they were chosen:

1. The packages are kbproc/engine/log, kbproc/engine/store, kbproc/engine/sources/blobs.py and
   packs.py, kbproc/surfaces/sharing, kbproc/knowledge/watching and kbproc/knowledge/history, and
   the folders in which their files lay before.
2. Commits are looked at newest first, from f7f7b4e5 on: `git log --no-merges` of those packages.
   A commit that changes no file tests/**/test_*.py is passed over.
3. A defect is what a commit's message says that the program did wrong: an answer that was wrong or
   missing, data that was lost or revealed, a crash, a wait without end, or use that grew. Features,
   speed, names and moved code are none. A message that names several defects gives several.
4. A defect counts if its mend, or a part of it, lies in a file of those packages. It is put back by
   few edits of today's code, all of which belong to that mend.
5. A defect is skipped, and listed with the reason, if its code is gone, if other code of today
   prevents what went wrong, if only a power failure, a cluster's server or a browser shows it, or
   if a newer defect of the list is the same.
"""
