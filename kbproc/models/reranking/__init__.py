"""From a query and passages to how well each passage answers, behind one interface."""
