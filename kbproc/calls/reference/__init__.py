"""What is told of the declarations outside: pages and tables, made from them."""
