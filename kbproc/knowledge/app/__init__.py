"""Opens and closes the parts of a store in the owner's process, and checks and repairs them.

Refuses to know: methods, requests and processes.

Offers: health.doctor · library · past · switch
May import: base · base.text · base.settings · engine.log · engine.events · engine.sources ·
    engine.models · engine.projections · engine.store · engine.embedding · knowledge.documents ·
    knowledge.watching · knowledge.agents · knowledge.history · knowledge.sessions ·
    knowledge.cluster
Light: yes
"""
