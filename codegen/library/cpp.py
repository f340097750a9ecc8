"""The C++17 header of a library, on request: a class around what the C header declares.

    graphc::digits::Model model;                    // the variables as they were at export
    model.step(x, y, loss, 32);                     // throws, or returns codes where told so

It declares nothing of its own to link, and stands beside the C header, which it includes. Names
live in graphc::PREFIX, since a namespace PREFIX would clash with functions (`index`, `time`) and
with variables of the program.
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import filled
from graphc.codegen.library.abi import Api, Names, identifier
from graphc.codegen.library.cpp_methods import MEMBERS, Methods
from graphc.codegen.library.header import comment_safe
from graphc.errors import CompileError

_HEAD = """\
/* <P> for C++17: made by graphc <VERSION>. This code is its user's own; graphc claims no rights
in it.

    graphc::<NS>::Model model;

A Model owns<STATE> the arena that its calls work in. The arena grows to the largest sizes seen and
is used again, so calls allocate nothing more; reserve_...() makes room ahead. Use one Model from
one thread at a time; calls of a const Model may run side by side, since each allocates for itself.

Arrays are anything that has data() and size() (std::vector, std::array, std::span), C arrays,
{pointer, count}, or one number; they are in C order, and their sizes are checked. nullptr stands
for an output that is not wanted.

A call that fails throws Error and leaves the state as it was. Under -fno-exceptions, or where
GRAPHC_NO_EXCEPTIONS is defined, calls return a status code instead, 0 if all is well; explain()
says what it means.
*/
#ifndef <M>_GRAPHC_HPP
#define <M>_GRAPHC_HPP

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "this header needs C++17 (-std=c++17, /std:c++17); <HEADER> does with any C or C++"
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "<HEADER>"

namespace graphc::<NS> {

/* Status codes of this header, beside those of <HEADER>. */
constexpr int wrong_size = -1, wrong_library = -2;

/* What a status code means: operation, reason, line of the declaring program. */
inline const char *explain(int code) noexcept {
  if (code == wrong_size) return "an array has another size than its shape";
  if (code == wrong_library) return "this header belongs to another version of the library";
  return ::<P>_strerror(code);
}

/* Looks at the CPU and starts the threads, which the first call would do. */
inline void warmup() noexcept { ::<P>_warmup(); }
/* At most n threads from now on; 1 never creates one. */
inline void set_threads(int n) noexcept { ::<P>_set_threads(n); }

class Error : public std::runtime_error {
 public:
  Error(int code, const std::string &what) : std::runtime_error(what), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/* Elements side by side; see In and Out. */
template <class T>
class Span {
 public:
  template <class N, class = std::enable_if_t<std::is_integral_v<N>>>
  Span(T *first, N count) noexcept : data(first), size(static_cast<std::uint64_t>(count)) {}
  template <class C, class = decltype(std::declval<C &>().size()),
            class = std::enable_if_t<
                std::is_convertible_v<decltype(std::declval<C &>().data()), T *>>>
  Span(C &&array) noexcept : data(array.data()), size(array.size()) {}
  template <class A, class E = std::remove_all_extents_t<A>,
            class = std::enable_if_t<std::is_array_v<A> && std::is_convertible_v<E *, T *>>>
  Span(A &array) noexcept
      : data(reinterpret_cast<T *>(&array)), size(sizeof(A) / sizeof(T)) {}
  Span(T &number) noexcept : data(&number), size(1) {}

  T *data;
  std::uint64_t size;
  bool wanted = true;

 protected:
  Span() noexcept : data(nullptr), size(0), wanted(false) {}
};

template <class T>
struct In : Span<const T> {
  using Span<const T>::Span;
};

template <class T>
struct Out : Span<T> {
  using Span<T>::Span;
  Out(std::nullptr_t) noexcept {}
};

/* A size, as sums and products of dimensions; wraps where the library will say that it overflows */
class Count {
 public:
  constexpr Count(std::int64_t n) noexcept : bits(static_cast<std::uint64_t>(n)) {}
  friend constexpr Count operator+(Count a, Count b) noexcept { return wrap(a.bits + b.bits); }
  friend constexpr Count operator*(Count a, Count b) noexcept { return wrap(a.bits * b.bits); }
<SIZES>
  std::uint64_t bits;

 private:
  static constexpr Count wrap(std::uint64_t bits) noexcept {
    return Count(static_cast<std::int64_t>(bits));
  }
};

/* An array that does not have the size it should, if any. */
struct Misfit {
  const char *name = nullptr;
  std::uint64_t wanted = 0, got = 0;

  template <class T>
  void check(const char *array, const Span<T> &span, Count count) noexcept {
    if (name == nullptr && span.wanted && span.size != count.bits)
      *this = Misfit{array, count.bits, span.size};
  }
};

"""

_SIZES = """\
  friend constexpr Count floordiv(Count a, Count b) noexcept {
    const std::int64_t n = a.value(), d = b.value();
    if (d == 0 || d == -1) return wrap(0 - (d == 0 ? 0 : a.bits));
    return Count(n / d - (n % d != 0 && (n % d < 0) != (d < 0)));
  }
  friend constexpr Count mod(Count a, Count b) noexcept {
    return a + Count(-1) * (b * floordiv(a, b));
  }
  friend constexpr Count larger(Count a, Count b) noexcept {
    return a.value() < b.value() ? b : a;
  }
  friend constexpr Count smaller(Count a, Count b) noexcept {
    return b.value() < a.value() ? b : a;
  }
  constexpr std::int64_t value() const noexcept { return static_cast<std::int64_t>(bits); }
"""

_RESULT = """\
#if defined(__cpp_exceptions) && !defined(GRAPHC_NO_EXCEPTIONS)
inline namespace throwing {

using Result = void;

inline void finish(const char *call, int code, const Misfit &misfit = Misfit()) {
  if (code == 0) return;
  std::string what = code < <M>_FIRST_SITE ? std::string(call) + ": " : std::string();
  if (code == wrong_size)
    what += std::string(misfit.name) + " has " + std::to_string(misfit.wanted) +
            " elements, got " + std::to_string(misfit.got);
  else
    what += explain(code);
  throw Error(code, what);
}

#else
inline namespace returning_codes {

using Result = int;

inline int finish(const char *, int code, const Misfit & = Misfit()) noexcept { return code; }

#endif

/* Working memory. It belongs to one Model, so copying copies nothing. */
class Arena {
 public:
  Arena() noexcept = default;
  Arena(const Arena &) noexcept : Arena() {}
  Arena(Arena &&from) noexcept : bytes_(std::move(from.bytes_)), size_(from.size_) {
    from.size_ = 0;
  }
  Arena &operator=(const Arena &) noexcept { return *this; }
  Arena &operator=(Arena &&from) noexcept {
    bytes_.swap(from.bytes_);
    std::swap(size_, from.size_);
    return *this;
  }
  /* Whether there are so many bytes now. */
  bool grow(std::int64_t bytes) noexcept {
    if (bytes <= size_) return true;
    const auto size = static_cast<std::size_t>(bytes);
    bytes_.reset();
    size_ = 0;
    if (static_cast<std::uint64_t>(bytes) == size)
      bytes_.reset(new (std::nothrow) unsigned char[size]);
    if (bytes_ == nullptr) return false;
    size_ = bytes;
    return true;
  }
  void *get() const noexcept { return bytes_.get(); }

 private:
  std::unique_ptr<unsigned char[]> bytes_{nullptr};
  std::int64_t size_ = 0;
};

"""

_VARIABLES = """\
/* The state in memory of its own: empty once moved from, or where there was no memory. */
class Variables {
 public:
  Variables() {  // the library must be the one that this header was made for
    if (::<P>_abi() != <M>_ABI)
      finish("Model", wrong_library);
    else if (make())
      ::<P>_init(state_.get());
  }
  Variables(const Variables &from) {
    if (from.state_ != nullptr && make()) *state_ = *from.state_;
  }
  Variables(Variables &&) noexcept = default;
  Variables &operator=(const Variables &from) {
    if (state_ != nullptr && from.state_ != nullptr)
      *state_ = *from.state_;
    else
      *this = Variables(from);
    return *this;
  }
  Variables &operator=(Variables &&) noexcept = default;
  ::<P>_state *get() const noexcept { return state_.get(); }

 private:
  bool make() {
    state_.reset(new (std::nothrow) ::<P>_state);
    if (state_ == nullptr) finish("Model", <M>_OUT_OF_MEMORY);
    return state_ != nullptr;
  }
  std::unique_ptr<::<P>_state> state_{nullptr};
};

"""

_STATE_METHODS = """\
  /* The variables, for reading, changing and the functions of C; null once moved from. */
  ::<P>_state *state() noexcept { return variables_.get(); }
  const ::<P>_state *state() const noexcept { return variables_.get(); }
  /* Whether there are variables: false once moved from, or when making them failed. */
  explicit operator bool() const noexcept { return state() != nullptr; }
  /* Every variable as it was at export. */
  Result reset() {
    if (state() != nullptr) ::<P>_init(state());
    return finish("reset", state() != nullptr ? 0 : <M>_NULL_ARGUMENT);
  }
"""

_FILE_METHODS = """\
  /* To a file and back; the file is replaced as a whole, and a wrong one changes nothing. */
  Result save(const std::string &path) const {
    return finish("save", ::<P>_save_state(state(), path.c_str()));
  }
  Result load(const std::string &path) {
    return finish("load", ::<P>_load_state(state(), path.c_str()));
  }
"""


def cpp_text(api: Api, header: str, version: str) -> str:
    """The whole header. `header`: the name of the C header that it includes."""
    if any(ch in header for ch in '"\\\n'):
        raise CompileError(f"export: a C++ header cannot include a file called {header!r}")
    names = Names(MEMBERS)
    methods = [names(identifier(e.unit.name)) for e in api.entries]
    arrays = [a for e in api.entries for a in (*e.inputs, *e.outputs)]
    fixed = _HEAD + _RESULT + _VARIABLES * bool(api.fields)
    fixed += "class Model {\n public:\n" + _STATE_METHODS * bool(api.fields)
    fixed += _FILE_METHODS * bool(api.fields and api.files)
    fixed = filled(
        fixed, P=api.prefix, M=api.macro, HEADER=header, VERSION=comment_safe(version),
        NS="std_" if api.prefix == "std" else identifier(api.prefix),
        SIZES=_SIZES * any("(" in str(a.type.size) for a in arrays),
        STATE=" a state and" * bool(api.fields),
    )
    public: list[str] = []
    private: list[str] = []
    for e, name in zip(api.entries, methods, strict=True):
        made = Methods(api, e, name, names(f"reserve_{name}"), names(f"run_{name}"))
        public += [*made.calls(), *made.room()]
        private += made.shared()
    members = "  Variables variables_;\n" * bool(api.fields) + "  Arena arena_;\n"
    return (
        fixed + "\n".join([*public, "", " private:", *private, ""]) + f"{members}}};\n\n"
        "}\n}\n\n#endif\n"
    )
