"""From text to vectors, and from prompt to text, each behind one interface; what has been
embedded once is kept and found.

Refuses to know: chunks, documents, and when something is embedded.

Offers: answering.choice · answering.interface · calibration · catalogue · exact · fluency · graph ·
    interface · pack
May import: base · text
Light: no
"""
