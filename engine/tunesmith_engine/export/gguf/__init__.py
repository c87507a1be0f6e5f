"""A model as one GGUF file, the format of llama.cpp, written with the library of the same name."""
