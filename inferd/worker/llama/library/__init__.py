"""Load the native libraries: llama.cpp, its CPU variants, libmtmd."""
