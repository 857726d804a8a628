# llama.cpp's library alone: the binding turns its examples' helper library on, which is
# half of the compile and nothing of which inferd loads.
set(LLAMA_BUILD_COMMON OFF)

# Where ggml puts the variants of its CPU code: beside the other libraries.
if(GGML_BACKEND_DL)
  set(CMAKE_INSTALL_BINDIR llama_cpp/lib)
  set(CMAKE_INSTALL_RPATH "$ORIGIN")
endif()

# With it, the chat templates of many models, which our tests render.
install(
  DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/models/templates"
  DESTINATION "${SKBUILD_PLATLIB_DIR}/llama_cpp"
  FILES_MATCHING PATTERN "*.jinja"
)
