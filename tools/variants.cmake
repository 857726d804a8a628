# ggml's own list of variants of its CPU code has thirteen for x86-64, and no option to
# choose among them. These differ in features that quantised models use: no AVX, AVX2, its
# dot products, AVX-512, its dot products. Of the others some are for processors from before
# 2013, some set flags that no kernel or only that for bf16 uses, and one uses AMX, which
# crashes on virtual machines with incomplete support.
set(INFERD_CPU_VARIANTS x64 haswell alderlake skylakex cascadelake)

# Included where ggml's project begins; called at its end, where all targets are known.
# A target cannot be removed, so the others become empty libraries with another name.
function(inferd_leave_out_variants)
  set(nothing "${CMAKE_CURRENT_BINARY_DIR}/nothing.c")
  file(WRITE "${nothing}" "typedef int nothing;\n")
  get_property(targets DIRECTORY src PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    if(target MATCHES "^ggml-cpu-([a-z0-9]+)$" AND NOT CMAKE_MATCH_1 IN_LIST INFERD_CPU_VARIANTS)
      set_target_properties(${target} PROPERTIES
        SOURCES "${nothing}"
        COMPILE_OPTIONS ""
        LINK_LIBRARIES ""
        OUTPUT_NAME "left-out-${CMAKE_MATCH_1}"
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/left-out"
      )
    endif()
  endforeach()
endfunction()

cmake_language(DEFER CALL inferd_leave_out_variants)
