// Runs a compiled network without Python: every input is filled from a file of raw bytes, or with a
// ramp, and the first values of every output are printed.
//
//   g++ -std=c++17 examples/cpp/classify.cc $(convoy config --cflags --libs) -o classify
//   ./classify network.so [input0.bin input1.bin ...]
#include <convoy/convoy.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

void Check(ConvoyStatus status) {
  if (status == CONVOY_OK) return;
  std::fprintf(stderr, "%s\n", convoy_last_error());
  std::exit(status);
}

std::string Shape(const ConvoyTensorInfo& info) {
  std::string text;
  for (int i = 0; i < info.ndim; ++i) {
    text += (i > 0 ? "x" : "") + std::to_string(info.shape[i]);
  }
  return text;
}

// A float32 ramp from -1 to 1; zeros for other types.
std::vector<char> Ramp(const ConvoyTensorInfo& info) {
  std::vector<char> data(info.bytes, 0);
  if (std::string(info.dtype) == "float32") {
    auto* values = reinterpret_cast<float*>(data.data());
    size_t count = info.bytes / sizeof(float);
    for (size_t i = 0; i < count; ++i) values[i] = 2.0f * static_cast<float>(i) / count - 1.0f;
  }
  return data;
}

std::vector<char> ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s network.so [input.bin ...]\n", argv[0]);
    return 1;
  }
  ConvoyModel* model = nullptr;
  ConvoySession* session = nullptr;
  Check(convoy_model_load(argv[1], &model));
  Check(convoy_session_create(model, 0, &session));
  void* stream = nullptr;  // a cudaStream_t on a GPU
  for (int i = 0; i < convoy_model_num_inputs(model); ++i) {
    ConvoyTensorInfo info;
    Check(convoy_model_input(model, i, &info));
    std::printf("input %s: %s of %s\n", info.name, info.dtype, Shape(info).c_str());
    std::vector<char> data = i + 2 < argc ? ReadFile(argv[i + 2]) : Ramp(info);
    Check(convoy_session_set_input(session, i, data.data(), data.size(), stream));
  }
  Check(convoy_session_run(session, stream));
  for (int i = 0; i < convoy_model_num_outputs(model); ++i) {
    ConvoyTensorInfo info;
    Check(convoy_model_output(model, i, &info));
    std::vector<char> data(info.bytes);
    Check(convoy_session_get_output(session, i, data.data(), data.size(), stream));
    std::printf("output %s: %s of %s:", info.name, info.dtype, Shape(info).c_str());
    if (std::string(info.dtype) == "float32") {
      const auto* values = reinterpret_cast<const float*>(data.data());
      for (size_t k = 0; k < info.bytes / sizeof(float) && k < 8; ++k) {
        std::printf(" %.6g", values[k]);
      }
    }
    std::printf("\n");
  }
  convoy_session_free(session);
  convoy_model_free(model);
  return 0;
}
