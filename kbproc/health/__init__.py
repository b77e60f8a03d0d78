"""What is well, and mending what is not.

Refuses to know: who asks; each finding's hint says what a person can do.

Offers: doctor · salvage
May import: base · log · events · sources · models · views · store
Light: yes
"""
