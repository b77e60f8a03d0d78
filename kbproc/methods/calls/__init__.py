"""Methods as data, and how one request becomes one answer.

Refuses to know: pipes, shells, tools, and what any handler does.

Offers: answers · call · checker · describe · flags · messages · method · plans · registry · reply ·
    retry · run · schemas
May import: base · base.settings · engine.events · engine.projections · engine.store ·
    knowledge.agents · knowledge.documents · knowledge.search · knowledge.history ·
    knowledge.sessions · knowledge.app
Light: yes
"""
