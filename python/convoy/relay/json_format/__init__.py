"""`save_json` files of TVM 0.6 to 0.19, both ways.

`reader` decodes, `writer` encodes, `tensor_bytes` holds the encoding of constants; `pickling` makes
pickles of them.
"""

from convoy.relay.json_format import pickling  # noqa: F401  (registers how nodes are pickled)
from convoy.relay.json_format.reader import load_json, load_metadata
from convoy.relay.json_format.writer import save_json, save_metadata

__all__ = ["load_json", "load_metadata", "save_json", "save_metadata"]
