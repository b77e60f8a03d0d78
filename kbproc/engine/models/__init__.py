"""Models, each kind behind one interface: a text becomes a vector, a prompt an answer, a query and
texts become scores. A vector that was computed once is kept.

Refuses to know: chunks, documents, and when something is embedded.

Offers: answering.choice · answering.interface · calibration · catalogue · exact · fluency · graph
    · hub.curated · install · interface · pack · reranking.reranker · weights
May import: base · base.settings · base.text
Light: no
"""
