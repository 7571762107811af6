"""A compiled network in NVIDIA Triton Inference Server's Python backend.

The folder ``classifier`` goes into the model repository, and the module that ``convoy build`` wrote
beside this file, under the name that ``config.pbtxt`` gives it. Triton's Python needs tvm-convoy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

import convoy


class TritonPythonModel:
    """One instance of the network; Triton makes as many as ``instance_group`` says."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the module, and check that the configuration names its inputs and outputs."""
        import tvm

        config = json.loads(args["model_config"])
        file = config["parameters"]["module"]["string_value"]
        folder = Path(args["model_repository"]) / args["model_version"]
        compiled = convoy.load(folder / file)
        on_gpu = compiled.meta.target == "cuda"
        index = int(args["model_instance_device_id"])
        self.session = compiled.session(tvm.cuda(index) if on_gpu else tvm.cpu())
        known = {info.name for info in compiled.meta.inputs}
        if missing := known - {item["name"] for item in config["input"]}:
            raise pb_utils.TritonModelException(f"config.pbtxt lacks the inputs {sorted(missing)}")
        self.outputs = [item["name"] for item in config["output"]]
        names = [info.name for info in compiled.meta.outputs]
        if unknown := set(self.outputs) - set(names):
            raise pb_utils.TritonModelException(f"{sorted(unknown)} are none of {names}")
        self.position = {name: i for i, name in enumerate(names)}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; one that does not fit gets an error, the others their outputs."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            for name, _, _ in self.session.input_info:
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is None:
                    raise convoy.errors.InvalidOption("a request", f"the input {name!r}")
                self.session.set_input(name, tensor.as_numpy())
            self.session.run()
            wanted = set(request.requested_output_names())
            return pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(name, self.session.output(self.position[name]).numpy())
                    for name in self.outputs
                    if name in wanted
                ]
            )
        except convoy.ConvoyError as err:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(err)))
