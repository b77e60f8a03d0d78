"""Methods as data, and how one request becomes one answer.

Refuses to know: pipes, shells, tools, and what any handler does.

Offers: answers · call · describe · flags · lean · members · method · pages · registry · reply ·
    retry · run · schemas.check · schemas.messages · schemas.schema · typed
May import: base · settings · events · views · store · agents · search · sessions · library
Light: yes
"""
