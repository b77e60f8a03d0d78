"""From text to vectors, behind one interface; what has been embedded once is kept.

Refuses to know: chunks, documents, and when something is embedded.

Offers: catalogue · interface · pack
May import: base
Light: no
"""
