// What the stand-ins of libraries share: settings by environment variable, and a journal of calls
// that tests read and empty.
#pragma once

#include <cstdlib>
#include <mutex>
#include <string>

namespace {

int Environment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : fallback;
}

std::mutex mutex;
std::string records;

void Record(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex);
  records += text + "\n";
}

// Returns what was recorded since the last call; valid until the next one.
const char* TakeRecords() {
  std::lock_guard<std::mutex> lock(mutex);
  static std::string text;
  text.swap(records);
  records.clear();
  return text.c_str();
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))
