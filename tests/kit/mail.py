"""A question inside a polite mail, and texts; one of them answers it."""

from __future__ import annotations

TEXTS = {
    "Backups": "Backups of the archive run each night at two, and each backup is kept for a month.",
    "Deploys": "Deploys happen on Fridays, and nobody deploys a release on Sundays.",
    "Meetings": "The meeting on Tuesday begins at ten; questions of friends and family come last.",
    "Weekend": "On a nice weekend the team goes for a walk, and everybody is welcome with friends.",
}
ASKING = "How long is each backup of the archive kept?"
MAIL = (
    "Hello dear team, I hope you all had a nice and quiet weekend with friends and family. "
    "Sorry to bother you with this one more time. "
    f"{ASKING} "
    "Thank you so much for whatever help you can give me. "
    "I would love to hear from you before our meeting on Tuesday. Kindest regards, Anna"
)
