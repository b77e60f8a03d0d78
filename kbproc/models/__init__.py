"""From text to vectors, from prompt to text, and from a query and texts to scores, each behind one
interface; what has been embedded once is kept and found.

Refuses to know: chunks, documents, and when something is embedded.

Offers: answering.choice · answering.interface · calibration · catalogue · exact · fluency · graph ·
    interface · pack · reranking.choice · reranking.interface
May import: base · text
Light: no
"""
