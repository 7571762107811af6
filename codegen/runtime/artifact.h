// The byte form of a module inside an exported library.
//
//   8  magic "CONVOYRT"
//   4  format version, little endian like all numbers here
//   4  CRC-32 of the payload
//   8  length of the payload
//   -  payload: the specification (8 bytes length, JSON text), then the number of blobs (8 bytes)
//      and for each its name (8 bytes length, text) and content (8 bytes length, bytes)
#pragma once

#include <tvm/ffi/string.h>

#include <string>

#include "executable.h"

namespace convoy {

struct Artifact {
  std::string spec;
  BlobMap blobs;
};

tvm::ffi::Bytes WriteArtifact(const Artifact& artifact);

// Throws CorruptArtefact when bytes are missing or changed, LibraryVersionMismatch when a newer
// format than this runtime's was written.
Artifact ReadArtifact(const tvm::ffi::Bytes& bytes);

}  // namespace convoy
