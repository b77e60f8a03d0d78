"""What can happen, one file a noun: each event says what it did and what it concerns.

Refuses to know: records, positions, and how a view applies an event.

Offers: agent · codec · document · entry · event · kb · origin · plan · session · upkeep · watch
May import: base · base.text
Light: yes
"""
