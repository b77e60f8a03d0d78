"""From a question and passages to an answer, behind one interface."""
