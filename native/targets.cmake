# The static library isobit_core: kernels once per instruction set, and what drives them.
# Floating-point contraction is off everywhere: an fma is written where one is meant.
find_package(Threads REQUIRED)

set(ISOBIT_FLAGS -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND ISOBIT_FLAGS -Wno-maybe-uninitialized -Wno-uninitialized)  # GCC's own AVX-512 headers
endif()

function(isobit_add_target name simd)
  add_library(isobit_${name} OBJECT native/kernels/target.cpp)
  target_include_directories(isobit_${name} PRIVATE native/include)
  target_compile_definitions(isobit_${name} PRIVATE ISOBIT_TARGET=${name} ISOBIT_SIMD_${simd})
  target_compile_options(isobit_${name} PRIVATE ${ISOBIT_FLAGS} ${ARGN})
  set(ISOBIT_OBJECTS ${ISOBIT_OBJECTS} $<TARGET_OBJECTS:isobit_${name}> PARENT_SCOPE)
endfunction()

isobit_add_target(scalar SCALAR)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
  isobit_add_target(avx2 AVX2 -mavx2 -mfma -mf16c)
  isobit_add_target(specimen AVX2 -mavx2 -mfma -mf16c -DISOBIT_SPECIMEN)
  isobit_add_target(avx512 AVX512 ${AVX512})
  set(BEST AVX512 ${AVX512} -mavx512vnni)
  isobit_add_target(avx512vnni ${BEST})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  isobit_add_target(neon NEON)
  isobit_add_target(specimen NEON -DISOBIT_SPECIMEN)
  set(BEST NEON -march=armv8.2-a+dotprod)
  isobit_add_target(neondot ${BEST})
else()
  message(FATAL_ERROR "Isobit has kernels for x86-64 and 64-bit Arm, not for ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Kernels that add in the order that suits them, for bench/order.py; never in a build that is installed for use.
option(ISOBIT_FREE_ORDER "Also build the kernels `freeorder`, whose sums have no fixed order" OFF)
if(ISOBIT_FREE_ORDER)
  isobit_add_target(freeorder ${BEST} -DISOBIT_FREE_ORDER)
endif()

add_library(isobit_core STATIC
  native/src/arena.cpp native/src/blocks.cpp native/src/ceilings.cpp native/src/cores.cpp native/src/cpu.cpp
  native/src/executor.cpp native/src/pack.cpp native/src/steps.cpp native/src/thread_pool.cpp native/src/weights.cpp
  ${ISOBIT_OBJECTS})
target_include_directories(isobit_core PUBLIC native/include native/src)
target_compile_options(isobit_core PRIVATE ${ISOBIT_FLAGS})
if(ISOBIT_FREE_ORDER)
  target_compile_definitions(isobit_core PRIVATE ISOBIT_FREE_ORDER)
endif()
target_link_libraries(isobit_core PUBLIC Threads::Threads)
