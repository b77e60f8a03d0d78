"""From text to vectors, behind one interface; what has been embedded once is kept and found.

Refuses to know: chunks, documents, and when something is embedded.

Offers: catalogue · fluency · graph · interface · pack
May import: base
Light: no
"""
