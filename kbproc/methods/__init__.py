"""The methods, a file each: methods/<noun>/<verb>.py is <noun>.<verb>.

Refuses to know: each other, surfaces, and how a plan is confirmed or a record appended.

Offers: all
May import: base · settings · events · sources · models · views · store · embedding ·
    documents · agents · search · history · moving · sessions ·
    library · calls
Light: yes
"""
