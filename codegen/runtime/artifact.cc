#include "artifact.h"

#include <array>
#include <cstring>

namespace convoy {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are written as they lie in memory");

constexpr char kMagic[9] = "CONVOYRT";
constexpr uint32_t kFormat = 1;
constexpr size_t kHeader = 8 + 4 + 4 + 8;

using Crc32Tables = std::array<std::array<uint32_t, 256>, 8>;

const Crc32Tables& Tables() {
  static const Crc32Tables tables = [] {
    Crc32Tables t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xedb88320u : 0);
      t[0][i] = value;
    }
    for (int slice = 1; slice < 8; ++slice) {
      for (int i = 0; i < 256; ++i) {
        t[slice][i] = (t[slice - 1][i] >> 8) ^ t[0][t[slice - 1][i] & 0xff];
      }
    }
    return t;
  }();
  return tables;
}

// CRC-32 of IEEE 802.3 (the one of zlib), eight bytes a step ("slicing by 8", Kounavis and Berry).
uint32_t Crc32(const char* data, size_t size) {
  const Crc32Tables& t = Tables();
  uint32_t crc = 0xffffffffu;
  for (; size >= 8; data += 8, size -= 8) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^
          t[3][high & 0xff] ^ t[2][high >> 8 & 0xff] ^ t[1][high >> 16 & 0xff] ^ t[0][high >> 24];
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ t[0][(crc ^ static_cast<unsigned char>(*data)) & 0xff];
  }
  return ~crc;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void AppendText(std::string* out, const char* data, size_t size) {
  Append<uint64_t>(out, size);
  out->append(data, size);
}

constexpr const char* kAdvice = ". Export the module again or copy the file anew";

class Reader {
 public:
  Reader(const char* data, size_t size) : data_(data), left_(size) {}

  template <typename T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    return value;
  }

  std::string Text() {
    uint64_t size = Number<uint64_t>();
    const char* begin = Take(size);
    return std::string(begin, size);
  }

  size_t left() const { return left_; }

 private:
  const char* Take(uint64_t size) {
    if (size > left_) {
      TVM_FFI_THROW(CorruptArtefact)
          << "a compiled module that ends where " << size << " more bytes should follow; " << left_
          << " are left" << kAdvice;
    }
    const char* begin = data_;
    data_ += size;
    left_ -= size;
    return begin;
  }

  const char* data_;
  size_t left_;
};

}  // namespace

tvm::ffi::Bytes WriteArtifact(const Artifact& artifact) {
  std::string payload;
  AppendText(&payload, artifact.spec.data(), artifact.spec.size());
  Append<uint64_t>(&payload, artifact.blobs.size());
  for (const auto& [name, content] : artifact.blobs) {
    AppendText(&payload, name.data(), name.size());
    AppendText(&payload, content.data(), content.size());
  }
  std::string out(kMagic, 8);
  out.reserve(kHeader + payload.size());
  Append<uint32_t>(&out, kFormat);
  Append<uint32_t>(&out, Crc32(payload.data(), payload.size()));
  Append<uint64_t>(&out, payload.size());
  out += payload;
  return tvm::ffi::Bytes(std::move(out));
}

Artifact ReadArtifact(const tvm::ffi::Bytes& bytes) {
  Reader header(bytes.data(), bytes.size());
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic, 8) != 0) {
    TVM_FFI_THROW(CorruptArtefact)
        << bytes.size() << " bytes that do not begin as a convoy module does" << kAdvice;
  }
  header.Number<uint64_t>();
  uint32_t format = header.Number<uint32_t>();
  uint32_t crc = header.Number<uint32_t>();
  uint64_t size = header.Number<uint64_t>();
  if (format > kFormat) {
    TVM_FFI_THROW(LibraryVersionMismatch)
        << "a compiled module of format " << format << "; this convoy reads up to " << kFormat
        << ". Install a newer tvm-convoy or export the module again";
  }
  if (size != header.left()) {
    TVM_FFI_THROW(CorruptArtefact) << "a compiled module with " << header.left()
                                   << " bytes of content; its header says " << size << kAdvice;
  }
  const char* payload = bytes.data() + kHeader;
  if (Crc32(payload, size) != crc) {
    TVM_FFI_THROW(CorruptArtefact)
        << "a compiled module whose content does not match its checksum" << kAdvice;
  }
  Reader reader(payload, size);
  Artifact artifact;
  artifact.spec = reader.Text();
  uint64_t blobs = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < blobs; ++i) {
    tvm::ffi::String name(reader.Text());
    artifact.blobs.Set(name, tvm::ffi::Bytes(reader.Text()));
  }
  return artifact;
}

}  // namespace convoy
