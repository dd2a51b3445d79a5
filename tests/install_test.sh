#!/usr/bin/env bash
# The installed library as its users meet it: headers clean in C11 and C++20, pkg-config, find_package, and no exported name
# but tc_* and tcx_*.   install_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig:$work/prefix/lib64/pkgconfig
warnings="-Wall -Wextra -Wpedantic -Wconversion -Werror"
flags=$(pkg-config --cflags --libs traincore)
libdir=$(pkg-config --variable=libdir traincore)

cc -std=c11 $warnings "$source/examples/hello.c" $flags -Wl,-rpath,"$libdir" -o "$work/hello_c"
"$work/hello_c" | grep -q 'y  =  0.365148  0.730297  2.190890  0.730297'
c++ -std=c++20 $warnings "$source/examples/hello.cpp" $flags -Wl,-rpath,"$libdir" -o "$work/hello_cpp"
"$work/hello_cpp" | grep -q 'refused: rmsnorm_forward: eps is 0, but must be > 0'

# The kit from plain C: the examples, and the program in its documentation.
for example in train_from_c block_forward_backward; do
  cc -std=c11 $warnings "$source/examples/$example.c" $flags -lm -Wl,-rpath,"$libdir" -o "$work/$example"
  "$work/$example" >"$work/$example.txt" || { cat "$work/$example.txt"; exit 1; }
done
sed -n '/^```c$/,/^```$/p' "$source/docs/kit.md" | grep -v '^```' >"$work/kit.c"
cc -std=c11 -Wall -Wextra -Werror "$work/kit.c" $flags -Wl,-rpath,"$libdir" -o "$work/kit"
"$work/kit" | grep -q 'w\[0\]\[0\] = 2.0'

for header in $(cd "$work/prefix/include" && find traincore -name '*.h'); do
  case $header in */error.h) ;; *) echo "#include \"$header\"" | cc -std=c11 $warnings -x c -c - $flags -o /dev/null ;; esac
  echo "#include \"$header\"" | c++ -std=c++20 $warnings -x c++ -c - $flags -o /dev/null
done

mkdir "$work/app"
cp "$source/examples/hello.cpp" "$work/app/"
cat >"$work/app/CMakeLists.txt" <<'EOT'
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES CXX)
find_package(TrainCore 0.1 REQUIRED)
add_executable(app hello.cpp)
target_compile_features(app PRIVATE cxx_std_20)
target_link_libraries(app PRIVATE TrainCore::traincore)
EOT
cmake -S "$work/app" -B "$work/app/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/app/build" >/dev/null
"$work/app/build/app" | grep -q 'y = 1.697056 0.565685'

foreign=$(nm -D --defined-only "$libdir/libtraincore.so" | awk '$2 != "A" {print $3}' | grep -vE '^tcx?_' || true)
[ -z "$foreign" ] || { echo "exported besides tc_* and tcx_*: $foreign"; exit 1; }
"$work/prefix/bin/traincore" --version | grep -q '^0\.1\.0$'
echo "install: C, C++, pkg-config, find_package and exports are right"
