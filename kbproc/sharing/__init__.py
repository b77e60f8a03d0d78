"""One store, many processes: the owner, those who attach, and taking over.

Refuses to know: what requests mean.

Offers: alone · attached · reach · serve · serving · waiting
May import: base · settings · log · store · agents · library · calls · methods · wire
Light: yes
"""
