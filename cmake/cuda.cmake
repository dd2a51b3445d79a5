# GPU kernels: architectures, flags, and the objects that a library with GPU kernels is made of.
# 80 is code and PTX, for everything that is not Hopper; a file named *_sm90* needs Hopper's own instructions.
set(CMAKE_CUDA_ARCHITECTURES "80;90-real" CACHE STRING "GPU architectures")
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know nvcc's C++20 flag.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# Else a package in /usr/include is handed to nvcc with -isystem, which hides the C library from C++'s own headers.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
find_package(CUDAToolkit 12 REQUIRED)
# cuBLASLt is loaded when it is first needed (cuda/gemm), so its header is all that a build asks for.
find_path(CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
if(NOT CUBLASLT_INCLUDE_DIR)
  message(FATAL_ERROR "The GPU kernels need cublasLt.h, which is not in ${CUDAToolkit_INCLUDE_DIRS}: install cuBLAS's headers (libcublas-dev, nvidia-cublas)")
endif()

function(add_cuda_kernels)
  target_compile_definitions(traincore_device_flags INTERFACE TC_WITH_CUDA)
  # -fmad=false: a product and a sum round as they are written, as on the CPU. fmt 9 and nvcc disagree about constexpr.
  target_compile_options(traincore_device_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr
                         -DFMT_USE_CONSTEXPR=1 -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
  target_link_libraries(traincore_device_flags INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
  file(GLOB shared CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/traincore/cuda/*.cu ${PROJECT_SOURCE_DIR}/traincore/cuda/*.cpp)
  list(FILTER shared EXCLUDE REGEX "/(row|slab)_plan\\.cpp$")
  set(hopper ${op_cuda_sources})
  list(FILTER hopper INCLUDE REGEX "_sm90")
  set(generic ${op_cuda_sources})
  list(FILTER generic EXCLUDE REGEX "_sm90")
  add_library(traincore_cuda_objects OBJECT ${shared} ${generic})
  target_link_libraries(traincore_cuda_objects PRIVATE traincore_device_flags)
  string(REPLACE ";" "," architectures "${CMAKE_CUDA_ARCHITECTURES}")  # for plans, which a GPU without code of its own has
  set_source_files_properties(${PROJECT_SOURCE_DIR}/traincore/cuda/device.cpp PROPERTIES COMPILE_DEFINITIONS
                              "TC_CUDA_ARCHITECTURES=\"${architectures}\"")
  set(objects traincore_cuda_objects)
  if(hopper)
    add_library(traincore_sm90_objects OBJECT ${hopper})
    target_link_libraries(traincore_sm90_objects PRIVATE traincore_device_flags)
    set_target_properties(traincore_sm90_objects PROPERTIES CUDA_ARCHITECTURES 90a-real)
    list(APPEND objects traincore_sm90_objects)
  endif()
  set(traincore_cuda ${objects} PARENT_SCOPE)
endfunction()
