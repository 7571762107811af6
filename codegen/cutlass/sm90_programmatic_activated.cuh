// sm90_programmatic.cuh with the activations of activations.cuh.
#pragma once

#include "sm90_activations.cuh"
#include "sm90_programmatic.cuh"
