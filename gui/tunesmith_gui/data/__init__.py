"""The Data page: open a file, look at its rows, see what is learned of them, and repair what is wrong with them."""
