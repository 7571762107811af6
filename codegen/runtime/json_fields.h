// Typed reading of JSON objects with errors that name the field.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <string>

namespace convoy {

namespace json = tvm::ffi::json;

// Levels of arrays and objects that are parsed: the parser recurses.
constexpr int kMostJsonDepth = 64;

// Whether brackets outside of strings nest no deeper than that.
inline bool IsShallow(const char* text, size_t size) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < size; ++i) {
    char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostJsonDepth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

// Parses `text` into an object; throws InvalidOption naming `what` where it is none.
inline json::Object ParseObject(const tvm::ffi::String& text, const char* what) {
  if (!IsShallow(text.data(), text.size())) {
    TVM_FFI_THROW(InvalidOption) << what << " is JSON nested over " << kMostJsonDepth << " deep";
  }
  tvm::ffi::String problem;
  json::Value value = json::Parse(text, &problem);
  if (!problem.empty()) TVM_FFI_THROW(InvalidOption) << what << " is not JSON: " << problem;
  auto object = value.as<json::Object>();
  if (!object) TVM_FFI_THROW(InvalidOption) << what << " is not a JSON object";
  return *object;
}

inline json::Value Find(const json::Object& object, const char* name) {
  auto it = object.find(tvm::ffi::String(name));
  return it == object.end() ? json::Value(nullptr) : (*it).second;
}

// The field as a T; `fallback` where it is absent. Throws InvalidOption where it has another type.
template <typename T>
T Get(const json::Object& object, const char* name, T fallback) {
  json::Value value = Find(object, name);
  if (value == nullptr) return fallback;
  auto typed = value.try_cast<T>();
  if (!typed) {
    TVM_FFI_THROW(InvalidOption) << "field \"" << name << "\" is " << json::Stringify(value)
                                 << ", which is of another type than expected";
  }
  return *typed;
}

// As Get, for a field that must be there.
template <typename T>
T Require(const json::Object& object, const char* name) {
  if (Find(object, name) == nullptr) {
    TVM_FFI_THROW(InvalidOption) << "field \"" << name << "\" is missing";
  }
  return Get<T>(object, name, T());
}

inline std::string GetString(const json::Object& object, const char* name,
                             const char* fallback = "") {
  return std::string(Get<tvm::ffi::String>(object, name, tvm::ffi::String(fallback)));
}

}  // namespace convoy
