# llama.cpp's library alone: the binding turns its examples' helper library on, which is
# half of the compile and nothing of which inferd loads.
set(LLAMA_BUILD_COMMON OFF)
