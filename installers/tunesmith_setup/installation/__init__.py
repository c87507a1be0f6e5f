"""What is installed for a person: the program, its environments, the example, WSL; and how it is removed."""
